"""Invalid arguments of `Producer` and its methods: an error that names the argument, and the producer goes on."""

import asyncio
import math
import re
import warnings
from collections.abc import Iterator
from enum import IntEnum, StrEnum

import pytest

from aioproducer import (
    ConfigurationError,
    InvalidTopicError,
    MetadataTimeoutError,
    Outcome,
    Producer,
    ProducerConfig,
    RecordTooLargeError,
    TopicAuthorizationError,
    UndeliveredError,
)
from aioproducer._shown_values import shown
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.produced import VERBS, give, produce_requests, values

TOPIC_AUTHORIZATION_FAILED = 29
INVALID_TOPIC = 17


class Name(StrEnum):
    ORDERS = "orders"
    TRACE = "trace"


class Lane(IntEnum):
    SLOW = 2


class Never(int):
    def __repr__(self) -> str:
        return f"Never({super().__repr__()})"

    def __lt__(self, _: object) -> bool:
        return False

    def __gt__(self, _: object) -> bool:
        return False


class Lazy(tuple[str, bytes]):
    """A pair that makes another name each time it is read."""

    __slots__ = ()

    def __getitem__(self, index: object) -> object:  # type: ignore[override]
        return "\u00e9" * 3_000 if index == 0 else b"v"


class BadPairs:
    """An iterable of headers, the second of which is invalid."""

    def __iter__(self) -> Iterator[tuple[str, object]]:
        yield "a", b"1"
        yield "b", 5


BAD_RECORDS = [
    # topic
    ({"topic": ""}, ValueError, "topic"),
    ({"topic": "."}, ValueError, "topic"),
    ({"topic": ".."}, ValueError, "topic"),
    ({"topic": "a b"}, ValueError, "topic"),
    ({"topic": "a/b"}, ValueError, "topic"),
    ({"topic": "x" * 250}, ValueError, "topic"),
    ({"topic": "caf\u00e9"}, ValueError, "topic"),
    ({"topic": "a\x00"}, ValueError, "topic"),
    ({"topic": None}, TypeError, "topic"),
    ({"topic": 5}, TypeError, "topic"),
    ({"topic": b"orders"}, TypeError, "topic"),
    ({"topic": ["orders"]}, TypeError, "topic"),
    # key and value
    ({"value": "text"}, TypeError, r"value=value\.encode\(\).*value_serializer"),
    ({"value": 5}, TypeError, "value"),
    ({"value": [1]}, TypeError, "value"),
    ({"value": {"a": 1}}, TypeError, "value"),
    ({"key": "text"}, TypeError, r"key=key\.encode\(\).*key_serializer"),
    ({"key": 5}, TypeError, "key"),
    # partition
    ({"partition": -1}, ValueError, "partition"),
    ({"partition": 3}, ValueError, r"partition.*0\.\.2"),
    ({"partition": 99}, ValueError, r"partition.*99"),
    ({"partition": 2**31}, ValueError, "partition"),
    ({"partition": 2**70}, ValueError, "partition"),
    ({"partition": 10**5000}, ValueError, r"partition must be below 2\*\*31, got a number of 16610 bits"),
    ({"partition": -(10**5000)}, ValueError, "partition must be 0 or more, or None"),
    ({"partition": [10**5000]}, TypeError, "partition"),
    ({"partition": 0.0}, TypeError, "partition"),
    ({"partition": "0"}, TypeError, "partition"),
    ({"partition": True}, TypeError, "partition"),
    ({"partition": Never(-1)}, ValueError, "partition"),
    ({"partition": Never(-2)}, ValueError, "partition"),
    ({"partition": Never(2**70)}, ValueError, "partition"),
    # timestamp
    ({"timestamp": -5}, ValueError, "timestamp"),
    ({"timestamp": -1}, ValueError, "timestamp"),
    ({"timestamp": 2**63}, ValueError, "timestamp"),
    ({"timestamp": 2**70}, ValueError, "timestamp"),
    ({"timestamp": 10**5000}, ValueError, "timestamp must be .*, got a number of 16610 bits"),
    ({"timestamp": "1"}, TypeError, "timestamp"),
    ({"timestamp": 1.5}, TypeError, "timestamp"),
    ({"timestamp": math.nan}, TypeError, "timestamp"),
    ({"timestamp": True}, TypeError, "timestamp"),
    ({"timestamp": Never(-2)}, ValueError, "timestamp"),
    ({"timestamp": Never(2**70)}, ValueError, "timestamp"),
    # headers
    ({"headers": {"a": b"1"}}, TypeError, "headers"),
    ({"headers": "ab"}, TypeError, "headers"),
    ({"headers": b"ab"}, TypeError, "headers"),
    ({"headers": 5}, TypeError, "headers"),
    ({"headers": [("a", "1")]}, TypeError, "header"),
    ({"headers": [("a", 1)]}, TypeError, "header"),
    ({"headers": [(b"a", b"1")]}, TypeError, "header"),
    ({"headers": [(None, b"1")]}, TypeError, "header"),
    ({"headers": [("a",)]}, ValueError, "header"),
    ({"headers": [("a", b"1", b"2")]}, ValueError, "header"),
    ({"headers": [5]}, TypeError, "header"),
    ({"headers": ["ab"]}, TypeError, "header"),
    ({"headers": [("\ud800", b"1")]}, ValueError, "header"),
    ({"headers": BadPairs()}, TypeError, "header"),
    # on_delivery
    ({"on_delivery": 5}, TypeError, "on_delivery"),
    ({"on_delivery": "print"}, TypeError, "on_delivery"),
    ({"on_delivery": asyncio.sleep}, TypeError, "on_delivery must not be async"),
    ({"on_delivery": asyncio.Event().wait}, TypeError, "on_delivery must not be async"),
    # deadline
    ({"deadline": 0}, ValueError, "deadline must be above 0 and at most 120 s, which is delivery_timeout_ms=120000"),
    ({"deadline": -0.1}, ValueError, "deadline"),
    ({"deadline": 120.001}, ValueError, "deadline"),
    ({"deadline": math.nan}, ValueError, "deadline"),
    ({"deadline": math.inf}, ValueError, "deadline"),
    ({"deadline": 10**5000}, ValueError, "deadline .*, not a number of 16610 bits"),
    ({"deadline": "1"}, TypeError, "deadline must be a number of seconds or None, not str"),
    ({"deadline": True}, TypeError, "deadline"),
    ({"deadline": 1, "partition": -1}, ValueError, "partition"),
    ({"deadline": 1, "value": 5}, TypeError, "value"),
    # size
    ({"value": bytes(1_048_577)}, RecordTooLargeError, "max_request_size"),
    ({"key": bytes(1_048_577)}, RecordTooLargeError, "max_request_size"),
    ({"headers": [("a", bytes(1_048_577))]}, RecordTooLargeError, "max_request_size"),
    ({"headers": [("name", b"value")] * 100_000}, RecordTooLargeError, "max_request_size"),
]


