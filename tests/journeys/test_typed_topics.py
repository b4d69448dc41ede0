"""Handles of topics: types from the call to the log, and a linger, codec and delivery time-out of their own."""

import asyncio
import contextlib
import inspect
import re
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pytest

from aioproducer import (
    BufferTimeoutError,
    ConfigurationError,
    Delivery,
    DeliveryTimeoutError,
    IllegalStateError,
    JsonSerializer,
    KafkaError,
    MetadataTimeoutError,
    Outcome,
    Partitioner,
    Producer,
    ProducerClosedError,
    ProducerConfig,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    SerializationError,
    StringSerializer,
    Topic,
    WaitReason,
)
from aioproducer.cluster import Cluster
from aioproducer.testing import ApiKey, FakeCluster, MockProducer, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_loop import in_virtual_time, now
from tests.produced import produce_requests, values

# A topic whose keys and values have types, from the call to the log


@dataclass
class Order:
    id: int


@pytest.fixture
def orders(producer: Producer) -> Topic[str, Order]:
    return producer.topic("orders", key=str, value=Order)


async def test_record_arrives_as_bytes_of_its_types(orders: Topic[str, Order], one_broker: FakeCluster) -> None:
    metadata = await orders.send(Order(7), key="customer-7", partition=1, timestamp=5, headers=[("h", b"1")])

    (found,) = one_broker.records("orders", 1)
    assert (found.key, found.value, found.timestamp) == (b"customer-7", b'{"id":7}', 5)
    assert list(found.headers) == [("h", b"1")]
    assert (metadata.topic, metadata.partition, metadata.offset) == ("orders", 1, 0)


async def test_every_verb_sends(orders: Topic[str, Order], one_broker: FakeCluster) -> None:
    told: list[tuple[RecordMetadata | None, KafkaError | None]] = []

    await orders.send_and_wait(Order(1), partition=0)
    await (await orders.enqueue(Order(2), partition=0, on_delivery=lambda *outcome: told.append(outcome)))
    await orders.send_nowait(Order(3), partition=0)
    result = await (await orders.send_many([Order(4), Order(5)], partition=0))

    assert values(one_broker, "orders") == [b'{"id":%d}' % number for number in range(1, 6)]
    assert result.delivered == 2
    assert [(metadata.offset, error) for metadata, error in told if metadata] == [(1, None)]


async def test_nulls_stay_null(orders: Topic[str, Order], one_broker: FakeCluster) -> None:
    await orders.send(key="customer-7", partition=0)
    await orders.send(Order(7), partition=0)

    assert [(r.key, r.value) for r in one_broker.records("orders", 0)] == [(b"customer-7", None), (None, b'{"id":7}')]


@pytest.mark.parametrize("verb", ["send", "send_and_wait", "enqueue", "send_nowait"])
async def test_wrong_type_is_an_error_of_the_call(
    orders: Topic[str, Order], one_broker: FakeCluster, verb: str
) -> None:
    async def send(value: object, key: object) -> None:
        await getattr(orders, verb)(value, key=key)

    with pytest.raises(TypeError, match=r"^value for topic 'orders' must be Order or None, not dict$"):
        await send({"id": 7}, "k")
    with pytest.raises(TypeError, match=r"^key for topic 'orders' must be str or None, not int$"):
        await send(Order(7), 7)
    await orders.send(Order(8))

    assert values(one_broker, "orders") == [b'{"id":8}']


async def test_wrong_type_in_a_column_keeps_no_other_back(orders: Topic[str, Order]) -> None:
    bulk = await orders.send_many([Order(1), {"id": 2}, Order(3)], keys=["a", "b", 3])  # type: ignore[list-item]
    result = await bulk

    assert (result.delivered, {position: type(error) for position, error in result.errors.items()}) == (
        1,
        {1: TypeError, 2: TypeError},
    )


async def test_headers_of_the_topic_come_first(producer: Producer, one_broker: FakeCluster) -> None:
    clicks = producer.topic("orders", value=str, headers=[("source", b"web")])

    await clicks.send("a", partition=0)
    await clicks.send("b", partition=0, headers=[("h", None)])
    await (await clicks.send_many(["c"], partition=0, headers=iter([("h", b"1")])))

    found = [list(record.headers) for record in one_broker.records("orders", 0)]
    assert found == [[("source", b"web")], [("source", b"web"), ("h", None)], [("source", b"web"), ("h", b"1")]]


