"""Random faults without idempotence: first copies keep their order, and every reported outcome is true.

The simulation (tests/programs/simulation) has these faults and more, but no family of it has `acks=all` without
idempotence: there five requests are in flight and nothing but the producer itself keeps a copy from overtaking.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from aioproducer import Delivery, KafkaError, Outcome, Producer, UndeliveredError
from aioproducer.errors import BufferTimeoutError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_cluster import in_virtual_time

PRODUCE = Where(api=ApiKey.PRODUCE)
BEFORE_APPEND = (-1, 2, 3, 5, 6, 7, 10, 13, 14, 19, 20, 45, 56, 59, 100)
AFTER_APPEND = (-1, 6, 7, 13, 20, 56)
TOPIC = "orders"
PARTITIONS = 3
NODES = 3
RECORDS = 120
WALL_CLOCK_MS = 1_700_000_000_000


@dataclass
class Sent:
    """The deliveries of each partition, by the number that is the record's value, in send order."""

    deliveries: dict[int, dict[int, Delivery]] = field(default_factory=lambda: {n: {} for n in range(PARTITIONS)})

    not_accepted: set[tuple[int, int]] = field(default_factory=set)
    """(partition, number) of those that found no room in time."""

    def check(self, cluster: FakeCluster) -> None:
        """Compare what was said with what is in the logs."""
        for partition, deliveries in self.deliveries.items():
            log = [int(record.value or b"") for record in cluster.records(TOPIC, partition)]
            first_copies = list(dict.fromkeys(log))
            assert not {(partition, number) for number in log} & self.not_accepted
            acknowledged = [number for number, delivery in deliveries.items() if delivery.exception() is None]
            assert [number for number in first_copies if number in set(acknowledged)] == acknowledged, partition
            for number, delivery in deliveries.items():
                self._check_one(log, number, delivery)

    def _check_one(self, log: list[int], number: int, delivery: Delivery) -> None:
        error = delivery.exception()
        assert error is None or isinstance(error, KafkaError)
        if error is None:
            offset = delivery.result().offset
            assert offset == -1 or log[offset] == number
        elif error.outcome is Outcome.NOT_WRITTEN:
            assert number not in log, f"{number} is written, but {error!r}"
        else:
            assert error.outcome is Outcome.UNKNOWN, repr(error)


def mischief(cluster: FakeCluster, chance: random.Random) -> None:
    faults, times = cluster.faults, chance.randrange(1, 4)
    skip = chance.randrange(3)
    where = Where(api=ApiKey.PRODUCE, partition=chance.choice([None, *range(PARTITIONS)]))
    deeds: list[Callable[[], object]] = [
        lambda: faults.error(chance.choice(BEFORE_APPEND), where, times=times, skip=skip),
        lambda: faults.error_after_append(chance.choice(AFTER_APPEND), where, times=times, skip=skip),
        lambda: faults.drop_connection(PRODUCE, times=1, skip=skip),
        lambda: faults.drop_connection(PRODUCE, after_append=True, times=1, skip=skip),
        lambda: faults.delay(chance.uniform(0, 3), PRODUCE, after_append=chance.random() < 0.5, skip=skip),
        lambda: faults.half_frame(PRODUCE, skip=skip),
        lambda: faults.wrong_correlation_id(PRODUCE, skip=skip),
        lambda: faults.omit_partition(where),
        lambda: faults.record_errors({0: "refused"}, where, code=chance.choice((32, 87))),
        lambda: faults.throttle(chance.randrange(1, 500), PRODUCE),
        lambda: move_a_leader(cluster, chance),
    ]
    chance.choice(deeds)()


def move_a_leader(cluster: FakeCluster, chance: random.Random) -> None:
    """Make another broker the leader of a partition, if it can be one."""
    with contextlib.suppress(ValueError):
        cluster.move_leader(TOPIC, chance.randrange(PARTITIONS), chance.randrange(1, NODES + 1))


async def send_at_random(producer: Producer, sent: Sent, chance: random.Random, *, partition: int) -> None:
    """Send numbered records, some slowly, some fast, some awaited."""
    for number in range(RECORDS):
        try:
            delivery = await producer.enqueue(TOPIC, b"%d" % number, partition=partition)
        except BufferTimeoutError:
            sent.not_accepted.add((partition, number))
            continue
        sent.deliveries[partition][number] = delivery
        if chance.random() < 0.1:
            await asyncio.wait([delivery])
        if chance.random() < 0.5:
            await asyncio.sleep(chance.choice([0, 0.001, 0.01, 0.1]))


async def make_mischief(cluster: FakeCluster, chance: random.Random) -> None:
    while True:
        await asyncio.sleep(chance.uniform(0, 0.2))
        mischief(cluster, chance)
        if chance.random() < 0.05:
            cluster.faults.clear()  # or they pile up faster than requests come
        if chance.random() < 0.1:
            await kill_and_restart(cluster, chance)


async def kill_and_restart(cluster: FakeCluster, chance: random.Random) -> None:
    node_id = chance.randrange(1, NODES + 1)
    await cluster.kill(node_id, clean=chance.random() < 0.5)
    await asyncio.sleep(chance.uniform(0, 1))
    await cluster.restart(node_id)
    await asyncio.sleep(0.1)


async def live_through(seed: int) -> None:
    """One whole life of a producer, the same for the same seed."""
    chance = random.Random(seed)
    sent = Sent()
    request_timeout_ms = chance.choice([500, 1_000, 30_000])
    options: dict[str, object] = {
        "client_id": "seeded",
        "enable_idempotence": False,
        "linger_ms": chance.choice([0, 5, 50]),
        "batch_size": chance.choice([0, 100, 300, 16_384]),
        "max_in_flight_requests_per_connection": chance.randrange(1, 6),
        "request_timeout_ms": request_timeout_ms,
        "delivery_timeout_ms": request_timeout_ms + chance.choice([100, 1_000, 100_000]),
        "buffer_memory": chance.choice([8_192, 65_536, 1_048_576]),
        "compression_type": chance.choice(["none", "none", "gzip", "lz4"]),
    }
    async with FakeCluster(NODES, topics={TOPIC: PARTITIONS}, auto_create_topics=False) as cluster:
        producer = Producer(cluster.bootstrap_servers, **options)  # type: ignore[arg-type]  # drawn
        await producer.use_sources(random=random.Random(seed), wall_clock=lambda: WALL_CLOCK_MS).start()
        trouble = asyncio.ensure_future(make_mischief(cluster, chance))
        async with asyncio.TaskGroup() as group:
            for partition in range(PARTITIONS):
                group.create_task(send_at_random(producer, sent, random.Random(seed + partition), partition=partition))
        trouble.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await trouble
        cluster.faults.clear()
        for node_id in range(1, NODES + 1):
            await cluster.restart(node_id)
        for delivery in [each for found in sent.deliveries.values() for each in found.values()]:
            delivery.add_done_callback(lambda _: None)
        with contextlib.suppress(UndeliveredError):  # more failed batches than are kept until they are retrieved
            await producer.flush(600)
        await asyncio.sleep(60)  # what was given up on the wire keeps its memory until it is answered or lost
        statistics = producer.statistics()
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes
        assert (statistics.records_pending, statistics.requests_in_flight) == (0, 0)
        await producer.close()
        sent.check(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
@in_virtual_time
async def test_order_of_first_copies_holds_without_idempotence(seed: int) -> None:
    await live_through(seed)
