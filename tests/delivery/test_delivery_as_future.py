"""A `Delivery` goes wherever asyncio takes a Future, and no Task is made for it."""

import asyncio
import contextvars

import pytest

from aioproducer import Delivery, KafkaError, Producer, RecordMetadata, TopicAuthorizationError
from aioproducer.testing import ApiKey, FakeCluster, Where

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29


def tasks() -> int:
    return len(asyncio.all_tasks())


def refuse(cluster: FakeCluster, *, times: int | None = 1) -> None:
    cluster.faults.error(FORBIDDEN, PRODUCE, times=times)


async def test_is_a_future(producer: Producer) -> None:
    delivery = producer.send("orders", b"v")

    assert asyncio.isfuture(delivery)
    assert asyncio.ensure_future(delivery) is delivery
    assert delivery.get_loop() is asyncio.get_running_loop()
    assert (delivery.done(), delivery.cancelled()) == (False, False)
    assert "pending" in repr(delivery)
    await delivery
    assert (delivery.done(), delivery.cancelled()) == (True, False)
    assert "offset=0" in repr(delivery)


async def test_result_before_the_end_is_an_invalid_state(producer: Producer) -> None:
    delivery = producer.send("orders", b"v")

    with pytest.raises(asyncio.InvalidStateError):
        delivery.result()
    with pytest.raises(asyncio.InvalidStateError):
        delivery.exception()
    await delivery
    assert (delivery.result().offset, delivery.exception()) == (0, None)


async def test_result_of_a_failed_one_raises(producer: Producer, one_broker: FakeCluster) -> None:
    """Each raise has an instance of its own, so that tracebacks do not pile up."""
    refuse(one_broker)
    delivery = producer.send("orders", b"v")

    with pytest.raises(TopicAuthorizationError):
        await delivery
    with pytest.raises(TopicAuthorizationError):
        delivery.result()
    errors = [delivery.exception(), delivery.exception()]
    assert [type(error) for error in errors] == [TopicAuthorizationError] * 2
    assert errors[0] is not errors[1]
    assert "TopicAuthorizationError" in repr(delivery)


async def test_awaited_again_gives_the_same(producer: Producer) -> None:
    delivery = producer.send("orders", b"v")

    assert await delivery == await delivery == delivery.result()


async def test_gather_makes_no_task(producer: Producer) -> None:
    await producer.send("orders", b"v", partition=0)
    before = tasks()
    gathering = asyncio.gather(*[producer.send("orders", b"v", partition=0) for _ in range(100)])

    assert tasks() == before
    assert [metadata.offset for metadata in await gathering] == list(range(1, 101))


async def test_gather_raises_the_first_failure(producer: Producer, one_broker: FakeCluster) -> None:
    refuse(one_broker)
    bad = producer.send("orders", b"bad", partition=0)
    good = producer.send("orders", b"good", partition=1)

    with pytest.raises(KafkaError):
        await asyncio.gather(bad, good)
    await asyncio.wait([good])


async def test_gather_returns_exceptions(producer: Producer, one_broker: FakeCluster) -> None:
    """Exceptions are in their places; flush raises nothing, because they were retrieved."""
    refuse(one_broker)
    results = await asyncio.gather(
        producer.send("orders", b"bad", partition=0),
        producer.send("orders", b"also bad", partition=0),
        return_exceptions=True,
    )

    assert [type(result) for result in results] == [TopicAuthorizationError] * 2
    await producer.flush()


async def test_gather_of_what_is_done(producer: Producer) -> None:
    deliveries = [producer.send("orders", b"v", partition=0) for _ in range(3)]
    await producer.flush()

    assert [metadata.offset for metadata in await asyncio.gather(*deliveries)] == [0, 1, 2]


