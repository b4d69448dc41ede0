"""Transactions, request by request: the embedded cluster and real Kafka answer alike, on each broker line.

The recorded traces (`traces/`) compare thousands of random requests; here is what they say, told as stories.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import NamedTuple

import pytest

from aioproducer import BrokerError, KafkaError, OffsetAndMetadata, Producer, TopicPartition
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.testing import ApiKey, FakeCluster
from tests.conftest import running_kafka
from tests.contracts.clients import RawClient, TransactionalClient, read
from tests.kafka_releases import FAKE, RELEASES, fake_and_real, version_of_release

COMMITTED, ALL = 1, 0
PRODUCE_OF_V1 = 11  # its highest version before transactions of version 2

WITH_V2 = pytest.mark.parametrize("broker_of_release", fake_and_real(["4.4.0"]), indirect=True)
"""Where transactions of version 2 are finalized."""


class Line(NamedTuple):
    release: str
    client: RawClient
    topic: str

    @property
    def has_v2(self) -> bool:
        """Whether transactions of version 2 are finalized."""
        return self.release == "4.4.0"

    def producer(self) -> TransactionalClient:
        return TransactionalClient(self.client, f"id-{secrets.token_hex(6)}")

    async def started(self) -> TransactionalClient:
        producer = self.producer()
        assert (await producer.init()).error == 0
        return producer

    async def group(self) -> str:
        group = f"g-{secrets.token_hex(6)}"
        await self.client.group_coordinator(group)
        return group

    async def end_offset(self, isolation: int = ALL) -> int:
        offset, _ = await self.client.offset(self.topic, -1, isolation=isolation)
        return offset

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
    produced = await producer.produce(line.topic, version=PRODUCE_OF_V1)
    open_end = await line.end_offset(COMMITTED)
    ended = await producer.end(commit=True, version=3)

    assert (added, produced, open_end, ended.error, await producer.state()) == (0, 0, 0, 0, "CompleteCommit")
    assert (await line.end_offset(COMMITTED), await line.end_offset(ALL)) == (2, 2)


async def test_version_1_refuses_a_partition_that_was_not_added(line: Line) -> None:
    """Up to Produce 10 it gets 48, since 11 it gets 120 TRANSACTION_ABORTABLE."""
    producer = await line.started()

    errors = [await producer.produce(line.topic, version=version) for version in (9, 10, 11)]

    assert errors == [48, 48, 120]


@pytest.mark.parametrize("broker_of_release", fake_and_real(["4.4.0", "4.4.0-tv0"]), indirect=True)
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
        await producer.produce(line.topic, sequence, version=PRODUCE_OF_V1)
        await producer.end(commit=commit, version=3)
        await producer.state()

    assert (await line.aborted(), await line.end_offset(COMMITTED)) == ([2], 6)


async def test_oldest_open_transaction_holds_readers_back(line: Line) -> None:
    """Later transactions that ended do not matter."""
    slow, quick = await line.started(), await line.started()
    for producer in (slow, quick):
        await producer.add_partitions(line.topic)
        await producer.produce(line.topic, version=PRODUCE_OF_V1)
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
    await first.produce(line.topic, version=PRODUCE_OF_V1)
    second = TransactionalClient(line.client, first.transactional_id)
    taken_over = await second.init()

    errors = [
        await first.produce(line.topic, 1, version=PRODUCE_OF_V1),
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
    await producer.produce(line.topic, 0, version=PRODUCE_OF_V1)
    await producer.end(commit=False, version=3)
    await producer.state()
    await producer.add_partitions(line.topic)

    stray = await producer.produce(line.topic, 1, version=PRODUCE_OF_V1)
    await producer.end(commit=True, version=3)
    old = (producer.producer_id, producer.epoch)
    await producer.init(expected=old)
    await producer.add_partitions(line.topic)
    producer.epoch = old[1]

    assert (stray, await producer.produce(line.topic, 2, version=PRODUCE_OF_V1)) == (0, 47)


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
    epoch, version = producer.epoch, 12 if line.has_v2 else PRODUCE_OF_V1
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


# Transactional ids that expire (`transactional.id.expiration.ms`)


EXPIRES_AFTER_S = 1.5
PROPERTIES: Mapping[str, str] = {
    "transactional.id.expiration.ms": str(round(EXPIRES_AFTER_S * 1000)),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
}
FORGOTTEN, FENCED = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
OUTDATED = ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.fixture(scope="module", params=fake_and_real())
def forgetful_release(
    request: pytest.FixtureRequest, kafka_thread: ThreadPoolExecutor
) -> Iterator[tuple[str, str | None]]:
    """A release, and the address of a real node whose transactional ids expire soon; None: to be embedded."""
    kind, release = request.param
    if kind == FAKE:
        yield release, None
        return
    for kafka in running_kafka(release, kafka_thread, properties=PROPERTIES):
        yield release, kafka.bootstrap_servers


@pytest.fixture
async def forgetful(forgetful_release: tuple[str, str | None]) -> AsyncIterator[tuple[bool, str]]:
    """Return whether transactions are V2, and the address of a broker whose transactional ids expire soon."""
    release, servers = forgetful_release
    is_v2 = release == "4.4.0"
    if servers is not None:
        yield is_v2, servers
        return
    level = RELEASES[release].get("transaction.version")
    async with FakeCluster(
        nodes=1,
        profile=version_of_release(release),
        transactional_id_expiration_s=EXPIRES_AFTER_S,
        **({} if level is None else {"transaction_version": level}),
    ) as fake:
        yield is_v2, fake.bootstrap_servers


@pytest.fixture
async def client(forgetful: tuple[bool, str]) -> AsyncIterator[RawClient]:
    client = await RawClient.connect(forgetful[1])
    yield client
    await client.close()


def new_name() -> str:
    return f"t-{secrets.token_hex(6)}"


async def expired(client: RawClient, transactional_id: str) -> None:
    while transactional_id in await known_ids(client):  # noqa: ASYNC110 - asks a broker
        await asyncio.sleep(0.05)


async def known_ids(client: RawClient) -> set[str]:
    answer = await client.ask(ApiKey.LIST_TRANSACTIONS, 0, state_filters=(), producer_id_filters=())
    assert int(answer.error_code) == 0
    return {each.transactional_id for each in answer.transaction_states}


async def in_transaction(producer: TransactionalClient, topic: str, *, is_v2: bool) -> None:
    assert is_v2 or await producer.add_partitions(topic) == 0
    assert await producer.produce(topic, version=12 if is_v2 else 11) in {0, ErrorCode.NOT_ENOUGH_REPLICAS}


async def test_requests_of_an_expired_id_are_refused(forgetful: tuple[bool, str], client: RawClient) -> None:
    """All with the same code but InitProducerId: it makes a new identity, whichever the request names."""
    is_v2, _ = forgetful
    topic, group = new_name(), new_name()
    await client.create_topic(topic)
    old = TransactionalClient(client, new_name())
    assert await old.find_coordinator() in {0, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert (await old.init()).error == 0
    known = old.producer_id, old.epoch
    await expired(client, old.transactional_id)

    codes = {
        "AddPartitionsToTxn": await old.add_partitions(topic),
        "AddOffsetsToTxn": await old.add_offsets(group),
        "Produce": await old.produce(topic, version=12 if is_v2 else 11),
        "TxnOffsetCommit": await committed_offset_code(old, group, topic, version=5 if is_v2 else 4),
        "EndTxn commit": (await old.end(commit=True, version=5 if is_v2 else 4)).error,
        "EndTxn abort": (await old.end(commit=False, version=5 if is_v2 else 4)).error,
    }
    renewed = await old.init(expected=known)
    after = {
        "AddPartitionsToTxn": await TransactionalClient(client, old.transactional_id).add_partitions(topic),
        "InitProducerId": (await old.init(expected=known)).error,
    }

    assert codes == dict.fromkeys(codes, FORGOTTEN)
    assert (renewed.error, renewed.epoch, renewed.producer_id != known[0]) == (0, 0, True)
    assert after == {"AddPartitionsToTxn": FORGOTTEN, "InitProducerId": FENCED}


async def committed_offset_code(producer: TransactionalClient, group: str, topic: str, *, version: int) -> int:
    starting = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    while (code := await producer.commit_offset(group, topic, 1, version=version)) in starting:
        await producer.client.ask(ApiKey.FIND_COORDINATOR, 2, key=group, key_type=0)
        await asyncio.sleep(0.05)
    return code


async def test_open_transaction_keeps_its_id(forgetful: tuple[bool, str], client: RawClient) -> None:
    """An id that was used later expires meanwhile."""
    is_v2, _ = forgetful
    topic = new_name()
    await client.create_topic(topic)
    busy, idle = (TransactionalClient(client, new_name()) for _ in range(2))
    await busy.find_coordinator()
    await busy.init()
    await in_transaction(busy, topic, is_v2=is_v2)
    await idle.init()
    await expired(client, idle.transactional_id)

    state = await busy.state()
    ended = await busy.end(commit=True, version=5 if is_v2 else 4)
    await expired(client, busy.transactional_id)

    assert (state, ended.error) == ("Ongoing", 0)


async def job(producer: Producer, topic: str, value: bytes) -> None:
    async with producer.transaction() as txn:
        await txn.send(topic, value, partition=0)


async def test_fenced_producer_stays_out_when_its_id_has_expired(
    forgetful: tuple[bool, str], client: RawClient
) -> None:
    """Three times it tries to do again what its successor has done (KAFKA-18019)."""
    _, servers = forgetful
    topic, worker = new_name(), new_name()
    await client.create_topic(topic)
    errors = []
    async with Producer(servers, transactional_id=worker) as old:
        await job(old, topic, b"4 by the old one")
        async with Producer(servers, transactional_id=worker) as new:
            await job(new, topic, b"5 by the new one")
        await expired(client, worker)
        for _ in range(3):
            with pytest.raises(KafkaError) as failed:
                await job(old, topic, b"5 by the old one")
            errors.append(failed.value)
    async with Producer(servers, transactional_id=worker) as third:
        await job(third, topic, b"6 by a third one")

    assert codes_of(errors)[1:] == [FORGOTTEN, FORGOTTEN]
    assert codes_of(errors)[0] in {FORGOTTEN, OUTDATED}  # V2: a leader that has a newer epoch does not ask
    assert "transactional.id.expiration.ms" in str(errors[-1])
    found = await asyncio.to_thread(read, servers, topic, "read_committed")
    assert found == [b"4 by the old one", b"5 by the new one", b"6 by a third one"]


def codes_of(errors: Iterable[KafkaError]) -> list[int]:
    return [error.code if isinstance(error, BrokerError) else -1 for error in errors]


async def test_offsets_of_a_fenced_producer_stay_out(forgetful: tuple[bool, str], client: RawClient) -> None:
    """A transaction of offsets alone, whose first request goes to another coordinator under V2."""
    _, servers = forgetful
    topic, group, worker = new_name(), new_name(), new_name()
    await client.create_topic(topic)
    async with Producer(servers, transactional_id=worker) as old:
        async with Producer(servers, transactional_id=worker) as new, new.transaction() as txn:
            await txn.send_offsets({TopicPartition(topic, 0): OffsetAndMetadata(5)}, group)
        await expired(client, worker)
        errors = []
        for offset in (1, 2, 3):
            with pytest.raises(KafkaError) as failed:
                await commit_offset(old, group, TopicPartition(topic, 0), offset)
            errors.append(failed.value)
    error, found = await TransactionalClient(client, worker).committed_offset(group, topic)

    assert codes_of(errors)[1:] == [FORGOTTEN, FORGOTTEN]
    assert (error, found) == (0, 5)


async def commit_offset(producer: Producer, group: str, place: TopicPartition, offset: int) -> None:  # noqa: PLR0917
    async with producer.transaction() as txn:
        await txn.send_offsets({place: OffsetAndMetadata(offset)}, group)