def name_of(value: object) -> str | None:
    if not isinstance(value, dict):
        return None
    text = ", ".join(f"{name!r}: {shown(part)}" for name, part in value.items())
    return re.sub(" at 0x[0-9a-f]+", "", f"{{{text}}}")[:40]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("arguments, kind, message", BAD_RECORDS, ids=name_of)
async def test_bad_record_is_refused_at_the_call(  # noqa: PLR0917  # fixtures, and the parts of a row
    producer: Producer,
    one_broker: FakeCluster,
    verb: str,
    arguments: dict[str, object],
    kind: type[Exception],
    message: str,
) -> None:
    await producer.partitions_for("orders")
    record = {"topic": "orders", "value": b"bad", **arguments}
    topic = record.pop("topic")

    with pytest.raises(kind, match=f"(?s){message}"):
        await give(producer, verb, topic, **record)

    assert produce_requests(one_broker) == 0
    await give(producer, verb, "orders", b"valid")
    assert values(one_broker, "orders") == [b"valid"]
    await producer.flush()


@pytest.mark.parametrize("arguments, kind, message", BAD_RECORDS, ids=name_of)
async def test_bad_record_is_refused_before_its_topic_is_known(  # noqa: PLR0917  # as above
    producer: Producer, one_broker: FakeCluster, arguments: dict[str, object], kind: type[Exception], message: str
) -> None:
    record = {"topic": "orders", "value": b"bad", **arguments}
    topic = record.pop("topic")

    with pytest.raises(kind, match=f"(?s){message}"):
        await give(producer, "send", topic, **record)

    assert produce_requests(one_broker) == 0
    await producer.send("orders", b"valid")
    assert values(one_broker, "orders") == [b"valid"]


async def test_too_large_record_has_sizes_and_outcome(producer: Producer) -> None:
    with pytest.raises(RecordTooLargeError) as caught:
        producer.send("orders", bytes(2_000_000))

    error = caught.value
    assert (error.outcome, error.topic, error.option) == (Outcome.NOT_WRITTEN, "orders", "max_request_size")
    assert (error.limit_bytes, (error.size_bytes or 0) > 2_000_000) == (1_048_576, True)


