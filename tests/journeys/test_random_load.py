"""Many callers at once on a small buffer, impatient and cancelled ones among them: each gets its outcome.

The simulation (tests/programs/simulation) goes further with one topic; here there are three, of 1, 4 and 40 partitions,
that share the buffer and the lines, and every callback is counted.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest

from aioproducer import Delivery, KafkaError, Producer, UndeliveredError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_cluster import in_virtual_time

TOPICS = {"one": 1, "few": 4, "many": 40}
CALLERS = 20
CALLS = 30
WALL_CLOCK_MS = 1_700_000_000_000
PRODUCE = Where(api=ApiKey.PRODUCE)


class Load:
    """Callers of one producer, and what they were told."""

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
        with contextlib.suppress(UndeliveredError):  # of callers who gave up after their records had got a place
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
    """Slow answers, lost connections, brokers that come and go."""
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


@pytest.mark.slow
@pytest.mark.parametrize("acks", [-1, 1, 0])
@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_every_call_has_an_end_and_nothing_is_left(acks: int, seed: int) -> None:
    """No bytes in the buffer, no waiting records, and no missing callbacks."""
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
        await producer.use_sources(random=random.Random(seed), wall_clock=lambda: WALL_CLOCK_MS).start()
        load = Load(producer, chance)
        troubling = asyncio.ensure_future(trouble(cluster, chance))
        await asyncio.gather(*(load.call() for _ in range(CALLERS)))
        troubling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await troubling
        cluster.faults.clear()
        for node_id in (1, 2, 3):
            await cluster.restart(node_id)
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
