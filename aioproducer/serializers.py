"""Serializers, which turn keys and values into bytes, in the call that sends the record.

A serializer is an object with `serialize(topic, value)`, or a function of the value. It never gets `None`: a null key
means "choose a partition", a null value is a tombstone, and both stay null.

Source: org.apache.kafka.common.serialization.Serializer.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, Never, Protocol, TypeAlias, TypeVar

from aioproducer._native.bound_serializer import BoundSerializer, PendingPart
from aioproducer._native.plain_json import PlainJson
from aioproducer._shown_values import in_any_state
from aioproducer.errors import Outcome, SerializationError

ValueT_contra = TypeVar("ValueT_contra", contravariant=True)

_PATH_DEPTH: Final = 20
"""The longest path into a value that an error shows: a circular value has no end."""


class Serializer(Protocol[ValueT_contra]):
    """Turns values of one type into bytes. Must not block.

    `serialize` may take a third argument, as Java's: the record's headers, a list of (name, bytes) to which it may add.
    Three more methods are called if they exist: `configure(config, is_key)` before the first record, with the
    `ProducerConfig`; `on_cluster(cluster_id)` when a broker has said the id of the cluster, and again if it changes;
    and `close()` when the producer closes, which may return an awaitable.
    """

    def serialize(self, topic: str, value: ValueT_contra, /) -> bytes | None:
        """Return the bytes to send, or `None` for a null.

        Args:
            topic: of the record, for serializers that differ by topic.
            value: never `None`.
        """
        ...


class SerializerWithHeaders(Protocol[ValueT_contra]):
    """A serializer that takes the record's headers."""

    def serialize(
        self, topic: str, value: ValueT_contra, headers: list[tuple[str, bytes | None]], /
    ) -> bytes | Awaitable[bytes | None] | None:
        """Return the bytes to send, as `Serializer` or `AsyncSerializer`.

        Args:
            topic: of the record.
            value: never `None`.
            headers: of the record; it may add to the list.
        """
        ...


class AsyncSerializer(Protocol[ValueT_contra]):
    """Turns values of one type into bytes, and may have to wait: `serialize` may be `async`, or return an awaitable.

    For `enqueue`, `send_and_wait` and `send_many`, which await the awaitable for at most `max_block_ms`; records of a
    topic keep the order of their calls. `send` and `send_nowait` do not wait, and refuse a record for which it returns
    an awaitable. One that returns bytes costs no more than a `Serializer`.
    """

    def serialize(self, topic: str, value: ValueT_contra, /) -> bytes | Awaitable[bytes | None] | None:
        """Return the bytes to send, `None` for a null, or an awaitable of one of them.

        Args:
            topic: of the record.
            value: never `None`.
        """
        ...


SerializerArgument: TypeAlias = (
    Serializer[Never]
    | AsyncSerializer[Never]
    | SerializerWithHeaders[Never]
    | Callable[[Never], bytes | Awaitable[bytes | None] | None]
)
"""A value that `key_serializer` and `value_serializer` accept: an object with `serialize`, or a function."""


class BytesSerializer:
    """Passes bytes through, as a producer without a serializer does."""

    def serialize(self, _topic: str, value: bytes | bytearray | memoryview, /) -> bytes:
        """Return the value as `bytes`.

        Raises:
            TypeError: not bytes, bytearray or memoryview.
        """
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"expected bytes, bytearray or memoryview, not {type(value).__name__}")
        return bytes(value)


