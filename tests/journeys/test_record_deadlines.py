"""A deadline for one record, in every verb and wherever the record is when it ends."""

import asyncio

import pytest

from aioproducer import (
    BufferTimeoutError,
    Delivery,
    DeliveryTimeoutError,
    MetadataTimeoutError,
    Outcome,
    Producer,
    ProducerInterceptor,
    RoundRobinPartitioner,
    SerializationError,
    TransactionAbortableError,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_cluster import in_virtual_time
from tests.produced import VERBS, give, produce_requests, values

PRODUCE = Where(api=ApiKey.PRODUCE)
METADATA = Where(api=ApiKey.METADATA)
SMALL = {"buffer_memory": 200_000, "batch_size": 10_000}


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def end(producer: Producer) -> None:
    """Close with records that the cluster does not answer."""
    with pytest.raises(UndeliveredError):
        await producer.close(0)


@pytest.mark.parametrize("verb", VERBS)
@in_virtual_time
async def test_record_ends_at_its_deadline_and_the_others_are_written(verb: str) -> None:
    """It never left: its batch was waiting for a leader."""
    async with producing(FakeCluster(1, topics={"orders": 1})) as (cluster, producer):
        await producer.partitions_for("orders")
        await cluster.kill(1)
        await asyncio.sleep(0.1)
        kept = producer.send("orders", b"kept")
        began = seconds()

        with pytest.raises(DeliveryTimeoutError, match=r"not acknowledged within deadline=2 after") as caught:
            await give(producer, verb, "orders", b"late", deadline=2)

        assert seconds() - began == pytest.approx(2, abs=0.05)
        assert caught.value.outcome is Outcome.NOT_WRITTEN
        await cluster.restart(1)
        await kept
        assert values(cluster, "orders") == [b"kept"]


@pytest.mark.parametrize("verb", VERBS)
@in_virtual_time
async def test_record_of_a_typed_topic_ends_at_its_deadline(verb: str) -> None:
    async with producing(FakeCluster(1, topics={"orders": 1})) as (cluster, producer):
        orders = producer.topic("orders", value=str)
        await orders.partitions_for()
        cluster.faults.stall(PRODUCE)
        kept = orders.send("kept")

        with pytest.raises(DeliveryTimeoutError) as caught:
            await give(orders, verb, "late", deadline=2)  # type: ignore[arg-type]  # has the same methods

        assert (caught.value.outcome, kept.done()) == (Outcome.UNKNOWN, False)
        with pytest.raises(ValueError, match="deadline"):
            await give(orders, verb, "v", deadline=0)  # type: ignore[arg-type]
        await end(producer)


@pytest.mark.parametrize("verb", ["send", "send_and_wait", "enqueue"])
@in_virtual_time
async def test_record_for_an_unknown_topic_ends_at_its_deadline(verb: str) -> None:
    async with producing(FakeCluster(1, topics={"orders": 1})) as (cluster, producer):
        stall = cluster.faults.stall(METADATA)
        behind = producer.send("orders", b"behind")
        began = seconds()

        with pytest.raises(MetadataTimeoutError, match=r"still unknown after deadline=2: ") as caught:
            await give(producer, verb, "orders", b"late", deadline=2)

        assert seconds() - began == pytest.approx(2, abs=0.01)
        assert caught.value.outcome is Outcome.NOT_WRITTEN
        cluster.faults.remove(stall)
        await behind
        assert values(cluster, "orders") == [b"behind"]


@pytest.mark.parametrize("verb", ["send", "send_and_wait", "enqueue"])
@in_virtual_time
async def test_record_without_memory_ends_at_its_deadline(verb: str) -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}), **SMALL) as (cluster, producer):
        await producer.partitions_for("orders")
        stall = cluster.faults.stall(PRODUCE)
        while True:
            waiting = producer.send("orders", bytes(5_000))
            if producer.statistics().records_waiting:
                break

        with pytest.raises(
            BufferTimeoutError, match=r"within deadline=2: .* raise buffer_memory or deadline"
        ) as caught:
            await give(producer, verb, "orders", b"late", deadline=2)

        assert caught.value.outcome is Outcome.NOT_WRITTEN
        cluster.faults.remove(stall)
        await waiting
        assert b"late" not in values(cluster, "orders")


@in_virtual_time
async def test_record_that_waited_keeps_its_deadline_in_its_batch() -> None:
    """The time in the wait queue counts."""
    async with producing(FakeCluster(1, topics={"orders": 1})) as (cluster, producer):
        stall = cluster.faults.stall(METADATA)
        began = seconds()
        late, kept = producer.send("orders", b"late", deadline=5), producer.send("orders", b"kept")
        await asyncio.sleep(3)
        cluster.faults.stall(PRODUCE)
        cluster.faults.remove(stall)

        with pytest.raises(DeliveryTimeoutError, match="deadline=5"):
            await late

        assert seconds() - began == pytest.approx(5, abs=0.05)
        assert not kept.done()
        await end(producer)


class Slow:
    """Waits longer than any deadline here."""

    def serialize(self, _topic: str, value: bytes, /) -> object:
        return self.later(value)

    async def later(self, value: bytes) -> bytes:
        await asyncio.sleep(2)
        return value


