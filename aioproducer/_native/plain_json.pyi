"""JSON by a fast library where it writes the very bytes that Python's `json` writes, and not otherwise."""

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
        """Return the JSON of a value; None: it is for `json` to encode, or to say what is wrong with it."""
