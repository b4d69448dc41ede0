"""Records are checked when they are made; every bad argument has its error."""

import asyncio
import dataclasses
import decimal

import aiokafka.structs
import pytest

from aioproducer.records import (
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
    check_callback,
    check_partition,
    check_payload,
    check_timestamp,
    check_topic_name,
    normalize_headers,
)


@pytest.mark.parametrize("topic", ["a", "orders", "A-Z_0.9", "x" * 249, "...", "a."])
def test_check_topic_name_accepts_what_brokers_accept(topic: str) -> None:
    check_topic_name(topic)


@pytest.mark.parametrize(
    "topic, message",
    [
        ("", "must not be empty"),
        (".", "must not be '.' or '..'"),
        ("..", "must not be '.' or '..'"),
        ("a b", "has the character ' '"),
        ("a/b", "has the character '/'"),
        ("orders\n", "has the character '\\\\n'"),
        ("é", "has the character 'é'"),
        ("x" * 250, "is 250 characters long; 249 are allowed"),
    ],
)
def test_check_topic_name_refuses_illegal_names(topic: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^topic .*{message}"):
        check_topic_name(topic)


@pytest.mark.parametrize("topic", [None, 5, b"orders", ["orders"]])
def test_check_topic_name_refuses_other_types(topic: object) -> None:
    with pytest.raises(TypeError, match=r"^topic must be a str, not "):
        check_topic_name(topic)


@pytest.mark.parametrize("partition", [None, 0, 2**31 - 1])
def test_check_partition_accepts(partition: int | None) -> None:
    check_partition(partition)


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_check_partition_refuses_out_of_range(partition: int) -> None:
    with pytest.raises(ValueError, match=r"^partition must be between 0 and 2147483647, not "):
        check_partition(partition)


@pytest.mark.parametrize("partition", [0.0, True, "0", decimal.Decimal(0)])
def test_check_partition_refuses_other_types(partition: object) -> None:
    with pytest.raises(TypeError, match=r"^partition must be an int or None, not "):
        check_partition(partition)


@pytest.mark.parametrize("timestamp", [None, 0, 2**63 - 1])
def test_check_timestamp_accepts(timestamp: int | None) -> None:
    check_timestamp(timestamp)


@pytest.mark.parametrize("timestamp", [-5, -1, 2**63])
def test_check_timestamp_refuses_out_of_range(timestamp: int) -> None:
    with pytest.raises(ValueError, match=r"^timestamp must be between 0 and "):
        check_timestamp(timestamp)


@pytest.mark.parametrize("timestamp", ["1", 1.5, float("nan"), True])
def test_check_timestamp_refuses_other_types(timestamp: object) -> None:
    with pytest.raises(TypeError, match=r"^timestamp must be an int, milliseconds since 1970"):
        check_timestamp(timestamp)


@pytest.mark.parametrize("payload", [None, b"", b"x", bytearray(b"x"), memoryview(b"x")])
def test_check_payload_accepts_bytes(payload: object) -> None:
    check_payload("value", payload)


@pytest.mark.parametrize("name", ["key", "value"])
@pytest.mark.parametrize("payload, hint", [("text", "text.encode()"), (5, "_serializer=JsonSerializer()"), ({}, "")])
def test_check_payload_refuses_others_with_the_call_that_works(name: str, payload: object, hint: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be bytes") as caught:
        check_payload(name, payload)

    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "headers, expected",
    [
        (None, ()),
        ([], ()),
        ([("a", b"1"), ("a", b"2")], (("a", b"1"), ("a", b"2"))),
        ((["a", None],), (("a", None),)),
        ([("", bytearray(b"x"))], (("", b"x"),)),
        ([("é", memoryview(b"x"))], (("é", b"x"),)),
    ],
)
def test_normalize_headers_returns_pairs(headers: object, expected: object) -> None:
    assert normalize_headers(headers) == expected


def test_normalize_headers_consumes_a_generator_once() -> None:
    consumed = []

    def headers() -> object:
        for number in range(3):
            consumed.append(number)
            yield f"h{number}", b""

    assert normalize_headers(headers()) == (("h0", b""), ("h1", b""), ("h2", b""))
    assert consumed == [0, 1, 2]


@pytest.mark.parametrize(
    "headers, message",
    [
        ({"a": b"1"}, r"for a dict: headers=\[\*d.items\(\)\]"),
        ("ab", "headers must be an iterable of"),
        (b"xy", "headers must be an iterable of"),
        (5, "headers must be an iterable of"),
        ([("a", "1")], r"value of header 'a' must be bytes or None, not str; try headers=\[\('a', text.encode\(\)\)\]"),
        ([("a", 1)], "value of header 'a' must be bytes or None, not int"),
        ([(b"a", b"1")], r"name of headers\[0\] must be a str, not bytes"),
        ([(None, b"1")], r"name of headers\[0\] must be a str, not None"),
        (["ab"], r"headers\[0\] must be a \(str, bytes\) pair, not str"),
        ([None], r"headers\[0\] must be a \(str, bytes\) pair, not None"),
    ],
)
def test_normalize_headers_refuses_wrong_types(headers: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        normalize_headers(headers)


@pytest.mark.parametrize("headers", [[("a",)], [("a", b"1", b"2")], [()], [("\ud800", b"")]])
def test_normalize_headers_refuses_wrong_shapes(headers: object) -> None:
    with pytest.raises(ValueError, match=r"headers\[0\]"):
        normalize_headers(headers)


def test_record_metadata_equals_aiokafkas() -> None:
    """Code that compares or unpacks aiokafka's tuples goes on working."""
    ours = RecordMetadata("t", 1, TopicPartition("t", 1), 42, 1000, 0, 7)
    theirs = aiokafka.structs.RecordMetadata("t", 1, aiokafka.structs.TopicPartition("t", 1), 42, 1000, 0, 7)

    assert ours == theirs
    assert ours._fields == theirs._fields


def test_producer_record_normalizes_headers() -> None:
    record = ProducerRecord("t", b"v", headers=[["a", b"1"]])  # type: ignore[arg-type]

    assert record.headers == (("a", b"1"),)


@pytest.mark.parametrize(
    "change", [{"topic": "a b"}, {"partition": -1}, {"timestamp": -1}, {"headers": (("a",),)}, {"topic": ""}]
)
def test_changed_producer_record_is_checked_again(change: dict[str, object]) -> None:
    """An interceptor cannot make a record that the call would refuse."""
    record = ProducerRecord("t", b"v")

    with pytest.raises(ValueError, match=next(iter(change))):
        dataclasses.replace(record, **change)  # type: ignore[arg-type]


def test_async_callback_is_refused_wherever_it_is_checked() -> None:
    """The native append, producers with serializers, and BlockingProducer refuse it."""
    check_callback(None)
    check_callback(print)

    with pytest.raises(TypeError, match="on_delivery must not be async"):
        check_callback(asyncio.sleep)
