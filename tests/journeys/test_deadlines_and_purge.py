"""Deadlines of single records, in every verb and wherever the record is, and `purge`, which ends what has not left."""

import asyncio

import pytest

from aioproducer import (
    BufferTimeoutError,
    Delivery,
    DeliveryTimeoutError,
    IllegalStateError,
    MetadataTimeoutError,
    Outcome,
    Producer,
    ProducerInterceptor,
    PurgedError,
    RoundRobinPartitioner,
    SerializationError,
    TransactionAbortableError,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_loop import in_virtual_time, now
from tests.produced import VERBS, give, produce_requests, values

PRODUCE = Where(api=ApiKey.PRODUCE)
METADATA = Where(api=ApiKey.METADATA)
SMALL = {"buffer_memory": 200_000, "batch_size": 10_000}


async def end(producer: Producer) -> None:
    """Close with records that the cluster does not answer."""
    with pytest.raises(UndeliveredError):
        await producer.close(0)


@pytest.mark.parametrize("verb", VERBS)
@in_virtual_time
async def test_record_ends_at_its_deadline_and_the_others_are_written(verb: str) -> None:
    """It never left: its batch was waiting for a leader."""
    async with producing() as (cluster, producer):
        await producer.partitions_for("orders")
        await cluster.kill(1)
        await asyncio.sleep(0.1)
        kept = producer.send("orders", b"kept")
        began = now()

        with pytest.raises(DeliveryTimeoutError, match=r"not acknowledged within deadline=2 after") as caught:
            await give(producer, verb, "orders", b"late", deadline=2)

        assert now() - began == pytest.approx(2, abs=0.05)
        assert caught.value.outcome is Outcome.NOT_WRITTEN
        await cluster.restart(1)
        await kept
        assert values(cluster, "orders") == [b"kept"]


@pytest.mark.parametrize("verb", VERBS)
@in_virtual_time
async def test_record_of_a_typed_topic_ends_at_its_deadline(verb: str) -> None:
    async with producing() as (cluster, producer):
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
    async with producing() as (cluster, producer):
        stall = cluster.faults.stall(METADATA)
        behind = producer.send("orders", b"behind")
        began = now()

        with pytest.raises(MetadataTimeoutError, match=r"still unknown after deadline=2: ") as caught:
            await give(producer, verb, "orders", b"late", deadline=2)

        assert now() - began == pytest.approx(2, abs=0.01)
        assert caught.value.outcome is Outcome.NOT_WRITTEN
        cluster.faults.remove(stall)
        await behind
        assert values(cluster, "orders") == [b"behind"]


@pytest.mark.parametrize("verb", ["send", "send_and_wait", "enqueue"])
@in_virtual_time
async def test_record_without_memory_ends_at_its_deadline(verb: str) -> None:
    async with producing(**SMALL) as (cluster, producer):
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
    async with producing() as (cluster, producer):
        stall = cluster.faults.stall(METADATA)
        began = now()
        late, kept = producer.send("orders", b"late", deadline=5), producer.send("orders", b"kept")
        await asyncio.sleep(3)
        cluster.faults.stall(PRODUCE)
        cluster.faults.remove(stall)

        with pytest.raises(DeliveryTimeoutError, match="deadline=5"):
            await late

        assert now() - began == pytest.approx(5, abs=0.05)
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
    async with producing(value_serializer=Slow()) as (cluster, producer):
        await producer.partitions_for("orders")
        with pytest.raises(SerializationError, match="not serialized within deadline=1"):
            await producer.send_and_wait("orders", b"late", deadline=1)
        cluster.faults.stall(PRODUCE)
        began = now()

        with pytest.raises(DeliveryTimeoutError, match="deadline=5"):
            await producer.send_and_wait("orders", b"late", deadline=5)

        assert now() - began == pytest.approx(5, abs=0.05)


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
    async with producing(**options) as (cluster, producer):  # type: ignore[arg-type]
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
    async with producing() as (cluster, producer):
        for number in range(20):
            await producer.send("orders", b"%d" % number, deadline=0.5)
        await asyncio.sleep(1)

        assert values(cluster, "orders") == [b"%d" % number for number in range(20)]
        assert producer.statistics().records_failed == 0


@in_virtual_time
async def test_flush_raises_what_ended_and_waits_for_the_others() -> None:
    async with producing() as (cluster, producer):
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
    async with producing(transactional_id="t") as (cluster, producer):
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
    async with producing(delivery_timeout_ms=5000, request_timeout_ms=2000) as (cluster, producer):
        for verb in VERBS:
            with pytest.raises(ValueError, match=r"at most 5 s, which is delivery_timeout_ms=5000, not 5\.001"):
                await give(producer, verb, "orders", b"v", deadline=5.001)

        assert produce_requests(cluster) == 0


@in_virtual_time
async def test_explanation_knows_the_sooner_deadline() -> None:
    async with producing() as (cluster, producer):
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


# `purge`: what has not left ends as not written, and nothing else


def assert_purged(*deliveries: Delivery) -> None:
    for delivery in deliveries:
        error = delivery.exception()
        assert isinstance(error, PurgedError)
        assert error.outcome is Outcome.NOT_WRITTEN


@in_virtual_time
async def test_records_in_batches_end_and_those_on_the_wire_go_on() -> None:
    async with producing() as (cluster, producer):
        await producer.partitions_for("orders")
        stall = cluster.faults.stall(PRODUCE)
        sent = producer.send("orders", b"sent")
        await asyncio.sleep(0.1)
        later = [producer.send("orders", b"later") for _ in range(3)]

        assert producer.purge() == 3

        assert_purged(*later)
        assert not sent.done()
        cluster.faults.remove(stall)
        await sent
        await producer.send("orders", b"next")
        assert values(cluster, "orders") == [b"sent", b"next"]
        assert producer.purge() == 0


@in_virtual_time
async def test_purged_batches_are_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    async with producing(FakeCluster(1, topics={"orders": 8}), linger_ms=1000) as (_, producer):
        await producer.partitions_for("orders")
        deliveries = [producer.send("orders", b"v", partition=partition) for partition in range(8)]
        producer.purge()
        assert_purged(*deliveries)

    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


@in_virtual_time
async def test_only_the_topic_that_was_named_is_purged() -> None:
    async with producing(FakeCluster(1, topics={"orders": 1, "audit": 1}), linger_ms=1000) as (cluster, producer):
        await producer.partitions_for("orders")
        await producer.partitions_for("audit")
        stall = cluster.faults.stall(METADATA)
        purged = [producer.send("orders", b"1"), producer.send("orders", b"2")]
        kept = producer.send("audit", b"3")
        elsewhere = producer.send("unknown", b"4")

        assert producer.purge("orders") == 2
        assert_purged(*purged)
        assert producer.purge("unknown") == 1
        assert_purged(elsewhere)

        await kept
        cluster.faults.remove(stall)
        assert (values(cluster, "orders"), values(cluster, "audit")) == ([], [b"3"])
        with pytest.raises(ValueError, match="topic"):
            producer.purge("")
        with pytest.raises(TypeError, match="topic"):
            producer.purge(5)  # type: ignore[arg-type]


@in_virtual_time
async def test_callers_that_wait_for_metadata_get_the_error() -> None:
    async with producing() as (cluster, producer):
        cluster.faults.stall(METADATA)
        waiting = [asyncio.create_task(producer.enqueue("orders", b"v")) for _ in range(2)]
        sent = producer.send("orders", b"v")
        await asyncio.sleep(1)

        assert producer.purge() == 3

        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, PurgedError)
        assert_purged(sent)
        assert producer.statistics().records_waiting == 0


