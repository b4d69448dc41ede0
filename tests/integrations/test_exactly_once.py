"""The loop that everybody gets wrong: its good days, what may happen to it and its consumer, its caller's code."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from operator import attrgetter

import pytest
from aiokafka import ConsumerRecord

from aioproducer import BrokerError, IllegalStateError, KafkaError, Outcome, ProducerFencedError, RecordMetadata
from aioproducer.integrations.aiokafka import BatchTransaction, ExactlyOnce, exactly_once
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.logs import LogCapture
from tests.integrations.workers import (
    assert_copied_once,
    committed_offsets,
    consuming,
    copy,
    copy_until_processed,
    fill,
    run_until_processed,
    stop_when_processed,
    transacting,
    working,
)

pytestmark = pytest.mark.slow

TOTAL = 200
FEW = 60
ILLEGAL_GENERATION = 22
COORDINATOR_LOAD_IN_PROGRESS = 14
TRANSACTION_ABORTABLE = 120


@pytest.fixture(name="three")
async def fixture_three() -> AsyncIterator[FakeCluster]:
    """Three brokers, input and output of four partitions, and records of input."""
    async with FakeCluster(nodes=3, topics={"input": 4, "output": 4}) as cluster:
        await fill(cluster.bootstrap_servers, "input", range(TOTAL))
        yield cluster


@pytest.fixture(name="one")
async def fixture_one() -> AsyncIterator[FakeCluster]:
    """One broker, and fewer records."""
    async with FakeCluster(nodes=1, topics={"input": 4, "output": 4}) as cluster:
        await fill(cluster.bootstrap_servers, "input", range(FEW))
        yield cluster


async def test_input_is_copied_once(three: FakeCluster) -> None:
    servers, sizes = three.bootstrap_servers, []
    async with working(servers, max_records=30) as batches:
        async for records, txn in batches:
            await copy(records, txn)
            sizes.append(len(records))
            if sum(sizes) == TOTAL:
                batches.stop()

    assert max(sizes) <= 30
    await assert_copied_once(servers, TOTAL)


async def test_run_copies_once(three: FakeCluster) -> None:
    servers = three.bootstrap_servers
    async with working(servers, max_records=30) as batches:
        await run_until_processed(batches, servers, TOTAL, transform=copy)

    await assert_copied_once(servers, TOTAL)


async def test_loop_waits_for_topics_that_match_a_pattern(one: FakeCluster) -> None:
    """They come with its next metadata: right after `subscribe` the consumer has no topics."""
    servers = one.bootstrap_servers
    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:
        consumer.unsubscribe()
        consumer.subscribe(pattern="^inp.*")
        async with exactly_once(consumer, producer) as batches:
            await copy_until_processed(batches, servers, FEW)

    await assert_copied_once(servers, FEW)


async def raise_in_the_body(batches: ExactlyOnce) -> None:
    async for records, txn in batches:
        await copy(records, txn)
        raise ZeroDivisionError


async def test_exception_of_the_body_aborts_and_goes_on_its_way(three: FakeCluster) -> None:
    """No record of the batch is visible; the next loop, also with the same consumer, reads the same records."""
    servers = three.bootstrap_servers
    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:
        first, second = exactly_once(consumer, producer), exactly_once(consumer, producer)
        with pytest.raises(ZeroDivisionError):
            async with first as batches:
                await raise_in_the_body(batches)
        async with second as batches:
            await copy_until_processed(batches, servers, TOTAL)

    await assert_copied_once(servers, TOTAL)


async def test_leaving_in_the_middle_aborts(three: FakeCluster) -> None:
    """`break` says nothing of how far the body came."""
    servers = three.bootstrap_servers
    async with working(servers, max_records=10) as batches:
        async for records, txn in batches:
            await copy(records, txn)
            break
    before = await committed_offsets(servers, "input")
    async with working(servers) as batches:
        await copy_until_processed(batches, servers, TOTAL)

    assert before == [0, 0, 0, 0]
    await assert_copied_once(servers, TOTAL)


@pytest.mark.parametrize(
    "code, api",
    [
        (ILLEGAL_GENERATION, ApiKey.TXN_OFFSET_COMMIT),
        (TRANSACTION_ABORTABLE, ApiKey.PRODUCE),
        (TRANSACTION_ABORTABLE, ApiKey.END_TXN),
    ],
)
async def test_abortable_error_is_tried_again(three: FakeCluster, code: int, api: ApiKey) -> None:
    servers = three.bootstrap_servers
    three.faults.error(code, Where(api=api))
    async with working(servers, max_records=30) as batches:
        given = await copy_until_processed(batches, servers, TOTAL)

    assert given > TOTAL
    await assert_copied_once(servers, TOTAL)


async def test_failure_in_the_middle_of_a_batch_does_not_end_the_loop(three: FakeCluster) -> None:
    """Nothing raises in the body, which runs to its end; then the batch is tried again."""
    servers, given = three.bootstrap_servers, 0
    three.faults.error(TRANSACTION_ABORTABLE, Where(api=ApiKey.PRODUCE))
    async with working(servers) as batches:
        stopping = asyncio.create_task(stop_when_processed(batches, servers, TOTAL))
        async for records, txn in batches:
            given += len(records)
            await copy(records[:100], txn)
            await asyncio.sleep(0.1)  # the answer is here
            await copy(records[100:], txn)
        await stopping

    assert given > TOTAL
    await assert_copied_once(servers, TOTAL)


async def test_cancelled_commit_decides_what_is_read_next(three: FakeCluster) -> None:
    """A caller with a time limit continues the loop; the batch being committed was aborted."""
    servers = three.bootstrap_servers
    async with working(servers, max_records=30) as batches:
        await copy(*await anext(batches))
        three.faults.delay(0.5, Where(api=ApiKey.END_TXN))
        three.faults.error(TRANSACTION_ABORTABLE, Where(api=ApiKey.END_TXN))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(batches), 0.25)
        await copy_until_processed(batches, servers, TOTAL)

    await assert_copied_once(servers, TOTAL)


@pytest.mark.parametrize("api", [ApiKey.OFFSET_FETCH, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN])
async def test_coordinator_that_is_loading_is_waited_for(three: FakeCluster, api: ApiKey) -> None:
    servers = three.bootstrap_servers
    three.faults.error(COORDINATOR_LOAD_IN_PROGRESS, Where(api=api), times=3)
    async with working(servers, max_records=30) as batches:
        given = await copy_until_processed(batches, servers, TOTAL)

    assert given == TOTAL
    await assert_copied_once(servers, TOTAL)


async def test_second_worker_takes_its_share(three: FakeCluster) -> None:
    servers, has_begun = three.bootstrap_servers, asyncio.Event()

    async def work(number: int) -> None:
        async with working(servers, f"copy-{number}", max_records=5) as batches:
            stopping = asyncio.create_task(stop_when_processed(batches, servers, TOTAL))
            async for records, txn in batches:
                await copy(records, txn)
                has_begun.set()
                await asyncio.sleep(0.05)
            await stopping

    async with asyncio.TaskGroup() as group:
        group.create_task(work(1))
        await has_begun.wait()
        group.create_task(work(2))

    await assert_copied_once(servers, TOTAL)


async def take_over_in_the_body(batches: ExactlyOnce, bootstrap_servers: str) -> None:
    """A newer producer comes and goes while the batch is in hand."""
    async for records, txn in batches:
        await copy(records, txn)
        async with transacting(bootstrap_servers, "copy"):
            """It has the id now."""


async def test_older_worker_with_the_same_id_is_stopped(three: FakeCluster) -> None:
    servers = three.bootstrap_servers
    with pytest.raises(ProducerFencedError, match="newer producer"):
        async with working(servers, max_records=30) as batches:
            await take_over_in_the_body(batches, servers)

    assert await committed_offsets(servers, "input") == [0, 0, 0, 0]


async def expire_in_the_body(batches: ExactlyOnce, cluster: FakeCluster) -> None:
    """A newer producer comes and goes, and the id expires, while the batch is in hand."""
    async for records, txn in batches:
        await copy(records, txn)
        async with transacting(cluster.bootstrap_servers, "copy"):
            """It has the id now."""
        assert cluster.model.transactions.expire("copy", asyncio.get_running_loop().time())


async def test_older_worker_is_stopped_when_its_id_has_expired(three: FakeCluster) -> None:
    """The brokers cannot tell that it was fenced: the records it has read may be committed already."""
    servers = three.bootstrap_servers
    with pytest.raises(BrokerError, match=r"transactional\.id\.expiration\.ms"):
        async with working(servers, max_records=30) as batches:
            await expire_in_the_body(batches, three)

    assert await committed_offsets(servers, "input") == [0, 0, 0, 0]


async def test_group_that_is_rebalancing_is_not_read_from_twice(three: FakeCluster) -> None:
    servers = three.bootstrap_servers
    delay = three.faults.delay(1.0, Where(api=ApiKey.END_TXN))
    async with working(servers, "copy-1", max_records=TOTAL) as batches:
        async for records, txn in batches:
            await copy(records, txn)
            batches.stop()
    three.faults.remove(delay)
    async with working(servers, "copy-2") as batches:
        await copy_until_processed(batches, servers, TOTAL)

    await assert_copied_once(servers, TOTAL)


# Shutdown


async def test_stop_while_idle_ends_at_once(three: FakeCluster) -> None:
    servers = three.bootstrap_servers
    async with working(servers) as batches:
        await copy_until_processed(batches, servers, TOTAL)
    given = 0
    async with working(servers) as batches:
        asyncio.get_running_loop().call_later(0.3, batches.stop)
        async for _ in batches:
            given += 1

    assert given == 0
    await assert_copied_once(servers, TOTAL)


async def test_stop_after_the_end_is_harmless(three: FakeCluster) -> None:
    async with working(three.bootstrap_servers) as batches:
        pass
    batches.stop()
    batches.stop()


async def test_batch_in_hand_is_finished_after_stop(three: FakeCluster) -> None:
    servers, given = three.bootstrap_servers, 0
    async with working(servers, max_records=10) as batches:
        async for records, txn in batches:
            given += 1
            batches.stop()
            batches.stop()
            await copy(records, txn)

    assert given == 1
    assert sum(await committed_offsets(servers, "input")) == 10


async def stand_still_after_stop(batches: ExactlyOnce) -> None:
    """A body that does not come to its end."""
    async for records, txn in batches:
        await copy(records, txn)
        batches.stop()
        await asyncio.Event().wait()


async def test_batch_that_takes_too_long_after_stop_is_aborted(three: FakeCluster) -> None:
    servers = three.bootstrap_servers
    with pytest.raises(TimeoutError, match=r"0\.2 s after stop\(\): it is aborted"):
        async with working(servers, shutdown_seconds=0.2) as batches:
            await stand_still_after_stop(batches)
    async with working(servers) as batches:
        await copy_until_processed(batches, servers, TOTAL)

    await assert_copied_once(servers, TOTAL)


async def test_cancelled_loop_aborts(three: FakeCluster) -> None:
    servers, has_begun = three.bootstrap_servers, asyncio.Event()

    async def work() -> None:
        async with working(servers) as batches:
            async for records, txn in batches:
                await copy(records, txn)
                has_begun.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await has_begun.wait()
    task.cancel()
    await asyncio.wait([task])
    async with working(servers) as batches:
        await copy_until_processed(batches, servers, TOTAL)

    assert task.cancelled()
    await assert_copied_once(servers, TOTAL)


# A consumer that breaks by itself, as aiokafka's may where a broker is lost


@pytest.mark.parametrize("after_s", [None, 0.03], ids=["at once", "while it waits"])
async def test_stray_cancellation_costs_nothing(
    one: FakeCluster, monkeypatch: pytest.MonkeyPatch, after_s: float | None
) -> None:
    """Records read meanwhile are read again."""
    servers = one.bootstrap_servers
    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:
        getmany, calls = consumer.getmany, 0

        async def cancelled_now_and_then(**options: int) -> object:
            nonlocal calls
            calls += 1
            if calls not in {1, 3, 4}:
                return await getmany(**options)
            if after_s is not None:
                await asyncio.sleep(after_s)
            raise asyncio.CancelledError

        monkeypatch.setattr(consumer, "getmany", cancelled_now_and_then)
        async with exactly_once(consumer, producer, max_records=7) as batches:
            await copy_until_processed(batches, servers, FEW)
        await assert_copied_once(servers, FEW)

    assert calls > 4


async def test_cancellations_without_end_are_no_busy_loop(one: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = one.bootstrap_servers
    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:

        async def cancelled(**_: int) -> object:
            raise asyncio.CancelledError

        monkeypatch.setattr(consumer, "getmany", cancelled)
        async with exactly_once(consumer, producer) as batches:
            step = asyncio.ensure_future(anext(batches, None))
            await asyncio.sleep(1.0)
            batches.stop()
            assert await step is None

    asked = sum(request.api is ApiKey.OFFSET_FETCH for request in one.requests)
    assert asked < 12


async def copy_until_it_breaks(batches: ExactlyOnce, harm: Callable[[], object]) -> None:
    """A batch, and what is left to read when the harm is done."""
    await copy(*await anext(batches))
    harm()
    async for batch in batches:
        await copy(*batch)


@pytest.mark.parametrize("task", ["_fetcher._fetch_task", "_coordinator._coordination_task"])
async def test_consumer_whose_tasks_have_ended_ends_the_loop(one: FakeCluster, task: str) -> None:
    """It would stay a member and read nothing; another consumer continues at its position."""
    servers = one.bootstrap_servers
    async with transacting(servers, "copy") as producer:
        async with consuming(servers, "input") as consumer, exactly_once(consumer, producer, max_records=7) as batches:
            harm = attrgetter(f"{task}.cancel")(consumer)
            with pytest.raises(IllegalStateError, match="start another consumer"):
                await copy_until_it_breaks(batches, harm)
        async with consuming(servers, "input") as consumer, exactly_once(consumer, producer) as batches:
            await copy_until_processed(batches, servers, FEW)
        await assert_copied_once(servers, FEW)


# The caller's functions: some that cannot be awaited, callbacks, a `stop` from another thread


@pytest.mark.parametrize("transform", [lambda *_: None, None], ids=["not async", "none"])
async def test_transform_that_cannot_be_awaited_is_no_poison(one: FakeCluster, transform: object) -> None:
    """No record is at fault: none goes to the hook, and the error names the argument."""
    buried: list[object] = []

    async def bury(*record: object) -> None:
        buried.append(record)

    with pytest.raises(TypeError, match="transform must be a coroutine function"):
        async with asyncio.timeout(20), working(one.bootstrap_servers, on_poison=bury) as batches:
            await batches.run(transform)  # type: ignore[arg-type]

    assert buried == []


async def test_hook_that_cannot_be_awaited_is_named(one: FakeCluster) -> None:
    async def stumble(records: Sequence[ConsumerRecord], _: BatchTransaction) -> None:
        if records[0].partition == 0:
            raise ValueError

    with pytest.raises(TypeError, match="on_poison must be a coroutine function"):
        async with working(one.bootstrap_servers, max_records=1, on_poison=lambda *_: None) as batches:
            await batches.run(stumble)


async def test_object_of_another_type_is_refused_as_producer(one: FakeCluster) -> None:
    async with consuming(one.bootstrap_servers, "input") as consumer:
        with pytest.raises(TypeError, match="producer must be a Producer, not str"):
            exactly_once(consumer, "localhost:9092")  # type: ignore[arg-type]


async def test_record_of_a_failed_transaction_tells_its_callback(one: FakeCluster) -> None:
    """Otherwise a body that counts its callbacks would wait forever."""
    told: list[KafkaError | None] = []

    def tell(_: RecordMetadata | None, error: KafkaError | None) -> None:
        told.append(error)

    async with working(one.bootstrap_servers) as batches:
        async for records, txn in batches:
            one.faults.error(TRANSACTION_ABORTABLE, Where(api=ApiKey.PRODUCE))
            await copy(records, txn)
            await asyncio.sleep(0.2)  # the answer is here
            await txn.enqueue("output", b"late", on_delivery=tell)
            txn.send("output", b"later", on_delivery=tell)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            break

    assert [type(error).__name__ for error in told] == ["TransactionAbortableError"] * 2
    assert {error.outcome for error in told if error is not None} == {Outcome.NOT_WRITTEN}


async def test_callback_of_a_failed_transaction_that_raises_is_logged(one: FakeCluster) -> None:
    def tell(*_: object) -> None:
        raise RuntimeError("a defect of the application")

    with LogCapture() as log:
        async with working(one.bootstrap_servers) as batches:
            async for records, txn in batches:
                one.faults.error(TRANSACTION_ABORTABLE, Where(api=ApiKey.PRODUCE))
                await copy(records, txn)
                await asyncio.sleep(0.2)  # the answer is here
                txn.send("output", b"late", on_delivery=tell)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                break

    assert len(log.naming("on_delivery_failed")) == 1


async def test_what_follows_the_loop_may_take_its_time(one: FakeCluster) -> None:
    """`shutdown_seconds` is for the batch in hand, and that is committed."""
    async with working(one.bootstrap_servers, shutdown_seconds=0.5) as batches:
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


async def test_stop_from_another_thread_limits_the_batch_too(one: FakeCluster) -> None:
    with pytest.raises(TimeoutError, match=r"0\.2 s after stop\(\)"):
        async with working(one.bootstrap_servers, shutdown_seconds=0.2) as batches:
            await stand_still_once_stopped_by_a_thread(batches)


async def test_log_names_the_client(one: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    one.faults.error(TRANSACTION_ABORTABLE, Where(api=ApiKey.END_TXN))
    servers = one.bootstrap_servers
    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:
        async with exactly_once(consumer, producer) as batches:
            await copy(*await anext(batches))
            await anext(batches)

        said = [record.getMessage() for record in caplog.records if "batch_not_committed" in record.getMessage()]
        assert said
        assert all(f"client_id={producer.statistics().client_id!r}" in text for text in said)
