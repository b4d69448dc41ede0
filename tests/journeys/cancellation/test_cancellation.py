"""Every call, cancelled wherever it suspends, in each state of the cluster, in each way; and every background task.

Afterwards the accounts add up, every record has ended once and truly, the call can be made again, one more record is
delivered on the healed cluster, the producer closes, and nothing is left of it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from typing import TypeVar

import pytest

from aioproducer import Delivery, KafkaError, Producer, ProducerClosedError, RecordMetadata, UndeliveredError
from aioproducer.testing import FakeCluster
from tests.fakes.event_loops import LOOPS
from tests.fakes.producing import producing
from tests.fakes.virtual_loop import ClusterLoop
from tests.journeys.cancellation.scene import PRODUCE, QUIET_S, STATES, TARGETS, Scene, Target, close_quietly, healthy
from tests.journeys.cancellation.ways import (
    AT_ONCE,
    LATER_S,
    TIMED_WAYS,
    WAYS,
    Call,
    Moment,
    Strike,
    TimedWay,
    Way,
    cancel,
    loop_shutdown,
)

IN_LINE = {"memory full", "metadata slow"}  # states in which a record cannot be appended at once
LIMIT_S = 600.0  # virtual seconds within which everything ends; a forgotten waiter would take longer
TURNS = 6  # turns of the loop after a suspension that are tried one by one, since the sender works in them


class Case:
    def __init__(
        self, target: Target, state: str, loop_factory: Callable[[], asyncio.AbstractEventLoop] = ClusterLoop
    ) -> None:
        self._target = target
        self._state = state
        self._loop_factory = loop_factory
        self.runs = 0
        self.failures: list[str] = []

    def sweep(self) -> None:
        """Run it undisturbed to count its suspensions, then once for each of them, moment and way."""
        counted = Strike()
        self._run(WAYS["cancel"], counted, "undisturbed")
        for at in range(1, len(counted.points) + 1):
            for moment in Moment:
                if moment is Moment.LATER and not counted.lasts(at, LATER_S):
                    continue
                for name, way in WAYS.items():
                    self._run(way, Strike(at, moment), f"{name}, {moment.value} for the {at}. time")
            for turns in range(1, TURNS):
                title = f"cancel, {turns} turns after it suspended for the {at}. time"
                self._run(cancel, Strike(at, turns=turns), title)
        for seconds in sorted(set(self._times(counted))):
            for name, timed in TIMED_WAYS.items():
                self._run(after(seconds, timed), Strike(), f"{name} of {seconds} s")

    def sweep_suspensions(self) -> None:
        """Every suspension, as it comes and as it ends, in each way that needs no time."""
        counted = Strike()
        self._run(WAYS["cancel"], counted, "undisturbed")
        for at in range(1, len(counted.points) + 1):
            for moment in (Moment.SUSPENDED, Moment.AWAKENED):
                for name, way in WAYS.items():
                    self._run(way, Strike(at, moment), f"{name}, {moment.value} for the {at}. time")

    def sweep_first(self) -> None:
        for name, way in WAYS.items():
            self._run(way, Strike(1), f"{name}, as it suspends")

    def _times(self, counted: Strike) -> Iterator[float]:
        for point in counted.points:
            yield point - counted.points[0]
            yield point - counted.points[0] + 1.0

    def _run(self, way: Way, strike: Strike, title: str) -> None:
        self.runs += 1
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._story(way, strike))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # the rest is run, and all that failed is shown
            self.failures.append(f"{title}: {type(error).__name__}: {error}")

    async def _story(self, way: Way, strike: Strike) -> None:
        target = self._target
        is_stopped = way is loop_shutdown and strike.at > 0
        async with asyncio.timeout(LIMIT_S), Scene(STATES[self._state], is_started=not target.starts) as scene:
            first = len(scene.given)
            await way(lambda: target.run(scene), strike)
            assert strike.ending.has_ended or not strike.points, "the call has not ended with its caller"
            if strike.struck and (way in AT_ONCE or not (strike.is_turn or strike.moment is Moment.AWAKENED)):
                assert isinstance(strike.ending.error, asyncio.CancelledError), f"it ended with {strike.ending.error!r}"
            await scene.heal()
            is_over = target.ends or (target.starts and strike.ending.error is not None) or is_stopped
            if not is_over:
                await self._go_on(scene)
            elif target.starts and not is_stopped:
                await scene.check_nothing_stays()  # the caller has no producer to close
            await close_quietly(scene.producer)
            await self._check_end(scene)
            if is_over:
                await self._begin_anew(scene)
            self._check_meaning(scene, strike, scene.given[first] if len(scene.given) > first else b"")
        loop = asyncio.get_running_loop()
        if isinstance(loop, ClusterLoop):
            await asyncio.sleep(LATER_S)  # what waits to strike has seen that it is too late
            assert loop.timers == 0, "timers are left"

    async def _go_on(self, scene: Scene) -> None:
        await self._target.run(scene)
        await scene.producer.send("orders", **scene.record())
        with contextlib.suppress(KafkaError):
            await scene.producer.flush()
        await scene.check_at_rest()

    async def _begin_anew(self, scene: Scene) -> None:
        async with scene.new_producer() as another:
            await another.send("orders", **scene.record())

    def _check_meaning(self, scene: Scene, strike: Strike, value: bytes) -> None:
        """Check that cancelling had the promised effect on the call's own record."""
        was_in_line = self._state in IN_LINE and strike.at == 1 and strike.moment is not Moment.AWAKENED
        if self._target.withdraws and strike.struck and was_in_line and not strike.turns:
            assert value not in scene.log(scene.topic), "the record of a cancelled call was not withdrawn"
        if self._target.keeps:
            assert scene.told[value] == 1, "cancelling the wait recalled the record"

    async def _check_end(self, scene: Scene) -> None:
        await scene.check_nothing_left()
        scene.check_records()
        assert scene.unrest() == (0, 0, 0, 0)
        with contextlib.suppress(ProducerClosedError):
            await scene.producer.send("orders", b"after the end")
            raise AssertionError("a closed producer takes records")


