"""The outcome of the transaction around an input: committed, aborted or unknown."""

import asyncio

import pytest

from aioproducer import KafkaError, ProducerFencedError
from aioproducer.cli.produce.report import Tally, TransactionOutcome
from aioproducer.cli.produce.run import InputTransaction
from tests.fakes.transactional_cluster import END_TXN, Release, cluster_of, committed, on_every_release, producer_of
from tests.fakes.virtual_cluster import in_virtual_time


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
