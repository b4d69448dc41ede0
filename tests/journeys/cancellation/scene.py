"""A producer on a cluster in some state, the calls that can be awaited, and what must hold when the trouble is over."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import NoReturn, Self, TypedDict

import pyarrow as pa

from aioproducer import BufferFullError, KafkaError, Outcome, Producer, RecordMetadata, UndeliveredError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import background_tasks

PRODUCE = Where(api=ApiKey.PRODUCE)
METADATA = Where(api=ApiKey.METADATA)
PAD = b"." * 2_000
QUIET_S = 60.0  # virtual seconds within which everything must have come to rest on a healed cluster


class Record(TypedDict):
    """Keyword arguments of a verb: a record, and how to hear of its end."""

    value: bytes
    on_delivery: Callable[[RecordMetadata | None, KafkaError | None], None]


class Scene:
    """See the top."""

    topic = "orders"

    def __init__(self, trouble: Callable[["Scene"], Coroutine[object, object, None]], *, is_started: bool) -> None:
        self.cluster = FakeCluster(2, topics={"orders": 1}, replication_factor=1, num_partitions=1)
        self._trouble = trouble
        self._is_started = is_started
        self.producer: Producer
        self.told: Counter[bytes] = Counter()
        self.errors: dict[bytes, KafkaError] = {}
        self.given: list[bytes] = []

    async def __aenter__(self) -> Self:
        """Set everything up, with three accepted records that no task awaits."""
        await self.cluster.start()
        self.producer = self.new_producer()
        if self._is_started:
            await self.producer.start()
            await self.producer.send("orders", b"first")
        await self._trouble(self)
        if self._is_started:
            with contextlib.suppress(BufferFullError):
                for _ in range(3):
                    self.producer.send_nowait("orders", **self.record())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cluster.stop()

    def new_producer(self) -> Producer:
        """A small and impatient one, whose chance and clock are fixed."""
        producer = Producer(
            self.cluster.bootstrap_servers,
            buffer_memory=65_536,
            batch_size=4_096,
            max_block_ms=5_000,
            request_timeout_ms=3_000,
            delivery_timeout_ms=10_000,
        )
        return producer._use_sources(random=Random(7), wall_clock=lambda: 1_700_000_000_000)

    def record(self) -> Record:
        value = b"%d" % len(self.given) + PAD
        self.given.append(value)
        return {"value": value, "on_delivery": partial(self._note, value)}

    def values(self, count: int) -> list[bytes]:
        """Return the values of the next records, whose ends are not reported."""
        return [self.record()["value"] for _ in range(count)]

    def _note(self, value: bytes, _metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        self.told[value] += 1
        if error is not None:
            self.errors[value] = error

    def log(self, topic: str) -> list[bytes]:
        if self.cluster.model.topics.named(topic) is None:
            return []
        return [record.value or b"" for record in self.cluster.records(topic, 0)]

    async def heal(self) -> None:
        self.cluster.faults.clear()
        for node_id in self.cluster.model.brokers:
            await self.cluster.restart(node_id)

    # What must hold

    async def check_at_rest(self) -> None:
        """Statistics count nothing that is not there, on a healed cluster without calls."""
        async with asyncio.timeout(QUIET_S):
            while (left := self.unrest()) != (0, 0, 0, 0):
                assert left >= (0, 0, 0, 0), f"counted below nothing: {left}"
                await asyncio.sleep(0.1)

    def unrest(self) -> tuple[int, int, int, int]:
        """Records in batches, in line, bytes of those in line, bytes of memory lent."""
        found = self.producer.statistics()
        lent = found.buffer_total_bytes - found.buffer_available_bytes
        return found.records_pending, found.records_waiting, found.waiting_bytes, lent

    def check_records(self) -> None:
        logs = [self.log(topic) for topic in ("orders", "later")]
        in_log = Counter(value for log in logs for value in log if value.endswith(PAD))
        assert max(self.told.values(), default=1) == 1, "a record was told of twice"
        assert max(in_log.values(), default=1) == 1, "a record is in the log twice"
        acknowledged = self.told.keys() - self.errors.keys()
        assert acknowledged <= in_log.keys(), "an acknowledged record is lost"
        denied = {value for value, error in self.errors.items() if error.outcome is Outcome.NOT_WRITTEN}
        assert not denied & in_log.keys(), "a record is in the log that was said not to be written"
        for log in logs:
            numbers = [int(value.split(b".")[0]) for value in log if value.endswith(PAD)]
            assert numbers == sorted(numbers), "records are out of order"

    async def check_nothing_stays(self) -> None:
        """Check that what was begun ends by itself, soon, when no caller waits for it."""
        async with asyncio.timeout(QUIET_S):
            while self.cluster.connections or background_tasks():  # noqa: ASYNC110  # as below
                await asyncio.sleep(0.01)

    async def check_nothing_left(self) -> None:
        async with asyncio.timeout(QUIET_S):
            while self.cluster.connections:  # noqa: ASYNC110  # the cluster notifies no one
                await asyncio.sleep(0.01)
        assert background_tasks() == {}, "tasks are left"


async def close_quietly(producer: Producer) -> None:
    with contextlib.suppress(UndeliveredError):
        await producer.close()


# States of the cluster


async def healthy(_: Scene) -> None:
    """Nothing is wrong."""


async def leaderless(scene: Scene) -> None:
    await scene.cluster.kill(scene.cluster.leader_of("orders", 0))


async def brokers_down(scene: Scene) -> None:
    for node_id in scene.cluster.model.brokers:
        await scene.cluster.kill(node_id)


async def unanswered(scene: Scene) -> None:
    scene.cluster.faults.stall(PRODUCE)


async def memory_full(scene: Scene) -> None:
    scene.cluster.faults.stall(PRODUCE)
    with contextlib.suppress(BufferFullError, KafkaError):
        while True:
            scene.producer.send_nowait("orders", **scene.record())


async def metadata_slow(scene: Scene) -> None:
    """Metadata takes two seconds, and the topic is not known yet."""
    scene.cluster.faults.delay(2.0, METADATA, times=None)
    scene.topic = "later"


STATES: dict[str, Callable[[Scene], Coroutine[object, object, None]]] = {
    "healthy": healthy,
    "leaderless": leaderless,
    "brokers down": brokers_down,
    "unanswered": unanswered,
    "memory full": memory_full,
    "metadata slow": metadata_slow,
}


# Everything of the producer that can be awaited, and what repeating it must do


RunCall = Callable[[Scene], Coroutine[object, object, object]]


@dataclass(frozen=True, slots=True)
class Target:
    """One call.

    Attributes:
        run: makes it.
        starts: it is what starts the producer.
        ends: after it the producer is closed, also if it was cancelled, as soon as the closing is done.
        withdraws: cancelled while its record waits in line, it takes the record out.
        keeps: its record is accepted by the call, and no cancelling recalls it.
    """

    run: RunCall
    starts: bool = False
    ends: bool = False
    withdraws: bool = False
    keeps: bool = False


class BodyError(Exception):
    """Failure of the body of an `async with`."""


async def start(scene: Scene) -> None:
    await scene.producer.start()


async def start_without_waiting(scene: Scene) -> None:
    await scene.producer.start(wait=False)


async def send(scene: Scene) -> None:
    await scene.producer.send(scene.topic, **scene.record())


async def send_and_wait(scene: Scene) -> None:
    await scene.producer.send_and_wait(scene.topic, **scene.record())


async def enqueue(scene: Scene) -> None:
    await scene.producer.enqueue(scene.topic, **scene.record())


async def enqueue_and_await(scene: Scene) -> None:
    await (await scene.producer.enqueue(scene.topic, **scene.record()))


async def send_many(scene: Scene) -> None:
    await scene.producer.send_many(scene.topic, scene.values(5))


async def send_many_and_await(scene: Scene) -> None:
    await (await scene.producer.send_many(scene.topic, scene.values(5)))


async def send_arrow(scene: Scene) -> None:
    rows = pa.record_batch({"value": pa.array(scene.values(5), pa.binary())})
    await scene.producer.send_arrow(scene.topic, rows)


async def topic_send_and_wait(scene: Scene) -> None:
    await scene.producer.topic(scene.topic, value=bytes).send_and_wait(**scene.record())


async def topic_send_many(scene: Scene) -> None:
    await (await scene.producer.topic(scene.topic, value=bytes).send_many(scene.values(5)))


async def partitions_for(scene: Scene) -> None:
    await scene.producer.partitions_for("never-seen")


def flush(*timeout: float) -> RunCall:
    async def run(scene: Scene) -> None:
        with contextlib.suppress(UndeliveredError, TimeoutError):
            await scene.producer.flush(*timeout)

    return run


def close(*timeout: float) -> RunCall:
    async def run(scene: Scene) -> None:
        with contextlib.suppress(UndeliveredError):
            await scene.producer.close(*timeout)

    return run


async def leave(scene: Scene) -> None:
    """The end of `async with`."""
    with contextlib.suppress(UndeliveredError):
        async with scene.producer:
            pass


async def leave_with_error(scene: Scene) -> None:
    with contextlib.suppress(BodyError):
        async with scene.producer:
            fail()


def fail() -> NoReturn:
    raise BodyError


TARGETS: dict[str, Target] = {
    "start": Target(start, starts=True),
    "start(wait=False)": Target(start_without_waiting, starts=True),
    "send": Target(send, keeps=True),
    "send_and_wait": Target(send_and_wait, withdraws=True),
    "enqueue": Target(enqueue, withdraws=True),
    "enqueue, then the delivery": Target(enqueue_and_await, withdraws=True),
    "send_many": Target(send_many),
    "send_many, then the delivery": Target(send_many_and_await),
    "send_arrow": Target(send_arrow),
    "topic.send_and_wait": Target(topic_send_and_wait, withdraws=True),
    "topic.send_many, then the delivery": Target(topic_send_many),
    "partitions_for": Target(partitions_for),
    "flush": Target(flush()),
    "flush(2)": Target(flush(2)),
    "close": Target(close(), ends=True),
    "close(1)": Target(close(1), ends=True),
    "close(0)": Target(close(0), ends=True),
    "async with": Target(leave, ends=True),
    "async with, failing": Target(leave_with_error, ends=True),
}