def after(seconds: float, timed: TimedWay) -> Way:
    """Return a way that strikes after some virtual seconds."""

    async def way(call: Call, strike: Strike) -> None:
        await timed(call, strike, seconds)

    return way


def cases(calls: Iterable[str], states: Iterable[str]) -> list[tuple[str, str]]:
    return [
        (call, state) for call in calls for state in states if not (TARGETS[call].starts and state == "memory full")
    ]


def left_for_the_night(number: int, state: str) -> bool:
    """Whether a case is: two of three, so that each call and each state has cases in every run."""
    return (number + list(STATES).index(state)) % 3 != 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "call, state",
    [
        pytest.param(call, state, marks=pytest.mark.nightly if left_for_the_night(number, state) else ())
        for number, name in enumerate(TARGETS)
        for call, state in cases([name], STATES)
    ],
)
def test_cancelled_anywhere_in_any_way(call: str, state: str) -> None:
    case = Case(TARGETS[call], state)

    case.sweep()

    assert case.failures == [], f"{len(case.failures)} of {case.runs} runs"


# A part of the sweep on real sockets, on asyncio's own loop, on uvloop, and with eager tasks where Python has them


CALLS = ("start", "send", "send_and_wait", "enqueue", "send_many, then the delivery", "flush", "close", "async with")


@pytest.mark.slow
@pytest.mark.parametrize("call, state", cases(CALLS, ["healthy", "unanswered", "memory full"]))
@pytest.mark.parametrize("loop", LOOPS)
def test_cancelled_as_it_suspends(loop: str, call: str, state: str) -> None:
    case = Case(TARGETS[call], state, LOOPS[loop])

    if state == "healthy":
        case.sweep_suspensions()
    else:
        case.sweep_first()

    assert case.failures == [], f"{len(case.failures)} of {case.runs} runs"


# Calls that are cancelled when their record has left its line, and their task has not had its turn yet


async def test_enqueue_cancelled_after_acceptance_says_so() -> None:
    """The cancellation cannot be refused, and the record was accepted: sending it again would double it."""
    told: list[tuple[RecordMetadata | None, KafkaError | None]] = []
    async with producing(FakeCluster(1)) as (_, producer):
        calling = asyncio.create_task(
            producer.enqueue("t", b"v", on_delivery=lambda metadata, error: told.append((metadata, error)))
        )
        await asyncio.sleep(0)
        while producer.statistics().records_waiting:  # noqa: ASYNC110  # it must be seen in the very turn
            await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await calling
        await producer.flush()

        assert cancelled.value.__notes__ == ["aioproducer: the record for topic 't' had been accepted by then"]
        assert [error for _, error in told] == [None]


async def test_enqueue_cancelled_as_its_record_fails_has_no_note() -> None:
    async with producing(FakeCluster(1, auto_create_topics=False), max_block_ms=100) as (_, producer):
        calling = asyncio.create_task(producer.enqueue("nowhere", b"v"))
        await asyncio.sleep(0)
        while producer.statistics().records_waiting:  # noqa: ASYNC110  # it must be seen in the very turn
            await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await calling

        assert not getattr(cancelled.value, "__notes__", [])
        with pytest.raises(UndeliveredError):
            await producer.flush()


ResultT = TypeVar("ResultT")

