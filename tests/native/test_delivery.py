"""One result a batch; each record's handle reads its own offset and timestamp of it, wherever the batch moved."""

import asyncio
import copy
import pickle
import weakref
from collections.abc import Callable
from contextvars import ContextVar, copy_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._native.delivery import BatchResult, Delivery
from aioproducer.errors import BrokerError, KafkaError, Outcome
from aioproducer.records import RecordMetadata, TopicPartition

PLACE = TopicPartition("t", 3)


def result_of(place: TopicPartition | None = PLACE) -> BatchResult:
    return BatchResult(None, place)  # type: ignore[arg-type]  # no loop is needed for that


def awaited() -> BatchResult:
    return BatchResult(asyncio.get_running_loop(), PLACE)


def note(told: list[int], number: int) -> Callable[[object], None]:
    return lambda _: told.append(number)


# What a record became


def test_each_record_has_its_own_offset_and_timestamp() -> None:
    result = result_of()
    deliveries = [result.delivery(index, 1_000 + index) for index in range(3)]

    result.complete(40, -1, 7, 3)

    assert [delivery.result() for delivery in deliveries] == [
        RecordMetadata("t", 3, PLACE, 40 + index, 1_000 + index, 0, 7) for index in range(3)
    ]


def test_time_of_the_log_is_every_records_time() -> None:
    result = result_of()
    delivery = result.delivery(1, 1_000)

    result.complete(40, 5_000, 0, 2)

    metadata = delivery.result()
    assert (metadata.timestamp, metadata.timestamp_type, delivery.timestamp) == (5_000, 1, 1_000)


def test_unknown_offset_is_unknown_for_every_record() -> None:
    """acks=0, or a copy that the broker no longer remembers: -1, not -1 plus the position."""
    result = result_of()
    delivery = result.delivery(2, 1_000)

    result.complete(-1, -1, -1, 3)

    assert (delivery.result().offset, result.metadata_of(2, 1_000).offset) == (-1, -1)


def test_each_record_of_a_failed_batch_gets_an_error_of_its_own() -> None:
    result, error = result_of(), BrokerError.of(19, "no replicas", outcome=Outcome.NOT_WRITTEN)
    deliveries = [result.delivery(index, 0) for index in range(2)]

    result.fail(error, 2)

    found = [delivery.exception() for delivery in deliveries]
    assert len({id(each) for each in [*found, error]}) == 3
    assert {(type(each), str(each)) for each in found} == {(type(error), str(error))}
    assert [each.outcome for each in found if isinstance(each, KafkaError)] == [Outcome.NOT_WRITTEN] * 2


def test_record_that_is_not_delivered_has_no_result() -> None:
    delivery = result_of().delivery(0, 0)

    assert not delivery.done()
    with pytest.raises(asyncio.InvalidStateError, match="not delivered yet"):
        delivery.result()
    with pytest.raises(asyncio.InvalidStateError, match="not delivered yet"):
        delivery.exception()


@pytest.mark.parametrize(
    "end_again",
    [
        lambda result: result.complete(0, -1, -1, 1),
        lambda result: result.fail(KafkaError("no"), 1),
        lambda result: result.move([(0, result_of(), 0)]),
    ],
    ids=["complete", "fail", "move"],
)
def test_batch_ends_once(end_again: Callable[[BatchResult], None]) -> None:
    result = result_of()
    result.complete(0, -1, -1, 1)

    with pytest.raises(AssertionError, match=r"ends once|cannot move"):
        end_again(result)


# Failures that were never retrieved


def test_failed_records_are_unseen_until_retrieved() -> None:
    result = result_of()
    deliveries = [result.delivery(index, 0) for index in range(3)]
    result.fail(KafkaError("no"), 3)
    counted = [result.unseen()]

    for _ in range(2):
        deliveries[1].exception()
        counted.append(result.unseen())
    with pytest.raises(KafkaError):
        deliveries[2].result()

    assert [*counted, result.unseen()] == [3, 2, 2, 1]


def test_written_records_are_never_unseen() -> None:
    result = result_of()
    assert result.unseen() == 0

    result.complete(0, -1, -1, 5)

    assert result.unseen() == 0


def test_failure_given_to_a_callback_is_seen() -> None:
    """`on_delivery` was called with it."""
    result = result_of()
    result.add_callback(1, 0, print)
    result.fail(KafkaError("no"), 3)

    assert [index for index, *_ in result.take_callbacks()] == [1]
    assert (result.unseen(), result.take_callbacks()) == (3, [])
    result.note_retrieval_of(print, 1)

    assert result.unseen() == 2