@in_virtual_time
async def test_callers_that_wait_for_a_serializer_get_the_error() -> None:
    """And so do those whose serializer ends in the same turn: they were counted."""
    ending = asyncio.Event()

    async def hanging(_value: bytes) -> bytes:
        await ending.wait()
        return b"serialized"

    async with producing(FakeCluster(1, topics={"orders": 1, "audit": 1})) as (cluster, producer):
        orders, audit = producer.topic("orders", value=hanging), producer.topic("audit", value=hanging)
        waiting = [asyncio.create_task(orders.enqueue(b"v")) for _ in range(2)]
        kept = asyncio.create_task(audit.enqueue(b"v"))
        await asyncio.sleep(1)

        assert producer.purge("orders") == 2
        assert producer.purge("orders") == 0
        assert [waiting.topic for waiting in producer.explain().waiting] == ["audit"]
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, PurgedError)
            assert (error.topic, error.outcome) == ("orders", Outcome.NOT_WRITTEN)

        same_turn = asyncio.create_task(orders.enqueue(b"v"))
        await asyncio.sleep(1)
        ending.set()
        assert producer.purge("orders") == 1
        with pytest.raises(PurgedError):
            await same_turn
        await (await kept)
        await producer.topic("orders", value=hanging).send_and_wait(b"v")
        assert (values(cluster, "orders"), values(cluster, "audit")) == ([b"serialized"], [b"serialized"])


