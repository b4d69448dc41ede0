"""Which partitions records go to: none that takes no more, those of keys in other clients, and the user's choice."""

import asyncio
import random
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Unpack

import confluent_kafka
import pytest

from aioproducer import (
    ConsistentRandomPartitioner,
    Fnv1aPartitioner,
    KafkaError,
    Outcome,
    Producer,
    ProducerOptions,
)
from aioproducer._native.append import hash_partition
from aioproducer.cluster import Cluster
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.logs import LogCapture
from tests.fakes.producing import producing
from tests.fakes.virtual_loop import in_virtual_time, now
from tests.produced import produce_requests, values

NOT_ENOUGH_REPLICAS = 19
CONCURRENT_TRANSACTIONS = 51
PARTITIONS = 6
RECORDS = 100


@asynccontextmanager
async def choosing(
    cluster: FakeCluster, **options: Unpack[ProducerOptions]
) -> AsyncIterator[tuple[FakeCluster, Producer]]:
    """Yield both, with the same choices in each run: by chance many records may choose the one that takes none."""
    async with cluster:
        producer = Producer(cluster.bootstrap_servers, **options)
        async with producer._use_sources(random=Random(1), wall_clock=lambda: 1_700_000_000_000):
            yield cluster, producer


SOON_IDLE: ProducerOptions = {"connections_max_idle_ms": 5_000, "metadata_max_idle_ms": 3_600_000}


async def awaited_one_by_one(producer: Producer) -> list[int | None]:
    """The partition of each record; None: it failed."""
    partitions: list[int | None] = []
    for _ in range(RECORDS):
        try:
            partitions.append((await producer.send("orders", b"v")).partition)
        except KafkaError:
            partitions.append(None)
    return partitions


async def awaited_until(producer: Producer, ends_at: float) -> None:
    """Send one record after another, as a request handler does."""
    while now() < ends_at:
        await producer.send("orders", b"v" * 100)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("is_adaptive", [True, False])
@in_virtual_time
async def test_one_record_waits_for_a_leader_and_others_go_elsewhere(*, is_adaptive: bool) -> None:
    """The record waits until its deadline, because the only replica of the partition is gone."""
    async with producing(
        FakeCluster(3, topics={"orders": PARTITIONS}, replication_factor=1),
        linger_ms=0,
        partitioner_adaptive_partitioning_enable=is_adaptive,
    ) as (cluster, producer):
        stuck = (await producer.send("orders", b"v")).partition
        await cluster.kill(cluster.leader_of("orders", stuck))

        partitions = await asyncio.wait_for(awaited_one_by_one(producer), 150)

        assert partitions.count(None) == 1
        assert stuck not in partitions


@in_virtual_time
async def test_one_record_waits_for_replicas_others_go_elsewhere() -> None:
    async with choosing(FakeCluster(3, topics={"orders": PARTITIONS}), linger_ms=0) as (cluster, producer):
        stuck = (await producer.send("orders", b"v")).partition
        where = Where(api=ApiKey.PRODUCE, topic="orders", partition=stuck)
        cluster.faults.error(NOT_ENOUGH_REPLICAS, where, times=None)

        partitions = await asyncio.wait_for(awaited_one_by_one(producer), 500)

        assert partitions.count(None) <= 2  # a record that returns to it by chance waits, too
        assert len(set(partitions) - {None, stuck}) >= 1


@in_virtual_time
async def test_one_record_waits_to_connect_and_others_go_elsewhere() -> None:
    """Only this producer cannot reach the leader: no attempt fails, because there is none."""
    async with choosing(FakeCluster(10, topics={"orders": 10}), linger_ms=0, **SOON_IDLE) as (cluster, producer):
        stuck = (await producer.send("orders", b"v")).partition
        cluster.faults.stall(Where(api=ApiKey.API_VERSIONS, node_id=cluster.leader_of("orders", stuck)))
        await asyncio.sleep(60)

        partitions = await asyncio.wait_for(awaited_one_by_one(producer), 1_000)

        assert 1 <= partitions.count(None) <= 5  # a record that returns to it by chance waits, too
        assert stuck not in partitions


