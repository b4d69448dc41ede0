"""Code that takes longer for its records than a transaction may be open."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiokafka import ConsumerRecord

from aioproducer.integrations.aiokafka import BatchTransaction, ExactlyOnce, PoisonRecordError, exactly_once
from aioproducer.testing import FakeCluster
from tests.integrations.workers import consuming, copy, fill, read_committed, stop_when_processed, transacting

pytestmark = pytest.mark.slow

TOTAL = 60
TIMEOUT_S = 1.0
SLOW_S = 2 * TIMEOUT_S


@pytest.fixture(name="servers")
async def fixture_servers() -> AsyncIterator[str]:
    """One broker with transactions V2, where a transaction that timed out costs no producer."""
    async with FakeCluster(nodes=1, topics={"input": 1, "output": 1, "dead": 1}) as cluster:
        await fill(cluster.bootstrap_servers, "input", range(TOTAL), partitions=1)
        yield cluster.bootstrap_servers


@asynccontextmanager
async def hasty(servers: str, **limits: object) -> AsyncIterator[ExactlyOnce]:
    """A worker whose transactions may be open for a second."""
    async with (
        consuming(servers, "input") as consumer,
        transacting(servers, "copy", transaction_timeout_ms=int(TIMEOUT_S * 1000)) as producer,
        exactly_once(consumer, producer, **limits) as batches,  # type: ignore[arg-type]
    ):
        yield batches


async def test_batch_that_takes_too_long_is_retried_in_parts(servers: str) -> None:
    """The same batch would take as long again, and would never be committed."""
    sizes = []

    async def work(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
        sizes.append(len(records))
        await copy(records, txn)
        await asyncio.sleep(SLOW_S / TOTAL * len(records))

    async with hasty(servers) as batches:
        stopping = asyncio.create_task(stop_when_processed(batches, servers, TOTAL))
        await batches.run(work)
        await stopping

    assert sizes[0] == TOTAL
    assert max(sizes[1:]) <= TOTAL / 2
    assert await read_committed(servers, "output", count=TOTAL, partitions=1) == list(range(TOTAL))


async def test_record_that_takes_too_long_by_itself_is_poison(servers: str) -> None:
    """It counts as a record that raises each time; the others are processed."""
    told = []

    async def work(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
        await copy(records, txn)
        if b"37" in [record.value for record in records]:
            await asyncio.sleep(SLOW_S)

    async def hook(record: ConsumerRecord, error: Exception, txn: BatchTransaction) -> None:
        told.append((record.value, str(error)))
        await txn.enqueue("dead", record.value)

    async with hasty(servers, on_poison=hook) as batches:
        stopping = asyncio.create_task(stop_when_processed(batches, servers, TOTAL))
        await batches.run(work)
        await stopping

    [(value, text)] = told
    assert value == b"37"
    assert "timed out" in text or "INVALID_TXN_STATE" in text
    others = [number for number in range(TOTAL) if number != 37]
    assert await read_committed(servers, "output", count=TOTAL - 1, partitions=1) == others


async def test_slow_record_ends_the_loop_without_a_hook(servers: str) -> None:
    """The error names the record, which would otherwise be tried forever."""

    async def work(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
        await copy(records, txn)
        await asyncio.sleep(SLOW_S)

    with pytest.raises(PoisonRecordError, match="fails whenever it is tried"):
        async with hasty(servers, max_records=1) as batches:
            await batches.run(work)