async def test_failing_serializer_is_an_error_of_the_call(producer: Producer, one_broker: FakeCluster) -> None:
    numbers: Topic[bytes, int] = producer.topic("orders", value=lambda number: b"%d" % (1 // number))

    with pytest.raises(SerializationError, match=r"value serializer .*<lambda> failed for topic 'orders': Zero"):
        numbers.send(0)
    await numbers.send(1)

    assert values(one_broker, "orders") == [b"1"]


async def test_serializers_of_the_producer_do_not_run(one_broker: FakeCluster) -> None:
    async with Producer(
        one_broker.bootstrap_servers, key_serializer=StringSerializer(), value_serializer=JsonSerializer()
    ) as producer:
        raw = producer.topic("orders", value=bytes)
        await raw.send(b"\xff", key=b"\xfe", partition=0)
        await producer.send("orders", {"id": 7}, key="k", partition=0)

    assert [(r.key, r.value) for r in one_broker.records("orders", 0)] == [(b"\xfe", b"\xff"), (b"k", b'{"id":7}')]


class SeesObjects(ProducerInterceptor, Partitioner):
    """An interceptor and a partitioner that note the values they are shown."""

    def __init__(self) -> None:
        self.intercepted: list[object] = []
        self.partitioned: list[object] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        self.intercepted.append(record.value)
        return record

    def partition(  # noqa: PLR0917  # Kafka's signature
        self,
        topic: str,  # noqa: ARG002
        key: object,  # noqa: ARG002
        key_bytes: bytes | None,  # noqa: ARG002
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,  # noqa: ARG002
    ) -> int:
        self.partitioned.append((value, value_bytes))
        return 2


async def test_interceptors_and_partitioner_see_the_object(one_broker: FakeCluster) -> None:
    sees = SeesObjects()
    async with Producer(one_broker.bootstrap_servers, interceptors=[sees], partitioner=sees) as producer:
        orders = producer.topic("orders", value=Order)
        metadata = await orders.send(Order(7))
        with pytest.raises(TypeError, match=r"^value for topic 'orders' must be Order or None, not dict$"):
            await orders.enqueue({"id": 7})  # type: ignore[arg-type]

    assert metadata.partition == 2
    assert sees.intercepted == [Order(7)]
    assert sees.partitioned == [(Order(7), b'{"id":7}')]


@pytest.mark.parametrize("verb", ["send", "send_and_wait", "enqueue", "send_nowait"])
async def test_verbs_of_a_subclass_get_the_bytes(one_broker: FakeCluster, verb: str) -> None:
    given: list[object] = []

    class Own(Producer):
        def send(self, topic: str, value: object = None, **options: object) -> Delivery:
            given.append(value)
            return super().send(topic, value, **options)  # type: ignore[arg-type]

        def enqueue(self, topic: str, value: object = None, **options: object) -> Coroutine[object, None, Delivery]:
            given.append(value)
            return super().enqueue(topic, value, **options)  # type: ignore[arg-type]

        def send_nowait(self, topic: str, value: object = None, **options: object) -> Delivery:
            given.append(value)
            return super().send_nowait(topic, value, **options)  # type: ignore[arg-type]

    async with Own(one_broker.bootstrap_servers) as producer:
        orders = producer.topic("orders", value=Order)
        await orders.partitions_for()
        done = await getattr(orders, verb)(Order(7))
        if verb == "enqueue":
            await done
        with pytest.raises(TypeError, match="must be Order or None, not int"):
            await getattr(orders, verb)(7)

    assert given == [b'{"id":7}']
    assert values(one_broker, "orders") == given


async def test_handle_may_be_made_before_the_start(one_broker: FakeCluster) -> None:
    producer = Producer(one_broker.bootstrap_servers)
    orders = producer.topic("orders", value=Order)

    with pytest.raises(IllegalStateError, match="start"):
        orders.send(Order(1))
    async with producer:
        await orders.send(Order(2))
        assert await orders.partitions_for() == [0, 1, 2]
    with pytest.raises(ProducerClosedError):
        await orders.send(Order(3))

    assert values(one_broker, "orders") == [b'{"id":2}']


async def test_enqueue_cancelled_while_it_waits_is_withdrawn(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers) as producer:
        unknown = producer.topic("unknown", value=str)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(unknown.enqueue("a"), 0.01)

        assert producer.statistics().records_waiting == 0


@pytest.mark.parametrize("name", ["", "a b", 5])
def test_wrong_name_is_refused(name: str) -> None:
    with pytest.raises((TypeError, ValueError), match="topic"):
        Producer("a:9092").topic(name, value=bytes)


def test_frameworks_know_what_to_await() -> None:
    orders = Producer("a:9092").topic("orders", value=Order)

    verbs = [orders.send, orders.send_and_wait, orders.enqueue, orders.send_many]
    is_coroutine = inspect.iscoroutinefunction if hasattr(inspect, "markcoroutinefunction") else asyncio_iscoroutine
    assert [verb for verb in verbs if not is_coroutine(verb)] == []


def asyncio_iscoroutine(function: object) -> bool:
    return asyncio.iscoroutinefunction(function)


# Options of one topic, beside topics that have the producer's


PRODUCE = Where(api=ApiKey.PRODUCE)
METADATA = Where(api=ApiKey.METADATA)
NAMES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]


def two_topics() -> FakeCluster:
    return FakeCluster(1, topics={"orders": 1, "audit": 1}, auto_create_topics=False)


def codecs(cluster: FakeCluster, topic: str) -> list[int]:
    """Return the codec of each batch in the log."""
    view = cluster.model.topics.named(topic)
    assert view is not None
    return [batch.attributes & 7 for batch in view.partitions[0].log.batches()]


def note_time(left: dict[str, float], topic: str, *_: object) -> None:
    left[topic] = now()


# Linger


@pytest.mark.parametrize("of_producer, of_audit", [(20, 2_000), (2_000, 20)])
@in_virtual_time
async def test_each_topic_lingers_as_long_as_its_own_option(of_producer: int, of_audit: int) -> None:
    """The two are for one node: the shorter linger takes no other batch along, so one topic does not hasten another."""
    left: dict[str, float] = {}
    async with producing(two_topics(), linger_ms=of_producer) as (_, producer):
        audit = producer.topic("audit", value=bytes, linger_ms=of_audit)
        await asyncio.gather(audit.partitions_for(), producer.partitions_for("orders"))
        began = now()
        producer.send("orders", b"o", on_delivery=partial(note_time, left, "orders"))
        audit.send(b"a", on_delivery=partial(note_time, left, "audit"))
        lingering = {each.topic: each.until_s for each in producer.explain().waiting}
        await asyncio.sleep(3)

    assert lingering == pytest.approx({"orders": of_producer / 1000, "audit": of_audit / 1000}, abs=0.001)
    assert left["orders"] - began == pytest.approx(of_producer / 1000, abs=0.01)
    assert left["audit"] - began == pytest.approx(of_audit / 1000, abs=0.01)


@in_virtual_time
async def test_topics_with_the_same_linger_share_a_request() -> None:
    async with producing(two_topics(), linger_ms=20) as (cluster, producer):
        for topic in ("orders", "audit"):
            await producer.topic(topic, value=bytes, linger_ms=2_000).partitions_for()
        producer.send("orders", b"o")
        await asyncio.sleep(1)
        producer.send("audit", b"a")
        await asyncio.sleep(1.1)

        assert (producer.statistics().records_acknowledged, produce_requests(cluster)) == (2, 1)


@in_virtual_time
async def test_topic_linger_is_limited_by_its_delivery_timeout() -> None:
    """As of a producer: no record's deadline is far from its batch's."""
    async with producing(two_topics(), request_timeout_ms=1_000) as (_, producer):
        audit = producer.topic("audit", value=bytes, linger_ms=5_000, delivery_timeout_ms=10_000)
        await audit.partitions_for()
        audit.send(b"a")
        (waiting,) = producer.explain().waiting

    assert (waiting.until_s, waiting.deadline_s) == (pytest.approx(1), pytest.approx(10))


# Codec


@in_virtual_time
async def test_batches_have_the_codec_of_their_topic() -> None:
    topics = dict.fromkeys([*NAMES, "other"], 1)
    async with producing(FakeCluster(1, topics=topics), compression_type="gzip") as (cluster, producer):
        for codec in NAMES:
            producer.topic(codec, value=bytes, compression_type=codec)  # type: ignore[arg-type]  # one of these words
            producer.send(codec, b"v" * 1_000)  # by the producer's own method
        producer.send("other", b"v" * 1_000)
        await producer.flush()

        assert {codec: codecs(cluster, codec) for codec in NAMES} == {name: [number] for name, number in NAMES.items()}
        assert codecs(cluster, "other") == [NAMES["gzip"]]
        assert values(cluster, "zstd") == [b"v" * 1_000]


@pytest.mark.slow
async def test_large_batches_are_compressed_in_threads_by_topic_codec() -> None:
    async with producing(two_topics()) as (cluster, producer):
        audit = producer.topic("audit", value=bytes, compression_type="lz4")
        for number in range(2_000):
            await producer.enqueue("orders", b"%d " % number * 100)
            await audit.enqueue(b"%d " % number * 100)
        await producer.flush()

        assert set(codecs(cluster, "orders")) == {NAMES["none"]}
        assert set(codecs(cluster, "audit")) == {NAMES["lz4"]}
        assert (
            values(cluster, "audit") == values(cluster, "orders") == [b"%d " % number * 100 for number in range(2_000)]
        )


async def test_too_large_batch_is_split_into_parts_of_its_codec() -> None:
    async with producing(two_topics()) as (cluster, producer):
        audit = producer.topic("audit", value=bytes, compression_type="gzip")
        await audit.partitions_for()
        cluster.faults.error(10, PRODUCE)  # MESSAGE_TOO_LARGE
        for number in range(4):
            audit.send(b"%d" % number * 500)
        await producer.flush()

        assert codecs(cluster, "audit") == [NAMES["gzip"]] * 2
        assert values(cluster, "audit") == [b"%d" % number * 500 for number in range(4)]


# Delivery time-out


@pytest.mark.parametrize("of_producer, of_audit", [(20_000, 2_000), (2_000, 20_000)])
@in_virtual_time
async def test_records_of_each_topic_live_as_long_as_its_option_says(of_producer: int, of_audit: int) -> None:
    took: dict[str, float] = {}
    options = {"delivery_timeout_ms": of_producer, "request_timeout_ms": 1_000}
    async with producing(two_topics(), **options) as (cluster, producer):  # type: ignore[arg-type]  # two options
        audit = producer.topic("audit", value=bytes, delivery_timeout_ms=of_audit)
        await asyncio.gather(audit.partitions_for(), producer.partitions_for("orders"))
        await cluster.kill(1)
        began = now()
        expected = {"orders": of_producer, "audit": of_audit}
        sent = {"orders": producer.send("orders", b"o"), "audit": audit.send(b"a")}
        for topic, delivery in sent.items():
            delivery.add_done_callback(partial(note_time, took, topic))
        deadlines = {each.topic: each.deadline_s for each in producer.explain().waiting}
        for topic, delivery in sent.items():
            with pytest.raises(DeliveryTimeoutError, match=f"delivery_timeout_ms={expected[topic]} ") as caught:
                await delivery
            assert caught.value.outcome is Outcome.NOT_WRITTEN

    assert deadlines == pytest.approx({topic: ms / 1000 for topic, ms in expected.items()})
    assert {topic: when - began for topic, when in took.items()} == pytest.approx(
        {topic: ms / 1000 for topic, ms in expected.items()}, abs=0.05
    )


@in_virtual_time
async def test_record_deadline_is_limited_by_topic_delivery_timeout() -> None:
    async with producing(two_topics(), delivery_timeout_ms=5_000, request_timeout_ms=1_000) as (_, producer):
        short = producer.topic("audit", value=bytes, delivery_timeout_ms=2_000)
        long = producer.topic("orders", value=bytes, delivery_timeout_ms=60_000)

        for send in (partial(short.send, b"v"), partial(producer.send, "audit", b"v")):
            with pytest.raises(ValueError, match=r"at most 2 s, which is delivery_timeout_ms=2000, not 3"):
                send(deadline=3)
        await long.send(b"v", deadline=50)
        await producer.send_and_wait("orders", b"v", deadline=50)
        for topic in (["audit"], None):
            with pytest.raises(TypeError):
                producer.send(topic, b"v", deadline=1)  # type: ignore[arg-type]  # no name


@pytest.mark.parametrize("of_topic, option, limit", [(2_000, "delivery_timeout_ms", 2), (90_000, "max_block_ms", 60)])
@in_virtual_time
async def test_record_for_an_unknown_topic_waits_its_delivery_timeout(of_topic: int, option: str, limit: int) -> None:
    """The producer's own time-out, which is the shortest here, is not that of the topic."""
    async with producing(two_topics(), delivery_timeout_ms=1_500, request_timeout_ms=1_000) as (cluster, producer):
        audit = producer.topic("audit", value=bytes, delivery_timeout_ms=of_topic)
        stall = cluster.faults.stall(METADATA)
        waiting = audit.send(b"v")
        other = producer.send("orders", b"v")
        began = now()
        (explained,) = producer.explain("audit").waiting
        with pytest.raises(MetadataTimeoutError, match="after delivery_timeout_ms=1500"):
            await other
        with pytest.raises(MetadataTimeoutError, match=f"after {option}={limit * 1000}"):
            await waiting
        cluster.faults.remove(stall)

    assert explained.deadline_s == pytest.approx(limit)
    assert now() - began == pytest.approx(limit, abs=0.05)


@in_virtual_time
async def test_record_without_memory_waits_its_delivery_timeout() -> None:
    async with producing(two_topics(), buffer_memory=100_000, request_timeout_ms=1_000) as (cluster, producer):
        audit = producer.topic("audit", value=bytes, delivery_timeout_ms=2_000)
        await asyncio.gather(audit.partitions_for(), producer.partitions_for("orders"))
        stall = cluster.faults.stall(PRODUCE)
        kept = [await producer.enqueue("orders", b"v" * 20_000) for _ in range(4)]
        with pytest.raises(BufferTimeoutError, match="within delivery_timeout_ms=2000"):
            await audit.enqueue(b"v" * 60_000)
        cluster.faults.remove(stall)
        await asyncio.gather(*kept)


@in_virtual_time
async def test_later_batch_may_end_before_an_earlier_one() -> None:
    """The earlier one has the options of before; it is written, once and alone."""
    async with producing(two_topics(), request_timeout_ms=1_000, delivery_timeout_ms=60_000) as (cluster, producer):
        await producer.send("audit", b"first")
        stall = cluster.faults.stall(PRODUCE)
        early = producer.send("audit", b"early")
        await asyncio.sleep(0.1)
        audit = producer.topic("audit", value=bytes, delivery_timeout_ms=2_000)
        late = audit.send(b"late")
        await asyncio.sleep(0.1)
        queued = audit.send(b"queued")
        await asyncio.wait([late, queued])

        assert [str(each.exception()).split()[3] for each in (late, queued)] == ["delivery_timeout_ms=2000"] * 2
        assert not early.done()
        cluster.faults.remove(stall)
        await early
        await audit.send(b"last")

        written = [value for value in values(cluster, "audit") if value != b"late"]  # whose outcome is unknown
        assert written == [b"first", b"early", b"last"]


# When and how options are given


@in_virtual_time
async def test_options_hold_from_the_next_batch_of_a_topic_in_use() -> None:
    async with producing(two_topics()) as (cluster, producer):
        await producer.send("audit", b"v" * 500)
        audit = producer.topic("audit", value=bytes, compression_type="zstd")
        await audit.send(b"v" * 500)

        assert codecs(cluster, "audit") == [NAMES["none"], NAMES["zstd"]]


async def test_options_may_be_given_before_the_start(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers)
    orders = producer.topic("orders", value=bytes, compression_type="gzip")
    async with producer:
        await orders.send(b"v" * 500, partition=0)

    assert codecs(cluster, "orders") == [NAMES["gzip"]]


@in_virtual_time
async def test_topic_of_a_transaction_takes_options() -> None:
    async with producing(two_topics(), transactional_id="t") as (cluster, producer):
        async with producer.transaction() as transaction:
            audit = transaction.topic("audit", value=bytes, compression_type="snappy")
            await audit.enqueue(b"v" * 500)

        assert codecs(cluster, "audit")[0] == NAMES["snappy"]


def made(kind: str) -> Producer:
    return {"Producer": Producer, "MockProducer": MockProducer}[kind]("localhost:1", request_timeout_ms=1_000)


@pytest.fixture(params=["Producer", "MockProducer"])
def unstarted(request: pytest.FixtureRequest) -> Producer:
    return made(request.param)


def test_topic_gets_its_options_once(unstarted: Producer) -> None:
    give = partial(unstarted.topic, "audit", value=bytes)
    give()
    give(linger_ms=500, compression_type="lz4")
    give()
    give(compression_type="lz4", linger_ms=500)
    unstarted.topic("orders", value=bytes, linger_ms=5)

    expected = (
        "topic 'audit' was given linger_ms=500 before, and cannot have linger_ms=400: a topic gets its options once"
    )
    with pytest.raises(ConfigurationError, match=re.escape(expected)) as caught:
        give(linger_ms=400, compression_type="lz4")
    assert caught.value.option == "linger_ms"
    with pytest.raises(ConfigurationError, match="linger_ms=500, compression_type='lz4' before") as caught:
        give(delivery_timeout_ms=120_000)
    assert caught.value.option is None
    give(compression_type="lz4", linger_ms=500)


TYPES = ("5", 5.0, True, None, [5])
BAD = [
    *(({name: value}, TypeError) for name in ("linger_ms", "delivery_timeout_ms") for value in TYPES),
    *(({"compression_type": value}, TypeError) for value in (4, None, b"zstd")),
    ({"linger_ms": -1}, ValueError),
    ({"linger_ms": 2**63}, ValueError),
    ({"delivery_timeout_ms": 0}, ValueError),
    ({"delivery_timeout_ms": 2**31}, ValueError),
    ({"compression_type": "brotli"}, ValueError),
    ({"linger_ms": 60_000, "delivery_timeout_ms": 50_000}, ValueError),
    ({"delivery_timeout_ms": 1_004}, ValueError),  # less than linger_ms + request_timeout_ms
]


BAD_IN_KAFKAS_SPELLING = [({name.replace("_", "."): value for name, value in bad.items()}, kind) for bad, kind in BAD]


@pytest.mark.parametrize("named, kind", [*BAD, *BAD_IN_KAFKAS_SPELLING], ids=repr)
def test_bad_option_is_refused_as_the_producers_is(
    unstarted: Producer, named: dict[str, object], kind: type[Exception]
) -> None:
    with pytest.raises(ConfigurationError) as of_producer:
        ProducerConfig(bootstrap_servers="h:1", request_timeout_ms=1_000, **named)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError) as caught:
        unstarted.topic("audit", value=bytes, **named)  # type: ignore[call-overload]

    assert isinstance(caught.value, kind)
    assert str(caught.value) == f"topic 'audit': {of_producer.value}"
    assert caught.value.option == of_producer.value.option
    unstarted.topic("audit", value=bytes, linger_ms=1)  # nothing was kept


