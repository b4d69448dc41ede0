"""Records, members of consumer groups, and the checks of their fields: every bad argument has its error."""

import asyncio
import dataclasses
import decimal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import aiokafka
import aiokafka.structs
import pytest

from aioproducer import ConsumerGroupMetadata, IllegalStateError, OffsetAndMetadata
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
from aioproducer.testing import FakeCluster
from tests.fakes.core_parts import CoreParts

PAYLOAD_CHECKS = [partial(check_payload, "key"), partial(check_payload, "value")]


@pytest.mark.parametrize(
    "check, accepted",
    [
        (check_topic_name, ["a", "orders", "A-Z_0.9", "x" * 249, "...", "a."]),
        (check_partition, [None, 0, 2**31 - 1]),
        (check_timestamp, [None, 0, 2**63 - 1]),
        *((check, [None, b"", b"x", bytearray(b"x"), memoryview(b"x")]) for check in PAYLOAD_CHECKS),
    ],
)
def test_check_accepts(check: Callable[[object], None], accepted: list[object]) -> None:
    for value in accepted:
        check(value)


@pytest.mark.parametrize(
    "check, value, message",
    [
        (check_topic_name, "", "topic .*must not be empty"),
        (check_topic_name, ".", "topic .*must not be '.' or '..'"),
        (check_topic_name, "..", "topic .*must not be '.' or '..'"),
        (check_topic_name, "a b", "topic .*has the character ' '"),
        (check_topic_name, "a/b", "topic .*has the character '/'"),
        (check_topic_name, "orders\n", "topic .*has the character '\\\\n'"),
        (check_topic_name, "é", "topic .*has the character 'é'"),
        (check_topic_name, "x" * 250, "topic .*is 250 characters long; 249 are allowed"),
        *((check_partition, value, "partition must be between 0 and 2147483647, not ") for value in (-1, 2**31)),
        *((check_timestamp, value, "timestamp must be between 0 and ") for value in (-5, -1, 2**63)),
    ],
)
def test_check_refuses_out_of_range(check: Callable[[object], None], value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        check(value)


@pytest.mark.parametrize(
    "check, values, message",
    [
        (check_topic_name, [None, 5, b"orders", ["orders"]], "topic must be a str, not "),
        (check_partition, [0.0, True, "0", decimal.Decimal(0)], "partition must be an int or None, not "),
        (check_timestamp, ["1", 1.5, float("nan"), True], "timestamp must be an int, milliseconds since 1970"),
    ],
)
def test_check_refuses_other_types(check: Callable[[object], None], values: list[object], message: str) -> None:
    for value in values:
        with pytest.raises(TypeError, match=f"^{message}"):
            check(value)


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


# The member that commits offsets: taken from aiokafka's consumer, or given


@asynccontextmanager
async def consuming(cluster: FakeCluster, *topics: str, **options: object) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
    options = {"group_id": "g", "heartbeat_interval_ms": 100, "auto_offset_reset": "earliest", **options}
    consumer = aiokafka.AIOKafkaConsumer(*topics, bootstrap_servers=cluster.bootstrap_servers, **options)
    async with consumer:
        yield consumer


@pytest.fixture(name="one")
async def fixture_one() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"t": 2}) as cluster:
        yield cluster


async def test_member_has_the_coordinators_generation_and_id(one: FakeCluster) -> None:
    async with consuming(one, "t") as consumer:
        group = ConsumerGroupMetadata.of(consumer)

    assert (group.group_id, group.generation_id, group.group_instance_id) == ("g", 1, None)
    assert group.member_id.startswith("aiokafka-")


async def test_static_member_keeps_its_own_name(one: FakeCluster) -> None:
    """KIP-345: the instance id is how the coordinator knows it again."""
    async with consuming(one, "t", group_instance_id="worker-1") as consumer:
        assert ConsumerGroupMetadata.of(consumer).group_instance_id == "worker-1"


async def test_partitions_assigned_by_hand_have_no_generation(one: FakeCluster) -> None:
    async with consuming(one) as consumer:
        consumer.assign([aiokafka.TopicPartition("t", 0)])

        assert ConsumerGroupMetadata.of(consumer) == ConsumerGroupMetadata("g")


async def test_next_generation_is_another(one: FakeCluster) -> None:
    async with consuming(one, "t") as consumer:
        before = ConsumerGroupMetadata.of(consumer)

        async with consuming(one, "t"), asyncio.timeout(10):
            while len(consumer.assignment()) != 1:  # noqa: ASYNC110 - a listener would replace the topics
                await asyncio.sleep(0.01)
            after = ConsumerGroupMetadata.of(consumer)

    assert (after.member_id, after.generation_id) == (before.member_id, before.generation_id + 1)


