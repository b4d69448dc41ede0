"""Positions of consumer and group: after the loop, however it ended, and after a rebalance at any of its steps."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord

from aioproducer.integrations.aiokafka import BatchTransaction, exactly_once
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.integrations.interruptions import BATCH, ILLEGAL_GENERATION, PART, PLACES, PRODUCER, TOTAL, Place, Worker
from tests.integrations.workers import (
    PATIENCE_S,
    assert_copied_once,
    committed_offsets,
    consuming,
    copy,
    copy_until_processed,
    fill,
    stop_when_processed,
    transacting,
    working,
)

pytestmark = pytest.mark.slow

PARTITIONS = 4
POISON = 37
GATHERING_S = 30.0  # no batch is given out because of it: all are full


@pytest.fixture(name="cluster")
async def fixture_cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"input": PARTITIONS, "output": PARTITIONS}) as cluster:
        yield cluster


@pytest.fixture
async def filled(cluster: FakeCluster) -> FakeCluster:
    await fill(cluster.bootstrap_servers, "input", range(TOTAL))
    return cluster


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
            stopping = asyncio.create_task(stop_when_processed(batches, servers, TOTAL))
            await batches.run(transform)
            await stopping
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
