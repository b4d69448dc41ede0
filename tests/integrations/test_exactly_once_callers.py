"""The caller's functions: some that cannot be awaited, callbacks, a `stop` from another thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest
from aiokafka import ConsumerRecord

from aioproducer import KafkaError, Outcome, RecordMetadata
from aioproducer.integrations.aiokafka import BatchTransaction, ExactlyOnce, exactly_once
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.log_capture import LogCapture
from tests.integrations.workers import consuming, copy, fill, transacting, working

pytestmark = pytest.mark.slow

TOTAL = 40
TRANSACTION_ABORTABLE = 120


@pytest.fixture(name="cluster")
async def fixture_cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"input": 4, "output": 4}) as cluster:
        await fill(cluster.bootstrap_servers, "input", range(TOTAL))
        yield cluster


@pytest.mark.parametrize("transform", [lambda *_: None, None], ids=["not async", "none"])
async def test_transform_that_cannot_be_awaited_is_no_poison(cluster: FakeCluster, transform: object) -> None:
    """No record is at fault: none goes to the hook, and the error names the argument."""
    buried: list[object] = []

    async def bury(*record: object) -> None:
        buried.append(record)

    with pytest.raises(TypeError, match="transform must be a coroutine function"):
        async with asyncio.timeout(20), working(cluster.bootstrap_servers, on_poison=bury) as batches:
            await batches.run(transform)  # type: ignore[arg-type]

    assert buried == []


async def test_hook_that_cannot_be_awaited_is_named(cluster: FakeCluster) -> None:
    async def stumble(records: Sequence[ConsumerRecord], _: BatchTransaction) -> None:
        if records[0].partition == 0:
            raise ValueError

    with pytest.raises(TypeError, match="on_poison must be a coroutine function"):
        async with working(cluster.bootstrap_servers, max_records=1, on_poison=lambda *_: None) as batches:
            await batches.run(stumble)


async def test_object_of_another_type_is_refused_as_producer(cluster: FakeCluster) -> None:
    async with consuming(cluster.bootstrap_servers, "input") as consumer:
        with pytest.raises(TypeError, match="producer must be a Producer, not str"):
            exactly_once(consumer, "localhost:9092")  # type: ignore[arg-type]


async def test_record_of_a_failed_transaction_tells_its_callback(cluster: FakeCluster) -> None:
    """Otherwise a body that counts its callbacks would wait forever."""
    told: list[KafkaError | None] = []

    def tell(_: RecordMetadata | None, error: KafkaError | None) -> None:
        told.append(error)

    async with working(cluster.bootstrap_servers) as batches:
        async for records, txn in batches:
            cluster.faults.error(TRANSACTION_ABORTABLE, Where(api=ApiKey.PRODUCE))
            await copy(records, txn)
            await asyncio.sleep(0.2)  # the answer is here
            await txn.enqueue("output", b"late", on_delivery=tell)
            txn.send("output", b"later", on_delivery=tell)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            break

    assert [type(error).__name__ for error in told] == ["TransactionAbortableError"] * 2
    assert {error.outcome for error in told if error is not None} == {Outcome.NOT_WRITTEN}


async def test_callback_of_a_failed_transaction_that_raises_is_logged(cluster: FakeCluster) -> None:
    def tell(*_: object) -> None:
        raise RuntimeError("a defect of the application")

    with LogCapture() as log:
        async with working(cluster.bootstrap_servers) as batches:
            async for records, txn in batches:
                cluster.faults.error(TRANSACTION_ABORTABLE, Where(api=ApiKey.PRODUCE))
                await copy(records, txn)
                await asyncio.sleep(0.2)  # the answer is here
                txn.send("output", b"late", on_delivery=tell)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                break

    assert len(log.naming("on_delivery_failed")) == 1


async def test_what_follows_the_loop_may_take_its_time(cluster: FakeCluster) -> None:
    """`shutdown_seconds` is for the batch in hand, and that is committed."""
    async with working(cluster.bootstrap_servers, shutdown_seconds=0.5) as batches:
        async for records, txn in batches:
            await copy(records, txn)
            batches.stop()
        await asyncio.sleep(0.7)


async def stand_still_once_stopped_by_a_thread(batches: ExactlyOnce) -> None:
    """A body that does not come to its end."""
    async for _ in batches:
        thread = threading.Thread(target=batches.stop)
        thread.start()
        thread.join()
        await asyncio.sleep(5)


async def test_stop_from_another_thread_limits_the_batch_too(cluster: FakeCluster) -> None:
    with pytest.raises(TimeoutError, match=r"0\.2 s after stop\(\)"):
        async with working(cluster.bootstrap_servers, shutdown_seconds=0.2) as batches:
            await stand_still_once_stopped_by_a_thread(batches)


async def test_log_names_the_client(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.faults.error(TRANSACTION_ABORTABLE, Where(api=ApiKey.END_TXN))
    servers = cluster.bootstrap_servers
    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:
        async with exactly_once(consumer, producer) as batches:
            await copy(*await anext(batches))
            await anext(batches)

        said = [record.getMessage() for record in caplog.records if "batch_not_committed" in record.getMessage()]
        assert said
        assert all(f"client_id={producer.statistics().client_id!r}" in text for text in said)