async def test_record_larger_than_the_buffer_can_ever_give_is_refused(one_broker: FakeCluster) -> None:
    """The error comes at the call and names the option: the record could never fit."""
    async with Producer(one_broker.bootstrap_servers, buffer_memory=100_000) as small:
        with pytest.raises(RecordTooLargeError, match="buffer_memory"):
            small.send("orders", bytes(90_000))

        await small.send("orders", b"valid")


@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_value_changed_after_the_call_is_sent_as_it_was(
    producer: Producer, one_broker: FakeCluster, kind: type[bytearray] | type[memoryview]
) -> None:
    own = bytearray(b"original")
    waiting = producer.send("orders", kind(own), key=kind(own), headers=[("h", kind(own))])
    own[:] = b"tampered"
    await waiting
    own[:] = b"original"
    known = producer.send("orders", kind(own), key=kind(own), headers=[("h", kind(own))])
    own[:] = b"tampered"
    await known

    records = [record for number in range(3) for record in one_broker.records("orders", number)]
    assert [(record.value, record.key, dict(record.headers)) for record in records] == [
        (b"original", b"original", {"h": b"original"})
    ] * 2


@pytest.mark.parametrize("verb", VERBS)
async def test_headers_may_come_from_a_generator_and_be_null(
    producer: Producer, one_broker: FakeCluster, verb: str
) -> None:
    await producer.partitions_for("orders")
    pairs = [("a", b"1"), ("a", None), ("", b"")]

    await give(producer, verb, "orders", b"v", partition=0, headers=(pair for pair in pairs))

    assert list(one_broker.records("orders", 0)[0].headers) == pairs


@pytest.mark.parametrize("verb", VERBS)
async def test_header_pair_of_a_subclass_is_read_once(producer: Producer, one_broker: FakeCluster, verb: str) -> None:
    """Regression: a subclass of tuple that made a new name for each read had freed memory sent."""
    await producer.partitions_for("orders")

    await give(producer, verb, "orders", b"v", partition=0, headers=[Lazy(("name", b"value"))] * 100)

    assert list(one_broker.records("orders", 0)[0].headers) == [("name", b"value")] * 100


@pytest.mark.parametrize(
    "verb, is_known", [*((verb, True) for verb in VERBS), *((verb, False) for verb in VERBS if verb != "send_nowait")]
)
async def test_members_of_enums_are_accepted(  # noqa: PLR0917  # fixtures, and the parts of a row
    producer: Producer,
    one_broker: FakeCluster,
    verb: str,
    is_known: bool,  # noqa: FBT001
) -> None:
    if is_known:
        await producer.partitions_for("orders")

    await give(producer, verb, Name.ORDERS, b"v", partition=Lane.SLOW, timestamp=Lane.SLOW, headers=[(Name.TRACE, b"")])

    (found,) = one_broker.records("orders", 2)
    assert (found.value, found.timestamp, list(found.headers)) == (b"v", 2, [("trace", b"")])


async def test_record_may_be_a_tombstone_or_empty(producer: Producer, one_broker: FakeCluster) -> None:
    await producer.send("orders", None, key=b"", partition=0)
    await producer.send("orders", b"", partition=0, timestamp=0)
    await producer.send("orders", partition=0)

    assert [(record.key, record.value) for record in one_broker.records("orders", 0)] == [
        (b"", None),
        (None, b""),
        (None, None),
    ]


async def test_unknown_topic_is_an_error_after_max_block(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, max_block_ms=500) as impatient:
        lost = impatient.send("nowhere", b"v")
        await impatient.send("orders", b"valid")
        with pytest.raises(MetadataTimeoutError, match=r"(?s)'nowhere'.*max_block_ms=500.*UNKNOWN_TOPIC") as caught:
            await lost

        assert (caught.value.outcome, caught.value.topic) == (Outcome.NOT_WRITTEN, "nowhere")
        with pytest.raises(MetadataTimeoutError, match="'nowhere'"):
            await impatient.enqueue("nowhere", b"v")
        with pytest.raises(MetadataTimeoutError, match="'nowhere'"):
            await impatient.partitions_for("nowhere")


