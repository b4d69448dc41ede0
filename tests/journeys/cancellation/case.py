"""One call in one state of the cluster, cancelled; and all that must hold afterwards.

The accounts add up, every record has ended once and truly, the call can be made again, one more record is delivered
on the healed cluster, the producer closes, and nothing is left of it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator

from aioproducer import KafkaError, ProducerClosedError
from tests.fakes.virtual_cluster import ClusterLoop
from tests.journeys.cancellation.calls import TARGETS, Target
from tests.journeys.cancellation.scene import STATES, Scene, close_quietly
from tests.journeys.cancellation.suspensions import LATER_S, Moment, Strike
from tests.journeys.cancellation.ways import AT_ONCE, TIMED_WAYS, WAYS, Call, TimedWay, Way, cancel, loop_shutdown

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
