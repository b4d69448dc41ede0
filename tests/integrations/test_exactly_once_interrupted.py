"""Interrupted steps, ends of the loop, rebalances: nothing is left out or comes twice, and positions are right."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord

from aioproducer.integrations.aiokafka import BatchTransaction, ExactlyOnce, PoisonRecordError, exactly_once
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.integrations.interruptions import (
    BATCH,
    ILLEGAL_GENERATION,
    PART,
    PLACES,
    PRODUCER,
    TOTAL,
    WAYS,
    Place,
    Step,
    Way,
    Worker,
)
from tests.integrations.workers import (
    PATIENCE_S,
    assert_copied_once,
    committed_offsets,
    consuming,
    copy,
    copy_until_processed,
    fill,
    read_committed,
    run_until_processed,
    stop_when_processed,
    transacting,
    working,
)

pytestmark = pytest.mark.slow

PARTITIONS = 4
GATHERING_S = 30.0  # no batch is given out because of it: all are full

POISON = 37
TOO_LARGE = b"x" * 5_000

places = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
PLACES_IN_TURN = [
    pytest.param(PLACES[place], WAYS[way], id=f"{place}-{way}")
    for place, way in zip(PLACES, itertools.cycle(WAYS), strict=False)
]


@asynccontextmanager
async def at_work(**limits: object) -> AsyncIterator[Worker]:
    async with FakeCluster(nodes=3, topics={"input": 4, "output": 4, "dead": 1}) as cluster:
        servers = cluster.bootstrap_servers
        async with (
            consuming(servers, "input") as consumer,
            transacting(servers, "copy", client_id=PRODUCER) as producer,
            exactly_once(consumer, producer, **limits) as batches,  # type: ignore[arg-type]
        ):
            yield Worker(cluster, consumer, producer, batches)


async def goes_on(batches: ExactlyOnce, bootstrap_servers: str) -> None:
    """Run step by step, until the group has processed all of the input."""
    stopping = asyncio.create_task(stop_when_processed(batches, bootstrap_servers, TOTAL))
    while (batch := await anext(batches, None)) is not None:
        await copy(*batch)
    await stopping


@ways
@places
async def test_worker_goes_on_after_an_interrupted_step(place: Place, way: Way) -> None:
    """The same loop continues."""
    async with at_work(max_records=BATCH, max_seconds=GATHERING_S) as worker:
        async with place(worker) as reached:
            is_interrupted = await way(anext(worker.batches), reached)
        await goes_on(worker.batches, worker.servers)
        await assert_copied_once(worker.servers, TOTAL)

    assert is_interrupted


@pytest.mark.parametrize("place, way", PLACES_IN_TURN)
async def test_worker_begins_anew_after_an_interrupted_step(place: Place, way: Way) -> None:
    async with at_work(max_records=BATCH, max_seconds=GATHERING_S) as worker:
        async with place(worker) as reached:
            is_interrupted = await way(step_of_a_loop_that_is_left(worker.batches), reached)
        async with exactly_once(worker.consumer, worker.producer) as batches:
            await goes_on(batches, worker.servers)
        await assert_copied_once(worker.servers, TOTAL)

    assert is_interrupted


async def step_of_a_loop_that_is_left(batches: ExactlyOnce) -> None:
    """The end of its `async with`, whose beginning is elsewhere."""
    try:
        await anext(batches)
    except asyncio.CancelledError as cancelled:
        await batches.__aexit__(type(cancelled), cancelled, cancelled.__traceback__)
        raise


async def test_reading_cancelled_from_outside_starts_over() -> None:
    """Shutdown code may cancel all tasks it does not know; the waiting step itself was not cancelled."""
    async with at_work(max_records=BATCH, max_seconds=GATHERING_S) as worker:
        async with PLACES["gathering"](worker) as reached:
            before = asyncio.all_tasks()
            step = anext(worker.batches)
            taking = asyncio.create_task(step)
            while not await reached(step):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)
            for task in asyncio.all_tasks() - before - {taking}:
                task.cancel()
        await copy(*await taking)
        await goes_on(worker.batches, worker.servers)
        await assert_copied_once(worker.servers, TOTAL)


# The caller's own code


class Stumble:
    """Code that sends a part of its first batch, and is then interrupted."""

    def __init__(self) -> None:
        self.has_stumbled = False

    async def copy(self, records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
        if not self.has_stumbled:
            await copy(records[: BATCH // 2], txn)
            await self.stand_still()
        await copy(records, txn)

    async def bury(self, record: ConsumerRecord, _: Exception, txn: BatchTransaction) -> None:
        if not self.has_stumbled:
            await self.stand_still()
        await txn.enqueue("dead", record.value)

    async def stand_still(self) -> None:
        self.has_stumbled = True
        await asyncio.Event().wait()

    async def reached(self, _: Step) -> bool:
        return self.has_stumbled


async def runs(batches: ExactlyOnce, stumble: Stumble) -> None:
    await batches.run(stumble.copy)


async def iterates(batches: ExactlyOnce, stumble: Stumble) -> None:
    async for records, txn in batches:
        await stumble.copy(records, txn)


@ways
@pytest.mark.parametrize("door", [runs, iterates])
async def test_batch_whose_code_was_interrupted_is_given_out_again(
    door: Callable[[ExactlyOnce, Stumble], Coroutine[object, object, None]], way: Way
) -> None:
    """Records that it sent are not visible."""
    stumble = Stumble()
    async with at_work(max_records=BATCH) as worker:
        await fill(worker.servers, "input", range(TOTAL))
        is_interrupted = await way(door(worker.batches, stumble), stumble.reached)
        stopping = asyncio.create_task(stop_when_processed(worker.batches, worker.servers, TOTAL))
        await door(worker.batches, stumble)
        await stopping
        await assert_copied_once(worker.servers, TOTAL)

    assert is_interrupted


async def copies_all_but_poison(batches: ExactlyOnce) -> None:
    while (batch := await anext(batches, None)) is not None:
        records, txn = batch
        await copy(records, txn)
        if POISON in [int(record.value) for record in records]:
            await txn.enqueue("small", TOO_LARGE)


@ways
async def test_poison_hook_that_was_interrupted_is_called_again(way: Way) -> None:
    """Its record is not skipped before the hook has finished."""
    stumble = Stumble()
    async with at_work(max_records=BATCH, on_poison=stumble.bury) as worker:
        worker.cluster.create_topic("small", 1, configs={"max.message.bytes": "1000"})
        await fill(worker.servers, "input", range(TOTAL))
        is_interrupted = await way(copies_all_but_poison(worker.batches), stumble.reached)
        stopping = asyncio.create_task(stop_when_processed(worker.batches, worker.servers, TOTAL))
        await copies_all_but_poison(worker.batches)
        await stopping
        others = await read_committed(worker.servers, "output", count=TOTAL - 1)
        dead = await read_committed(worker.servers, "dead", count=1, partitions=1)

    assert is_interrupted
    assert (dead, others) == ([POISON], [number for number in range(TOTAL) if number != POISON])


async def test_poison_without_a_hook_is_not_passed_by_going_on() -> None:
    """The same error, again and again."""
    async with at_work(max_records=BATCH) as worker:
        worker.cluster.create_topic("small", 1, configs={"max.message.bytes": "1000"})
        await fill(worker.servers, "input", range(TOTAL))
        offsets = []
        for _ in range(2):
            with pytest.raises(PoisonRecordError) as caught:
                await copies_all_but_poison(worker.batches)
            offsets.append((caught.value.partition, caught.value.offset))

    assert offsets == [(POISON % 4, POISON // 4)] * 2


@pytest.fixture(name="cluster")
async def fixture_cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"input": PARTITIONS, "output": PARTITIONS}) as cluster:
        yield cluster


@pytest.fixture
async def filled(cluster: FakeCluster) -> FakeCluster:
    await fill(cluster.bootstrap_servers, "input", range(TOTAL))
    return cluster


# Positions of consumer and group


async def has_read(worker: Worker, count: int) -> bool:
    return await worker.has_read() == count


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)


async def positions(consumer: AIOKafkaConsumer) -> list[int]:
    return [await consumer.position(partition) for partition in sorted(consumer.assignment())]


async def read_on(consumer: AIOKafkaConsumer, count: int) -> list[int]:
    values: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(values) < count:
            fetched = await consumer.getmany(timeout_ms=200)
            values += [int(record.value) for records in fetched.values() for record in records]
    return values


# Ends of the loop; each has committed so many batches


async def stopped(worker: Worker) -> int:
    for _ in range(2):
        await worker.takes_a_batch()
    worker.batches.stop()
    assert await anext(worker.batches, None) is None
    return 2


async def left_in_the_first_batch(worker: Worker) -> int:
    await worker.takes_a_batch()
    return 0


async def left_in_a_batch_that_was_read_ahead(worker: Worker) -> int:
    for _ in range(3):
        await worker.takes_a_batch()
    return 2


async def left_in_a_batch_that_is_tried_again(worker: Worker) -> int:
    """Leave in a batch whose first transaction was aborted."""
    for _ in range(2):
        await worker.takes_a_batch()
    worker.cluster.faults.error(ILLEGAL_GENERATION, Where(api=ApiKey.TXN_OFFSET_COMMIT))
    await worker.takes_a_batch()
    return 1


async def cancelled_with_a_part_of_a_batch_read(worker: Worker) -> int:
    """Cancel while it waits for more records than there are."""
    for _ in range(TOTAL // BATCH):
        await worker.takes_a_batch()
    await fill(worker.servers, "input", range(TOTAL, TOTAL + PART))
    step = asyncio.ensure_future(anext(worker.batches))
    await until(lambda: has_read(worker, TOTAL + PART))
    step.cancel()
    await asyncio.wait([step])
    return TOTAL // BATCH


Ends = Callable[[Worker], Awaitable[int]]


@pytest.mark.parametrize(
    "ends",
    [
        stopped,
        left_in_the_first_batch,
        left_in_a_batch_that_was_read_ahead,
        left_in_a_batch_that_is_tried_again,
        cancelled_with_a_part_of_a_batch_read,
    ],
)
async def test_consumer_stands_where_the_group_does_after_the_loop(filled: FakeCluster, ends: Ends) -> None:
    """The consumer itself then reads every record that is not committed, and no other."""
    servers = filled.bootstrap_servers
    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:
        async with exactly_once(consumer, producer, max_records=BATCH, max_seconds=GATHERING_S) as batches:
            committed = BATCH * await ends(Worker(filled, consumer, producer, batches))
        stands, offsets = await positions(consumer), await committed_offsets(servers, "input")
        left = sum(filled.end_offset("input", number) for number in range(PARTITIONS)) - committed
        read = await read_on(consumer, left)

    assert (stands, sum(offsets)) == (offsets, committed)
    assert len(read) == len(set(read)) == left


async def test_consumer_stands_behind_poison_after_the_loop(filled: FakeCluster) -> None:
    servers, handed_over = filled.bootstrap_servers, []

    async def transform(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
        await copy(records, txn)
        if POISON in [int(record.value) for record in records]:
            raise ValueError(POISON)

    async def hook(record: ConsumerRecord, _: Exception, txn: BatchTransaction) -> None:
        handed_over.append(int(record.value))
        await copy([record], txn)

    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:
        async with exactly_once(consumer, producer, max_records=BATCH, on_poison=hook) as batches:
            await run_until_processed(batches, servers, TOTAL, transform=transform)
        stands = await positions(consumer)

    assert (stands, handed_over) == ([TOTAL // PARTITIONS] * PARTITIONS, [POISON])
    await assert_copied_once(servers, TOTAL)


async def test_loop_begins_where_the_group_stands(filled: FakeCluster) -> None:
    servers = filled.bootstrap_servers
    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:
        async with exactly_once(consumer, producer) as batches:
            await copy_until_processed(batches, servers, TOTAL)
        await consumer.seek_to_beginning()
        await fill(servers, "input", range(TOTAL, TOTAL + PART))
        async with exactly_once(consumer, producer) as batches:
            given = await copy_until_processed(batches, servers, TOTAL + PART)

    assert given == PART
    await assert_copied_once(servers, TOTAL + PART)


# A rebalance


async def work_too(servers: str) -> None:
    async with working(servers, "copy-2", max_records=BATCH) as batches:
        await copy_until_processed(batches, servers, TOTAL)


async def has_half_of_the_partitions(worker: Worker) -> bool:
    return len(worker.consumer.assignment()) == PARTITIONS // 2


async def step_at_which_another_member_joins(worker: Worker, place: Place) -> None:
    async with place(worker) as reached:
        taking = asyncio.create_task(step := anext(worker.batches))
        await until(lambda: reached(step))
        other = asyncio.create_task(work_too(worker.servers))
        await until(lambda: has_half_of_the_partitions(worker))
    stopping = asyncio.create_task(stop_when_processed(worker.batches, worker.servers, TOTAL))
    with suppress(StopAsyncIteration):
        await copy(*await taking)
    while (batch := await anext(worker.batches, None)) is not None:
        await copy(*batch)
    await asyncio.gather(stopping, other)


@pytest.mark.parametrize("name", [name for name in PLACES if "rebalancing" not in name])
async def test_rebalance_during_a_step_copies_once(cluster: FakeCluster, name: str) -> None:
    servers = cluster.bootstrap_servers
    async with (
        consuming(servers, "input") as consumer,
        transacting(servers, "copy", client_id=PRODUCER) as producer,
        exactly_once(consumer, producer, max_records=BATCH, max_seconds=2.0) as batches,
    ):
        await step_at_which_another_member_joins(Worker(cluster, consumer, producer, batches), PLACES[name])
    await assert_copied_once(servers, TOTAL)