@pytest.mark.parametrize(
    "code, kind", [(TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError), (INVALID_TOPIC, InvalidTopicError)]
)
async def test_topic_that_the_broker_refuses_fails_at_once(  # noqa: PLR0917  # as above
    producer: Producer, one_broker: FakeCluster, code: int, kind: type[Exception]
) -> None:
    """Other topics are unaffected, and the topic works once the broker allows it."""
    one_broker.create_topic("secret", 1)
    fault = one_broker.faults.error(code, Where(api=ApiKey.METADATA, topic="secret"), times=None)

    with pytest.raises(kind, match="secret"):
        await producer.send("secret", b"v")
    with pytest.raises(kind, match="secret"):
        await producer.enqueue("secret", b"v")
    with pytest.raises(kind, match="secret"):
        await producer.partitions_for("secret")
    await producer.send("orders", b"valid")
    one_broker.faults.remove(fault)

    assert (await producer.send("secret", b"now")).offset == 0


async def test_topic_that_may_not_be_written_fails_its_records_alone(
    producer: Producer, one_broker: FakeCluster
) -> None:
    one_broker.faults.error(TOPIC_AUTHORIZATION_FAILED, Where(api=ApiKey.PRODUCE, topic="orders"))

    with pytest.raises(TopicAuthorizationError, match="orders") as caught:
        await producer.send("orders", b"refused")

    assert (caught.value.code, caught.value.outcome) == (TOPIC_AUTHORIZATION_FAILED, Outcome.NOT_WRITTEN)
    await producer.send("orders", b"valid")
    assert values(one_broker, "orders") == [b"valid"]


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, 10**400], ids=["-1", "-0.001", "nan", "10**400"])
async def test_flush_refuses_a_timeout_that_is_no_time(producer: Producer, seconds: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        await producer.flush(seconds)
    with pytest.raises(ValueError, match="timeout"):
        await producer.close(seconds)

    await producer.send("orders", b"valid")


@pytest.mark.parametrize("seconds", ["1", [1], True], ids=repr)
async def test_timeout_of_another_type_is_refused(producer: Producer, seconds: object) -> None:
    with pytest.raises(TypeError, match="timeout"):
        await producer.flush(seconds)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="timeout"):
        await producer.close(seconds)  # type: ignore[arg-type]

    await producer.send("orders", b"valid")


async def test_flush_and_close_without_time_do_not_wait(producer: Producer, one_broker: FakeCluster) -> None:
    await producer.send("orders", b"valid")
    await producer.flush(0)
    one_broker.faults.stall(Where(api=ApiKey.PRODUCE))
    await producer.enqueue("orders", b"stalled")

    with pytest.raises(TimeoutError, match="flush"):
        await producer.flush(0)
    with pytest.raises(UndeliveredError, match="1 record was not delivered"):
        await producer.close(0)


@pytest.mark.parametrize("topic", ["", None, 5, "a b"])
async def test_partitions_for_checks_the_topic(producer: Producer, topic: object) -> None:
    with pytest.raises((TypeError, ValueError), match="topic"):
        await producer.partitions_for(topic)  # type: ignore[arg-type]


async def test_unknown_keyword_is_a_type_error(producer: Producer) -> None:
    with pytest.raises(TypeError, match="headrs"):
        producer.send("orders", b"v", headrs=[])  # type: ignore[call-arg]


# Options that cannot be, given to `Producer`: refused by the constructor, by name, before anything is opened


