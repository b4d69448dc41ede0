"""Transactional ids that expire (`transactional.id.expiration.ms`), on the embedded cluster and on real Kafka."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer import BrokerError, KafkaError, OffsetAndMetadata, Producer, TopicPartition
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.testing import ApiKey, FakeCluster
from tests.conftest import running_kafka
from tests.contracts.other_reader import read
from tests.contracts.raw_client import RawClient
from tests.contracts.transactional_client import TransactionalClient
from tests.kafka_releases import FAKE, RELEASES, fake_and_real, version_of_release

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
    is_v2 = release == "4.3.1"
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