async def test_gather_cancelled_cancels_the_handles_alone(producer: Producer, one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    deliveries = [producer.send("orders", b"v", partition=0) for _ in range(3)]
    gathering = asyncio.gather(*deliveries)
    gathering.cancel()

    with pytest.raises(asyncio.CancelledError):
        await gathering
    assert [delivery.cancelled() for delivery in deliveries] == [True] * 3
    one_broker.faults.remove(stall)
    await producer.flush()
    assert one_broker.end_offset("orders", 0) == 3


async def test_wait_makes_no_task(producer: Producer) -> None:
    first, second = producer.send("orders", b"v"), producer.send("orders", b"v")
    before = tasks()

    done, pending = await asyncio.wait([first, second])

    assert (done, pending, tasks()) == ({first, second}, set(), before)


async def test_wait_returns_at_the_first_failure(producer: Producer, one_broker: FakeCluster) -> None:
    refuse(one_broker)
    bad = producer.send("orders", b"bad", partition=0)

    done, _ = await asyncio.wait([bad], return_when=asyncio.FIRST_EXCEPTION)

    assert isinstance(done.pop().exception(), TopicAuthorizationError)


async def test_wait_times_out_and_leaves_it(producer: Producer, one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    delivery = producer.send("orders", b"v")

    done, pending = await asyncio.wait([delivery], timeout=0.01)
    one_broker.faults.remove(stall)

    assert (done, pending) == (set(), {delivery})
    assert (await delivery).offset == 0


async def test_wait_for_returns_the_metadata(producer: Producer) -> None:
    metadata = await asyncio.wait_for(producer.send("orders", b"v"), 30)

    assert isinstance(metadata, RecordMetadata)


async def test_wait_for_raises_the_failure(producer: Producer, one_broker: FakeCluster) -> None:
    refuse(one_broker)

    with pytest.raises(TopicAuthorizationError):
        await asyncio.wait_for(producer.send("orders", b"v"), 30)


async def test_wait_for_times_out_on_time(producer: Producer, one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    loop = asyncio.get_running_loop()
    delivery = producer.send("orders", b"v", partition=0)
    before = loop.time()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(delivery, 0.02)

    assert loop.time() - before < 10  # and not after two minutes, at the delivery timeout
    one_broker.faults.remove(stall)
    await producer.flush()
    assert one_broker.end_offset("orders", 0) == 1


async def test_shield_keeps_the_handle(producer: Producer, one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    delivery = producer.send("orders", b"v")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(delivery), 0.01)
    assert not delivery.cancelled()
    one_broker.faults.remove(stall)
    assert (await asyncio.shield(delivery)).offset == 0


async def test_as_completed_gives_all(producer: Producer) -> None:
    deliveries = [producer.send("orders", b"v", partition=number) for number in range(3)]

    found = {(await done).partition for done in asyncio.as_completed(deliveries)}

    assert found == {0, 1, 2}


async def test_callbacks_get_the_delivery_in_their_context(producer: Producer) -> None:
    name = contextvars.ContextVar("name", default="unset")
    seen: list[tuple[bool, str]] = []
    delivery = producer.send("orders", b"v")

    def note(done: Delivery) -> None:
        seen.append((done is delivery, name.get()))

    name.set("first")
    delivery.add_done_callback(note)
    other = contextvars.copy_context()
    other.run(name.set, "second")
    delivery.add_done_callback(note, context=other)
    name.set("later")
    await delivery
    await asyncio.sleep(0)

    assert seen == [(True, "first"), (True, "second")]


async def test_callback_left_when_done_runs_soon(producer: Producer) -> None:
    delivery = producer.send("orders", b"v")
    await delivery
    seen: list[Delivery] = []

    delivery.add_done_callback(seen.append)

    assert seen == []
    await asyncio.sleep(0)
    assert seen == [delivery]


async def test_callbacks_are_removed(producer: Producer) -> None:
    delivery = producer.send("orders", b"v")
    seen: list[Delivery] = []
    delivery.add_done_callback(seen.append)
    delivery.add_done_callback(seen.append)

    removed = delivery.remove_done_callback(seen.append)
    await delivery
    await asyncio.sleep(0)

    assert (removed, delivery.remove_done_callback(print), seen) == (2, 0, [])


async def test_callback_that_raises_goes_to_the_loops_handler(producer: Producer) -> None:
    loop = asyncio.get_running_loop()
    told: list[object] = []
    loop.set_exception_handler(lambda _loop, context: told.append(context["exception"]))
    delivery = producer.send("orders", b"v")
    delivery.add_done_callback(lambda _done: 1 / 0)
    seen: list[Delivery] = []
    delivery.add_done_callback(seen.append)
    await delivery
    await asyncio.sleep(0)

    assert [type(error) for error in told] == [ZeroDivisionError]
    assert seen == [delivery]
    await producer.send("orders", b"next")


async def test_awaiting_in_a_task_group(producer: Producer) -> None:
    async def sends(value: bytes) -> RecordMetadata:
        return await producer.send("orders", value, partition=0)

    async with asyncio.TaskGroup() as group:
        made = [group.create_task(sends(b"v")), group.create_task(producer.send_and_wait("orders", b"v", partition=0))]

    assert sorted(task.result().offset for task in made) == [0, 1]


async def test_failure_in_a_task_group_cancels_the_others(producer: Producer, one_broker: FakeCluster) -> None:
    refuse(one_broker)

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(producer.send_and_wait("orders", b"bad", partition=0))
            group.create_task(asyncio.sleep(60))

    with pytest.raises(ExceptionGroup) as caught:
        await both()

    assert [type(error) for error in caught.value.exceptions] == [TopicAuthorizationError]


async def test_run_coroutine_threadsafe(producer: Producer) -> None:
    loop = asyncio.get_running_loop()

    def elsewhere() -> list[int]:
        first = asyncio.run_coroutine_threadsafe(producer.send_and_wait("orders", b"v", partition=0), loop)
        second = producer.send_threadsafe("orders", b"v", partition=0)
        return sorted([first.result(5).offset, second.result(5).offset])

    assert await asyncio.to_thread(elsewhere) == [0, 1]


async def test_timestamps_are_each_records_own(producer: Producer) -> None:
    deliveries = [producer.send("orders", b"v", partition=0, timestamp=1_000 + number) for number in range(3)]

    metadata = await asyncio.gather(*deliveries)

    assert [(each.timestamp, each.timestamp_type, each.offset) for each in metadata] == [
        (1_000, 0, 0),
        (1_001, 0, 1),
        (1_002, 0, 2),
    ]


async def test_timestamp_is_the_brokers_where_it_appends_its_own(producer: Producer, one_broker: FakeCluster) -> None:
    one_broker.create_topic("stamped", 1, configs={"message.timestamp.type": "LogAppendTime"})

    metadata = await producer.send("stamped", b"v", timestamp=1_000)

    assert (metadata.timestamp_type, metadata.timestamp > 1_000_000_000_000) == (1, True)


async def test_awaiting_ends_the_linger(one_broker: FakeCluster) -> None:
    """gather, wait and callbacks end it, too; only for this record's batch."""
    async with Producer(one_broker.bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000) as slow:
        await asyncio.wait_for(slow.send("orders", b"v"), 30)
        await asyncio.wait_for(asyncio.gather(slow.send("orders", b"v")), 30)
        await asyncio.wait([slow.send("orders", b"v")], timeout=5)
        called = asyncio.Event()
        slow.send("orders", b"v").add_done_callback(lambda _done: called.set())
        await asyncio.wait_for(called.wait(), 30)
        told = asyncio.Event()
        slow.send("orders", b"v", partition=0, on_delivery=lambda _metadata, _error: told.set())
        await asyncio.sleep(0.05)

        assert not told.is_set()  # on_delivery never ends a linger
        await slow.flush()
        assert told.is_set()