class StringSerializer:
    """Encodes text.

    Args:
        encoding: name of a codec of Python's for text.

    Raises:
        ValueError: there is no such codec.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        try:
            self.encoding: str = codecs.lookup(encoding).name
        except LookupError as error:
            raise ValueError(f"StringSerializer: there is no text encoding {encoding!r}") from error

    def serialize(self, _topic: str, value: str, /) -> bytes:
        """Return the encoded text.

        Raises:
            TypeError: not a `str`.
            UnicodeEncodeError: the encoding has no bytes for a character.
        """
        if not isinstance(value, str):
            raise TypeError(f"expected str, not {type(value).__name__}")
        return value.encode(self.encoding)

    @in_any_state
    def __repr__(self) -> str:
        return f"StringSerializer({self.encoding!r})"


class JsonSerializer:
    """Encodes a value as compact JSON in UTF-8.

    Uses orjson or msgspec if one of them is installed, with the same bytes: Python's `json` encodes the values that
    these libraries would encode differently, or accept although `json` does not.

    Args:
        default: called with a value that JSON has no type for, such as a `datetime` or a dataclass; returns one that it
            has. Without it such a value is an error.
        sort_keys: equal dicts become equal bytes regardless of their order; useful for keys, whose bytes choose the
            partition.

    `default` may be called twice for the same value.
    """

    def __init__(self, *, default: Callable[[object], object] | None = None, sort_keys: bool = False) -> None:
        self._encoder = json.JSONEncoder(
            ensure_ascii=False,
            allow_nan=False,  # NaN is not JSON, most readers refuse it
            separators=(",", ":"),
            default=default,
            sort_keys=sort_keys,
        )
        encode = _fast_encoder(sort_keys=sort_keys)
        self._plain = None if encode is None else PlainJson(encode, default)

    def serialize(self, _topic: str, value: object, /) -> bytes:
        """Return the value's JSON.

        Raises:
            TypeError: JSON has no type for a part of the value; names the part.
            ValueError: a circular value, NaN or infinity, or text with lone surrogates; names the part.
        """
        encoded = None if self._plain is None else self._plain(value)
        if encoded is not None:
            return encoded
        try:
            return self._encoder.encode(value).encode()
        except (TypeError, ValueError) as error:
            path = self._path_without_json(value, _PATH_DEPTH)
            if not path:
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{error} (at {path})") from error

    def _path_without_json(self, value: object, depth: int) -> str:
        """Return the path to the failing part, as `.lines[2].price`; encodes all parts again."""
        for step, part in self._parts(value) if depth else ():
            try:
                self._encoder.encode(part).encode()
            except Exception:  # noqa: BLE001  # what `default` raises is the user's
                return step + self._path_without_json(part, depth - 1)
        return ""

    def _parts(self, value: object) -> Iterable[tuple[str, object]]:
        if isinstance(value, dict):
            return [(f".{name}", part) for name, part in value.items()]
        if isinstance(value, list | tuple):
            return [(f"[{index}]", part) for index, part in enumerate(value)]
        try:
            return [("", self._encoder.default(value))]
        except Exception:  # noqa: BLE001  # it has no parts
            return []


def _fast_encoder(*, sort_keys: bool) -> Callable[[object], bytes] | None:
    """Return the encoder of the fastest installed library; None if there is none."""
    with contextlib.suppress(ImportError):
        import orjson  # noqa: PLC0415  # optional

        return partial(orjson.dumps, option=orjson.OPT_SORT_KEYS if sort_keys else None)
    with contextlib.suppress(ImportError):
        from msgspec.json import Encoder  # noqa: PLC0415  # optional

        return Encoder(order="sorted" if sort_keys else None).encode
    return None


def check_serializer(option: str, serializer: object) -> None:
    """Refuse an invalid serializer.

    Args:
        option: `key_serializer` or `value_serializer`, for the message.
        serializer: the option's value.

    Raises:
        TypeError: neither callable nor with a `serialize` method, or a class instead of an instance.
    """
    function = getattr(serializer, "serialize", serializer)
    if isinstance(serializer, type) and function is not serializer:
        raise TypeError(f"{option} must be an instance: {serializer.__name__}(), not the class itself")
    if not callable(function):
        raise TypeError(
            f"{option} must be a function of the value, or an object with serialize(topic, value), "
            f"not {_name_of(serializer)}"
        )


def bind_serializer(option: str, serializer: SerializerArgument) -> BoundSerializer:
    """Return the serializer as a function of (topic, value) whose result is always valid.

    Args:
        option: `key_serializer` or `value_serializer`, for messages.
        serializer: passes `check_serializer`.

    Raises:
        TypeError: as `check_serializer`.
    """
    check_serializer(option, serializer)
    name = f"{option} {_name_of(serializer)}"

    def failed(topic: str, error: BaseException) -> SerializationError:
        text = f"{name} failed for topic {topic!r}: {type(error).__name__}: {error}"
        return SerializationError(text, topic=topic, outcome=Outcome.NOT_WRITTEN)

    def checked(topic: str, result: object) -> bytes | PendingPart:
        if isinstance(result, bytes):
            return result
        if inspect.isawaitable(result):
            return PendingAwaitable(result, name, topic, failed=failed)
        raise SerializationError(_wrong_result(name, result), topic=topic, outcome=Outcome.NOT_WRITTEN)

    return BoundSerializer(
        getattr(serializer, "serialize", serializer),
        accepts_topic=hasattr(serializer, "serialize"),
        is_utf8=serializer is str.encode or (type(serializer) is StringSerializer and serializer.encoding == "utf-8"),
        failed=failed,
        checked=checked,
        accepts_headers=_accepts_headers(serializer),
    )


class PendingAwaitable(PendingPart):
    """A key or a value whose serializer has returned an awaitable.

    Args:
        awaitable: gives the bytes, or None.
        name: of the option and the serializer, for messages.
        topic: of the record.
        failed: returns the error to raise for what the awaitable raised.
    """

    def __init__(
        self,
        awaitable: Awaitable[object],
        name: str,
        topic: str,
        *,
        failed: Callable[[str, BaseException], SerializationError],
    ) -> None:
        self._awaitable = awaitable
        self.name = name
        self._topic = topic
        self._failed = failed

    async def finish(self) -> bytes | None:
        """Wait for the bytes.

        Raises:
            CancelledError: the caller was cancelled.
            SerializationError: the awaitable raised, or gave neither bytes nor None.
        """
        try:
            result = await self._awaitable
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # the caller was cancelled, not what the serializer awaited
                raise
            raise self._failed(self._topic, error) from error
        except Exception as error:
            raise self._failed(self._topic, error) from error
        if result is None or isinstance(result, bytes):
            return result
        raise SerializationError(_wrong_result(self.name, result), topic=self._topic, outcome=Outcome.NOT_WRITTEN)

    def close(self) -> None:
        """Close a coroutine that was not awaited, or Python warns of it far from here."""
        if inspect.iscoroutine(self._awaitable):
            self._awaitable.close()

    def refusal(self) -> SerializationError:
        """Return the error of a call that does not wait."""
        kind = "a coroutine" if inspect.iscoroutine(self._awaitable) else f"{type(self._awaitable).__name__}, to await"
        text = (
            f"{self.name} returned {kind}, for which `send` and `send_nowait` do not wait: "
            "use enqueue, send_and_wait or send_many"
        )
        return SerializationError(text, topic=self._topic, outcome=Outcome.NOT_WRITTEN)


def _accepts_headers(serializer: object) -> bool:
    """Return whether `serialize` takes a third argument, or what `accepts_headers` of the serializer says."""
    said = getattr(serializer, "accepts_headers", None)
    if isinstance(said, bool):
        return said
    method = getattr(serializer, "serialize", None)
    if method is None:
        return False
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # a native one
        return False
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in by_position and each.default is each.empty for each in parameters) > 2  # noqa: PLR2004


def _wrong_result(name: str, result: object) -> str:
    hint = "; encode it: text.encode()" if isinstance(result, str) else ""
    return f"{name} returned {type(result).__name__}; a serializer must return bytes or None{hint}"


def _name_of(serializer: object) -> str:
    if serializer is None:
        return "None"
    name = getattr(serializer, "__qualname__", None)
    return name if isinstance(name, str) else type(serializer).__name__
