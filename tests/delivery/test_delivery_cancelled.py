"""Cancellation ends a wait, or a handle; the record is sent all the same."""

import asyncio
import contextvars
import gc
import weakref

import anyio
import pytest

from aioproducer import Delivery, KafkaError, Outcome, Producer, UndeliveredError
from aioproducer.testing import ApiKey, FakeCluster, Where

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29


async def offset_of(delivery: Delivery) -> int:
    return (await delivery).offset


async def turns_while(seconds: float) -> int:
    """Return the turns of the loop in a time, without the one that ends it."""
    loop = asyncio.get_running_loop()
    turns = 0
    end = loop.time() + seconds
    while loop.time() < end:
        await asyncio.sleep(0.005)
        turns += 1
    return turns


async def test_timeout_ends_that_wait_alone(producer: Producer, one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    delivery = producer.send("orders", b"v")
    patient = asyncio.create_task(offset_of(delivery))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await delivery
    one_broker.faults.remove(stall)

    assert not delivery.cancelled()
    assert (await patient, (await delivery).offset) == (0, 0)


async def test_cancelled_task_ends_that_wait_alone(producer: Producer, one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    delivery = producer.send("orders", b"v")
    first, second = asyncio.create_task(offset_of(delivery)), asyncio.create_task(offset_of(delivery))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    one_broker.faults.remove(stall)

    assert (first.cancelled(), await second, delivery.cancelled()) == (True, 0, False)


async def test_timeout_returns_in_the_same_turn(producer: Producer, one_broker: FakeCluster) -> None:
    """The waiter is cancelled as fast as with a future: after two turns of the loop."""
    one_broker.faults.stall(PRODUCE)
    delivery = producer.send("orders", b"v")
    waiting = asyncio.create_task(offset_of(delivery))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert waiting.cancelled()


async def test_cancelled_scope_costs_no_turns(producer: Producer, one_broker: FakeCluster) -> None:
    """An anyio scope cancels again until the task ends; here the task ends at once."""
    one_broker.faults.stall(PRODUCE)
    delivery = producer.send("orders", b"v")
    loop = asyncio.get_running_loop()
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls < 10_000:
            loop.call_soon(count)

    with anyio.move_on_after(0.01) as scope:
        await delivery
    loop.call_soon(count)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert scope.cancelled_caught
    assert not delivery.cancelled()
    assert calls <= 3  # a spinning scope would have kept us waiting


async def test_loop_is_idle_while_a_scope_waits(producer: Producer, one_broker: FakeCluster) -> None:
    """No turn but those of the test's own sleeping, also after the cancellation."""
    one_broker.faults.stall(PRODUCE)
    delivery = producer.send("orders", b"v")
    async with anyio.create_task_group() as group:
        group.start_soon(offset_of, delivery)
        assert await turns_while(0.05) <= 11
        group.cancel_scope.cancel()

    assert await turns_while(0.05) <= 11


async def test_cancel_is_asyncios(producer: Producer, one_broker: FakeCluster) -> None:
    """True once, with the message, and callbacks run; then False. The record is sent all the same."""
    stall = one_broker.faults.stall(PRODUCE)
    delivery = producer.send("orders", b"v", partition=0)
    seen: list[object] = []
    delivery.add_done_callback(seen.append)

    assert (delivery.cancel("enough"), delivery.cancel()) == (True, False)
    assert (delivery.cancelled(), delivery.done()) == (True, True)
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await delivery
    with pytest.raises(asyncio.CancelledError):
        delivery.exception()
    await asyncio.sleep(0)
    assert seen == [delivery]
    one_broker.faults.remove(stall)
    await producer.flush()
    assert one_broker.end_offset("orders", 0) == 1


async def test_cancel_calls_back_in_the_context_that_was_given(producer: Producer, one_broker: FakeCluster) -> None:
    """The context may hold the name of a request, or its trace, as at the end of a delivery."""
    name = contextvars.ContextVar("name", default="unset")
    seen: list[str] = []
    context = contextvars.copy_context()
    context.run(name.set, "caller")
    one_broker.faults.stall(PRODUCE)
    delivery = producer.send("orders", b"v")
    delivery.add_done_callback(lambda _: seen.append(name.get()), context=context)

    delivery.cancel()
    await asyncio.sleep(0)

    assert seen == ["caller"]


async def test_cancel_of_the_handle_reaches_all_awaiters(producer: Producer, one_broker: FakeCluster) -> None:
    one_broker.faults.stall(PRODUCE)
    delivery = producer.send("orders", b"v")
    tasks = [asyncio.create_task(offset_of(delivery)) for _ in range(2)]
    await asyncio.sleep(0)
    delivery.cancel()
    await asyncio.wait(tasks)

    assert [task.cancelled() for task in tasks] == [True, True]


async def test_cancel_of_what_is_done_is_refused(producer: Producer) -> None:
    delivery = producer.send("orders", b"v")
    await delivery

    assert (delivery.cancel(), delivery.cancelled(), delivery.result().offset) == (False, False, 0)


async def test_failure_of_a_cancelled_handle_counts_as_unseen(producer: Producer, one_broker: FakeCluster) -> None:
    """The failure was never retrieved; flush raises it."""
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    delivery = producer.send("orders", b"v")
    delivery.cancel()

    with pytest.raises(UndeliveredError, match="1 record was not delivered"):
        await producer.flush()


async def test_failure_after_a_timeout_counts_as_unseen(producer: Producer, one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    delivery = producer.send("orders", b"v")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(delivery, 0.01)
    one_broker.faults.remove(stall)

    with pytest.raises(UndeliveredError, match="1 record was not delivered"):
        await producer.flush()


@pytest.mark.slow
async def test_polling_with_timeouts_keeps_nothing(producer: Producer, one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    delivery = producer.send("orders", b"v")
    await asyncio.wait([delivery], timeout=0.01)

    async def give_up() -> weakref.ref[asyncio.Task[int]]:
        waiting = asyncio.create_task(offset_of(delivery))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        return weakref.ref(waiting)  # what the delivery kept of it would keep the task

    given_up = [await give_up() for _ in range(200)]
    gc.collect()
    kept = sum(task() is not None for task in given_up)
    one_broker.faults.remove(stall)

    assert kept < 10
    assert (await delivery).offset == 0


async def test_send_cancelled_recalls_nothing(producer: Producer, one_broker: FakeCluster) -> None:
    async def send() -> None:
        await producer.send("orders", b"v", partition=0)

    sending = asyncio.create_task(send())
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait([sending])
    await producer.flush()

    assert one_broker.end_offset("orders", 0) == 1


@pytest.mark.parametrize("verb", ["enqueue", "send_and_wait"])
async def test_waiting_verb_cancelled_withdraws(producer: Producer, one_broker: FakeCluster, verb: str) -> None:
    """The record still waits for its topic: it is not written, and blocks no other."""
    waiting = asyncio.create_task(getattr(producer, verb)("orders", b"withdrawn", partition=0))
    other = asyncio.create_task(getattr(producer, verb)("orders", b"stays", partition=0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await other
    await producer.flush()

    assert waiting.cancelled()
    assert [record.value for record in one_broker.records("orders", 0)] == [b"stays"]
    statistics = producer.statistics()
    assert (statistics.records_waiting, statistics.waiting_bytes) == (0, 0)


@pytest.mark.parametrize("verb", ["enqueue", "send_and_wait"])
async def test_withdrawn_record_calls_its_callback(producer: Producer, verb: str) -> None:
    """A cancelled record is called back once, so that counts of pending records are right. No flush raises it."""
    told: list[object] = []
    send = getattr(producer, verb)
    waiting = asyncio.create_task(send("orders", b"v", on_delivery=lambda *said: told.append(said)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await producer.flush()

    [(metadata, error)] = told
    assert metadata is None
    assert isinstance(error, KafkaError)
    assert (error.outcome, error.topic) == (Outcome.NOT_WRITTEN, "orders")
    assert producer.statistics().records_failed == 0


async def test_send_and_wait_cancelled_after_append_recalls_nothing(
    producer: Producer, one_broker: FakeCluster
) -> None:
    await producer.partitions_for("orders")
    sending = asyncio.create_task(producer.send_and_wait("orders", b"v", partition=0))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait([sending])
    await producer.flush()

    assert one_broker.end_offset("orders", 0) == 1
