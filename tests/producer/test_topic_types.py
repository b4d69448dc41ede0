"""Serializers that are derived from a type, and the types that are refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Literal, NewType, Optional, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from aioproducer import JsonSerializer, SerializationError
from aioproducer._producer.topic_types import part_type

UUID_7 = UUID(int=7)
CustomerId = NewType("CustomerId", str)
ParcelId = NewType("ParcelId", CustomerId)


class Size(Enum):
    SMALL = "s"


@dataclass
class Line:
    article: str
    price: Decimal


@dataclass(frozen=True)
class Order:
    id: UUID
    made: datetime
    day: date
    size: Size
    lines: list[Line] = field(default_factory=list)


class OrderModel(pydantic.BaseModel):  # type: ignore[explicit-any]  # pydantic's own
    id: UUID
    price: Decimal


class OrderStruct(msgspec.Struct):
    id: UUID
    price: Decimal


class OrderDict(TypedDict):
    id: int


def serialized(kind: object, value: object, argument: str = "value") -> bytes | None:
    part = part_type(argument, kind)
    part.check(argument, value, "orders")
    assert part.serialize is not None
    return part.serialize("orders", value)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("value", [b"1", bytearray(b"1"), memoryview(b"1"), None])
def test_bytes_stay_as_they_are(kind: type, value: object) -> None:
    part = part_type("value", kind)

    part.check("value", value, "orders")

    assert (part.serialize, part.name) == (None, "bytes")


@pytest.mark.parametrize(
    "kind,value,expected",
    [
        (str, "Köln", "Köln".encode()),
        (UUID, UUID_7, b"00000000-0000-0000-0000-000000000007"),
        (dict, {"b": 1, "a": "ö"}, '{"b":1,"a":"ö"}'.encode()),
        (dict[str, int], {"b": 1}, b'{"b":1}'),
        (list, [1, UUID_7], b'[1,"00000000-0000-0000-0000-000000000007"]'),
        (list[int], [1, 2], b"[1,2]"),
        (OrderDict, {"id": 7}, b'{"id":7}'),
        (OrderModel, OrderModel(id=UUID_7, price=Decimal("1.50")), f'{{"id":"{UUID_7}","price":"1.50"}}'.encode()),
        (OrderStruct, OrderStruct(id=UUID_7, price=Decimal("1.50")), f'{{"id":"{UUID_7}","price":"1.50"}}'.encode()),
        (list, [OrderStruct(id=UUID_7, price=Decimal(1))], f'[{{"id":"{UUID_7}","price":"1"}}]'.encode()),
        (list, [OrderModel(id=UUID_7, price=Decimal(1))], f'[{{"id":"{UUID_7}","price":"1"}}]'.encode()),
    ],
)
def test_type_says_how_its_values_become_bytes(kind: object, value: object, expected: bytes) -> None:
    assert serialized(kind, value) == expected


def test_dataclass_becomes_an_object_of_its_fields() -> None:
    order = Order(UUID_7, datetime(2026, 1, 2, tzinfo=UTC), date(2026, 1, 3), Size.SMALL, [Line("a", Decimal("1.50"))])

    text = serialized(Order, order)

    assert text is not None
    assert json.loads(text) == {
        "id": str(UUID_7),
        "made": "2026-01-02T00:00:00+00:00",
        "day": "2026-01-03",
        "size": "s",
        "lines": [{"article": "a", "price": "1.50"}],
    }


def test_equal_keys_are_equal_bytes() -> None:
    assert serialized(dict, {"b": 1, "a": 2}, "key") == serialized(dict, {"a": 2, "b": 1}, "key")


def test_subclass_is_of_the_type() -> None:
    @dataclass
    class Special(Line):
        note: str = ""

    assert serialized(Line, Special("a", Decimal(1), "now")) == b'{"article":"a","price":"1","note":"now"}'


@pytest.mark.parametrize("given", [JsonSerializer(), lambda value: json.dumps(value, separators=(",", ":")).encode()])
def test_serializer_decides_itself(given: object) -> None:
    assert serialized(given, {"id": 7}) == b'{"id":7}'


@pytest.mark.parametrize(
    "kind,value,name",
    [
        (bytes, "text", "bytes"),
        (str, b"bytes", "str"),
        (Order, {"id": 7}, "Order"),
        (OrderModel, {"id": 7}, "OrderModel"),
        (OrderStruct, {"id": 7}, "OrderStruct"),
        (OrderDict, [("id", 7)], "OrderDict"),
        (list[int], (1, 2), "list"),
    ],
)
def test_value_of_another_type_is_refused(kind: object, value: object, name: str) -> None:
    part = part_type("value", kind)
    text = f"value for topic 'orders' must be {name} or None, not {type(value).__name__}"

    with pytest.raises(TypeError, match=f"^{text}$"):
        part.check("value", value, "orders")


@pytest.mark.parametrize(
    "given", [int, float, Decimal, datetime, object, 5, "str", None, Mapping[str, int], str | int, Literal["a"]]
)
def test_type_without_a_single_encoding_is_refused(given: object) -> None:
    with pytest.raises(TypeError, match=r"^value must be one of bytes, str, .* a pydantic model or a msgspec Struct"):
        part_type("value", given)


@pytest.mark.parametrize("given", [dict[str, int] | None, Optional[dict[str, int]]], ids=["bar", "Optional"])  # noqa: UP045  # both are written
def test_optional_gets_a_hint(given: object) -> None:
    with pytest.raises(TypeError, match=r"dict\[str, int\].*; give the type alone, None is allowed with every type$"):
        part_type("value", given)


def test_new_type_is_the_type_below() -> None:
    assert serialized(ParcelId, ParcelId(CustomerId("7"))) == b"7"
    with pytest.raises(TypeError, match=r"^value for topic 'orders' must be str or None, not int$"):
        part_type("value", CustomerId).check("value", 7, "orders")


def test_number_gets_a_hint() -> None:
    with pytest.raises(TypeError, match=r"key=LongSerializer\(\) or .* or lambda number: str\(number\)\.encode\(\)"):
        part_type("key", int)


def test_class_of_a_serializer_is_no_serializer() -> None:
    with pytest.raises(TypeError, match=r"value serializer must be an instance: JsonSerializer\(\)"):
        part_type("value", JsonSerializer)


def test_value_without_json_is_an_error_of_the_value() -> None:
    with pytest.raises(SerializationError, match="complex has no JSON; give the topic a serializer"):
        serialized(dict, {"z": 1j})