class Interceptor:
    """One whose `on_send` cannot be called."""

    on_send = 5

    def on_acknowledgement(self, metadata: object, headers: object) -> None:
        """Do nothing."""

    def on_error(self, topic_partition: object, error: object, headers: object) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    "servers, message",
    [
        ([], "at least one host:port"),
        ("", "at least one host:port"),
        (":9092", "no host"),
        ("h:abc", "not a number"),
        ("h:0", "between 1 and 65535"),
        ("h:99999", "between 1 and 65535"),
        ("[::1", "IPv6"),
        ("a b:9092", "a b:9092"),
        ("kafka://h:9092", "'h:9092'"),
        ("h", "no port"),
        ("a:1;b:2", "several servers have commas between them"),
        ("a:1 b:2", "several servers have commas between them"),
    ],
)
def test_servers_are_refused(servers: str | list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        Producer(servers)

    assert caught.value.option == "bootstrap_servers"
    assert "bootstrap_servers" in str(caught.value)


@pytest.mark.parametrize("servers", [None, 9092, b"h:9092", {"h:9092"}, [9092]], ids=repr)
def test_servers_of_another_type_are_a_type_error(servers: object) -> None:
    with pytest.raises(TypeError, match="bootstrap_servers") as caught:
        Producer(servers)  # type: ignore[arg-type]

    assert isinstance(caught.value, ConfigurationError)


OUT_OF_RANGE: list[dict[str, object]] = [
    {"linger_ms": -5},
    {"batch_size": -1},
    {"buffer_memory": 0},
    {"max_request_size": 0},
    {"max_request_size": 2**31},
    {"request_timeout_ms": 0},
    {"delivery_timeout_ms": 10, "linger_ms": 5, "request_timeout_ms": 10},
    {"delivery_timeout_ms": 0},
    {"max_block_ms": -1},
    {"retry_backoff_ms": -1},
    {"reconnect_backoff_ms": 0},
    {"acks": 2},
    {"acks": 1, "enable_idempotence": True},
    {"acks": 0, "enable_idempotence": True},
    {"max_in_flight_requests_per_connection": 6, "enable_idempotence": True},
    {"max_in_flight_requests_per_connection": 0},
    {"compression_type": "lzma"},
    {"transactional_id": ""},
    {"client_id": "a\nb"},
    {"security_protocol": "TLS"},
    {"metadata_max_age_ms": 0},
    {"connections_max_idle_ms": -1},
    {"close_timeout_ms": -1},
    {"exit_flush_timeout_ms": -1},
    {"max_waiting_records": -1},
]

OF_ANOTHER_TYPE: list[dict[str, object]] = [
    {"linger_ms": "5"},
    {"linger_ms": math.nan},
    {"linger_ms": math.inf},
    {"linger_ms": True},
    {"linger_ms": None},
    {"request_timeout_ms": math.nan},
    {"acks": True},
    {"transactional_id": 5},
    {"client_id": 5},
    {"key_serializer": 5},
    {"value_serializer": 5},
    {"partitioner": 5},
    {"partitioner": print},
    {"partitioner": "murmur2_random"},
    {"partitioner": b"random"},
    {"interceptors": 5},
    {"interceptors": [print]},
    {"interceptors": [Interceptor()]},
    {"enable_idempotence": 1},
]


def options_id(options: dict[str, object]) -> str:
    return ", ".join(f"{name}={getattr(value, '__name__', repr(value))}" for name, value in options.items())[:60]


@pytest.mark.parametrize("options", OUT_OF_RANGE, ids=options_id)
def test_option_out_of_range_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Producer("h:9092", **options)  # type: ignore[arg-type]

    name = next(iter(options))
    assert isinstance(caught.value, ValueError)
    assert name in str(caught.value)
    assert not isinstance(caught.value, TypeError)
    assert "new" in repr(Producer("h:9092"))


@pytest.mark.parametrize("options", OF_ANOTHER_TYPE, ids=options_id)
def test_option_of_another_type_is_a_type_error(options: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=next(iter(options))) as caught:
        Producer("h:9092", **options)  # type: ignore[arg-type]

    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize("name, nearest", [("linger", "linger_ms"), ("acs", "acks"), ("batchsize", "batch_size")])
def test_unknown_option_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(TypeError, match=f"'{name}'.*{nearest}"):
        Producer("h:9092", **{name: 5})  # type: ignore[arg-type]


def test_options_beside_a_whole_configuration_change_it() -> None:
    whole = ProducerConfig(bootstrap_servers="h:9092", linger_ms=7)

    assert Producer(whole, acks=1).config.linger_ms == 7
    with pytest.raises(ConfigurationError, match="linger_ms"):
        Producer(whole, linger_ms=-5)


@pytest.mark.parametrize(
    "options", [{"batch_size": 0}, {"linger_ms": 0}, {"retries": 1}, {"max_block_ms": 0}], ids=options_id
)
def test_limits_that_are_legal_are_taken(options: dict[str, int]) -> None:
    producer = Producer("h:9092", **options)  # type: ignore[arg-type]

    assert "new" in repr(producer)


async def test_options_that_are_none_are_as_if_not_given(one_broker: FakeCluster) -> None:
    """Interceptors, too, are checked at the call and not at the start."""
    nothing = {"interceptors": None, "partitioner": None, "key_serializer": None, "value_serializer": None}

    async with Producer(one_broker.bootstrap_servers, **nothing) as producer:  # type: ignore[arg-type]
        await producer.send("orders", b"v")


def test_producer_may_be_constructed_without_a_loop() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        producer = Producer("h:9092")
        text = repr(producer)
        del producer

    assert "new" in text
