"""A cluster of each kind of transactions, and what one story about them needs."""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TypedDict, Unpack

import pytest

from aioproducer import Producer, ProducerOptions
from aioproducer.testing import ApiKey, FakeCluster, FakeClusterOptions, Where
from tests.fakes.virtual_loop import in_virtual_time


class Release(TypedDict):
    """The Kafka release to look like."""

    profile: str
    transaction_version: int


V1_RELEASE = Release(profile="3.9.1", transaction_version=0)
V1_OF_4 = Release(profile="4.4.0", transaction_version=0)
V2_RELEASE = Release(profile="4.4.0", transaction_version=2)

on_every_release = pytest.mark.parametrize(
    "release", [V1_RELEASE, V1_OF_4, V2_RELEASE], ids=["3.9.1", "4.4.0 with V1", "4.4.0"]
)


def in_virtual_time_on_every_release(story: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """Run an async test on each release, on a loop of its own whose clock jumps."""
    return on_every_release(in_virtual_time(story))


on_v1 = pytest.mark.parametrize("release", [V1_RELEASE, V1_OF_4], ids=["3.9.1", "4.4.0 with V1"])

on_old_releases = pytest.mark.parametrize(
    "release",
    [Release(profile="2.4", transaction_version=0), Release(profile="2.1", transaction_version=0)],
    ids=["2.4", "2.1"],
)

PRODUCE = Where(api=ApiKey.PRODUCE)
FIRST = Where(api=ApiKey.PRODUCE, topic="t", partition=0)
END_TXN = Where(api=ApiKey.END_TXN)
ADD_PARTITIONS = Where(api=ApiKey.ADD_PARTITIONS_TO_TXN)
ADD_OFFSETS = Where(api=ApiKey.ADD_OFFSETS_TO_TXN)
COMMIT_OFFSETS = Where(api=ApiKey.TXN_OFFSET_COMMIT)
FIND = Where(api=ApiKey.FIND_COORDINATOR)
INIT = Where(api=ApiKey.INIT_PRODUCER_ID)

OF_TRANSACTIONS = {
    ApiKey.PRODUCE,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.DESCRIBE_TRANSACTIONS,
}


def cluster_of(
    release: Release, nodes: int = 1, topics: Mapping[str, int] | None = None, **options: Unpack[FakeClusterOptions]
) -> FakeCluster:
    settings: FakeClusterOptions = {"producer_ids_load_s": 0.0, "coordinator_load_s": 0.0, "marker_delay_s": 0.0}
    settings.update(options)
    if release["profile"].startswith("4"):
        settings["transaction_version"] = release["transaction_version"]
    return FakeCluster(nodes, topics=topics or {"t": 2}, profile=release["profile"], **settings)


def producer_of(cluster: FakeCluster, **options: Unpack[ProducerOptions]) -> Producer:
    settings: ProducerOptions = {"transactional_id": "billing-1", "linger_ms": 0}
    settings.update(options)
    return Producer(cluster.bootstrap_servers, **settings)


@asynccontextmanager
async def transacting(
    release: Release, **options: Unpack[ProducerOptions]
) -> AsyncIterator[tuple[FakeCluster, Producer]]:
    """Yield a cluster of a release, and a started producer on it."""
    async with cluster_of(release) as cluster, producer_of(cluster, **options) as producer:
        yield cluster, producer


@asynccontextmanager
async def in_transaction(
    release: Release, value: bytes = b"v", *, partition: int = 0, **options: Unpack[ProducerOptions]
) -> AsyncIterator[tuple[FakeCluster, Producer]]:
    """Yield a cluster, and a producer on it whose open transaction has one record, of topic "t"."""
    async with transacting(release, **options) as (cluster, producer):
        await begin(producer, value, partition=partition)
        yield cluster, producer


async def begin(producer: Producer, value: bytes = b"v", *, partition: int = 0) -> Producer:
    """Begin a transaction with one record of topic "t"."""
    await producer.begin_transaction()
    await producer.send("t", value, partition=partition)
    return producer


def committed(cluster: FakeCluster, topic: str = "t") -> list[bytes]:
    count = len(cluster.model.topics.named(topic).partitions)  # type: ignore[union-attr]
    return [record.value or b"" for number in range(count) for record in cluster.committed_records(topic, number)]


def asked(cluster: FakeCluster) -> list[str]:
    return [seen.api.name for seen in cluster.requests if seen.api in OF_TRANSACTIONS]


async def one_more(producer: Producer, cluster: FakeCluster) -> None:
    async with producer.transaction() as txn:
        await txn.send("t", b"next", partition=0)
        await txn.send("t", b"next", partition=1)
    assert committed(cluster) == [b"next", b"next"]