@in_virtual_time
async def test_callers_that_wait_for_memory_get_the_error() -> None:
    async with producing(**SMALL) as (cluster, producer):
        await producer.partitions_for("orders")
        stall = cluster.faults.stall(PRODUCE)
        loop = [asyncio.create_task(producer.enqueue("orders", bytes(5_000))) for _ in range(100)]
        await asyncio.sleep(1)
        statistics = producer.statistics()
        in_memory = statistics.records_waiting

        purged = producer.purge()
        results = await asyncio.gather(*loop, return_exceptions=True)

        raised = [result for result in results if isinstance(result, PurgedError)]
        assert 0 < in_memory == len(raised) < purged
        cluster.faults.remove(stall)
        with pytest.raises(UndeliveredError) as caught:
            await producer.flush()
        assert caught.value.count == purged - len(raised)
        assert len(values(cluster, "orders")) == 100 - purged
        await producer.send("orders", b"next")


@in_virtual_time
async def test_batch_that_may_be_written_is_not_purged() -> None:
    """Its response was lost: it is sent again, and found to be written."""
    async with producing() as (cluster, producer):
        await producer.send("orders", b"first")
        cluster.faults.error_after_append(7, PRODUCE)
        ambiguous = producer.send("orders", b"ambiguous")
        await asyncio.sleep(0.05)
        behind = producer.send("orders", b"behind")

        assert producer.purge() == 1

        assert_purged(behind)
        await ambiguous
        assert values(cluster, "orders") == [b"first", b"ambiguous"]


@in_virtual_time
async def test_refused_batch_is_purged_and_its_sequence_given_up() -> None:
    async with producing() as (cluster, producer):
        await producer.send("orders", b"first")
        fault = cluster.faults.error(6, PRODUCE, times=None)
        refused = producer.send("orders", b"refused")
        await asyncio.sleep(0.05)  # in the pause before it is sent again

        assert producer.purge() == 1

        assert_purged(refused)
        cluster.faults.remove(fault)
        await producer.send("orders", b"next")
        assert values(cluster, "orders") == [b"first", b"next"]


@in_virtual_time
async def test_flush_and_close_end_right_after_and_raise() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers)
        await producer.start()
        await producer.partitions_for("orders")
        await cluster.kill(1)
        await asyncio.sleep(0.1)
        producer.send("orders", b"1")
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(1)
        assert not flushing.done()
        producer.purge()
        with pytest.raises(UndeliveredError, match="purge"):
            await flushing
        producer.send("orders", b"2")
        closing = asyncio.create_task(producer.close(60))
        await asyncio.sleep(1)
        assert not closing.done()
        began = now()

        assert producer.purge() == 1

        with pytest.raises(UndeliveredError, match="purge"):
            await closing
        assert now() - began < 1
        with pytest.raises(IllegalStateError):
            producer.purge()


@in_virtual_time
async def test_transaction_that_lost_records_must_be_aborted() -> None:
    async with producing(transactional_id="t") as (cluster, producer):
        await producer.begin_transaction()
        await producer.send("orders", b"kept")
        producer.send("orders", b"purged")
        assert producer.purge() == 1
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"next")

        assert [record.value for record in cluster.committed_records("orders", 0)] == [b"next"]


@in_virtual_time
async def test_transaction_of_a_caller_that_waited_must_be_aborted() -> None:
    """Its `enqueue` raises, and the commit does too."""
    async with producing(transactional_id="t") as (cluster, producer):
        cluster.faults.stall(METADATA)
        await producer.begin_transaction()
        waiting = asyncio.create_task(producer.enqueue("orders", b"v"))
        await asyncio.sleep(1)
        assert producer.purge() == 1
        with pytest.raises(PurgedError):
            await waiting

        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()


async def test_producer_that_was_not_started_has_nothing_to_purge(one_broker: FakeCluster) -> None:
    producer = Producer(one_broker.bootstrap_servers)

    with pytest.raises(IllegalStateError, match="not started"):
        producer.purge()
    assert produce_requests(one_broker) == 0


async def test_purge_is_refused_on_another_thread(producer: Producer) -> None:
    with pytest.raises(IllegalStateError, match="another thread"):
        await asyncio.to_thread(producer.purge)
