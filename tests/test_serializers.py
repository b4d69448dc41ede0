"""Serializers give bytes or a SerializationError that names them."""

import functools

import pytest

from aioproducer.errors import Outcome, SerializationError
from aioproducer.serializers import (
    BytesSerializer,
    JsonSerializer,
    StringSerializer,
    bind_serializer,
    check_serializer,
)


async def async_function(value: object) -> bytes:
    """Be of no use as a serializer."""
    return bytes(str(value), "ascii")


def hides_a_coroutine(value: object) -> object:
    """Look like a plain function, and return a coroutine."""
    return async_function(value)


class AsyncMethod:
    """An object whose serialize is async."""

    async def serialize(self, _topic: str, _value: object, /) -> bytes:
        """Be of no use."""
        return b""


class AsyncCallable:
    """An object whose call is async."""

    async def __call__(self, _value: object) -> bytes:
        """Be of no use."""
        return b""


@pytest.mark.parametrize(
    "serializer, value, expected",
    [
        (BytesSerializer(), b"x", b"x"),
        (BytesSerializer(), bytearray(b"x"), b"x"),
        (BytesSerializer(), memoryview(b"x"), b"x"),
        (StringSerializer(), "é", b"\xc3\xa9"),
        (StringSerializer("latin-1"), "é", b"\xe9"),
        (JsonSerializer(), {"a": [1, "é", None]}, '{"a":[1,"é",null]}'.encode()),
        (JsonSerializer(sort_keys=True), {"b": 1, "a": 2}, b'{"a":2,"b":1}'),
        (JsonSerializer(default=str), {"a": 1j}, b'{"a":"1j"}'),
        (str.encode, "x", b"x"),
        (lambda value: None if value == "" else b"y", "", None),
    ],
)
def test_bound_serializer_returns_bytes(serializer: object, value: object, expected: object) -> None:
    """Objects and plain functions alike."""
    assert bind_serializer("value_serializer", serializer)("t", value) == expected  # type: ignore[arg-type]


def test_bound_serializer_leaves_null_alone() -> None:
    """A tombstone stays one, whatever the serializer would make of None."""
    assert bind_serializer("value_serializer", JsonSerializer())("t", None) is None


def test_bound_serializer_gets_the_topic() -> None:
    """Serializers may differ by topic."""

    class ByTopic:
        def serialize(self, topic: str, value: bytes, /) -> bytes:
            return topic.encode() + value

    assert bind_serializer("value_serializer", ByTopic())("t", b"v") == b"tv"


@pytest.mark.parametrize(
    "serializer, value, message",
    [
        (StringSerializer(), 5, "value_serializer StringSerializer failed for topic 't': TypeError: expected str"),
        (StringSerializer("ascii"), "é", "value_serializer StringSerializer failed .* UnicodeEncodeError"),
        (BytesSerializer(), "x", "value_serializer BytesSerializer failed .* not str"),
        (JsonSerializer(), 1j, "value_serializer JsonSerializer failed .* TypeError"),
        (JsonSerializer(), float("nan"), "value_serializer JsonSerializer failed .* ValueError"),
        (str.upper, "x", "value_serializer str.upper returned str; .* encode it"),
        (len, "x", "value_serializer len returned int; a serializer must return bytes or None"),
        (bytearray, b"x", "value_serializer bytearray returned bytearray"),
        (hides_a_coroutine, "x", "hides_a_coroutine returned a coroutine; a serializer must return bytes"),
    ],
)
def test_bound_serializer_fails_by_name(serializer: object, value: object, message: str) -> None:
    """The caller learns which serializer it was; the original error is the cause."""
    bound = bind_serializer("value_serializer", serializer)  # type: ignore[arg-type]

    with pytest.raises(SerializationError, match=message) as caught:
        bound("t", value)

    assert (caught.value.topic, caught.value.outcome) == ("t", Outcome.NOT_WRITTEN)
    assert (caught.value.__cause__ is not None) == ("failed" in message)


@pytest.mark.parametrize(
    "serializer, message",
    [
        (5, "key_serializer must be a function of the value, or an object with .*, not int"),
        (StringSerializer, r"key_serializer must be an instance: StringSerializer\(\)"),
        (async_function, "key_serializer must not be async: async_function"),
        (functools.partial(async_function), "key_serializer must not be async: partial"),
        (AsyncMethod(), "key_serializer must not be async: AsyncMethod"),
        (AsyncCallable(), "key_serializer must not be async: AsyncCallable"),
    ],
)
def test_check_serializer_refuses(serializer: object, message: str) -> None:
    """Before the first record, not at it."""
    with pytest.raises(TypeError, match=message):
        check_serializer("key_serializer", serializer)


def test_string_serializer_refuses_an_unknown_encoding() -> None:
    """A misspelled codec is found at construction."""
    with pytest.raises(ValueError, match="there is no text encoding 'utf-9'"):
        StringSerializer("utf-9")


def test_json_error_says_where() -> None:
    """In an object of fifty fields, the type alone finds nothing."""
    circular: list[object] = []
    circular.append(circular)
    for value, place in (
        ({"lines": [{"price": 1}, {"price": 1j}]}, r"complex.* \(at \.lines\[1\]\.price\)"),
        ({"ratio": (0.5, float("nan"))}, r"ValueError: .* \(at \.ratio\[1\]\)"),
        ({"name": "\ud800"}, r"ValueError: .*surrogates not allowed \(at \.name\)"),
        ({"by_place": {(1, 2): 3}}, r"keys must be .* \(at \.by_place\)"),
        (circular, r"Circular reference detected \(at (\[0\]){20}\)"),
    ):
        with pytest.raises(SerializationError, match=rf"{place}$"):
            bind_serializer("value_serializer", JsonSerializer())("t", value)


def test_json_error_goes_through_default() -> None:
    """Also where a part is fine itself, and what it stands for is not."""

    class Box:
        def __init__(self, content: object) -> None:
            self.content = content

    def opened(part: object) -> object:
        if isinstance(part, Box):
            return {"content": part.content}
        raise KeyError(part)

    serializer = bind_serializer("value_serializer", JsonSerializer(default=opened))
    with pytest.raises(SerializationError, match=r"ValueError: .* \(at \[1\]\.content\)$"):
        serializer("t", [Box(1), Box(float("nan"))])
    with pytest.raises(SerializationError, match=r"failed for topic 't': KeyError: 1j$"):
        serializer("t", [Box(1j)])
