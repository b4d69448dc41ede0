"""A logger that keeps what it is told."""


class EventList:
    """Events as (name, values), oldest first."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def debug(self, event: str, **values: object) -> None:
        """Keep an event."""
        self.events.append((event, values))

    info = warning = error = debug

    def names(self) -> list[str]:
        """The events' names."""
        return [name for name, _ in self.events]
