"""A task waits for a wake-up or an alarm, and neither is lost."""

import asyncio

import pytest

from aioproducer._timing.timers import TICK_S, TimerHeap
from aioproducer._timing.wakeup import LONGEST_SLEEP_S, Wakeup
from tests.fakes.virtual_loop import in_virtual_time, virtual_loop


class Task:
    """A task that fires its timers each time it wakes."""

    def __init__(self) -> None:
        self.loop = virtual_loop()
        self.wakeup = Wakeup(self.loop)
        self.timers = TimerHeap(self.wakeup.set_alarm)
        self.turns = 0
        self.fired: list[str] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.turns += 1
            self.timers.fire(self.loop.time())
            self.wakeup.clear()
            await self.wakeup.wait(self.timers.next_at)

    def schedule(self, when: float, name: str) -> None:
        self.timers.schedule(when, lambda _: self.fired.append(name))

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        self.wakeup.stop()


@in_virtual_time
async def test_task_sleeps_until_it_is_woken() -> None:
    task = Task()
    await asyncio.sleep(10)
    turns = [task.turns]
    task.wakeup.set()
    task.wakeup.set()
    await asyncio.sleep(10)
    await task.end()

    assert [*turns, task.turns] == [1, 2]


@in_virtual_time
async def test_wakeup_before_the_wait_is_not_lost() -> None:
    loop = virtual_loop()
    wakeup, began = Wakeup(loop), loop.time()
    wakeup.set()

    await wakeup.wait(lambda: None)

    assert (wakeup.is_set, loop.time()) == (False, began)


@in_virtual_time
async def test_timer_set_while_the_task_sleeps_fires_in_time() -> None:
    task = Task()
    task.schedule(task.loop.time() + 5.0, "late")
    await asyncio.sleep(1.0)
    task.schedule(task.loop.time() + 1.0, "early")
    await asyncio.sleep(1.1)
    fired = list(task.fired)
    await asyncio.sleep(3.0)
    await task.end()

    assert (fired, task.fired) == (["early"], ["early", "late"])


@in_virtual_time
async def test_alarm_of_a_cancelled_timer_wakes_no_task() -> None:
    task = Task()
    await asyncio.sleep(0)
    timer = task.timers.schedule(task.loop.time() + 1.0, lambda _: None)
    timer.cancel()
    await asyncio.sleep(5.0)
    await task.end()

    assert task.turns == 1


@in_virtual_time
async def test_alarm_within_a_tick_is_not_put_off() -> None:
    """No alarm is set for less than a tick, but one set before may have less than that left."""
    task = Task()
    due = task.loop.time() + 10 * TICK_S
    task.schedule(due, "first")
    await asyncio.sleep(9.4 * TICK_S)
    task.schedule(due - 0.2 * TICK_S, "sooner")
    await asyncio.sleep(0.7 * TICK_S)
    await task.end()

    assert task.fired == ["sooner", "first"]


@pytest.mark.parametrize("years", [1.0, 1e6])
@in_virtual_time
async def test_timer_in_many_years_is_waited_for_in_steps(years: float) -> None:
    """Event loops refuse times that are too far away."""
    task = Task()
    await asyncio.sleep(0)
    task.schedule(task.loop.time() + years * 365 * 86_400, "never")
    await asyncio.sleep(2.5 * LONGEST_SLEEP_S)
    await task.end()

    assert (task.turns, task.fired) == (1, [])
