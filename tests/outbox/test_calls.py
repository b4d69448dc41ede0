"""Calls of the database that go on where their caller is cancelled."""

import asyncio
import gc

import pytest

from aioproducer.outbox._calls import to_the_end, uninterrupted
from aioproducer.outbox._worker import ended_tasks


@pytest.fixture
def reported() -> list[dict[str, object]]:
    """What asyncio would write to the log."""
    return []


class Database:
    """Ends its one call with an error when told to."""

    def __init__(self) -> None:
        self.calls: set[asyncio.Future[object]] = set()
        self.limit_s = 60.0
        self.is_lost = asyncio.Event()

    @uninterrupted
    async def call(self) -> None:
        await self.is_lost.wait()
        raise ConnectionError("lost")


async def test_error_of_a_call_reaches_its_caller() -> None:
    database = Database()
    database.is_lost.set()
    with pytest.raises(ConnectionError, match="lost"):
        await database.call()


async def test_call_that_takes_too_long_is_given_up() -> None:
    database = Database()
    database.limit_s = 0.05
    with pytest.raises(TimeoutError, match=r"it has not answered for 0\.05 s"):
        await database.call()
    await asyncio.sleep(0.05)

    assert not database.calls


async def test_call_is_bounded_where_its_caller_was_cancelled() -> None:
    """It would keep its connection of the pool."""
    database = Database()
    database.limit_s = 0.05
    caller = asyncio.create_task(database.call())
    await asyncio.sleep(0)
    caller.cancel()
    (call,) = database.calls
    await asyncio.wait([call])

    assert call.cancelled()


async def test_error_after_the_caller_was_cancelled_is_quiet(reported: list[dict[str, object]]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    database = Database()
    caller = asyncio.create_task(database.call())
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    calls = [*database.calls]
    database.is_lost.set()
    await asyncio.wait(calls)
    del calls, caller  # its traceback has the call
    gc.collect()

    assert not reported


async def test_error_of_a_task_as_it_is_ended_is_quiet(reported: list[dict[str, object]]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise ConnectionError("lost") from error

    tasks = [asyncio.create_task(work())]
    await asyncio.sleep(0)
    await ended_tasks(tasks)
    tasks.clear()
    gc.collect()

    assert not reported


async def test_what_tidies_up_is_not_cut_short() -> None:
    """However often its caller is cancelled, which is told in the end."""
    steps: list[str] = []

    async def tidy_up() -> None:
        for step in ("stop", "close", "release"):
            await asyncio.sleep(0)
            steps.append(step)

    caller = asyncio.create_task(to_the_end(tidy_up()))
    for _ in range(2):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.wait([caller])

    assert (steps, caller.cancelled()) == (["stop", "close", "release"], True)
