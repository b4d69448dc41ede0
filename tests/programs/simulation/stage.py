"""A run of a few records, written out as a scene: calls, and one fault meanwhile.

    start, a record to each partition ──► the scene, every choice of the loop noted ──► heal, flush, probe, close

Before and after the scene the loop is as asyncio's; during it the producer is looked at before every choice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aioproducer import BufferTimeoutError, Delivery, KafkaError, Producer, UndeliveredError
from aioproducer.testing.fake_broker.faults import Faults
from tests.programs.simulation.families import Family
from tests.programs.simulation.history import History, RecordId, Story
from tests.programs.simulation.inside import Inside
from tests.programs.simulation.nemesis import Nemesis
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.run import Run, Verdict, live_on
from tests.programs.simulation.scheduled_loop import ScheduledLoop
from tests.programs.simulation.schedules import DeviatingSchedule, Schedule
from tests.programs.simulation.simulated_loop import SimulatedLoop
from tests.programs.simulation.workload import Workload

LATENCY_S = 0.0005
LAG_S = 0.0015
"""Events that are due within so many seconds may change places: a request, its response, and the next request."""

OPTIONS: Mapping[str, object] = {
    "acks": -1,
    "enable_idempotence": True,
    "max_in_flight_requests_per_connection": 2,
    "linger_ms": 0,
    "batch_size": 100,
    "buffer_memory": 32_768,
    "compression_type": "none",
    "delivery_timeout_ms": 1_000,
    "request_timeout_ms": 300,
    "max_block_ms": 500,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 1,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    act: "Callable[[Stage], Coroutine[object, object, None]]"
    brokers: int = 1
    partitions: int = 1
    options: Mapping[str, object] = field(default_factory=dict)
    fault: str = "scene"  # fault as which a failure in the scene counts, if that excuses an end
    closes: bool = False

    @property
    def name(self) -> str:
        return self.act.__name__

    def plan(self) -> Plan:
        return Plan(
            family=Family(name=self.name, title=str(self.act.__doc__), faults=(), closes_early=self.closes),
            seed=1,
            options={**OPTIONS, **self.options},
            brokers=self.brokers,
            partitions=self.partitions,
            replication=self.brokers,
            min_insync=1,
            profile="4.3.1",
            latency_s=LATENCY_S,
            jitter_s=0.0,
            replication_delay_s=0.0,
            failover_delay_s=0.0,
            records=4,
            clients=1,
            pace_s=0.0,
            max_message_bytes=None,
            user_faults=False,
            uses_bootstrap_name=False,
            starts_before_faults=True,
            chaos_s=0.4,
            enabled=(self.fault,),
            strikes=(),
        )


class Stage:
    """Cluster, producer and callers of a scene."""

    def __init__(self, load: Workload, nemesis: Nemesis) -> None:
        self.nemesis = nemesis
        self._load = load
        self._sent = 0

    @property
    def producer(self) -> Producer:
        return self._load.producer

    @property
    def faults(self) -> Faults:
        return self.nemesis.model.faults

    def send(self, partition: int = 0, *, size: int = 20) -> Delivery | None:
        story = self._story("send", partition, size)
        try:
            story.delivery = self.producer.send(story.topic, story.value, partition=partition)
        except KafkaError as error:
            story.fail(error, self._load.now())
            return None
        self._load.deliveries.append(story)
        return story.delivery

    async def enqueue(self, partition: int = 0, *, size: int = 20) -> None:
        story = self._story("enqueue", partition, size)
        try:
            story.delivery = await self.producer.enqueue(story.topic, story.value, partition=partition)
        except KafkaError as error:
            story.fail(error, self._load.now())
            return
        except asyncio.CancelledError:
            story.give_up(self._load.now())
            raise
        self._load.deliveries.append(story)
        await asyncio.wait([story.delivery])

    async def enqueue_served(self, partition: int = 0, *, size: int = 20) -> None:
        """Enqueue a record where there will be room for it: if it gets none, a waiter was forgotten."""
        await self.enqueue(partition, size=size)
        error = self._load.history.stories[-1].error
        if BufferTimeoutError.__name__ in error:
            self._load.history.violated("MEMORY", f"a waiter for memory was not served: {error}")

    async def flush(self, timeout_s: float | None = None) -> None:
        """Flush: what was accepted before has ended then, unless the time is over before."""
        before = [story for story in self._load.deliveries if story.delivery is not None]
        try:
            await self.producer.flush(timeout_s)
        except UndeliveredError:
            pass
        except TimeoutError:
            return
        except KafkaError as error:
            self._load.history.note("caller", "flush: %r", error)
            return
        late = [str(story.record) for story in before if story.delivery is not None and not story.delivery.done()]
        if late:
            self._load.history.violated("FLUSH", f"flush returned before {', '.join(late)} had ended")

    async def close(self, timeout_s: float) -> None:
        self._load.is_closing = True
        try:
            await self.producer.close(timeout_s)
        except UndeliveredError as error:
            self._load.history.note("caller", "close: %s", error)
        open_ = [str(story.record) for story in self._load.deliveries if story.delivery and not story.delivery.done()]
        if open_:
            self._load.history.violated("ENDS_ONCE", f"{', '.join(open_)} open after close")

    async def together(self, *calls: Awaitable[Any]) -> None:
        for end in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(end, Exception):
                self._load.history.violated("EXCEPTION", f"a call raised {end!r}")
        for story in self._load.deliveries:  # `asyncio.wait` would begin with any
            if story.delivery is not None:
                await asyncio.wait([story.delivery])

    def _story(self, verb: str, partition: int, size: int) -> Story:
        record = RecordId(0, 0, self._sent)
        self._sent += 1
        value = b"%d.%d.%d|" % record + b"." * size
        history = self._load.history
        order = len(history.stories)
        return history.begin(Story(record, order, self._load.topic, value, None, verb, self._load.now(), partition))


class SceneRun(Run):
    """One way in which a scene goes."""

    def __init__(self, scene: Scene, plan: Plan, loop: SimulatedLoop, history: History) -> None:  # noqa: PLR0917
        super().__init__(plan, loop, history)
        self._scene = scene

    async def live(self) -> None:
        loop = self._loop
        assert isinstance(loop, ScheduledLoop)
        schedule = loop.schedule if isinstance(loop.schedule, DeviatingSchedule) else None
        await self._start()
        for partition in range(self._plan.partitions):
            await self._watchman.probe(partition)
        self._watchman.begin()
        if schedule is not None:
            schedule.watch(self._look)
        await self._within(5.0, self._scene.act(Stage(self._load, self._nemesis)), self._scene.name)
        if schedule is not None:
            schedule.watch(None)
        self._nemesis.heal()
        if not self._load.is_closing:
            await self._within(self._load.delivery_timeout_s + 1, self._flush(), "flush after healing")
            await self._probe()
            await self._watchman.calm_down()
        await self._end()

    def _look(self) -> None:
        Inside(self._producer).check(self._history.violated, self._watchman.states)


def play(scene: Scene, schedule: Schedule, *, is_recording: bool = False) -> Verdict:
    loop = ScheduledLoop(Random(0), schedule)

    def life(plan: Plan, loop: SimulatedLoop, history: History) -> Run:
        return SceneRun(scene, plan, loop, history)

    return live_on(loop, scene.plan(), life, is_recording=is_recording)