async def test_failure_that_an_awaiter_was_woken_for_is_seen() -> None:
    result = awaited()
    deliveries = [result.delivery(index, 0) for index in range(2)]
    task = asyncio.ensure_future(wait_for_failure(deliveries[0]))
    await asyncio.sleep(0)

    result.fail(KafkaError("no"), 2)
    result.wake()

    assert result.unseen() == 1
    await task


async def wait_for_failure(delivery: Delivery) -> None:
    with pytest.raises(KafkaError):
        await delivery


async def test_failure_after_the_only_awaiter_gave_up_is_unseen() -> None:
    result = awaited()
    delivery = result.delivery(0, 0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wait_for_failure(delivery), 0)

    result.fail(KafkaError("no"), 1)
    result.wake()

    assert result.unseen() == 1


# Notifications, and their order


async def test_callbacks_run_in_record_order() -> None:
    result, told = awaited(), list[int]()
    deliveries = [result.delivery(index, 0) for index in range(3)]
    for number, delivery in enumerate((deliveries[0], deliveries[0], deliveries[1], deliveries[2])):
        delivery.add_done_callback(note(told, number))

    result.complete(0, -1, -1, 3)
    result.wake()
    assert told == []
    await asyncio.sleep(0)

    assert told == [0, 1, 2, 3]


async def test_awaiting_tasks_wake_in_the_order_in_which_they_came() -> None:
    result, told = awaited(), list[int]()

    async def wait(number: int, delivery: Delivery) -> None:
        await delivery
        told.append(number)

    tasks = [asyncio.ensure_future(wait(number, result.delivery(number, 0))) for number in range(3)]
    await asyncio.sleep(0)
    result.complete(0, -1, -1, 3)
    result.wake()
    await asyncio.gather(*tasks)

    assert told == [0, 1, 2]


def test_batch_is_wanted_by_its_first_waiter_alone() -> None:
    result, told = result_of(), list[BatchResult]()
    result.on_wanted = told.append
    deliveries = [result.delivery(index, 0) for index in range(2)]
    assert (result.wanted, deliveries[0]._has_waiters()) == (False, False)

    for delivery in deliveries:
        delivery.add_done_callback(lambda _: None)

    assert (told, result.wanted, deliveries[0]._has_waiters()) == ([result], True, True)


async def test_batch_that_ended_is_not_wanted_any_more() -> None:
    """Retrieving its records is no reason to send anything."""
    result, told = awaited(), list[BatchResult]()
    result.on_wanted = told.append
    delivery = result.delivery(0, 0)
    result.complete(0, -1, -1, 1)

    delivery.add_done_callback(lambda _: None)

    assert told == []


# Moves


def test_record_that_waited_reads_the_result_of_its_batch() -> None:
    waiting, batch = result_of(None), result_of()
    delivery = waiting.delivery(0, 1_000)

    waiting.move([(0, batch, 4)])
    batch.complete(100, -1, -1, 5)

    assert (waiting.moved, delivery._batch_result, delivery._position) == (True, batch, 4)
    assert (delivery.result().offset, delivery.result().timestamp) == (104, 1_000)


def test_records_of_a_split_batch_read_the_result_of_their_part() -> None:
    batch, first, second = result_of(), result_of(), result_of()
    deliveries = [batch.delivery(index, 0) for index in range(4)]

    batch.move([(0, first, 0), (3, second, 0)])
    first.complete(10, -1, -1, 3)
    second.fail(KafkaError("no"), 1)

    assert [delivery.result().offset for delivery in deliveries[:3]] == [10, 11, 12]
    assert isinstance(deliveries[3].exception(), KafkaError)
    assert (first.unseen(), second.unseen()) == (0, 0)


CALL: ContextVar[str] = ContextVar("CALL")


def taken_from(result: BatchResult) -> list[tuple[int, int, object, str | None]]:
    """The callbacks of a result, with what their contexts say."""
    return [(index, at, callback, context.get(CALL)) for index, at, callback, context in result.take_callbacks()]


def test_callbacks_of_a_moved_batch_move_with_their_records() -> None:
    batch, first, second = result_of(), result_of(), result_of()
    for index in range(4):
        context = copy_context()
        context.run(CALL.set, str(index))
        batch.add_callback(index, 1_000 + index, print, context)

    batch.move([(0, first, 5), (3, second, 0)])

    assert batch.take_callbacks() == []
    assert taken_from(first) == [(5, 1_000, print, "0"), (6, 1_001, print, "1"), (7, 1_002, print, "2")]
    assert taken_from(second) == [(0, 1_003, print, "3")]