@in_virtual_time
async def test_transaction_waiting_for_markers_keeps_its_partition() -> None:
    """Each further partition needs a marker, and the next transaction would wait for them all."""
    made = FakeCluster(1, topics={"orders": PARTITIONS})
    async with producing(made, transactional_id="billing-1", linger_ms=0) as (cluster, producer):
        cluster.faults.error(CONCURRENT_TRANSACTIONS, Where(api=ApiKey.PRODUCE), times=20)
        async with producer.transaction() as txn:
            deliveries = []
            for _ in range(100):
                deliveries.append(txn.send("orders", b"v"))
                await asyncio.sleep(0.001)
            partitions = {(await delivery).partition for delivery in deliveries}

        assert len(partitions) == 1


async def awaited_with_pauses(producer: Producer) -> set[int | None]:
    """The partitions of records of which each is a choice of its own."""
    partitions: set[int | None] = set()
    for _ in range(RECORDS):
        partitions.add((await producer.send("orders", b"v")).partition)
        await asyncio.sleep(0.2)
    return partitions


@in_virtual_time
async def test_records_stay_in_the_rack_while_it_has_a_leader() -> None:
    async with producing(
        FakeCluster(3, topics={"orders": PARTITIONS}, racks={1: "a", 2: "b", 3: "c"}),
        partitioner_rack_aware=True,
        client_rack="b",
    ) as (cluster, producer):
        local = {number for number in range(PARTITIONS) if cluster.leader_of("orders", number) == 2}
        keyed = {(await producer.send("orders", b"v", key=b"%d" % number)).partition for number in range(50)}
        before = await awaited_with_pauses(producer)
        await cluster.kill(2)
        meanwhile = await awaited_with_pauses(producer)
        await cluster.restart(2)
        cluster.move_leader("orders", 5, 2)
        await producer.send("orders", b"v", partition=5)  # the response of the old leader names the new one's rack
        await producer.send("orders", b"v")  # may follow a choice from before
        after = await awaited_with_pauses(producer)

    assert (len(local), before, keyed) == (2, local, set(range(PARTITIONS)))
    assert (meanwhile, after) == (set(range(PARTITIONS)), {5})


@pytest.mark.parametrize("timeout_ms, least, most", [(0, 100, 130), (1_000, 5, 15)])
@in_virtual_time
async def test_records_leave_a_node_that_takes_none_for_too_long(timeout_ms: int, least: int, most: int) -> None:
    """Without a time-out they join its open batch until that is closed, after a tenth of the delivery time-out."""
    options: ProducerOptions = {"partitioner_availability_timeout_ms": timeout_ms, **SOON_IDLE}
    async with choosing(FakeCluster(10, topics={"orders": 10}), **options) as (cluster, producer):
        stuck = (await producer.send("orders", b"v")).partition
        cluster.faults.stall(Where(api=ApiKey.API_VERSIONS, node_id=cluster.leader_of("orders", stuck)))
        await asyncio.sleep(60)

        deliveries = []
        for _ in range(200):
            deliveries.append(producer.send("orders", b"v"))
            await asyncio.sleep(0.1)

        assert least < sum(not delivery.done() for delivery in deliveries) < most
        cluster.faults.clear()
        assert stuck in {(await delivery).partition for delivery in deliveries}
        assert stuck in await awaited_with_pauses(producer)


