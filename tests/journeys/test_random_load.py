"""Random load and random faults: each call has an end, and every reported outcome is true."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from aioproducer import Delivery, KafkaError, Outcome, Producer, UndeliveredError
from aioproducer.errors import BufferTimeoutError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_loop import in_virtual_time

TOPICS = {"one": 1, "few": 4, "many": 40}
CALLERS = 20
CALLS = 30
WALL_CLOCK_MS = 1_700_000_000_000
PRODUCE = Where(api=ApiKey.PRODUCE)


class Load:
    """Callers of one producer, and the outcomes that were reported to them."""

    def __init__(self, producer: Producer, chance: random.Random) -> None:
        self.producer = producer
        self.chance = chance
        self.deliveries: list[Delivery] = []
        self.called_back = 0
        self.with_callback = 0

    def record(self) -> tuple[str, bytes, dict[str, object]]:
        chance = self.chance
        options: dict[str, object] = {}
        if chance.random() < 0.4:
            options["key"] = b"%d" % chance.randrange(20)
        if chance.random() < 0.3:
            options["on_delivery"] = self.note
            self.with_callback += 1
        return chance.choice(list(TOPICS)), b"x" * chance.choice([0, 10, 100, 1000, 10_000]), options

    def note(self, *_: object) -> None:
        self.called_back += 1

    async def send(self) -> None:
        topic, value, options = self.record()
        try:
            self.deliveries.append(self.producer.send(topic, value, **options))  # type: ignore[arg-type]  # drawn
        except KafkaError:
            self.with_callback -= "on_delivery" in options

    async def enqueue_impatiently(self) -> None:
        """Giving up after a moment, now and then; the record is then withdrawn."""
        topic, value, options = self.record()
        with contextlib.suppress(TimeoutError, KafkaError):
            async with asyncio.timeout(self.chance.choice([0.001, 0.1, 10])):
                self.deliveries.append(await self.producer.enqueue(topic, value, **options))  # type: ignore[arg-type]  # drawn

    async def send_and_wait(self) -> None:
        with contextlib.suppress(KafkaError):
            await self.producer.send_and_wait(self.chance.choice(list(TOPICS)), b"v")

    async def flush(self) -> None:
        before = list(self.deliveries)
        for delivery in before:
            delivery.add_done_callback(lambda _: None)
        with contextlib.suppress(UndeliveredError):  # of callers that gave up after their records were accepted
            await self.producer.flush()
        assert all(delivery.done() for delivery in before)

    async def call(self) -> None:
        verbs: list[Callable[[], Awaitable[None]]] = [self.send, self.enqueue_impatiently, self.send_and_wait]
        for _ in range(CALLS):
            verb = self.flush if self.chance.random() < 0.03 else self.chance.choice(verbs)
            await verb()
            if self.chance.random() < 0.3:
                await asyncio.sleep(self.chance.choice([0, 0.001, 0.05]))


async def trouble(cluster: FakeCluster, chance: random.Random) -> None:
    while True:
        await asyncio.sleep(chance.uniform(0.01, 0.3))
        deeds: list[Callable[[], object]] = [
            lambda: cluster.faults.delay(chance.uniform(0, 2), PRODUCE),
            lambda: cluster.faults.drop_connection(PRODUCE, after_append=chance.random() < 0.5),
            lambda: cluster.faults.error(chance.choice((7, 10, 19, 29)), PRODUCE),
        ]
        chance.choice(deeds)()
        if chance.random() < 0.1:
            node_id = chance.randrange(1, 4)
            await cluster.kill(node_id)
            await asyncio.sleep(chance.uniform(0, 2))
            await cluster.restart(node_id)


@asynccontextmanager
async def meanwhile(cluster: FakeCluster, trouble: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Let trouble go on until the block ends, and heal the cluster then."""
    troubling = asyncio.ensure_future(trouble)
    yield
    troubling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await troubling
    cluster.faults.clear()
    for node_id in cluster.model.brokers:
        await cluster.restart(node_id)


@pytest.mark.slow
@pytest.mark.parametrize("acks", [-1, 1, 0])
@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_every_call_has_an_end_and_nothing_is_left(acks: int, seed: int) -> None:
    chance = random.Random(seed)
    async with FakeCluster(3, topics=TOPICS, auto_create_topics=False) as cluster:
        producer = Producer(
            cluster.bootstrap_servers,
            acks=acks,  # type: ignore[arg-type]  # one of three
            buffer_memory=chance.choice([65_536, 131_072]),
            batch_size=chance.choice([0, 1_000, 16_384]),
            linger_ms=chance.choice([0, 5, 1_000]),
            compression_type=chance.choice(["none", "gzip"]),
            max_block_ms=chance.choice([500, 60_000]),
            request_timeout_ms=3_000,
            delivery_timeout_ms=chance.choice([5_000, 60_000]),
        )
        await producer._use_sources(random=random.Random(seed), wall_clock=lambda: WALL_CLOCK_MS).start()
        load = Load(producer, chance)
        async with meanwhile(cluster, trouble(cluster, chance)):
            await asyncio.gather(*(load.call() for _ in range(CALLERS)))
        await load.flush()
        await asyncio.sleep(5)

        statistics = producer.statistics()
        assert all(delivery.done() for delivery in load.deliveries)
        assert load.called_back == load.with_callback
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes
        assert (statistics.records_waiting, statistics.waiting_bytes) == (0, 0)
        assert (statistics.records_pending, statistics.requests_in_flight) == (0, 0)
        with contextlib.suppress(UndeliveredError):
            await producer.close()


# Random faults without idempotence: first copies keep their order, and every reported outcome is true


BEFORE_APPEND = (-1, 2, 3, 5, 6, 7, 10, 13, 14, 19, 20, 45, 56, 59, 100)
AFTER_APPEND = (-1, 6, 7, 13, 20, 56)
TOPIC = "orders"
PARTITIONS = 3
NODES = 3
RECORDS = 120


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
    with contextlib.suppress(ValueError):
        cluster.move_leader(TOPIC, chance.randrange(PARTITIONS), chance.randrange(1, NODES + 1))


async def send_at_random(producer: Producer, sent: Sent, chance: random.Random, *, partition: int) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
@in_virtual_time
async def test_order_of_first_copies_holds_without_idempotence(seed: int) -> None:
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
        await producer._use_sources(random=random.Random(seed), wall_clock=lambda: WALL_CLOCK_MS).start()
        async with meanwhile(cluster, make_mischief(cluster, chance)), asyncio.TaskGroup() as group:
            for partition in range(PARTITIONS):
                group.create_task(send_at_random(producer, sent, random.Random(seed + partition), partition=partition))
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
