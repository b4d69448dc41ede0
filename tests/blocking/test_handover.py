"""Promises of the queue between threads and the loop: order, bounds, refusals, failures, and its end."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from aioproducer import (
    BlockingProducer,
    BufferTimeoutError,
    IllegalStateError,
    KafkaError,
    NoTransactionError,
    ProducerClosedError,
    UndeliveredError,
)
from aioproducer.blocking._handoff_queue import QUEUE_BYTES, QUEUE_RECORDS, Barrier, HandoffQueue, QueuedRecord
from aioproducer.errors import MAX_SUB_ERRORS
from tests.fakes.logs import EventList
from tests.fakes.producing import ClusterElsewhere

PATIENCE_S = 60


class Records:
    """A producer that notes the records it is given, or refuses them."""

    def __init__(self) -> None:
        self.given: list[object] = []
        self.told: list[tuple[object, str]] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    def record(
        self, name: object, size: int = 1, error: Exception | None = None, *, is_told: bool = False
    ) -> QueuedRecord:
        async def enqueue(**_: object) -> None:
            await self.may_go_on.wait()
            if error is not None:
                raise error
            self.given.append(name)

        told = self.told

        def on_delivery(_metadata: object, failure: KafkaError | None) -> None:
            told.append((name, type(failure).__name__))

        return QueuedRecord(enqueue, size, on_delivery if is_told else None)


def new_handover(max_wait_s: float = PATIENCE_S, *, in_transaction: Callable[[], bool] = lambda: False) -> HandoffQueue:
    """Return a queue; `in_transaction` says whether a transaction is open that a refused record must fail."""
    return HandoffQueue(max_wait_s, abort_transaction=lambda _error: in_transaction(), log=EventList())


@asynccontextmanager
async def running(handover: HandoffQueue) -> AsyncIterator[None]:
    task = asyncio.create_task(handover.run())
    yield
    task.cancel()
    await asyncio.wait([task])


async def turn(handover: HandoffQueue) -> None:
    mark = Barrier()
    handover.put_barrier(mark)
    await asyncio.wait_for(mark.reached.wait(), PATIENCE_S)


async def test_records_and_marks_keep_the_order_of_their_calls() -> None:
    handover, records = new_handover(), Records()
    marks = [Barrier() for _ in range(3)]
    seen: list[list[object]] = []

    async def look(mark: Barrier) -> None:
        await mark.reached.wait()
        seen.append(list(records.given))

    for number, mark in enumerate(marks):
        handover.put(records.record(number))
        handover.put_barrier(mark)
    looking = [asyncio.create_task(look(mark)) for mark in marks]
    async with running(handover):
        await asyncio.wait_for(asyncio.gather(*looking), PATIENCE_S)

    assert seen == [[0], [0, 1], [0, 1, 2]]


async def test_each_of_many_threads_keeps_its_order() -> None:
    """Also while the queue is full again and again, and the loop sleeps in between."""
    handover, records = new_handover(), Records()
    threads, each = 4, 2 * QUEUE_RECORDS

    def put_all(thread: int) -> None:
        for number in range(each):
            handover.put(records.record((thread, number)))

    async with running(handover):
        await asyncio.gather(*(asyncio.to_thread(put_all, thread) for thread in range(threads)))
        await turn(handover)

    for thread in range(threads):
        assert [name for name in records.given if name[0] == thread] == [(thread, n) for n in range(each)]  # type: ignore[index]


@pytest.mark.parametrize(
    "sizes, is_room",
    [
        ([1] * (QUEUE_RECORDS - 1), True),
        ([1] * QUEUE_RECORDS, False),
        ([QUEUE_BYTES - 1], True),
        ([QUEUE_BYTES], False),
        ([10 * QUEUE_BYTES], False),
        ([], True),
    ],
    ids=["one short of the records", "all records", "one byte short", "all bytes", "one large record", "empty"],
)
def test_queue_holds_what_its_bounds_say(sizes: list[int], *, is_room: bool) -> None:
    handover, records = new_handover(max_wait_s=0), Records()
    for size in sizes:
        handover.put(records.record("v", size))

    if is_room:
        handover.put(records.record("last", 1))
    else:
        with pytest.raises(BufferTimeoutError, match="max_block_ms=0"):
            handover.put(records.record("last", 1))

    assert handover.records == len(sizes) + is_room


async def test_room_comes_back_with_each_record_that_is_taken() -> None:
    handover, records = new_handover(), Records()

    def put_large() -> None:
        for number in range(20):
            handover.put(records.record(number, QUEUE_BYTES))

    async with running(handover):
        await asyncio.to_thread(put_large)
        await turn(handover)
        for number in range(20, 20 + QUEUE_RECORDS):  # on the loop's own thread: nothing is taken meanwhile
            handover.put(records.record(number))
        await turn(handover)

    assert records.given == list(range(20 + QUEUE_RECORDS))


@pytest.mark.parametrize(
    "error, sticks",
    [
        (ValueError("not serializable"), False),
        (BufferTimeoutError("no memory"), False),
        (NoTransactionError("no transaction is open"), False),
        (IllegalStateError("the producer has failed"), True),
        (ProducerClosedError("closed"), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
async def test_refusal_sticks_only_if_the_producer_takes_nothing_more(error: Exception, *, sticks: bool) -> None:
    """Else the next records are given, however many were refused before."""
    handover, records = new_handover(), Records()
    async with running(handover):
        for _ in range(2):
            handover.put(records.record("refused", error=error))
        await turn(handover)
        if sticks:
            with pytest.raises(type(error)):
                handover.put(records.record("next"))
        else:
            handover.put(records.record("next"))
            await turn(handover)

    assert records.given == ([] if sticks else ["next"])


async def test_refused_record_is_reported_once() -> None:
    handover, records = new_handover(), Records()
    many = MAX_SUB_ERRORS + 5
    async with running(handover):
        handover.put(records.record("told", error=ValueError("v"), is_told=True))
        for _ in range(many):
            handover.put(records.record("untold", error=ValueError("v")))
        await turn(handover)
        undelivered = handover.take_errors(None, outside_too=True)
        again = handover.take_errors(None, outside_too=True)

    assert records.told == [("told", "KafkaError")]
    assert isinstance(undelivered, UndeliveredError)
    assert (undelivered.count, len(undelivered.exceptions), again) == (many, MAX_SUB_ERRORS, None)


async def test_refused_record_fails_its_own_transaction_alone() -> None:
    """A record that was refused outside of a transaction is raised by flush, and fails no commit."""
    is_open = False
    handover, records = new_handover(in_transaction=lambda: is_open), Records()
    async with running(handover):
        handover.put(records.record("outside", error=NoTransactionError("none")))
        await turn(handover)
        is_open = True
        of_first = handover.take_errors(None)
        handover.put(records.record("inside", error=ValueError("v")))
        await turn(handover)
        of_second, of_third = handover.take_errors(None), handover.take_errors(None)
        by_flush = handover.take_errors(None, outside_too=True)

    assert (of_first, of_third) == (None, None)
    assert of_second is not None
    assert by_flush is not None
    assert (of_second.count, by_flush.count) == (1, 1)


async def test_close_while_full_delivers_accepted_and_refuses_the_rest() -> None:
    handover, records = new_handover(), Records()
    records.may_go_on.clear()
    waits = threading.Event()

    def put_more() -> None:
        for number in range(QUEUE_RECORDS):
            handover.put(records.record(number))
        waits.set()
        while True:
            handover.put(records.record("late"))

    last = Barrier()
    async with running(handover):
        putting = asyncio.create_task(asyncio.to_thread(put_more))
        await asyncio.to_thread(waits.wait, PATIENCE_S)
        handover.put_last(last, ProducerClosedError("closed"))
        with pytest.raises(ProducerClosedError):
            await asyncio.wait_for(putting, PATIENCE_S)
        assert not last.reached.is_set()
        records.may_go_on.set()
        await asyncio.wait_for(last.reached.wait(), PATIENCE_S)
        given = list(records.given)

    assert given[:QUEUE_RECORDS] == list(range(QUEUE_RECORDS))
    assert set(given[QUEUE_RECORDS:]) <= {"late"}
    with pytest.raises(ProducerClosedError):
        handover.put(records.record("after"))


async def test_end_of_the_loop_fails_what_is_queued() -> None:
    handover, records = new_handover(), Records()
    records.may_go_on.clear()
    mark = Barrier()
    async with running(handover):
        handover.put(records.record("being given"))
        await asyncio.sleep(0)
        for number in range(3):
            handover.put(records.record(number, is_told=True))
        handover.put_barrier(mark)
    await asyncio.wait_for(mark.reached.wait(), PATIENCE_S)
    await asyncio.sleep(0)  # callbacks run after the producer's notification

    assert [name for name, _ in records.told] == [0, 1, 2]
    with pytest.raises(IllegalStateError, match="has ended"):
        handover.put(records.record("after"))


def test_enqueue_goes_on_after_records_outside_a_transaction(cluster: ClusterElsewhere) -> None:
    """Each failure is raised by the next flush, and every block commits."""
    with BlockingProducer(cluster.bootstrap_servers, transactional_id="worker") as producer:
        producer.init_transactions()
        for number in range(3):
            producer.enqueue("orders", b"outside", partition=0)
            with pytest.raises(UndeliveredError, match="1 record was not delivered"):
                producer.flush()
            with producer.transaction():
                producer.enqueue("orders", b"%d" % number, partition=0)

    assert [value for value in cluster.values() if value is not None and len(value) == 1] == [b"0", b"1", b"2"]
