"""A defect of our own while a transaction is under way: every call says so, and nobody waits for ever.

Source: `testBackgroundInvalidStateTransitionIsFatal` of TransactionManagerTest in Apache Kafka (KAFKA-14831).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from aioproducer import KafkaError, Producer, TopicPartition, Transaction
from aioproducer._transactions.commit_abort import TransactionCompleter
from aioproducer._transactions.manager import TransactionManager
from aioproducer._transactions.states import TransactionState
from tests.fakes.transactional_cluster import FIRST, Release, cluster_of, committed, on_every_release, producer_of
from tests.fakes.virtual_cluster import in_virtual_time

INVALID_RECORD: Final = 87


async def check_failed(producer: Producer) -> None:
    """Each verb raises what has happened."""
    calls: list[Callable[[], Awaitable[object]]] = [
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send_offsets({TopicPartition("t", 0): 1}, "readers"),
        lambda: producer.send("t", b"v"),
    ]
    for call in calls:
        with pytest.raises(KafkaError, match="cannot go from"):
            await asyncio.wait_for(call(), 1)
    await asyncio.wait_for(producer.close(), 5)


@on_every_release
@in_virtual_time
async def test_move_that_cannot_be_made_in_the_background_is_the_end(release: Release) -> None:
    """An answer brings it about; nobody knows what was left undone."""
    async with cluster_of(release) as cluster:
        producer = await producer_of(cluster).start()
        await producer.begin_transaction()
        delivery = producer.send("t", b"v", partition=0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TransactionManager, "_end", lambda self, _: self._move_to(TransactionState.UNINITIALIZED))
            with pytest.raises(KafkaError, match="cannot go from"):
                await asyncio.wait_for(producer.commit_transaction(), 5)

        assert delivery.done()
        await check_failed(producer)


@on_every_release
@in_virtual_time
async def test_defect_while_a_failure_is_told_is_the_end(release: Release) -> None:
    """It is told from a callback of the loop, which nobody awaits."""
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def settle(endings: TransactionCompleter) -> None:
        del endings
        raise RuntimeError("cannot go from here")

    async with cluster_of(release) as cluster:
        producer = await producer_of(cluster).start()
        await producer.begin_transaction()
        cluster.faults.error(INVALID_RECORD, FIRST)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TransactionCompleter, "settle", settle)
            with pytest.raises(KafkaError):
                await producer.send("t", b"v", partition=0)
            await asyncio.sleep(1)

        await check_failed(producer)
        assert committed(cluster) == []


@on_every_release
@in_virtual_time
async def test_block_that_cannot_be_entered_leaves_no_transaction_behind(release: Release) -> None:
    """The transaction had begun; nobody got the handle, so nobody would ever end it."""

    def attach(*_: object) -> None:
        raise MemoryError

    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Transaction, "_enable_sending", attach)
            with pytest.raises(MemoryError):
                await producer.transaction().__aenter__()

        async with producer.transaction() as txn:
            await txn.send("t", b"next", partition=0)
        await producer.begin_transaction()
        await producer.send("t", b"by its own verbs", partition=0)
        await producer.commit_transaction()

        assert committed(cluster) == [b"next", b"by its own verbs"]