class Revoking(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    def __init__(self) -> None:
        self.consumer: aiokafka.AIOKafkaConsumer
        self.told: list[str] = []

    def on_partitions_revoked(self, revoked: object) -> None:  # noqa: ARG002 - aiokafka's signature
        try:
            ConsumerGroupMetadata.of(self.consumer)
        except IllegalStateError as error:
            self.told.append(str(error))

    def on_partitions_assigned(self, assigned: object) -> None:
        """Nothing to do."""


async def test_between_two_generations_there_is_no_answer(one: FakeCluster) -> None:
    """Generation -1 would switch off the check of KIP-447."""
    listener = Revoking()
    async with consuming(one) as consumer:
        listener.consumer = consumer
        consumer.subscribe(["t"], listener=listener)
        await consumer.getmany(timeout_ms=1)

    assert listener.told == ["the consumer is joining group 'g': it is no member until it is assigned"]


async def test_consumer_without_a_group_is_refused(one: FakeCluster) -> None:
    async with consuming(one, "t", group_id=None) as consumer:
        with pytest.raises(IllegalStateError, match="no group_id"):
            ConsumerGroupMetadata.of(consumer)


async def test_consumer_not_started_is_refused() -> None:
    consumer = aiokafka.AIOKafkaConsumer("t", group_id="g")

    with pytest.raises(IllegalStateError, match=r"await consumer\.start\(\) first"):
        ConsumerGroupMetadata.of(consumer)
    await consumer.stop()


@pytest.mark.parametrize(
    "arguments, kind",
    [
        (("",), ValueError),
        ((None,), TypeError),
        ((b"g",), TypeError),
        (("g", "1"), TypeError),
        (("g", True), TypeError),
        (("g", 1, None), TypeError),
        (("g", 1, "m", 5), TypeError),
    ],
)
def test_fields_are_checked(arguments: tuple[object, ...], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        ConsumerGroupMetadata(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("g", 2**40), "generation_id must be between -1 and 2147483647, not 1099511627776"),
        (("g", -2), "generation_id must be between -1 and 2147483647, not -2"),
        (("g" * 40_000,), "group_id must be at most 32767 bytes long, not 40000"),
        (("g", 1, "m" * 40_000), "member_id must be at most 32767 bytes long, not 40000"),
        (("g", 1, "\ud800"), "member_id cannot be encoded as UTF-8: surrogates not allowed"),
        (("g", 1, "m", "\ud800"), "group_instance_id cannot be encoded as UTF-8: surrogates not allowed"),
    ],
    ids=["generation too high", "generation too low", "long group", "long member", "member", "instance"],
)
def test_too_long_member_fields_are_refused(arguments: tuple[str, int, str, str], text: str) -> None:
    """Regression: the error came while the request was made, and ended a task of the producer."""
    with pytest.raises(ValueError, match=text):
        ConsumerGroupMetadata(*arguments)


def test_other_consumers_are_named() -> None:
    with pytest.raises(TypeError, match="must be an AIOKafkaConsumer, not object"):
        ConsumerGroupMetadata.of(object())


def test_values_are_equal_to_those_of_aiokafka() -> None:
    assert OffsetAndMetadata(5) == aiokafka.OffsetAndMetadata(5, "")
    assert TopicPartition("t", 1) == aiokafka.TopicPartition("t", 1)


# A `repr` ends up in logs and debuggers: it never shows what a record says

SECRET = b"hunter2"


def parts() -> CoreParts:
    """Return a core with a record in an open batch, one waiting for its topic, and one on the wire."""
    core = CoreParts(leaders=(1, 1))
    core.send(SECRET, key=SECRET)
    core.flush()
    core.drain()
    core.send(SECRET, partition=1)
    core.wait_in_queue(SECRET, topic="nowhere")
    return core


def delivery(core: CoreParts) -> object:
    return core.send(SECRET)


def batch(core: CoreParts) -> object:
    core.flush()
    return core.drain()


HOLDERS: dict[str, Callable[[CoreParts], object]] = {
    "record": lambda _: ProducerRecord("t", SECRET, key=SECRET.decode(), headers=(("h", SECRET),)),
    "delivery": delivery,
    "batch": batch,
    "accumulator": lambda core: core.accumulator,
    "open batches": lambda core: core.open_batches,
    "partition": lambda core: core.partition(),
    "wait queues": lambda core: core.wait_queues,
    "buffer pool": lambda core: core.pool,
}


@pytest.mark.parametrize("holder", list(HOLDERS))
def test_repr_shows_no_payload(holder: str) -> None:
    shown = repr(HOLDERS[holder](parts()))

    assert shown
    assert "hunter2" not in shown
