"""Serializers of numbers, booleans and UUIDs write what Java's write."""

import json
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Final, TypedDict
from uuid import UUID

import pytest

from aioproducer import (
    BooleanSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntegerSerializer,
    LongSerializer,
    Producer,
    ProducerConfig,
    SerializationError,
    ShortSerializer,
    UUIDSerializer,
    VoidSerializer,
)
from aioproducer.config._option_types import SERIALIZERS
from aioproducer.serializers import BoundSerializer, bind_serializer
from aioproducer.testing import FakeCluster


class Sample(TypedDict):
    serializer: str
    value: object
    bytes: str | None


GOLDEN: list[Sample] = json.loads((Path(__file__).parent / "protocol" / "golden" / "serializers.json").read_text())
"""Made by Kafka's own classes, of 3.9.1 and 4.3.1 alike; see make_serializers.jsh beside it."""

FROM_JSON: Final[Mapping[str, type]] = {"Float": float, "Double": float, "UUID": UUID}
"""Kind of serializer -> what makes its value of the JSON's; byte arrays are in hexadecimal."""


def value_of(sample: Sample) -> object:
    kind = sample["serializer"].rpartition(".")[2].removesuffix("Serializer")
    if kind in {"ByteArray", "ByteBuffer", "Bytes"}:
        return bytes.fromhex(str(sample["value"]))
    return FROM_JSON[kind](sample["value"]) if kind in FROM_JSON else sample["value"]


def serializer_in_file(class_name: str) -> BoundSerializer:
    config = ProducerConfig.from_kafka_properties({"bootstrap.servers": "h:1", "value.serializer": class_name})
    assert config.value_serializer is not None
    return bind_serializer("value_serializer", config.value_serializer)


@pytest.mark.parametrize("sample", GOLDEN, ids=lambda one: f"{one['serializer'].rpartition('.')[2]}-{one['value']}")
def test_bytes_are_javas(sample: Sample) -> None:
    result = serializer_in_file(sample["serializer"])("topic", value_of(sample))

    assert (None if result is None else result.hex()) == sample["bytes"]


def test_golden_values_cover_every_class() -> None:
    """A new serializer needs bytes written by Java."""
    assert {sample["serializer"] for sample in GOLDEN} == set(SERIALIZERS)


@pytest.mark.parametrize(
    "serializer, value, message",
    [
        (ShortSerializer(), 2**15, r"32768 is not a Java short: -2\*\*15 to 2\*\*15 - 1"),
        (ShortSerializer(), -(2**15) - 1, "-32769 is not a Java short"),
        (IntegerSerializer(), 2**31, r"2147483648 is not a Java int: -2\*\*31 to 2\*\*31 - 1"),
        (LongSerializer(), 2**63, "9223372036854775808 is not a Java long"),
        (LongSerializer(), 10**5000, "a number of 16610 bits is not a Java long"),
        (LongSerializer(), True, "expected int, not bool"),
        (LongSerializer(), 1.0, "expected int, not float"),
        (LongSerializer(), "1", "expected int, not str"),
        (FloatSerializer(), 1e39, r"1e\+39 is not a Java float: -3.4028235e38 to 3.4028235e38"),
        (DoubleSerializer(), 10**400, "is not a Java double: -1.7976931348623157e308"),
        (DoubleSerializer(), 10**5000, "a number of 16610 bits is not a Java double"),
        (DoubleSerializer(), True, "expected float, not bool"),
        (DoubleSerializer(), "1", "expected float, not str"),
        (DoubleSerializer(), Decimal("0.1"), "expected float, not decimal.Decimal|expected float, not Decimal"),
        (BooleanSerializer(), 1, "expected bool, not int"),
        (UUIDSerializer(), "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "expected uuid.UUID, not str"),
        (VoidSerializer(), b"", "expected None, not bytes"),
    ],
    ids=lambda value: repr(value)[:40] if not isinstance(value, int) else f"bits-{value.bit_length()}",
)
def test_value_that_java_could_not_have_is_refused(serializer: object, value: object, message: str) -> None:
    bound = bind_serializer("value_serializer", serializer)  # type: ignore[arg-type]

    with pytest.raises(SerializationError, match=message):
        bound("topic", value)


def test_numbers_that_are_not_pythons_own_are_accepted() -> None:
    """Types that say exactly which integer or real number they hold are taken."""

    class Index:
        def __index__(self) -> int:
            return 258

    assert IntegerSerializer().serialize("t", Index()) == b"\0\0\1\2"  # type: ignore[arg-type]
    assert DoubleSerializer().serialize("t", 2) == bytes.fromhex("4000000000000000")
    assert FloatSerializer().serialize("t", Fraction(3, 2)) == bytes.fromhex("3fc00000")  # type: ignore[arg-type]


async def test_numbers_are_sent_as_java_would(one_broker: FakeCluster) -> None:
    async with Producer(
        one_broker.bootstrap_servers, key_serializer=IntegerSerializer(), value_serializer=DoubleSerializer()
    ) as producer:
        await producer.send("orders", 1.5, key=7, partition=0)
    async with Producer(one_broker.bootstrap_servers) as producer:
        await producer.topic("orders", key=UUIDSerializer(), value=LongSerializer()).send(
            -1, key=UUID(int=0), partition=0
        )

    records = {(record.key, record.value) for record in one_broker.records("orders", 0)}
    assert records == {
        (bytes.fromhex("00000007"), bytes.fromhex("3ff8000000000000")),
        (str(UUID(int=0)).encode(), bytes.fromhex("ffffffffffffffff")),
    }


@pytest.mark.parametrize(
    "kind, named",
    [(int, "LongSerializer"), (float, "DoubleSerializer"), (bool, "BooleanSerializer"), (Decimal, "lambda number")],
)
def test_typed_topic_of_numbers_names_the_serializers(kind: type, named: str) -> None:
    with pytest.raises(TypeError, match=rf"say which bytes are meant: value=.*{named}"):
        Producer("h:1").topic("orders", value=kind)
