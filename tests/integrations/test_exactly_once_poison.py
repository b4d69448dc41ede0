"""A record that fails whenever it is tried, or code that is too slow for it: found, and handed over or told."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiokafka import ConsumerRecord

from aioproducer import MetadataTimeoutError
from aioproducer.integrations.aiokafka import BatchTransaction, ExactlyOnce, PoisonRecordError, exactly_once
from aioproducer.integrations.aiokafka.failures import ATTEMPTS
from aioproducer.testing import FakeCluster
from tests.fakes.logs import LogCapture
from tests.integrations.workers import consuming, copy, fill, read_committed, run_until_processed, transacting, working

pytestmark = pytest.mark.slow

TOTAL = 60
POISON = 37
TOO_LARGE = b"x" * 5_000
TIMEOUT_S = 1.0
SLOW_S = 2 * TIMEOUT_S


@pytest.fixture(name="servers")
async def fixture_servers() -> AsyncIterator[str]:
    """One broker; a topic that takes no large records."""
    async with FakeCluster(nodes=1, topics={"input": 4, "output": 4, "dead": 1}) as cluster:
        cluster.create_topic("small", 1, configs={"max.message.bytes": "1000"})
        await fill(cluster.bootstrap_servers, "input", range(TOTAL))
        yield cluster.bootstrap_servers


class Hook:
    """Sends poison records to another topic, and remembers them."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []

    async def __call__(self, record: ConsumerRecord, error: Exception, txn: BatchTransaction) -> None:
        """A record, and what it fails with."""
        self.told.append((int(record.value), str(error)))
        await txn.enqueue("dead", record.value)


async def copy_and_stumble(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
    """A transformation that cannot take one of the records, and finds out late."""
    await copy(records, txn)
    if POISON in [int(record.value) for record in records]:
        raise ValueError(f"cannot take {POISON}")


async def copy_and_enlarge(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
    await copy(records, txn)
    if POISON in [int(record.value) for record in records]:
        await txn.enqueue("small", TOO_LARGE)


@pytest.mark.parametrize("transform", [copy_and_stumble, copy_and_enlarge])
async def test_poison_goes_to_the_hook(servers: str, transform: object) -> None:
    """Only that record goes there, once; all others are processed, and its earlier output is not visible."""
    hook = Hook()
    async with working(servers, max_records=30, on_poison=hook) as batches:
        await run_until_processed(batches, servers, TOTAL, transform=transform)  # type: ignore[arg-type]

    assert [number for number, _ in hook.told] == [POISON]
    assert await read_committed(servers, "dead", count=1, partitions=1) == [POISON]
    others = [number for number in range(TOTAL) if number != POISON]
    assert await read_committed(servers, "output", count=TOTAL - 1) == others


async def test_each_attempt_logs_the_users_traceback(servers: str) -> None:
    """The whole batch, the record alone each time, and the poison: file, line and function, and so do lost records."""
    hook = Hook()
    with LogCapture() as log:
        async with working(servers, max_records=TOTAL, max_seconds=1.0, on_poison=hook) as batches:
            await run_until_processed(batches, servers, TOTAL, transform=copy_and_stumble)

    source, first = inspect.getsourcelines(copy_and_stumble)
    line = first + len(source) - 1
    place = f'File "{__file__}", line {line}, in copy_and_stumble'
    for event, least in (("batch_not_committed", 1 + ATTEMPTS), ("poison_record", 1), ("batch_failed", 1)):
        lines = log.naming(f"event='{event}'")
        assert len(lines) >= least
        assert [one for one in lines if place not in one or f"ValueError: cannot take {POISON}" not in one] == []


async def test_trouble_with_the_cluster_is_logged_without_traceback(servers: str) -> None:
    """Its frames would show this package only; the text has the cause."""
    with LogCapture() as log:
        async with working(servers, max_records=TOTAL) as batches:

            async def transform(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
                if not log.naming("batch_not_committed"):
                    raise MetadataTimeoutError("no broker answered")
                await copy(records, txn)

            await run_until_processed(batches, servers, TOTAL, transform=transform)

    (line,) = log.naming("batch_not_committed")
    assert "MetadataTimeoutError: no broker answered" in line
    assert "Traceback" not in line


async def test_without_a_hook_poison_ends_the_loop(servers: str) -> None:
    with pytest.raises(PoisonRecordError) as caught:
        async with working(servers, max_records=30) as batches:
            await batches.run(copy_and_stumble)

    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("input", 1, 9)
    assert str(caught.value.__cause__) == f"cannot take {POISON}"


async def test_exception_that_passes_is_no_poison(servers: str) -> None:
    """After a short outage of a database the batch is retried, and no error is raised."""
    hook, failures = Hook(), iter(range(2))

    async def transform(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
        await copy(records, txn)
        if next(failures, None) is not None:
            raise ConnectionError

    async with working(servers, max_records=30, on_poison=hook) as batches:
        await run_until_processed(batches, servers, TOTAL, transform=transform)

    assert hook.told == []
    assert await read_committed(servers, "output", count=TOTAL) == list(range(TOTAL))


# Code that takes longer for its records than a transaction may be open


@pytest.fixture(name="v2")
async def fixture_v2() -> AsyncIterator[str]:
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


async def test_batch_that_takes_too_long_is_retried_in_parts(v2: str) -> None:
    """The same batch would take as long again, and would never be committed."""
    sizes = []

    async def work(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
        sizes.append(len(records))
        await copy(records, txn)
        await asyncio.sleep(SLOW_S / TOTAL * len(records))

    async with hasty(v2) as batches:
        await run_until_processed(batches, v2, TOTAL, transform=work)

    assert sizes[0] == TOTAL
    assert max(sizes[1:]) <= TOTAL / 2
    assert await read_committed(v2, "output", count=TOTAL, partitions=1) == list(range(TOTAL))


async def test_record_that_takes_too_long_by_itself_is_poison(v2: str) -> None:
    """It counts as a record that raises each time; the others are processed."""
    told = []

    async def work(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
        await copy(records, txn)
        if b"37" in [record.value for record in records]:
            await asyncio.sleep(SLOW_S)

    async def hook(record: ConsumerRecord, error: Exception, txn: BatchTransaction) -> None:
        told.append((record.value, str(error)))
        await txn.enqueue("dead", record.value)

    async with hasty(v2, on_poison=hook) as batches:
        await run_until_processed(batches, v2, TOTAL, transform=work)

    [(value, text)] = told
    assert value == b"37"
    assert "timed out" in text or "INVALID_TXN_STATE" in text
    others = [number for number in range(TOTAL) if number != 37]
    assert await read_committed(v2, "output", count=TOTAL - 1, partitions=1) == others


async def test_slow_record_ends_the_loop_without_a_hook(v2: str) -> None:
    """The error names the record, which would otherwise be tried forever."""

    async def work(records: Sequence[ConsumerRecord], txn: BatchTransaction) -> None:
        await copy(records, txn)
        await asyncio.sleep(SLOW_S)

    with pytest.raises(PoisonRecordError, match="fails whenever it is tried"):
        async with hasty(v2, max_records=1) as batches:
            await batches.run(work)
