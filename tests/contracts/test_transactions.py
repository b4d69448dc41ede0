"""Transactions, request by request: the embedded cluster and real Kafka answer alike, on each broker line.

The recorded traces (`traces/`) compare thousands of random requests; here is what they say, told as stories.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from importlib import import_module
from typing import NamedTuple

import pytest

from aioproducer.testing import ApiKey
from tests.contracts.raw_client import RawClient
from tests.contracts.transactional_client import TransactionalClient
from tests.kafka_releases import fake_and_real

COMMITTED, ALL = 1, 0

WITH_V2 = pytest.mark.parametrize("broker_of_release", fake_and_real(["4.3.1"]), indirect=True)
"""Where transactions of version 2 are finalized."""


class Line(NamedTuple):
    release: str
    client: RawClient
    topic: str

    @property
    def has_v2(self) -> bool:
        """Whether transactions of version 2 are finalized."""
        return self.release == "4.3.1"

    @property
    def produce(self) -> int:
        return 11

    def producer(self) -> TransactionalClient:
        return TransactionalClient(self.client, f"id-{secrets.token_hex(6)}")

    async def started(self) -> TransactionalClient:
        producer = self.producer()
        assert (await producer.init()).error == 0
        return producer

    async def group(self) -> str:
        group = f"g-{secrets.token_hex(6)}"
        found, loaded = -1, -1
        while (found, loaded) != (0, 0):
            found = int((await self.client.ask(ApiKey.FIND_COORDINATOR, 2, key=group, key_type=0)).error_code)
            loaded = int((await self.client.ask(ApiKey.OFFSET_FETCH, 5, group_id=group, topics=())).error_code)
            await asyncio.sleep(0.01 if found == loaded == 0 else 0.05)
        return group

    async def end_offset(self, isolation: int = ALL) -> int:
        message = import_module("kio.schema.list_offsets.v4.request")
        part = message.ListOffsetsPartition(partition_index=0, timestamp=-1)
        asked = (message.ListOffsetsTopic(name=self.topic, partitions=(part,)),)
        answer = await self.client.ask(ApiKey.LIST_OFFSETS, 4, replica_id=-1, isolation_level=isolation, topics=asked)
        return int(answer.topics[0].partitions[0].offset)

    async def aborted(self) -> list[int]:
        message = import_module("kio.schema.fetch.v4.request")
        part = message.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        asked = (message.FetchTopic(topic=self.topic, partitions=(part,)),)
        answer = await self.client.ask(
            ApiKey.FETCH, 4, replica_id=-1, min_bytes=1, max_bytes=1_000_000, isolation_level=COMMITTED, topics=asked
        )
        found = answer.responses[0].partitions[0].aborted_transactions
        return [aborted.first_offset for aborted in found or ()]


@pytest.fixture
async def line(broker_of_release: tuple[str, str], topic: str) -> AsyncIterator[Line]:
    release, bootstrap_servers = broker_of_release
    client = await RawClient.connect(bootstrap_servers)
    name = f"{topic}-{secrets.token_hex(3)}"
    await client.create_topic(name)
    yield Line(release, client, name)
    await client.close()


async def test_version_1_commits_what_was_added(line: Line) -> None:
    producer = await line.started()

    added = await producer.add_partitions(line.topic)
    produced = await producer.produce(line.topic, version=line.produce)
    open_end = await line.end_offset(COMMITTED)
    ended = await producer.end(commit=True, version=3)

    assert (added, produced, open_end, ended.error, await producer.state()) == (0, 0, 0, 0, "CompleteCommit")
    assert (await line.end_offset(COMMITTED), await line.end_offset(ALL)) == (2, 2)


async def test_version_1_refuses_a_partition_that_was_not_added(line: Line) -> None:
    """Up to Produce 10 it gets 48, since 11 it gets 120 TRANSACTION_ABORTABLE."""
    producer = await line.started()

    errors = [await producer.produce(line.topic, version=version) for version in (9, 10, 11)]

    assert errors == [48, 48, 120]


@pytest.mark.parametrize("broker_of_release", fake_and_real(["4.3.1", "4.3.1-tv0"]), indirect=True)
async def test_version_2_adds_partitions_by_produce(line: Line) -> None:
    """EndTxn 5 returns the next epoch; if it is not finalized, 35 UNSUPPORTED_VERSION. Kafka 3.9 has no version 2."""
    producer = await line.started()
    identity = (producer.producer_id, producer.epoch + 1)

    produced = await producer.produce(line.topic, version=12)

    if not line.has_v2:
        assert produced == 35
        return
    ended = await producer.end(commit=True, version=5)
    await producer.state()
    assert (produced, ended) == (0, (0, *identity))
    assert await line.end_offset(COMMITTED) == 2


@WITH_V2
async def test_version_2_begins_at_sequence_0(line: Line) -> None:
    producer = await line.started()

    errors = [await producer.produce(line.topic, sequence, version=12) for sequence in (3, 0, 1)]
    await producer.end(commit=True, version=5)
    after = await producer.produce(line.topic, 2, version=12)

    assert (errors, after) == ([45, 0, 0], 45)


async def test_read_committed_fetch_lists_aborted_transactions(line: Line) -> None:
    producer = await line.started()
    for sequence, commit in enumerate((True, False, True)):
        await producer.add_partitions(line.topic)
        await producer.produce(line.topic, sequence, version=line.produce)
        await producer.end(commit=commit, version=3)
        await producer.state()

    assert (await line.aborted(), await line.end_offset(COMMITTED)) == ([2], 6)


async def test_oldest_open_transaction_holds_readers_back(line: Line) -> None:
    """Later transactions that ended do not matter."""
    slow, quick = await line.started(), await line.started()
    for producer in (slow, quick):
        await producer.add_partitions(line.topic)
        await producer.produce(line.topic, version=line.produce)
    await quick.end(commit=True, version=3)
    await quick.state()
    held_back = await line.end_offset(COMMITTED)
    await slow.end(commit=False, version=3)
    await slow.state()

    assert (held_back, await line.end_offset(COMMITTED), await line.aborted()) == (0, 4, [0])


async def test_second_producer_fences_the_first(line: Line) -> None:
    """Its open transaction is aborted; its later requests get 47 or 90."""
    first = await line.started()
    await first.add_partitions(line.topic)
    await first.produce(line.topic, version=line.produce)
    second = TransactionalClient(line.client, first.transactional_id)
    taken_over = await second.init()

    errors = [
        await first.produce(line.topic, 1, version=line.produce),
        await first.add_partitions(line.topic),
        await first.add_partitions(line.topic, version=1),
        (await first.end(commit=True, version=3)).error,
        (await first.end(commit=True, version=1)).error,
        (await first.init(expected=(first.producer_id, first.epoch))).error,
    ]

    assert taken_over == (0, first.producer_id, first.epoch + 2)
    assert errors == [47, 90, 47, 90, 47, 90]
    assert await line.aborted() == [0]


async def test_guarded_init_takes_the_next_epoch(line: Line) -> None:
    """It is sent with the current identity, and again with the one before, as after a lost response (KIP-360)."""
    producer = await line.started()
    before = (producer.producer_id, producer.epoch)

    bumped = await producer.init(expected=before)
    again = await producer.init(expected=before)
    wrong = await producer.init(expected=(before[0], before[1] + 5))

    assert bumped == again == (0, before[0], before[1] + 1)
    assert wrong.error == 90


@pytest.mark.parametrize("commit", [True, False])
async def test_repeated_end_of_version_1_is_taken_for_done(line: Line, *, commit: bool) -> None:
    """The opposite end gets 48."""
    producer = await line.started()
    await producer.add_partitions(line.topic)
    await producer.end(commit=commit, version=3)

    again = await producer.end(commit=commit, version=3)
    contrary = await producer.end(commit=not commit, version=3)

    assert (again.error, contrary.error) == (0, 48)


@WITH_V2
@pytest.mark.parametrize("commit", [True, False])
async def test_repeated_end_of_version_2_returns_the_same(line: Line, *, commit: bool) -> None:
    """A repeated request has the epoch before; with the current one an abort is a transaction of its own."""
    producer = await line.started()
    epoch = producer.epoch
    await producer.produce(line.topic, version=12)
    first = await producer.end(commit=commit, version=5)

    again = await producer.end(commit=commit, version=5, epoch=epoch)
    contrary = await producer.end(commit=not commit, version=5, epoch=epoch)
    nothing = await producer.end(commit=False, version=5)

    assert first == again == (0, producer.producer_id, epoch + 1)
    assert (contrary.error, nothing.error, nothing.epoch) == (48, 0, epoch + 2)


async def test_stray_batch_of_version_1_joins_the_next_transaction(line: Line) -> None:
    """Only a guarded InitProducerId in between keeps it out."""
    producer = await line.started()
    await producer.add_partitions(line.topic)
    await producer.produce(line.topic, 0, version=line.produce)
    await producer.end(commit=False, version=3)
    await producer.state()
    await producer.add_partitions(line.topic)

    stray = await producer.produce(line.topic, 1, version=line.produce)
    await producer.end(commit=True, version=3)
    old = (producer.producer_id, producer.epoch)
    await producer.init(expected=old)
    await producer.add_partitions(line.topic)
    producer.epoch = old[1]

    assert (stray, await producer.produce(line.topic, 2, version=line.produce)) == (0, 47)


@pytest.mark.parametrize("version", [3, 4])
async def test_offsets_are_committed_with_the_transaction(line: Line, version: int) -> None:
    producer, group = await line.started(), await line.group()
    assert await producer.add_offsets(group) == 0

    await _commit_offset(line, producer, group, version=version)


@WITH_V2
async def test_offsets_of_version_2_need_not_be_added(line: Line) -> None:
    await _commit_offset(line, await line.started(), await line.group(), version=5)


async def _commit_offset(line: Line, producer: TransactionalClient, group: str, *, version: int) -> None:
    sent = await producer.commit_offset(group, line.topic, 7, version=version)
    meanwhile = await producer.committed_offset(group, line.topic)
    unstable = await producer.committed_offset(group, line.topic, stable=False)
    await producer.end(commit=True, version=5 if line.has_v2 else 3)
    await producer.state()

    assert (sent, meanwhile, unstable) == (0, (88, -1), (0, -1))
    assert await _settled_offset(producer, group, line.topic) == (0, 7)


async def _settled_offset(producer: TransactionalClient, group: str, topic: str) -> tuple[int, int]:
    """The committed offset, once it is stable: a coordinator of groups hears of the marker a moment later."""
    deadline = time.monotonic() + 10
    while (found := await producer.committed_offset(group, topic))[0] == 88 and time.monotonic() < deadline:  # noqa: ASYNC110 - asks a broker
        await asyncio.sleep(0.01)
    return found


async def test_offsets_of_an_aborted_transaction_are_dropped(line: Line) -> None:
    producer, group = await line.started(), await line.group()
    for offset, commit in ((7, True), (9, False)):
        await producer.add_offsets(group)
        await producer.commit_offset(group, line.topic, offset, version=3)
        await producer.end(commit=commit, version=3)
        await producer.state()

    assert await _settled_offset(producer, group, line.topic) == (0, 7)


async def test_offsets_that_were_not_added_are_refused(line: Line) -> None:
    """Up to TxnOffsetCommit 3 they get 48, in 4 they get 120."""
    producer, group = await line.started(), await line.group()

    errors = [await producer.commit_offset(group, line.topic, 7, version=version) for version in (2, 3, 4)]

    assert errors == [48, 48, 120]


async def test_offsets_of_an_old_epoch_are_refused(line: Line) -> None:
    """Kafka before 4.0 then drops what the open transaction has sent for that partition, and commits without it."""
    producer, group = await line.started(), await line.group()
    await producer.init(expected=(producer.producer_id, producer.epoch))
    await producer.add_offsets(group)
    sent = await producer.commit_offset(group, line.topic, 7, version=3)
    present = producer.epoch

    producer.epoch = present - 1
    late = await producer.commit_offset(group, line.topic, 9, version=3)
    producer.epoch = present
    await producer.end(commit=True, version=3)
    await producer.state()

    assert (sent, late) == (0, 47)
    assert await _settled_offset(producer, group, line.topic) == (0, 7 if line.release.startswith("4.") else -1)


async def test_offsets_of_a_stranger_to_the_group_are_refused(line: Line) -> None:
    """The group does not have that member id or generation (KIP-447)."""
    producer, group = await line.started(), await line.group()
    await producer.add_offsets(group)
    await producer.commit_offset(group, line.topic, 7, version=3)

    stranger = await producer.commit_offset(group, line.topic, 8, version=3, generation_id=2, member_id="other")
    outsider = await producer.commit_offset(group, line.topic, 8, version=3, member_id="other")

    assert (stranger, outsider) == (25, 0)


async def test_timed_out_transaction_fences_its_producer(line: Line) -> None:
    """With version 1 only an unguarded init helps. With version 2 its abort gets the next epoch."""
    producer = line.producer()
    await producer.init(timeout_s=0.3)
    epoch, version = producer.epoch, 12 if line.has_v2 else line.produce
    await producer.add_partitions(line.topic)
    await producer.produce(line.topic, version=version)
    while await producer.state() == "Ongoing":  # noqa: ASYNC110 - asks a broker
        await asyncio.sleep(0.05)

    produced = await producer.produce(line.topic, 1, version=version)
    committed = await producer.end(commit=True, version=5 if line.has_v2 else 3)
    guarded = await producer.init(expected=(producer.producer_id, epoch)) if not line.has_v2 else None
    aborted = await producer.end(commit=False, version=5 if line.has_v2 else 3, epoch=epoch)

    assert (produced, await line.aborted()) == (47, [0])
    if line.has_v2:
        assert (committed.error, aborted) == (48, (0, producer.producer_id, epoch + 1))
        assert await producer.produce(line.topic, 0, version=12) == 0
    else:
        assert guarded is not None
        assert (committed.error, guarded.error, aborted.error) == (90, 90, 90)


@pytest.mark.parametrize("timeout_s, error", [(0, 50), (900.001, 50), (900, 0)])
async def test_time_out_of_transactions_is_limited(line: Line, *, timeout_s: float, error: int) -> None:
    """50 INVALID_TRANSACTION_TIMEOUT: `transaction.max.timeout.ms` is 15 minutes."""
    assert (await line.producer().init(timeout_s=timeout_s)).error == error


async def test_empty_transactional_id_is_refused(line: Line) -> None:
    assert (await TransactionalClient(line.client, "").init()).error == 42
