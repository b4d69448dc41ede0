"""A logger that keeps its events."""


class EventList:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def debug(self, event: str, **values: object) -> None:
        self.events.append((event, values))

    info = warning = error = debug

    def names(self) -> list[str]:
        return [name for name, _ in self.events]
