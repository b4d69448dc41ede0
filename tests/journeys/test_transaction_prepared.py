"""Prepared transactions: they outlive their producer, and any process may complete them (KIP-939's words)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aioproducer import (
    IllegalStateError,
    NoTransactionError,
    Outcome,
    PreparedTransaction,
    Producer,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionTimeoutError,
)
from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.log.producer_state import LAST_EPOCH
from tests.fakes.transactional_cluster import (
    ADD_PARTITIONS,
    END_TXN,
    FIRST,
    PRODUCE,
    V2_RELEASE,
    Release,
    asked,
    begin,
    cluster_of,
    committed,
    in_virtual_time_on_every_release,
    on_v1,
    producer_of,
    transacting,
)
from tests.fakes.virtual_loop import in_virtual_time

MESSAGE_TOO_LARGE = 10


async def prepared_by(producer: Producer, value: bytes = b"v") -> PreparedTransaction:
    await producer.begin_transaction()
    await producer.enqueue("t", value, partition=0)
    return await producer.prepare_transaction()


@in_virtual_time_on_every_release
async def test_prepared_transaction_names_what_is_open(release: Release) -> None:
    async with transacting(release, linger_ms=1_000) as (cluster, producer):
        prepared = await prepared_by(producer)

        version = 2 if release.get("transaction_version") == 2 else 1
        assert prepared._replace(producer_id=0) == ("billing-1", 0, 0, version)
        assert [record.value for record in cluster.records("t", 0)] == [b"v"]
        assert committed(cluster) == []
        assert "END_TXN" not in asked(cluster)
        assert await producer.prepare_transaction() == prepared


@pytest.mark.parametrize("commit", [True, False])
@in_virtual_time_on_every_release
async def test_its_producer_ends_it_when_told_to(release: Release, *, commit: bool) -> None:
    async with transacting(release) as (cluster, producer):
        await prepared_by(producer)
        await (producer.commit_transaction() if commit else producer.abort_transaction())
        assert committed(cluster) == ([b"v"] if commit else [])

        async with producer.transaction() as txn:
            await txn.send("t", b"next", partition=0)
        assert committed(cluster) == ([b"v"] if commit else []) + [b"next"]
        assert producer.statistics().transactions_committed == 1 + commit


async def leave(producer: Producer, how: str) -> None:
    async with producer:
        await prepared_by(producer)
        if how == "close at once":
            await producer.close(0)
        if how == "failed block":
            raise LookupError


@pytest.mark.parametrize("how", ["close at once", "block", "failed block"])
@in_virtual_time_on_every_release
async def test_no_end_of_its_producer_ends_it(release: Release, how: str) -> None:
    async with cluster_of(release) as cluster:
        with contextlib.suppress(LookupError):
            await leave(producer_of(cluster), how)

        await asyncio.sleep(1)
        assert "END_TXN" not in asked(cluster)
        assert committed(cluster) == []


@in_virtual_time_on_every_release
async def test_nothing_is_taken_any_more(release: Release) -> None:
    async with transacting(release) as (_, producer):
        await prepared_by(producer)

        with pytest.raises(NoTransactionError, match="is prepared"):
            await producer.send("t", b"late")
        with pytest.raises(NoTransactionError, match="is prepared"):
            await producer.send_offsets({("t", 0): 1}, "readers")
        with pytest.raises(IllegalStateError, match=r"open already|is prepared"):
            await producer.begin_transaction()
        with pytest.raises(IllegalStateError):
            async with producer.transaction():
                pass


@in_virtual_time_on_every_release
async def test_empty_transaction_has_nothing_to_prepare(release: Release) -> None:
    async with transacting(release) as (_, producer):
        with pytest.raises(IllegalStateError, match="nothing to prepare"):
            await producer.prepare_transaction()
        await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="nothing to prepare"):
            await producer.prepare_transaction()
        await producer.commit_transaction()

        await producer.begin_transaction()
        await producer.send_offsets({("t", 0): 1}, "readers")
        await producer.prepare_transaction()
        await producer.commit_transaction()
        assert await producer.committed_offsets("readers", [TopicPartition("t", 0)])


@in_virtual_time_on_every_release
async def test_failed_record_raises_and_requires_an_abort(release: Release) -> None:
    async with transacting(release) as (cluster, producer):
        cluster.faults.error(MESSAGE_TOO_LARGE, FIRST, times=1)
        with pytest.raises(TransactionAbortableError):
            await prepared_by(producer)
        with pytest.raises(TransactionAbortableError):
            await producer.prepare_transaction()
        await producer.abort_transaction()

        await prepared_by(producer, b"again")
        await producer.commit_transaction()
        assert committed(cluster) == [b"again"]


@in_virtual_time_on_every_release
async def test_prepare_that_timed_out_is_joined(release: Release) -> None:
    async with transacting(release, max_block_ms=1_000) as (cluster, producer):
        stall = cluster.faults.stall(PRODUCE)
        with pytest.raises(TransactionTimeoutError, match="not prepared"):
            await prepared_by(producer)
        with pytest.raises(IllegalStateError, match="being prepared"):
            await producer.commit_transaction()
        cluster.faults.remove(stall)
        await asyncio.sleep(5)

        await producer.prepare_transaction()
        await producer.commit_transaction()
        assert committed(cluster) == [b"v"]


@in_virtual_time_on_every_release
async def test_abort_takes_the_place_of_a_prepare_that_waits(release: Release) -> None:
    async with transacting(release) as (cluster, producer):
        stall = cluster.faults.stall(PRODUCE)
        preparing = asyncio.ensure_future(prepared_by(producer))
        await asyncio.sleep(0.1)
        cluster.faults.remove(stall)
        await producer.abort_transaction()

        with pytest.raises(TransactionAbortedError, match="prepare waited"):
            await preparing
        assert committed(cluster) == []


@in_virtual_time_on_every_release
async def test_close_aborts_what_no_caller_knows_to_be_prepared(release: Release) -> None:
    """The caller was cancelled, so nobody could complete it and readers would wait for its timeout."""
    async with transacting(release) as (cluster, producer):
        preparing = asyncio.ensure_future(prepared_by(producer))
        cluster.faults.delay(0.5, PRODUCE)
        await asyncio.sleep(0.1)
        preparing.cancel()
        await asyncio.sleep(1)
        await producer.close()

        assert asked(cluster)[-1] == "END_TXN"
        assert committed(cluster) == []


@on_v1
@in_virtual_time
async def test_partitions_are_added_before_it_is_prepared(release: Release) -> None:
    async with transacting(release) as (cluster, producer):
        cluster.faults.error(51, ADD_PARTITIONS, times=2)
        await prepared_by(producer)

        assert [record.value for record in cluster.records("t", 0)] == [b"v"]


@in_virtual_time_on_every_release
async def test_own_block_cannot_be_prepared(release: Release) -> None:
    async with transacting(release) as (cluster, producer):
        async with producer.transaction() as txn:
            await txn.send("t", b"v", partition=0)
            with pytest.raises(NoTransactionError, match="block is open"):
                await producer.prepare_transaction()
        assert committed(cluster) == [b"v"]


# Completion, by another producer


COMPLETIONS = [None, "other-1"]  # transactional id of the producer that completes


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("transactional_id", COMPLETIONS)
@in_virtual_time_on_every_release
async def test_another_producer_completes_it_once(
    release: Release, transactional_id: str | None, *, commit: bool
) -> None:
    async with cluster_of(release, 3) as cluster:
        async with producer_of(cluster) as producer:
            prepared = await prepared_by(producer)
        async with Producer(cluster.bootstrap_servers, transactional_id=transactional_id) as other:
            for _ in range(3):
                await other.complete_transaction(prepared, commit=commit)

        assert committed(cluster) == ([b"v"] if commit else [])
        async with producer_of(cluster) as producer:
            await prepared_by(producer, b"next")
            await producer.commit_transaction()
        assert committed(cluster) == ([b"v"] if commit else []) + [b"next"]


@pytest.mark.parametrize("commit", [True, False])
@in_virtual_time_on_every_release
async def test_its_own_producer_completes_it_and_goes_on(release: Release, *, commit: bool) -> None:
    async with transacting(release) as (cluster, producer):
        prepared = await prepared_by(producer)
        for _ in range(2):
            await producer.complete_transaction(prepared, commit=commit)
        with pytest.raises(TransactionError, match="before"):
            await producer.complete_transaction(prepared, commit=not commit)
        assert committed(cluster) == ([b"v"] if commit else [])

        await begin(producer, b"next")
        if release != V2_RELEASE:  # else the epoch tells
            with pytest.raises(IllegalStateError, match="begun another"):
                await producer.complete_transaction(prepared, commit=commit)
        await producer.commit_transaction()
        assert committed(cluster) == ([b"v"] if commit else []) + [b"next"]


@pytest.mark.parametrize("code", [-1, 14, 15, 16, 51])
@in_virtual_time_on_every_release
async def test_completion_is_repeated_until_it_is_done(release: Release, code: int) -> None:
    async with cluster_of(release, 2) as cluster, producer_of(cluster) as producer:
        prepared = await prepared_by(producer)
        cluster.faults.error(code, END_TXN, times=3)
        cluster.faults.drop_connection(END_TXN, after_append=True, times=1)
        async with Producer(cluster.bootstrap_servers) as other:
            await other.complete_transaction(prepared)

        assert committed(cluster) == [b"v"]


@in_virtual_time_on_every_release
async def test_end_of_v1_is_asked_in_the_versions_of_v1(release: Release) -> None:
    """A 4.x broker with `transaction.version` 0 lists EndTxn v5, and refuses it."""
    async with transacting(release) as (cluster, producer):
        prepared = await prepared_by(producer)
        async with Producer(cluster.bootstrap_servers) as other:
            await other.complete_transaction(prepared)

        (end,) = [seen for seen in cluster.requests if seen.api is ApiKey.END_TXN]
        assert (end.version >= 5) is (release == V2_RELEASE)


@in_virtual_time_on_every_release
async def test_completion_without_an_answer_times_out(release: Release) -> None:
    async with transacting(release) as (cluster, producer):
        prepared = await prepared_by(producer)
        cluster.faults.stall(END_TXN)
        async with Producer(cluster.bootstrap_servers, max_block_ms=1_000) as other:
            with pytest.raises(
                TransactionTimeoutError, match="commit of the prepared transaction of 'billing-1'"
            ) as met:
                await other.complete_transaction(prepared)
        assert met.value.outcome is Outcome.UNKNOWN
        await producer.close(0)


@asynccontextmanager
async def completer(release: Release) -> AsyncIterator[tuple[PreparedTransaction, Producer]]:
    """A prepared transaction, and another producer, whose close would not end it."""
    async with cluster_of(release) as cluster, Producer(cluster.bootstrap_servers) as other:
        async with producer_of(cluster) as producer:
            prepared = await prepared_by(producer)
        yield prepared, other


@in_virtual_time_on_every_release
async def test_completion_of_what_was_aborted_is_an_error(release: Release) -> None:
    async with completer(release) as (prepared, other):
        with pytest.raises(TransactionError):
            await other.complete_transaction(prepared._replace(producer_id=77))
        with pytest.raises(TypeError, match="PreparedTransaction, not tuple"):
            await other.complete_transaction(tuple(prepared))  # type: ignore[arg-type]
        await other.complete_transaction(prepared, commit=False)
        with pytest.raises(TransactionAbortedError):
            await other.complete_transaction(prepared)


@in_virtual_time_on_every_release
async def test_abort_of_what_was_committed_is_an_error(release: Release) -> None:
    async with completer(release) as (prepared, other):
        await other.complete_transaction(prepared)
        with pytest.raises(TransactionError, match="committed"):
            await other.complete_transaction(prepared, commit=False)


@in_virtual_time_on_every_release
async def test_completion_after_a_newer_producers_abort_is_fenced(release: Release) -> None:
    async with cluster_of(release) as cluster:
        async with producer_of(cluster) as producer:
            prepared = await prepared_by(producer)
        async with producer_of(cluster):
            pass
        async with Producer(cluster.bootstrap_servers) as other:
            with pytest.raises(ProducerFencedError):
                await other.complete_transaction(prepared)
        assert committed(cluster) == []


@in_virtual_time_on_every_release
async def test_completion_of_what_timed_out_is_an_error(release: Release) -> None:
    async with cluster_of(release) as cluster:
        async with producer_of(cluster, transaction_timeout_ms=2_000) as producer:
            prepared = await prepared_by(producer)
            await asyncio.sleep(60)
        async with Producer(cluster.bootstrap_servers) as other:
            with pytest.raises((ProducerFencedError, TransactionAbortedError)):
                await other.complete_transaction(prepared)
        assert committed(cluster) == []


@in_virtual_time_on_every_release
async def test_last_epoch_of_a_producer_id_is_completed_repeatedly(release: Release) -> None:
    """Under V2 its end takes another producer id; a repetition names the old one (FLINK-40689)."""
    async with cluster_of(release) as cluster, Producer(cluster.bootstrap_servers) as other:
        async with producer_of(cluster):
            pass
        entry = cluster.model.transactions.entry("billing-1")
        assert entry is not None
        entry.epoch = LAST_EPOCH - 2
        async with producer_of(cluster) as producer:
            prepared = await prepared_by(producer)
        assert prepared.epoch == LAST_EPOCH - 1
        for _ in range(3):
            await other.complete_transaction(prepared)
        assert committed(cluster) == [b"v"]

        async with producer_of(cluster) as producer:
            following = await prepared_by(producer, b"next")
        assert following.producer_id != prepared.producer_id
        await other.complete_transaction(following)
        assert committed(cluster) == [b"v", b"next"]
