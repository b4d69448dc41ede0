"""Native partitioners choose as librdkafka and sarama do."""

import asyncio
import random
import zlib

import confluent_kafka
import pytest

from aioproducer import ConsistentRandomPartitioner, Fnv1aPartitioner, Producer
from aioproducer._native.append import hash_partition
from aioproducer.cluster import Cluster
from aioproducer.testing import FakeCluster

KEYS = [b"kafka", b"giberish123456789", b"1234", b"4", *map(random.Random(1).randbytes, range(1, 40))]
MANY = 2**31 - 1


@pytest.mark.parametrize(
    "key, expected",
    [
        (b"kafka", 0xD33C4E1),
        (b"giberish123456789", 0x77A58295),
        (b"1234", 0x23BDD03),
        (b"234", 0x2DEA3CD2),
        (b"34", 0x740FA83E),
        (b"4", 0x310CA263),
        (b"PreAmbleWillBeRemoved,ThePrePartThatIs", 0x65CBD69C),
        (b"", 0x7EE3623B),
    ],
)
def test_fnv1a_equals_saramas(key: bytes, expected: int) -> None:
    """The values are of librdkafka's own test, which has them of Go's hash/fnv."""
    assert hash_partition(2, key, MANY) == expected


@pytest.mark.parametrize("key", [b"", *KEYS])
def test_crc32_equals_zlibs(key: bytes) -> None:
    assert hash_partition(1, key, MANY) == zlib.crc32(key) % MANY


@pytest.mark.parametrize(
    "theirs, ours",
    [("consistent_random", ConsistentRandomPartitioner()), ("fnv1a_random", Fnv1aPartitioner())],
    ids=["consistent_random", "fnv1a_random"],
)
@pytest.mark.parametrize("is_many", [False, True])
async def test_keys_go_where_librdkafka_sends_them(
    theirs: str, ours: ConsistentRandomPartitioner | Fnv1aPartitioner, *, is_many: bool
) -> None:
    async with FakeCluster(1, topics={"theirs": 7, "ours": 7}) as cluster:
        other = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "partitioner": theirs})
        for key in KEYS:
            other.produce("theirs", b"v", key=key)
        assert await asyncio.to_thread(other.flush, 60) == 0
        async with Producer(cluster.bootstrap_servers, partitioner=ours) as producer:
            if is_many:
                await (await producer.send_many("ours", [b"v"] * len(KEYS), keys=KEYS))
            else:
                await asyncio.gather(*(producer.send("ours", b"v", key=key) for key in KEYS))
            await producer.enqueue("ours", b"v", partition=6)
            for _ in range(3):
                await producer.send("ours", b"no key")

        def keys_of(topic: str) -> list[list[bytes | None]]:
            return [[each.key for each in cluster.records(topic, number) if each.key] for number in range(7)]

        assert keys_of("ours") == keys_of("theirs")


async def test_empty_key_is_none_for_librdkafka_alone(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, partitioner=Fnv1aPartitioner()) as producer:
        count = len(await producer.partitions_for("orders"))
        metadata = await producer.send("orders", b"v", key=b"")
        assert metadata.partition == 0x7EE3623B % count
    async with Producer(one_broker.bootstrap_servers, partitioner=ConsistentRandomPartitioner()) as producer:
        await producer.send("orders", b"v", key=b"")


def test_partitioners_serve_in_others() -> None:
    for partitioner in (ConsistentRandomPartitioner(), Fnv1aPartitioner()):
        chosen = partitioner.partition("t", None, b"key", None, None, Cluster())
        assert chosen == partitioner.partition("t", None, None, None, None, Cluster()) == 0
        assert repr(partitioner) == f"{type(partitioner).__name__}()"


async def test_subclass_is_called(one_broker: FakeCluster) -> None:
    class Last(Fnv1aPartitioner):
        def partition(self, *_: object) -> int:
            return 1

    async with Producer(one_broker.bootstrap_servers, partitioner=Last()) as producer:
        assert (await producer.send("orders", b"v", key=b"k")).partition == 1
