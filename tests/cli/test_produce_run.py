"""One run of `aioproducer produce`: the outcome of its transaction, and the pace of its records."""

import asyncio

import pytest

from aioproducer import KafkaError, ProducerFencedError
from aioproducer.cli.produce.report import Tally, TransactionOutcome
from aioproducer.cli.produce.run import MAX_CATCH_UP_S, InputTransaction, Pace
from tests.fakes.transactional_cluster import END_TXN, Release, cluster_of, committed, on_every_release, producer_of
from tests.fakes.virtual_loop import in_virtual_time


@on_every_release
@in_virtual_time
async def test_commit_in_doubt_is_not_reported_as_aborted(release: Release) -> None:
    """The answer was lost, and another run came: "nothing of the input is there" had everything sent twice."""
    async with cluster_of(release) as cluster:
        producer = await producer_of(cluster, request_timeout_ms=3000).start()
        transaction = InputTransaction(producer, Tally())
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.faults.delay(30, END_TXN)
        commit = asyncio.create_task(transaction.commit())
        await asyncio.sleep(1)
        async with producer_of(cluster):
            with pytest.raises(KafkaError, match="whether it is committed is not known"):
                await commit
        await producer.close()

        assert transaction.outcome is TransactionOutcome.UNKNOWN
        assert committed(cluster) == [b"v"]


@on_every_release
@in_virtual_time
async def test_commit_that_is_refused_is_said_to_be_aborted(release: Release) -> None:
    async with cluster_of(release) as cluster:
        producer = await producer_of(cluster).start()
        transaction = InputTransaction(producer, Tally())
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        async with producer_of(cluster):
            with pytest.raises(ProducerFencedError):
                await transaction.commit()
        await producer.close()

        assert transaction.outcome is TransactionOutcome.ABORTED
        assert committed(cluster) == []


def test_turns_are_evenly_spaced() -> None:
    pace = Pace(10, now=100)

    assert [pace.next_delay_s(100) for _ in range(4)] == pytest.approx([0, 0.1, 0.2, 0.3])


def test_standstill_is_not_made_up_for() -> None:
    """After an hour without input, only the records of a moment go at once."""
    pace = Pace(100, now=0)

    at_once = sum(pace.next_delay_s(3600) <= 0 for _ in range(1_000))

    assert at_once == pytest.approx(MAX_CATCH_UP_S * 100 + 1, abs=1)
