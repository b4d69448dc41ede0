"""Scenarios of a few records and one fault each, small enough to try every order of what happens in them.

    start, a record to each partition ──► the scenario, every choice of the loop noted ──► heal, flush, probe, close

Before and after the scenario the loop is as asyncio's; during it the producer is checked before every choice. A choice
is where the loop could have gone on in more than one way; a deviation is a choice made in another way than asyncio's.
From a schedule with deviations follow those with one more, at a later choice: so each is tried once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aioproducer import BufferTimeoutError, Delivery, KafkaError, Producer, UndeliveredError
from aioproducer.testing import ApiKey, Where
from aioproducer.testing.fake_broker.faults import Faults
from tests.programs.simulation.campaign import run_on
from tests.programs.simulation.families import Family
from tests.programs.simulation.fault_injector import FaultInjector
from tests.programs.simulation.faults import TOPIC
from tests.programs.simulation.history import History, Operation, RecordId, Violation
from tests.programs.simulation.internals import ProducerInternals
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.run import Run, RunResult
from tests.programs.simulation.scheduled_loop import DeviatingSchedule, Schedule, ScheduledLoop
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
class Scenario:
    act: "Callable[[Driver], Coroutine[object, object, None]]"
    brokers: int = 1
    partitions: int = 1
    options: Mapping[str, object] = field(default_factory=dict)
    fault: str = "scenario"  # fault as which a failure in the scenario counts, if that allows a record to fail
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
            profile="4.4.0",
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
            faults=(),
        )


class Driver:
    """Cluster, producer and callers of a scenario."""

    def __init__(self, load: Workload, injector: FaultInjector) -> None:
        self.injector = injector
        self._load = load
        self._sent = 0

    @property
    def producer(self) -> Producer:
        return self._load.producer

    @property
    def faults(self) -> Faults:
        return self.injector.model.faults

    def send(self, partition: int = 0, *, size: int = 20) -> Delivery | None:
        operation = self._operation("send", partition, size)
        try:
            operation.delivery = self.producer.send(operation.topic, operation.value, partition=partition)
        except KafkaError as error:
            operation.fail(error, self._load.now())
            return None
        self._load.deliveries.append(operation)
        return operation.delivery

    async def enqueue(self, partition: int = 0, *, size: int = 20) -> None:
        operation = self._operation("enqueue", partition, size)
        try:
            operation.delivery = await self.producer.enqueue(operation.topic, operation.value, partition=partition)
        except KafkaError as error:
            operation.fail(error, self._load.now())
            return
        except asyncio.CancelledError:
            operation.give_up(self._load.now())
            raise
        self._load.deliveries.append(operation)
        await asyncio.wait([operation.delivery])

    async def enqueue_served(self, partition: int = 0, *, size: int = 20) -> None:
        """Enqueue a record where there will be room for it: if it gets none, a waiter was forgotten."""
        await self.enqueue(partition, size=size)
        error = self._load.history.operations[-1].error
        if BufferTimeoutError.__name__ in error:
            self._load.history.violated("MEMORY", f"a waiter for memory was not served: {error}")

    async def flush(self, timeout_s: float | None = None) -> None:
        """Flush: what was accepted before has ended then, unless the time is over before."""
        before = [operation for operation in self._load.deliveries if operation.delivery is not None]
        try:
            await self.producer.flush(timeout_s)
        except UndeliveredError:
            pass
        except TimeoutError:
            return
        except KafkaError as error:
            self._load.history.note("caller", "flush: %r", error)
            return
        late = [
            str(operation.record)
            for operation in before
            if operation.delivery is not None and not operation.delivery.done()
        ]
        if late:
            self._load.history.violated("FLUSH", f"flush returned before {', '.join(late)} had ended")

    async def close(self, timeout_s: float) -> None:
        self._load.is_closing = True
        try:
            await self.producer.close(timeout_s)
        except UndeliveredError as error:
            self._load.history.note("caller", "close: %s", error)
        open_ = [
            str(operation.record)
            for operation in self._load.deliveries
            if operation.delivery and not operation.delivery.done()
        ]
        if open_:
            self._load.history.violated("ENDS_ONCE", f"{', '.join(open_)} open after close")

    async def together(self, *calls: Awaitable[Any]) -> None:
        for end in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(end, Exception):
                self._load.history.violated("EXCEPTION", f"a call raised {end!r}")
        for operation in self._load.deliveries:  # `asyncio.wait` would begin with any
            if operation.delivery is not None:
                await asyncio.wait([operation.delivery])

    def _operation(self, verb: str, partition: int, size: int) -> Operation:
        record = RecordId(0, 0, self._sent)
        self._sent += 1
        value = b"%d.%d.%d|" % record + b"." * size
        history = self._load.history
        order = len(history.operations)
        return history.begin(Operation(record, order, self._load.topic, value, None, verb, self._load.now(), partition))


class ScenarioRun(Run):
    """One way in which a scenario goes."""

    def __init__(self, scenario: Scenario, plan: Plan, loop: SimulatedLoop, history: History) -> None:  # noqa: PLR0917
        super().__init__(plan, loop, history)
        self._scenario = scenario

    async def execute(self) -> None:
        loop = self._loop
        assert isinstance(loop, ScheduledLoop)
        schedule = loop.schedule if isinstance(loop.schedule, DeviatingSchedule) else None
        await self._start()
        for partition in range(self._plan.partitions):
            await self._checker.probe(partition)
        self._checker.begin()
        if schedule is not None:
            schedule.watch(self._look)
        await self._within(5.0, self._scenario.act(Driver(self._load, self._injector)), self._scenario.name)
        if schedule is not None:
            schedule.watch(None)
        self._injector.heal()
        if not self._load.is_closing:
            await self._within(self._load.delivery_timeout_s + 1, self._flush(), "flush after healing")
            await self._probe()
            await self._checker.wait_until_idle()
        await self._end()

    def _look(self) -> None:
        ProducerInternals(self._producer).check(self._history.violated, self._checker.states)


def play(scenario: Scenario, schedule: Schedule, *, is_recording: bool = False) -> RunResult:
    loop = ScheduledLoop(Random(0), schedule)

    def make_run(plan: Plan, loop: SimulatedLoop, history: History) -> Run:
        return ScenarioRun(scenario, plan, loop, history)

    return run_on(loop, scenario.plan(), make_run, is_recording=is_recording)


Deviation = tuple[int, int]  # number of the choice, and of the way taken, from 1 on

MOST_DEVIATIONS = 2


@dataclass(frozen=True, slots=True)
class Broken:
    """One schedule that broke an invariant."""

    scenario: str
    deviations: tuple[Deviation, ...]
    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        return f"{self.violations[0]}\n  {self.command}"

    @property
    def command(self) -> str:
        text = ",".join(f"{choice}:{way}" for choice, way in self.deviations)
        return f"python -m tests.programs.simulation --scenario {self.scenario} --deviations {text or 'none'}"


@dataclass(slots=True)
class Found:
    schedules: int = 0
    choices: int = 0
    digests: set[int] = field(default_factory=set)  # different ends that the schedules came to
    broken: list[Broken] = field(default_factory=list)
    is_exhausted: bool = True


def search(scenario: Scenario, *, most_deviations: int = MOST_DEVIATIONS, most_schedules: int | None = None) -> Found:
    """Try all schedules of a scenario, or `most_schedules` of them, drawn evenly, the same ones each time."""
    found = Found()
    draw = random.Random(0)
    left: list[tuple[Deviation, ...]] = [()]
    while left:
        if found.schedules == most_schedules:
            found.is_exhausted = False
            break
        deviations = left.pop(-1 if most_schedules is None else draw.randrange(len(left)))
        schedule = schedule_of(deviations)
        result = play(scenario, schedule)
        found.schedules += 1
        found.digests.add(result.digest)
        if result.violations:
            found.broken.append(Broken(scenario.name, deviations, result.violations))
        if not deviations:
            found.choices = len(schedule.ways)
        if len(deviations) < most_deviations:
            left += [(*deviations, more) for more in _more(schedule.ways, deviations)]
    return found


def schedule_of(deviations: Sequence[Deviation]) -> DeviatingSchedule:
    return DeviatingSchedule(dict(deviations), lag_s=LAG_S)


def _more(ways: Sequence[int], deviations: Sequence[Deviation]) -> Iterator[Deviation]:
    """Every deviation at a choice after the last."""
    first = deviations[-1][0] + 1 if deviations else 0
    for choice in range(first, len(ways)):
        for way in range(1, ways[choice]):
            yield choice, way


_PRODUCE = Where(api=ApiKey.PRODUCE)


async def _sends(driver: Driver, count: int, partition: int = 0) -> None:
    for _ in range(count):
        driver.send(partition)
        await asyncio.sleep(0)


async def connection_lost_after_append(driver: Driver) -> None:
    """The connection is lost between the append and its answer, with a second request on its way."""
    driver.faults.drop_connection(_PRODUCE, after_append=True, times=1)
    await driver.together(_sends(driver, 2), _sends(driver, 1))


async def connection_lost_before_append(driver: Driver) -> None:
    """The connection is lost with requests of two partitions on their way."""
    driver.faults.drop_connection(_PRODUCE, times=1)
    await driver.together(_sends(driver, 2, 0), _sends(driver, 2, 1))


async def closed_during_sends(driver: Driver) -> None:
    """One task closes while others send."""
    await driver.together(_sends(driver, 2), driver.close(0.2), _sends(driver, 2))


async def closed_at_once_during_a_request(driver: Driver) -> None:
    """One task closes without waiting while a request is on its way."""
    driver.send()
    await asyncio.sleep(0.0002)
    await driver.together(driver.close(0.0), _sends(driver, 1), driver.close(0.1))


async def cancelled_while_waiting_for_memory(driver: Driver) -> None:
    """The first of two waiters for memory gives up when there is room: the other is served."""
    driver.faults.delay(0.001, _PRODUCE, times=1)
    callers = [asyncio.ensure_future(driver.enqueue_served(partition, size=400)) for partition in (0, 1, 0, 1)]
    asyncio.get_running_loop().call_later(0.003, callers[2].cancel)
    await driver.together(*callers, driver.flush())


async def memory_for_two(driver: Driver) -> None:
    """One answer frees the memory for which two partitions wait."""
    calls = [driver.enqueue_served(partition, size=400) for partition in (0, 1, 1, 0)]
    await driver.together(*calls, driver.flush())


async def leader_moves_with_one_in_flight(driver: Driver) -> None:
    """The leader moves while a request is on its way to the old one."""
    partition = driver.injector.model.partitions()[0]
    other = next(node for node in partition.isr if node != partition.leader)
    driver.injector.later(0.0004, lambda: partition.move_leader(other, driver.injector.now))
    await driver.together(_sends(driver, 2), _sends(driver, 1))


async def leader_is_away(driver: Driver) -> None:
    """There is no leader for a while, and two callers go on sending."""
    partition = driver.injector.model.partitions()[0]
    leader = partition.leader
    partition.lose_leader(driver.injector.now)
    driver.injector.later(0.002, lambda: partition.move_leader(leader, driver.injector.now))
    await driver.together(_sends(driver, 2), _sends(driver, 1))


async def flush_beside_sends(driver: Driver) -> None:
    """Two flush while two send, and the first request is refused."""
    driver.faults.error(6, _PRODUCE, times=1)
    await driver.together(_sends(driver, 2), driver.flush(), _sends(driver, 1), driver.flush())


async def flush_gives_up_as_the_answer_comes(driver: Driver) -> None:
    """The time of a flush is over when the answer comes for which it waits; another has patience."""
    driver.send()
    await driver.together(driver.flush(0.003), driver.flush())


async def split_while_another_waits(driver: Driver) -> None:
    """A batch is too large and is split while the next one waits."""
    driver.faults.error(10, _PRODUCE, times=1)
    await driver.together(_sends(driver, 2), _sends(driver, 2), driver.flush())


async def refused_with_another_behind(driver: Driver) -> None:
    """The first of two requests on their way is refused, so the second is out of order."""
    driver.faults.error(7, _PRODUCE, times=1)
    await driver.together(_sends(driver, 2), _sends(driver, 2))


async def broker_forgets_its_producers(driver: Driver) -> None:
    """A broker forgets what it knew of the producer, between two requests."""
    partition = driver.injector.model.partitions()[0]
    driver.injector.later(0.0007, lambda: driver.injector.keeper.forget_producers(partition))
    await driver.together(_sends(driver, 2), _sends(driver, 1))


async def delivery_cancelled_on_the_wire(driver: Driver) -> None:
    """A caller cancels the delivery of a record that is being sent, beside others."""
    driver.faults.drop_connection(_PRODUCE, after_append=True, times=1)
    first, second = driver.send(), driver.send()
    await asyncio.sleep(0.0004)
    assert first is not None
    assert second is not None
    first.cancel()
    await driver.together(_sends(driver, 1), driver.flush())


async def broker_dies_with_one_in_flight(driver: Driver) -> None:
    """A broker dies with a request on its way, and comes back."""
    model, injector = driver.injector.model, driver.injector
    injector.later(0.0006, lambda: model.kill(1, injector.now))
    injector.later(0.0031, lambda: model.restart(1, injector.now))
    await driver.together(_sends(driver, 2), _sends(driver, 1, 1))


async def deadline_passes_on_the_wire(driver: Driver) -> None:
    """The answer comes when the record's time is over, beside a younger record."""
    driver.faults.delay(0.006, _PRODUCE, after_append=True, times=1)
    driver.send()
    await asyncio.sleep(0.0075)
    await driver.together(_sends(driver, 2))


