"""JSON by a fast library, where it writes the same bytes as Python's `json`."""

from collections.abc import Callable

class PlainJson:
    """An encoder of plain values."""

    def __init__(self, encode: Callable[[object], bytes], default: Callable[[object], object] | None) -> None:
        """Use a library.

        Args:
            encode: encodes plain values.
            default: as of `json.JSONEncoder`; called here, never by the library.
        """
    def __call__(self, value: object, /) -> bytes | None:
        """Return the JSON of a value; None if `json` must encode it, or raise."""