@pytest.mark.parametrize(
    "options, message",
    [
        ({"acks": 1}, r"'acks' is an option of the whole producer; those of a topic are linger_ms, compression_type, "),
        ({"batch.size": 1}, r"'batch.size' is an option of the whole producer"),
        ({"linger": 5}, r"no option 'linger'; did you mean 'linger_ms'"),
        ({"linger_ms": 5, "linger.ms": 5}, r"linger_ms is given twice"),
        ({"header": []}, r"no option 'header'"),
    ],
)
def test_option_that_topics_have_not_is_refused(unstarted: Producer, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"topic 'audit': .*{message}"):
        unstarted.topic("audit", value=bytes, **options)  # type: ignore[call-overload]


async def test_both_spellings_are_taken(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        orders = producer.topic("orders", value=bytes, **{"compression.type": "gzip", "linger.ms": 0})  # type: ignore[call-overload]
        await orders.send(b"v" * 500, partition=0)

    assert codecs(cluster, "orders") == [NAMES["gzip"]]


async def test_long_linger_lengthens_the_default_delivery_timeout() -> None:
    """As of the producer's options, in Kafka too."""
    async with producing(two_topics()) as (_, producer):
        audit = producer.topic("audit", value=bytes, linger_ms=200_000)
        await audit.partitions_for()
        audit.send(b"v")
        (waiting,) = producer.explain().waiting

    assert (waiting.reason, waiting.deadline_s) == (WaitReason.LINGER, pytest.approx(230, abs=1))
