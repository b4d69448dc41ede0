"""Large transactions are sent while they are written."""

import asyncio
import os
import sys

import pytest

from aioproducer._producer.transaction import Transaction
from aioproducer._transactions.records import LEAST_BYTES, EagerSend
from aioproducer.testing import ApiKey, FakeCluster
from tests.fakes.core_parts import CoreParts, values
from tests.fakes.transactional_cluster import V2_RELEASE, Release, cluster_of, committed, on_every_release, producer_of
from tests.fakes.virtual_cluster import in_virtual_time

KIB = 1024
RECORD = bytes(KIB)


class Writing:
    """A transaction that is being written to some partitions, a kibibyte at a time."""

    def __init__(self, *, batch_size: int = 128 * KIB, partitions: int = 2) -> None:
        self.core = CoreParts(leaders=(1,) * partitions, linger_s=60, batch_size=batch_size, memory=8 * KIB * KIB)
        self.is_idle = True
        self.turns = 0
        EagerSend(self.core.appender, self.core.open_batches, lambda: self.is_idle)

    def write(self, kib: int, *, partition: int = 0) -> None:
        """Write so much, giving the loop the turns that are wanted."""
        for _ in range(kib):
            self.core.send(RECORD, partition=partition)
            self.turns += self.core.appender.pause_wanted
            self.core.appender.pause_wanted = False

    def sent(self) -> list[int]:
        """How many records the batches have that go now."""
        return values(self.core.drain())


def test_batch_goes_when_a_part_of_it_is_worth_a_request() -> None:
    """A quarter of `batch_size`."""
    writing = Writing()
    writing.write(30)
    assert not writing.sent()

    writing.write(2)

    assert writing.sent() == [32]


def test_batches_go_together_when_each_is_worth_it() -> None:
    """With two of them twice as much must be written; before that the loop has no use for a turn."""
    writing = Writing()
    writing.write(20, partition=0)
    writing.write(40, partition=1)
    assert not writing.sent()
    writing.write(5, partition=1)

    assert sorted(writing.sent()) == [20, 45]
    assert writing.turns == 1


def test_nothing_goes_early_while_a_request_is_on_its_way() -> None:
    """What is written meanwhile goes together, as soon as there is no other."""
    writing = Writing(batch_size=256 * KIB)
    writing.is_idle = False
    writing.write(150)
    assert not writing.sent()
    writing.is_idle = True

    writing.write(45)

    assert writing.sent() == [195]
    assert writing.turns == 3


def test_small_batches_do_not_go_before_kafkas_own_would() -> None:
    """A request for each few records would cost more than it saves."""
    writing = Writing(batch_size=LEAST_BYTES)
    writing.write(LEAST_BYTES // KIB - 2)

    assert not writing.sent()
    assert not writing.turns


def test_what_went_in_full_batches_is_not_counted() -> None:
    """Few bytes are left, and not worth a request."""
    writing = Writing()
    writing.is_idle = False
    writing.write(126)
    writing.is_idle = True

    writing.write(20)

    assert writing.sent() == [126]
    assert not writing.core.queue(0).open_batch.is_ready  # type: ignore[union-attr]


def test_many_partitions_are_written_to_without_a_turn() -> None:
    """In each the linger of a few records would send them."""
    writing = Writing(partitions=200)
    for number in range(2000):
        writing.write(1, partition=number % 200)

    assert not writing.sent()
    assert not writing.turns


@pytest.mark.skipif(sys.platform == "win32", reason="has no such call")
def test_processor_is_offered_to_others_once_before_the_first_batches_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it costs a loop its turn."""
    offers: list[int] = []
    writing = Writing()
    monkeypatch.setattr(os, "sched_yield", lambda: offers.append(writing.core.open_batches.records))
    writing.is_idle = False
    writing.write(70)
    assert not offers
    writing.is_idle = True

    writing.write(200)

    assert len(offers) == 1
    assert offers[0] > 70


async def produced(cluster: FakeCluster) -> int:
    """How many Produce requests have arrived, after all the time that any takes."""
    await asyncio.sleep(1)
    return sum(seen.api is ApiKey.PRODUCE for seen in cluster.requests)


async def write(txn: Transaction, records: range) -> None:
    """Write kibibytes to both partitions, with a loop of `enqueue`."""
    for number in records:
        await txn.enqueue("t", b"%03d" % number + RECORD, partition=number % 2)


@on_every_release
@in_virtual_time
async def test_transaction_is_sent_while_a_loop_of_enqueue_writes_it(release: Release) -> None:
    """Neither its batches nor its linger are at an end; all of it is committed in order."""
    async with cluster_of(release) as cluster, producer_of(cluster, linger_ms=60_000) as producer:
        for _ in range(2):
            before = await produced(cluster)
            async with producer.transaction() as txn:
                await write(txn, range(200))
                await produced(cluster)  # with V1 the partitions are added first
                await write(txn, range(200, 400))
                assert await produced(cluster) > before

        found = [record[:3] for record in committed(cluster)]
    whole = [b"%03d" % number for number in range(400)]
    assert found == (whole[::2] * 2) + (whole[1::2] * 2)


@in_virtual_time
async def test_small_transaction_is_not_sent_before_its_end() -> None:
    """Nor is what the ones before have left of a step counted."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, linger_ms=60_000) as producer:
        for _ in range(5):
            before = await produced(cluster)
            async with producer.transaction() as txn:
                await write(txn, range(40))
                assert await produced(cluster) == before


@in_virtual_time
async def test_loop_has_no_more_turns_where_each_sends_what_there_is() -> None:
    """With `linger_ms=0` batches are the larger the fewer turns there are."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, linger_ms=0) as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"its topic is known then", partition=0)
            before = await produced(cluster)
            await write(txn, range(400))
        assert await produced(cluster) == before + 1


class ForbidsIt:
    """A sandbox in which nobody may offer the processor."""

    def __call__(self) -> None:
        """Refuse.

        Raises:
            PermissionError: always.
        """
        raise PermissionError(1, "Operation not permitted")


@pytest.mark.skipif(sys.platform == "win32", reason="has no such call")
def test_batches_go_early_where_the_processor_cannot_be_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no call raises: its record was written."""
    monkeypatch.setattr(os, "sched_yield", ForbidsIt())
    writing = Writing()
    writing.write(33)

    assert writing.sent() == [33]
