"""A user's serializer, bound to its checks."""

from collections.abc import Callable

from aioproducer.errors import SerializationError

class BoundSerializer:
    """A function of (topic, value) that returns bytes or None, and raises only `SerializationError`.

    None is not serialized: it stays None.
    """

    def __init__(
        self,
        function: object,
        *,
        accepts_topic: bool,
        is_utf8: bool,
        failed: Callable[[str, BaseException], SerializationError],
        checked: Callable[[str, object], bytes | PendingPart | None],
        accepts_headers: bool = False,
    ) -> None:
        """Bind a serializer.

        Args:
            function: of the value, or of topic and value.
            accepts_topic: whether it takes the topic.
            is_utf8: whether it encodes `str` as UTF-8, which is then done without calling it.
            failed: returns the error to raise for what the function raised.
            checked: returns a result that is a subclass of bytes, or the part that an awaitable will be; raises for
                any other.
            accepts_headers: whether it also takes the record's headers, a list to which it may add.
        """
    @property
    def accepts_headers(self) -> bool:
        """Whether it takes the record's headers."""
    def __call__(
        self, topic: str, value: object, headers: list[tuple[str, bytes | None]] | None = None, /
    ) -> bytes | PendingPart | None:
        """Return the bytes of a key or a value, or the part that its awaitable will be.

        Raises:
            SerializationError: the function raised, or returned neither bytes nor None.
        """

class PendingPart:
    """Base class of a key or a value whose serializer has returned an awaitable; `serializers.py` subclasses it."""
