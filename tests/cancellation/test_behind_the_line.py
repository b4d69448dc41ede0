"""Calls that are cancelled when their record has left its line, and their task has not had its turn yet."""

import asyncio

import pytest

from aioproducer import KafkaError, Producer, RecordMetadata, UndeliveredError
from aioproducer.testing import FakeCluster


async def test_enqueue_cancelled_behind_its_line_says_that_the_record_goes_on() -> None:
    """Cancelling cannot be refused, and the record has been given its place: who sends it again doubles it."""
    told: list[tuple[RecordMetadata | None, KafkaError | None]] = []
    async with FakeCluster(1) as cluster, Producer(cluster.bootstrap_servers) as producer:
        calling = asyncio.create_task(
            producer.enqueue("t", b"v", on_delivery=lambda metadata, error: told.append((metadata, error)))
        )
        await asyncio.sleep(0)
        while producer.statistics().records_waiting:  # noqa: ASYNC110  # it must be seen in the very turn
            await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await calling
        await producer.flush()

        assert cancelled.value.__notes__ == ["aioproducer: the record for topic 't' had been accepted by then"]
        assert [error for _, error in told] == [None]


async def test_enqueue_cancelled_as_its_record_fails_does_not_say_that_it_goes_on() -> None:
    """It is in no log, and never will be."""
    async with (
        FakeCluster(1, auto_create_topics=False) as cluster,
        Producer(cluster.bootstrap_servers, max_block_ms=100) as producer,
    ):
        calling = asyncio.create_task(producer.enqueue("nowhere", b"v"))
        await asyncio.sleep(0)
        while producer.statistics().records_waiting:  # noqa: ASYNC110  # it must be seen in the very turn
            await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await calling

        assert not getattr(cancelled.value, "__notes__", [])
        with pytest.raises(UndeliveredError):
            await producer.flush()
