"""Serializers give bytes or a SerializationError that names them."""

import enum
import functools
import sys
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioproducer._native.plain_json import PlainJson
from aioproducer.errors import Outcome, SerializationError
from aioproducer.serializers import (
    BytesSerializer,
    JsonSerializer,
    PendingAwaitable,
    StringSerializer,
    bind_serializer,
    check_serializer,
)


async def async_function(value: object) -> bytes:
    return bytes(str(value), "ascii")


def hides_a_coroutine(value: object) -> object:
    """Look like a plain function, and return a coroutine."""
    return async_function(value)


class AsyncMethod:
    async def serialize(self, _topic: str, _value: object, /) -> bytes:
        return b""


class AsyncCallable:
    async def __call__(self, _value: object) -> bytes:
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
    assert bind_serializer("value_serializer", serializer)("t", value) == expected  # type: ignore[arg-type]


def test_bound_serializer_leaves_null_alone() -> None:
    """A tombstone stays a tombstone, whichever serializer is set."""
    assert bind_serializer("value_serializer", JsonSerializer())("t", None) is None


def test_bound_serializer_gets_the_topic() -> None:
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
    ],
)
def test_bound_serializer_fails_by_name(serializer: object, value: object, message: str) -> None:
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
    ],
)
def test_check_serializer_refuses(serializer: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_serializer("key_serializer", serializer)


@pytest.mark.parametrize(
    "serializer",
    [async_function, functools.partial(async_function), hides_a_coroutine, AsyncMethod(), AsyncCallable()],
)
async def test_bound_serializer_keeps_an_awaitable(serializer: object) -> None:
    bound = bind_serializer("value_serializer", serializer)  # type: ignore[arg-type]
    pending = bound("t", "x")
    refused = bound("t", "x")

    assert isinstance(pending, PendingAwaitable)
    assert isinstance(refused, PendingAwaitable)
    assert isinstance(await pending.finish(), bytes)
    refused.close()
    assert "returned a coroutine" in str(refused.refusal())


class WithHeaders:
    def serialize(self, _topic: str, value: bytes, headers: list[tuple[str, bytes | None]], /) -> bytes:
        headers.append(("h", None))
        return value


class WithDefault:
    def serialize(self, _topic: str, value: bytes, _more: object = None, /) -> bytes:
        return value


class WithoutSignature:
    serialize = dict  # `inspect` knows no signature of it


@pytest.mark.parametrize(
    "serializer, expected", [(WithHeaders(), True), (WithDefault(), False), (WithoutSignature(), False), (len, False)]
)
def test_bound_serializer_knows_whether_headers_are_taken(serializer: object, *, expected: bool) -> None:
    assert bind_serializer("value_serializer", serializer).accepts_headers is expected  # type: ignore[arg-type]


def test_string_serializer_refuses_an_unknown_encoding() -> None:
    with pytest.raises(ValueError, match="there is no text encoding 'utf-9'"):
        StringSerializer("utf-9")


def test_json_error_says_where() -> None:
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


JSON_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**65), 2**65)
    | st.floats()
    | st.floats(1e-5, 1e-3)
    | st.floats(1e15, 1e17)
    | st.text(st.characters(), max_size=8)
)
JSON_NAMES = st.text(st.characters(), max_size=4) | st.integers() | st.none() | st.booleans() | st.floats()
JSON_VALUES = st.recursive(
    JSON_LEAVES,
    lambda parts: (
        st.lists(parts, max_size=4)
        | st.lists(parts, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4), parts, max_size=4)
        | st.dictionaries(JSON_NAMES, parts, max_size=3)
    ),
)
LIBRARIES = ("orjson", "msgspec")


def json_serializer(
    *libraries: str, sort_keys: bool = False, default: Callable[[object], object] | None = None
) -> JsonSerializer:
    """A serializer that finds no other library than these."""
    with pytest.MonkeyPatch.context() as patch:
        for missing in {"orjson", "msgspec"}.difference(libraries):
            patch.setitem(sys.modules, missing, None)
            patch.setitem(sys.modules, f"{missing}.json", None)
        return JsonSerializer(sort_keys=sort_keys, default=default)


def outcome(serializer: JsonSerializer, value: object) -> object:
    try:
        return serializer.serialize("t", value)
    except Exception as error:  # noqa: BLE001  # whichever it is, it is compared
        return repr(error)


def by_type(part: object) -> object:
    """Return marked text for objects without JSON, which no library would write by itself."""
    if isinstance(part, Point):
        return ["point", asdict(part)]
    if isinstance(part, uuid.UUID | enum.Enum | set | bytes):
        return f"{type(part).__name__} by default"
    raise TypeError("nothing stands for it")


@dataclass
class Point:
    x: float


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    """A number to `json`."""

    HIGH = 3


@pytest.mark.parametrize("sort_keys", [False, True])
@pytest.mark.parametrize("library", LIBRARIES)
@given(value=JSON_VALUES)
@example(value=[1e16, 1e-5, 9.999999999999999e-05, 1e-4, 9999999999999998.0, -0.0, 5e-324, 1.7976931348623157e308])
@example(value=[2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
@example(value={"\uffff": 1, "\U0001f600": 2, "a": 3, "B": 4, "\x7f": 5, "": 6})
def test_json_is_the_same_by_a_fast_library(library: str, value: object, *, sort_keys: bool) -> None:
    fast, slow = json_serializer(library, sort_keys=sort_keys), json_serializer(sort_keys=sort_keys)

    assert outcome(fast, value) == outcome(slow, value)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("default", [None, by_type])
def test_json_of_objects_is_the_same_by_a_fast_library(
    library: str, default: Callable[[object], object] | None
) -> None:
    """Values that only the library supports go through `default` or are refused, as without it."""
    fast, slow = json_serializer(library, default=default), json_serializer(default=default)
    circular: list[object] = []
    circular.append(circular)
    deep: object = 0
    for _ in range(150):
        deep = [deep]
    values: list[object] = [
        {"point": Point(1.5), "far": Point(1e300)},
        {"none": Point(float("nan"))},
        [uuid.UUID(int=5), Colour.RED, Level.HIGH, {1, 2}, b"bytes"],
        {Colour.RED: 1},
        {Level.HIGH: 1, True: 2},
        OrderedDict(b=1, a=2),
        [object()],
        {"lines": [{"price": 1}, {"price": 1j}]},
        circular,
        deep,
        '\u2028 \x00\x1f\x7f"\\/ \b\f\n\r\t',
        "\ud800",
    ]

    assert [outcome(fast, value) for value in values] == [outcome(slow, value) for value in values]


def test_json_uses_the_fast_library() -> None:
    """This value is supported by the library alone, and shows that the other tests use it."""
    calls: list[object] = []
    encoder = PlainJson(lambda value: calls.append(value) or b"fast", None)  # type: ignore[func-returns-value]

    assert encoder({"a": [1, 2.5, "x", None, True]}) == b"fast"
    assert encoder({"a": [1e300]}) is None
    assert calls == [{"a": [1, 2.5, "x", None, True]}]
    for library in LIBRARIES:
        assert json_serializer(library)._plain is not None  # noqa: SLF001  # which way it went shows nowhere else
    assert json_serializer()._plain is None  # noqa: SLF001


def test_json_leaves_the_value_as_it_was() -> None:
    value = {"points": [Point(1.0), 2], "rest": 3}

    assert JsonSerializer(default=by_type).serialize("t", value) == b'{"points":[["point",{"x":1.0}],2],"rest":3}'
    assert value == {"points": [Point(1.0), 2], "rest": 3}
