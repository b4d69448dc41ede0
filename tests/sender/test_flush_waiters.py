"""Who waits for a flush is told at its end, and forgotten where it gives up."""

import asyncio

from aioproducer._sender.flush_waiters import FlushWaiters

NO_WAITERS = "<FlushWaiters 0 "


async def test_waits_for_earlier_generations_too() -> None:
    """Its own may end first."""
    waiters = FlushWaiters(asyncio.get_running_loop())
    earlier, closed = waiters.generations.enter(), waiters.generations.close()
    own = waiters.generations.enter()
    finished = waiters.when_finished(waiters.generations.close())

    waiters.generations.leave(own)
    assert closed < own
    assert not finished.done()
    waiters.generations.leave(earlier)
    assert finished.done()


async def test_nothing_unfinished_is_waited_for_no_time() -> None:
    waiters = FlushWaiters(asyncio.get_running_loop())
    assert waiters.when_finished(waiters.generations.close()).done()
    assert repr(waiters).startswith(NO_WAITERS)


async def test_caller_that_gives_up_is_forgotten_at_once() -> None:
    """Records may have hours to end in."""
    waiters = FlushWaiters(asyncio.get_running_loop())
    waiters.generations.enter()
    waiting = asyncio.create_task(waiters.wait_for(waiters.generations.close()))
    await asyncio.sleep(0)
    assert not repr(waiters).startswith(NO_WAITERS)

    waiting.cancel()
    await asyncio.wait([waiting])
    assert repr(waiters).startswith(NO_WAITERS)


async def test_cancelled_future_is_forgotten_at_the_end() -> None:
    """As a commit's is, when an abort takes its place."""
    waiters = FlushWaiters(asyncio.get_running_loop())
    generation = waiters.generations.enter()
    given_up = waiters.when_finished(waiters.generations.close())
    given_up.cancel()

    waiters.generations.leave(generation)
    assert repr(waiters).startswith(NO_WAITERS)
