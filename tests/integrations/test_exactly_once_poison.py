"""A record that fails whenever it is tried: found, and handed over or told."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence

import pytest
from aiokafka import ConsumerRecord

from aioproducer import MetadataTimeoutError
from aioproducer.integrations.aiokafka import BatchTransaction, PoisonRecordError
from aioproducer.integrations.aiokafka.failures import ATTEMPTS
from aioproducer.testing import FakeCluster
from tests.fakes.log_capture import LogCapture
from tests.integrations.workers import copy, fill, read_committed, stop_when_processed, working

pytestmark = pytest.mark.slow

TOTAL = 60
POISON = 37
TOO_LARGE = b"x" * 5_000


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
        stopping = asyncio.create_task(stop_when_processed(batches, servers, TOTAL))
        await batches.run(transform)  # type: ignore[arg-type]
        await stopping

    assert [number for number, _ in hook.told] == [POISON]
    assert await read_committed(servers, "dead", count=1, partitions=1) == [POISON]
    others = [number for number in range(TOTAL) if number != POISON]
    assert await read_committed(servers, "output", count=TOTAL - 1) == others


async def test_each_attempt_logs_the_users_traceback(servers: str) -> None:
    """The whole batch, the record alone each time, and the poison: file, line and function, and so do lost records."""
    hook = Hook()
    with LogCapture() as log:
        async with working(servers, max_records=TOTAL, max_seconds=1.0, on_poison=hook) as batches:
            stopping = asyncio.create_task(stop_when_processed(batches, servers, TOTAL))
            await batches.run(copy_and_stumble)
            await stopping

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

            stopping = asyncio.create_task(stop_when_processed(batches, servers, TOTAL))
            await batches.run(transform)
            await stopping

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
        stopping = asyncio.create_task(stop_when_processed(batches, servers, TOTAL))
        await batches.run(transform)
        await stopping

    assert hook.told == []
    assert await read_committed(servers, "output", count=TOTAL) == list(range(TOTAL))