async def two_connections_lost_at_once(driver: Driver) -> None:
    """Two partitions of two brokers, the connections to both lost at the same time."""
    driver.faults.drop_connection(_PRODUCE, after_append=True, times=1)
    driver.faults.drop_connection(_PRODUCE, times=1)
    await driver.together(_sends(driver, 2, 0), _sends(driver, 2, 1), driver.producer.partitions_for(TOPIC))


_TIGHT = {"buffer_memory": 1_024, "batch_size": 450}

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(act=connection_lost_after_append),
        Scenario(act=connection_lost_before_append, partitions=2),
        Scenario(act=closed_during_sends, closes=True),
        Scenario(act=closed_at_once_during_a_request, closes=True),
        Scenario(act=cancelled_while_waiting_for_memory, brokers=2, partitions=2, options=_TIGHT),
        Scenario(act=memory_for_two, partitions=2, brokers=2, options=_TIGHT),
        Scenario(act=leader_moves_with_one_in_flight, brokers=2),
        Scenario(act=leader_is_away),
        Scenario(act=flush_beside_sends),
        Scenario(act=flush_gives_up_as_the_answer_comes),
        Scenario(act=split_while_another_waits, fault="split", options={"linger_ms": 1, "batch_size": 170}),
        Scenario(act=refused_with_another_behind),
        Scenario(act=broker_forgets_its_producers),
        Scenario(act=delivery_cancelled_on_the_wire),
        Scenario(act=broker_dies_with_one_in_flight, brokers=2, partitions=2),
        Scenario(act=deadline_passes_on_the_wire, options={"delivery_timeout_ms": 10, "request_timeout_ms": 10}),
        Scenario(act=two_connections_lost_at_once, brokers=2, partitions=2),
    )
}
