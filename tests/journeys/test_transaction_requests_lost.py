"""Each request of a transaction is lost once, or hangs: a commit is whole all the same, and an abort leaves nothing.

Source: `testDisconnectAndRetry`, `testLookupCoordinatorOnDisconnectAfterSend`, `testRetryAbortTransactionAfterTimeout`,
`testCancelUnsentAddPartitionsAndProduceOnAbort` and others of TransactionManagerTest in Apache Kafka.
"""

import asyncio
from typing import Final

import pytest

from aioproducer import Producer, TopicPartition
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.transactional_cluster import (
    ADD_PARTITIONS,
    END_TXN,
    INIT,
    PRODUCE,
    V1_OF_4,
    V1_RELEASE,
    V2_RELEASE,
    Release,
    cluster_of,
    committed,
    on_every_release,
    producer_of,
)
from tests.fakes.virtual_cluster import in_virtual_time

OFFSETS: Final = {TopicPartition("t", 0): 4, TopicPartition("t", 1): 5}

FIND: Final = Where(api=ApiKey.FIND_COORDINATOR)
ADD_OFFSETS: Final = Where(api=ApiKey.ADD_OFFSETS_TO_TXN)
COMMIT_OFFSETS: Final = Where(api=ApiKey.TXN_OFFSET_COMMIT)
OF_V1: Final = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN}


def on_each_that_asks(*rows: Where) -> pytest.MarkDecorator:
    """Every release with every request that it makes: in V2 records and offsets add their partitions themselves."""
    names = {"3.9.1": V1_RELEASE, "4.3.1 with V1": V1_OF_4, "4.3.1": V2_RELEASE}
    pairs = [
        pytest.param(release, where, id=f"{name}-{where.api.name if where.api is not None else 'any'}")
        for name, release in names.items()
        for where in rows
        if release is not V2_RELEASE or where.api not in OF_V1
    ]
    return pytest.mark.parametrize("release, where", pairs)


async def found_offsets(producer: Producer) -> dict[TopicPartition, int | None]:
    """What the group has committed."""
    found = await producer.committed_offsets("readers", OFFSETS.keys())
    return {place: offset.offset for place, offset in found.items() if offset is not None}


async def next_one_is_whole(producer: Producer, cluster: FakeCluster, before: list[bytes]) -> None:
    """Whatever was lost befalls no later transaction, whose records and offsets are seen with those before."""
    async with producer.transaction() as txn:
        await txn.send("t", b"next", partition=1)
        await txn.send_offsets({place: offset + 100 for place, offset in OFFSETS.items()}, "readers")
    assert committed(cluster) == [*before, b"next"]
    assert await found_offsets(producer) == {place: offset + 100 for place, offset in OFFSETS.items()}


@pytest.mark.parametrize("after", [False, True], ids=["before it is done", "after it is done"])
@pytest.mark.parametrize("verb", ["commit", "abort"])
@on_each_that_asks(FIND, INIT, ADD_PARTITIONS, PRODUCE, ADD_OFFSETS, COMMIT_OFFSETS, END_TXN)
@in_virtual_time
async def test_transaction_survives_the_loss_of_any_request(
    release: Release, where: Where, *, verb: str, after: bool
) -> None:
    """The connection is lost with it, and whether it was done is found out."""
    async with cluster_of(release) as cluster:
        lost = cluster.faults.drop_connection(where, after_append=after)
        async with producer_of(cluster) as producer:
            await producer.begin_transaction()
            await producer.send("t", b"v", partition=0)
            await producer.send_offsets(OFFSETS, "readers")
            await (producer.commit_transaction if verb == "commit" else producer.abort_transaction)()

            assert lost.hits == 1
            is_commit = verb == "commit"
            assert committed(cluster) == ([b"v"] if is_commit else [])
            assert await found_offsets(producer) == (OFFSETS if is_commit else {})
            await next_one_is_whole(producer, cluster, [b"v"] if is_commit else [])


@pytest.mark.parametrize("ends", ["answered late", "connection lost"])
@on_each_that_asks(ADD_PARTITIONS, PRODUCE, ADD_OFFSETS, COMMIT_OFFSETS)
@in_virtual_time
async def test_abort_while_a_request_hangs_leaves_nothing(release: Release, where: Where, ends: str) -> None:
    """What it asked may come true before the end or not at all, and never in the next transaction."""
    async with (
        cluster_of(release) as cluster,
        producer_of(cluster, request_timeout_ms=1_500, delivery_timeout_ms=20_000) as producer,
    ):
        await producer.begin_transaction()
        hanging = cluster.faults.stall(where)
        record = producer.send("t", b"v", partition=0)
        offsets = asyncio.ensure_future(producer.send_offsets(OFFSETS, "readers"))
        await asyncio.sleep(0.5)
        assert hanging.hits

        aborting = asyncio.ensure_future(producer.abort_transaction())
        await asyncio.sleep(0.5 if ends == "answered late" else 2.5)
        cluster.faults.remove(hanging)
        await asyncio.wait_for(aborting, 10)

        await asyncio.gather(record, offsets, return_exceptions=True)
        assert committed(cluster) == []
        assert await found_offsets(producer) == {}
        await next_one_is_whole(producer, cluster, [])


@on_every_release
@in_virtual_time
async def test_offset_zero_is_an_offset_and_a_lost_question_is_asked_again(release: Release) -> None:
    """A group that has committed the beginning reads on from there; one that has committed nothing, from anywhere."""
    places = [TopicPartition("t", 0), TopicPartition("t", 1)]
    async with cluster_of(release) as cluster, producer_of(cluster) as producer:
        async with producer.transaction() as txn:
            await txn.send_offsets({places[0]: 0}, "readers")
        cluster.faults.drop_connection(Where(api=ApiKey.OFFSET_FETCH))

        found = await producer.committed_offsets("readers", places)

    assert [None if offset is None else offset.offset for offset in found.values()] == [0, None]
