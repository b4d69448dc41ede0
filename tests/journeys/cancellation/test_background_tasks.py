"""Each task that the library runs, cancelled from outside at every point where it suspends.

Shutdown code may cancel all tasks there are, and a framework those it does not know. A producer without its
sender would accept records and send none; it must fail, and say why.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from typing import TypeVar

import pytest

from aioproducer import Delivery, KafkaError, Producer
from tests.fakes.virtual_cluster import ClusterLoop
from tests.journeys.cancellation.scene import PRODUCE, QUIET_S, Scene, close_quietly, healthy
from tests.journeys.cancellation.suspensions import Moment, Strike

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
    """Without a vital task the producer fails with the cause; the other tasks are replaced."""
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