VITAL = ("supervisor", "sender", "metadata", "producer-id")
OTHERS = ("connect", "start", "close")
MOST_POINTS = 60  # suspensions of one task that are tried; the sender's later ones are like those before


class TaskWatch:
    """Lets a strike cancel the first task of a kind that comes to the suspension."""

    def __init__(self, kind: str, strike: Strike) -> None:
        self._kind = f"aioproducer-{kind}"
        self._strike = strike
        asyncio.get_running_loop().set_task_factory(self._make)

    def _make(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[object, object, ResultT] | Generator[object, None, ResultT],
        **options: object,
    ) -> "asyncio.Task[ResultT]":
        assert isinstance(coroutine, Coroutine)
        task = asyncio.Task(self._run(coroutine), loop=loop, **options)  # type: ignore[arg-type]  # passed on
        task.add_done_callback(lambda _: coroutine.close())  # it was never begun if the task was cancelled before
        return task

    async def _run(self, coroutine: Coroutine[object, object, ResultT]) -> ResultT:
        task = asyncio.current_task()
        assert task is not None
        if not task.get_name().startswith(self._kind) or self._strike.points:
            return await coroutine
        self._strike.act = task.cancel
        results: list[ResultT] = []

        async def keep() -> None:
            results.append(await coroutine)

        await self._strike.on(keep)
        return results[0]


class Life:
    """A producer that has seen a little of everything: a new topic, lost connections, answers that do not come."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.deliveries: list[Delivery] = []
        self.error: BaseException | None = None

    async def live(self) -> None:
        """Start, send, lose the broker, send, ask, flush."""
        producer, cluster = self._scene.producer, self._scene.cluster
        await producer.start()
        await self._send()
        cluster.faults.stall(PRODUCE)
        await self._send()
        await asyncio.sleep(0.01)
        leader = cluster.leader_of("orders", 0)
        await cluster.kill(leader)
        await self._send()
        await asyncio.sleep(0.5)
        cluster.faults.clear()
        await cluster.restart(leader)
        await producer.partitions_for("another")
        await producer.flush()

    async def _send(self) -> None:
        for _ in range(3):
            self.deliveries.append(self._scene.producer.send("orders", **self._scene.record()))
        await asyncio.sleep(0)


async def live_and_check(kind: str, strike: Strike, *, is_vital: bool) -> None:
    """Run a life with a strike in it, and see that the producer either goes on or says that it cannot."""
    async with asyncio.timeout(QUIET_S), Scene(healthy, is_started=False) as scene:
        TaskWatch(kind, strike)
        life = Life(scene)
        try:
            await life.live()
        except (KafkaError, asyncio.CancelledError) as error:
            life.error = error
        await scene.heal()
        if strike.struck and is_vital:
            await check_failed(scene.producer, life, kind)
        elif strike.struck and "running" in repr(scene.producer):
            await scene.producer.send("orders", **scene.record())
        with contextlib.suppress(asyncio.CancelledError):
            await close_quietly(scene.producer)
        await close_quietly(scene.producer)
        assert all(delivery.done() for delivery in life.deliveries), "a delivery is left pending"
        await scene.check_nothing_left()
        scene.check_records()
        assert scene.unrest() == (0, 0, 0, 0)


async def check_failed(producer: Producer, life: Life, kind: str) -> None:
    await asyncio.sleep(0.001)  # the supervisor learns of it a turn or two later
    if "closed" in repr(producer):
        assert f"{kind} task was cancelled" in str(life.error)
        return
    assert "failed" in repr(producer)
    for call in (lambda: producer.send("orders", b"x"), producer.flush, producer.start):
        with pytest.raises(KafkaError, match=f"{kind} task was cancelled"):
            await call()
    assert all(delivery.done() for delivery in life.deliveries), "a delivery is left pending"


def run(kind: str, strike: Strike, *, is_vital: bool) -> None:
    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        runner.run(live_and_check(kind, strike, is_vital=is_vital))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*VITAL, *OTHERS])
def test_cancelled_at_each_of_its_suspensions(kind: str) -> None:
    """Without a vital task the producer fails with the cause; the other tasks are replaced.

    Shutdown code may cancel all tasks there are, and a framework those it does not know. A producer without its sender
    would accept records and send none.
    """
    counted = Strike()
    run(kind, counted, is_vital=kind in VITAL)
    assert counted.points
    failures = []
    for at in range(1, min(len(counted.points), MOST_POINTS) + 1):
        for moment in (Moment.SUSPENDED, Moment.AWAKENED):
            try:
                run(kind, Strike(at, moment), is_vital=kind in VITAL)
            except (Exception, asyncio.CancelledError, pytest.fail.Exception) as error:  # noqa: BLE001  # all are shown
                failures.append(f"{moment.value} for the {at}. time: {type(error).__name__}: {error}")

    assert failures == []
