"""An alarm finer than those of event loops, on every loop; no test says how fine, the machine may be busy."""

import asyncio
import errno
from collections.abc import Callable
from time import monotonic

import psutil
import pytest
import uvloop

from aioproducer._timing import fine_timer as fine_time
from aioproducer._timing.fine_timer import FINE_GRAIN_S, HighResolutionTimer
from aioproducer._timing.timers import TICK_S
from tests.fakes.virtual_loop import VirtualLoop

LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop, VirtualLoop], ids=["asyncio", "uvloop", "virtual"]
)
NewLoop = Callable[[], asyncio.AbstractEventLoop]
SOON_S = 0.0004


def descriptors() -> int:
    return psutil.Process().num_fds()


async def rung(time: HighResolutionTimer, after_s: float) -> float:
    has_rung = asyncio.Event()
    began = time.now()
    time.ring_at(began + after_s, began, has_rung.set)
    assert time.rings_at == began + after_s
    async with asyncio.timeout(60):
        await has_rung.wait()
    assert time.rings_at is None
    return time.now() - began


@LOOPS
def test_alarm_rings_once_and_not_before_its_time(new_loop: NewLoop) -> None:
    async def main() -> list[float]:
        time = HighResolutionTimer(asyncio.get_running_loop())
        try:
            return [await rung(time, SOON_S) for _ in range(20)]
        finally:
            time.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert min(runner.run(main())) >= SOON_S


@LOOPS
def test_alarm_is_set_for_one_thing_at_a_time(new_loop: NewLoop) -> None:
    """An earlier alarm is forgotten, and so is a stopped one, also if its time has come in this turn."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        time, heard = HighResolutionTimer(loop), list[str]()
        now = time.now()
        time.ring_at(now + SOON_S, now, lambda: heard.append("first"))
        time.ring_at(now + 2 * SOON_S, now, lambda: heard.append("second"))
        until = monotonic() + 4 * SOON_S
        while isinstance(loop, VirtualLoop) is False and monotonic() < until:
            pass
        time.ring_at(time.now() + SOON_S, time.now(), lambda: heard.append("third"))
        await asyncio.sleep(0.05)
        now = time.now()
        time.ring_at(now, now, lambda: heard.append("fourth"))
        time.stop()
        time.stop()
        await asyncio.sleep(0.05)
        time.close()
        return heard

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main()) == ["third"]


@LOOPS
def test_nothing_is_left_behind(new_loop: NewLoop) -> None:
    """A producer that never waits has no kernel timer; one that did closes it."""

    async def main() -> None:
        before = descriptors()
        time = HighResolutionTimer(asyncio.get_running_loop())
        time.stop()
        assert descriptors() == before
        await rung(time, SOON_S)
        now = time.now()
        time.ring_at(now + 60, now, lambda: pytest.fail("it was closed"))
        time.close()
        time.close()
        assert descriptors() == before

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize(
    "new_loop, is_fine",
    [(asyncio.new_event_loop, True), (uvloop.new_event_loop, True), (VirtualLoop, False)],
    ids=["asyncio", "uvloop", "virtual"],
)
def test_grain_is_that_of_the_kernel_where_time_is_real(new_loop: NewLoop, is_fine: bool) -> None:  # noqa: FBT001
    loop = new_loop()
    time = HighResolutionTimer(loop)

    assert time.grain_s == (FINE_GRAIN_S if is_fine else TICK_S)
    assert (time.now is monotonic) == is_fine
    assert repr(time) == f"<FineTime grain_s={time.grain_s} rings_at=None>"
    loop.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_timers_of_the_loop_do_where_no_descriptor_is_left(new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(fine_time, "open_timer", refuse)

    async def main() -> float:
        time = HighResolutionTimer(asyncio.get_running_loop())
        await rung(time, SOON_S)
        assert time.grain_s == TICK_S
        now = time.now()
        time.ring_at(now + SOON_S, now, lambda: pytest.fail("it was stopped"))
        time.stop()
        passed_s = await rung(time, 0.02)
        time.close()
        return passed_s

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main()) > 0.01