@in_virtual_time
async def test_time_of_an_awaited_serializer_counts() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}), value_serializer=Slow()) as (cluster, producer):
        await producer.partitions_for("orders")
        with pytest.raises(SerializationError, match="not serialized within deadline=1"):
            await producer.send_and_wait("orders", b"late", deadline=1)
        cluster.faults.stall(PRODUCE)
        began = seconds()

        with pytest.raises(DeliveryTimeoutError, match="deadline=5"):
            await producer.send_and_wait("orders", b"late", deadline=5)

        assert seconds() - began == pytest.approx(5, abs=0.05)


class Listening(ProducerInterceptor):
    def __init__(self) -> None:
        self.ends: list[str] = []

    def on_error(self, topic_partition: object, error: Exception, headers: object) -> None:  # noqa: ARG002
        self.ends.append(type(error).__name__)


@pytest.mark.parametrize("verb", VERBS)
@in_virtual_time
async def test_hooks_and_callbacks_learn_of_a_record_that_ended(verb: str) -> None:
    listening, told = Listening(), list[str]()
    options = {"interceptors": [listening], "partitioner": RoundRobinPartitioner()}
    async with producing(FakeCluster(1, topics={"orders": 1}), **options) as (cluster, producer):  # type: ignore[arg-type]
        await producer.partitions_for("orders")
        cluster.faults.stall(PRODUCE)
        producer.send("orders", b"kept", on_delivery=lambda _metadata, _error: told.append("kept"))

        def tell(_metadata: object, error: Exception | None) -> None:
            told.append(type(error).__name__)

        with pytest.raises(DeliveryTimeoutError):
            await give(producer, verb, "orders", b"late", deadline=1, on_delivery=tell)

        assert (told, listening.ends) == (["DeliveryTimeoutError"], ["DeliveryTimeoutError"])
        await producer.close(0)


@in_virtual_time
async def test_record_that_is_in_time_costs_nothing_later() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1})) as (cluster, producer):
        for number in range(20):
            await producer.send("orders", b"%d" % number, deadline=0.5)
        await asyncio.sleep(1)

        assert values(cluster, "orders") == [b"%d" % number for number in range(20)]
        assert producer.statistics().records_failed == 0


@in_virtual_time
async def test_flush_raises_what_ended_and_waits_for_the_others() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1})) as (cluster, producer):
        await producer.partitions_for("orders")
        stall = cluster.faults.stall(PRODUCE)
        producer.send("orders", b"late", deadline=1)
        producer.send("orders", b"kept")
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(2)
        assert not flushing.done()
        cluster.faults.remove(stall)

        with pytest.raises(UndeliveredError, match="1 record") as caught:
            await flushing

        assert caught.value.count == 1


@in_virtual_time
async def test_transaction_with_a_record_that_ended_is_aborted() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}), transactional_id="t") as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.faults.delay(3, PRODUCE)
        await producer.begin_transaction()
        producer.send("orders", b"kept")
        producer.send("orders", b"late", deadline=1)
        await asyncio.sleep(2)
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()

        async with producer.transaction() as transaction:
            await transaction.send("orders", b"next", deadline=1)
        assert values(cluster, "orders")[-1] == b"next"


class Overriding(Producer):
    """Knows nothing of deadlines."""

    calls = 0

    async def enqueue(self, topic: str, value: object = None, **options: object) -> Delivery:  # type: ignore[override]
        assert "deadline" not in options
        self.calls += 1
        return await super().enqueue(topic, value, **options)  # type: ignore[arg-type]


@in_virtual_time
async def test_method_that_a_subclass_overrides_needs_no_deadline() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster, Overriding(cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"1")
        await producer.topic("orders", value=str).send_and_wait("2")

        assert (producer.calls, values(cluster, "orders")) == (2, [b"1", b"2"])


class Passing(Producer):
    """Passes deadlines on."""

    deadlines: list[object]

    def send(self, topic: str, value: object = None, **options: object) -> Delivery:  # type: ignore[override]
        self.deadlines.append(options.get("deadline"))
        return super().send(topic, value, **options)  # type: ignore[arg-type]


@in_virtual_time
async def test_overridden_method_gets_the_deadline_of_a_topic() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster, Passing(cluster.bootstrap_servers) as producer:
        producer.deadlines = []
        orders = producer.topic("orders", value=str)

        await orders.send("1", deadline=3)
        delivery = await orders.enqueue("2", deadline=3)
        await delivery

        assert producer.deadlines == [3]


@in_virtual_time
async def test_refused_deadline_sends_nothing() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1}), delivery_timeout_ms=5000, request_timeout_ms=2000) as (
        cluster,
        producer,
    ):
        for verb in VERBS:
            with pytest.raises(ValueError, match=r"at most 5 s, which is delivery_timeout_ms=5000, not 5\.001"):
                await give(producer, verb, "orders", b"v", deadline=5.001)

        assert produce_requests(cluster) == 0


@in_virtual_time
async def test_explanation_knows_the_sooner_deadline() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1})) as (cluster, producer):
        stall = cluster.faults.stall(METADATA)
        waiting = producer.send("orders", b"v", deadline=20)
        [in_queue] = producer.explain().waiting
        cluster.faults.remove(stall)
        cluster.faults.stall(PRODUCE)
        await asyncio.sleep(5)
        [in_batch] = producer.explain().waiting

        assert in_queue.deadline_s == pytest.approx(20, abs=0.1)
        assert in_batch.deadline_s == pytest.approx(15, abs=0.1)
        waiting.cancel()
        await end(producer)