def test_waiter_for_a_moved_record_wants_its_new_batch() -> None:
    """Only the new one reports; the old result notifies no one any more."""
    batch, first, second = result_of(), result_of(), result_of()
    told: list[BatchResult] = []
    for result in (first, second):
        result.on_wanted = told.append
    batch.delivery(1, 0).add_done_callback(lambda _: None)

    batch.move([(0, first, 0), (1, second, 0)])

    assert told == [second]
    assert batch.on_wanted is None


async def test_cancelled_record_does_not_want_the_batch_it_moves_to() -> None:
    waiting, batch = awaited(), awaited()
    delivery = waiting.delivery(0, 0)
    delivery.add_done_callback(lambda _: None)
    delivery.cancel()

    waiting.move([(0, batch, 0)])

    assert (batch.wanted, delivery.cancelled()) == (False, True)


async def test_waiter_of_a_record_that_moved_twice_is_woken() -> None:
    waiting, batch, part = BatchResult(asyncio.get_running_loop(), None), awaited(), awaited()
    task = asyncio.ensure_future(offset_of(waiting.delivery(0, 0)))
    await asyncio.sleep(0)

    waiting.move([(0, batch, 2)])
    batch.move([(0, result_of(), 0), (2, part, 0)])
    part.complete(7, -1, -1, 1)
    part.wake()

    assert await asyncio.wait_for(task, 30) == 7


async def offset_of(delivery: Delivery) -> int:
    return (await delivery).offset


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_any_record_is_found_after_any_splits(sizes: list[int], data: st.DataObject) -> None:
    """A handle that was not used since finds its way through all of them."""
    count = sum(sizes)
    batch = result_of()
    deliveries = [batch.delivery(index, 0) for index in range(count)]
    parts, first = [], 0
    for size in sizes:
        parts.append((first, result_of(), 0))
        first += size
    batch.move(parts)
    again = data.draw(st.integers(0, len(parts) - 1))
    single = [result_of() for _ in range(sizes[again])]
    parts[again][1].move([(index, each, 0) for index, each in enumerate(single)])

    for index, delivery in enumerate(deliveries):
        start, part, _ = find(parts, index)
        expected = (single[index - start], 0) if part is parts[again][1] else (part, index - start)
        assert (delivery._batch_result, delivery._position) == expected


def find(parts: list[tuple[int, BatchResult, int]], index: int) -> tuple[int, BatchResult, int]:
    return [part for part in parts if part[0] <= index][-1]


# Looks


def test_repr_of_a_delivery_does_not_count_as_seen() -> None:
    """A debugger that prints it does not hide its failure."""
    result = result_of()
    delivery = result.delivery(0, 0)
    result.fail(KafkaError("no"), 1)

    assert "failed: KafkaError" in repr(delivery)
    assert result.unseen() == 1


def look_and_give_up(delivery: Delivery) -> "weakref.ref[asyncio.Future[None]]":
    """Begin to await a delivery, and return what was waited for."""
    waiter = next(iter(delivery.__await__()))
    waiter.cancel()
    return weakref.ref(waiter)


async def test_waiters_that_gave_up_are_not_kept() -> None:
    """Polling with timeouts would otherwise keep a waiter per look until the record ends."""
    delivery = awaited().delivery(0, 0)
    given_up = [look_and_give_up(delivery) for _ in range(100)]

    assert sum(waiter() is not None for waiter in given_up) == 1


async def test_callback_added_to_a_done_delivery_has_its_context() -> None:
    result, told = awaited(), list[str]()
    delivery = result.delivery(0, 0)
    result.complete(0, -1, 0, 1)
    context = copy_context()
    context.run(CALL.set, "given")

    delivery.add_done_callback(lambda _: told.append(CALL.get()), context=context)
    await asyncio.sleep(0)

    assert told == ["given"]


def test_delivery_without_callbacks_has_no_waiter() -> None:
    """A waiter would end the linger of the batch that its record gets a place in."""
    delivery = result_of().delivery(0, 0)
    delivery.add_done_callback(print)

    assert (delivery.remove_done_callback(print), delivery._has_waiters()) == (1, False)


def test_handle_is_made_by_verbs_alone() -> None:
    """Regression: a handle without a batch crashed the interpreter."""
    with pytest.raises(TypeError, match="made by the methods of a producer"):
        Delivery()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_handle_has_no_copy(copied: Callable[[object], object]) -> None:
    """As with an asyncio future: a copy could be cancelled apart from its original."""
    delivery = BatchResult(None, None).delivery(0, 1)  # type: ignore[arg-type]  # no loop is needed for that

    with pytest.raises(TypeError, match=r"cannot pickle .*Delivery"):
        copied(delivery)
