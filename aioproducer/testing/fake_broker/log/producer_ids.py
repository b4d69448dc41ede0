"""Where producer ids come from."""


class ProducerIds:
    """Hands out producer ids, each once.

    Args:
        load_s: from the first time one is asked for until the first is given.
    """

    def __init__(self, load_s: float) -> None:
        self._load_s = load_s
        self._loaded_at: float | None = None
        self._next = 1000

    def take(self, now: float) -> int | None:
        """Return the next id; None while the first block is being loaded."""
        if self._loaded_at is None:
            self._loaded_at = now + self._load_s
        if now < self._loaded_at:
            return None
        self._next += 1
        return self._next - 1