@pytest.mark.parametrize("is_adaptive, least, most", [(True, 5_000, 50_000), (False, 200, 2_000)])
@in_virtual_time
async def test_awaited_records_do_not_stay_with_a_node_that_is_slow(
    *, is_adaptive: bool, least: int, most: int
) -> None:
    """All callers wait for the slow node, so its queue is as short as the others: only time tells."""
    options: ProducerOptions = {"partitioner_adaptive_partitioning_enable": is_adaptive}
    made = FakeCluster(3, topics={"orders": PARTITIONS}, replication_factor=1)
    async with choosing(made, **options) as (cluster, producer):
        cluster.faults.delay(0.2, Where(api=ApiKey.PRODUCE, node_id=1), times=None)
        ends_at = now() + 20
        await asyncio.gather(*(awaited_until(producer, ends_at) for _ in range(20)))

        assert least < producer.statistics().records_acknowledged < most


# Keys, as librdkafka and sarama hash them


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


# Partitioners of the user


class Chosen:
    """A partitioner that makes a given choice, or raises it."""

    def __init__(self, choice: object) -> None:
        self.choice = choice
        self.batches: list[tuple[str, int]] = []
        self.is_closed = False

    def partition(self, *_: object) -> int:
        if isinstance(self.choice, Exception):
            raise self.choice
        return self.choice  # type: ignore[return-value]

    def on_new_batch(self, topic: str, _cluster: object, previous: int) -> None:
        self.batches.append((topic, previous))

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("choice", [99, -1, None, "0", True, 1.0, ZeroDivisionError("inner"), KeyError("k")], ids=repr)
async def test_bad_choice_is_a_value_error_that_names_the_partitioner(
    one_broker: FakeCluster, choice: object, *, is_known: bool
) -> None:
    async with Producer(one_broker.bootstrap_servers, partitioner=Chosen(choice)) as producer:
        if is_known:
            await producer.partitions_for("orders")
        with pytest.raises(ValueError, match=r"Chosen\.partition") as caught:
            await producer.send("orders", b"v")
        with pytest.raises(ValueError, match=r"Chosen\.partition"):
            await producer.enqueue("orders", b"v")

        assert isinstance(caught.value, KafkaError)
        assert caught.value.outcome is Outcome.NOT_WRITTEN
        assert produce_requests(one_broker) == 0
        await producer.send("orders", b"valid", partition=1)


async def test_partitioner_chooses_and_is_notified_of_batches(one_broker: FakeCluster) -> None:
    chosen = Chosen(2)
    async with Producer(one_broker.bootstrap_servers, partitioner=chosen, batch_size=500) as producer:
        for _ in range(20):
            await producer.enqueue("orders", bytes(100))
        metadata = await producer.send("orders", b"v")
        written = producer.statistics().batches_sent

    assert metadata.partition == 2
    assert set(chosen.batches) == {("orders", 2)}
    assert written - 2 <= len(chosen.batches) <= written  # once of each; the last may not be asked about
    assert chosen.is_closed


async def test_failing_batch_notification_stops_nothing(one_broker: FakeCluster) -> None:
    class Failing(Chosen):
        def on_new_batch(self, *_: object) -> None:
            raise ZeroDivisionError

        def close(self) -> None:
            raise ZeroDivisionError

    with LogCapture() as log:
        async with Producer(one_broker.bootstrap_servers, partitioner=Failing(0), batch_size=500) as producer:
            for _ in range(20):
                await producer.enqueue("orders", bytes(100))

    assert len(values(one_broker, "orders")) == 20
    assert len(log.naming("partitioner_failed")) >= 2


async def test_partitioner_may_send_when_told_of_a_batch(one_broker: FakeCluster) -> None:
    """Its record must not get into the record that is being written."""
    producers: list[Producer] = []

    class Sending(Chosen):
        def on_new_batch(self, *_: object) -> None:
            producers[0].send("orders", b"other", partition=1, headers=[("other", b"header" * 50)])

    producer = Producer(one_broker.bootstrap_servers, partitioner=Sending(0), batch_size=500)
    producers.append(producer)
    async with producer:
        for _ in range(20):
            await producer.enqueue("orders", bytes(100), headers=[("own", b"1")])

    assert {tuple(record.headers) for record in one_broker.records("orders", 0)} == {(("own", b"1"),)}
    assert len(one_broker.records("orders", 1)) > 0
