"""Relays of this process are woken by the commit of a session, in any thread."""

import asyncio
import sys
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from aioproducer.outbox._wake import Waker, forget, mark, wake_all, watch

pytestmark = pytest.mark.timing


@pytest.fixture
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


async def test_commit_wakes_and_the_release_of_a_savepoint_does_not() -> None:
    waker = Waker("orders")
    watch(waker)
    with Session(create_engine("sqlite://")) as session:
        with session.begin():
            with session.begin_nested():
                mark(session, "orders")
            with session.begin_nested():
                session.execute(text("SELECT 1"))
            assert not await waker.wait(0.01)
        assert await waker.wait(10)
    forget(waker)


@pytest.mark.usefixtures("quick_switches")
async def test_relays_begin_and_end_while_a_thread_commits() -> None:
    """An error there would make the caller believe that its commit has failed."""
    is_over = False

    def commit() -> int:
        number = 0
        while not is_over:
            wake_all("orders")
            number += 1
        return number

    commits = asyncio.create_task(asyncio.to_thread(commit))
    kept = [Waker("orders") for _ in range(50)]
    for _ in range(100):
        for waker in kept:
            watch(waker)
        await asyncio.sleep(0)
        for waker in kept:
            forget(waker)
    is_over = True

    assert await commits


def test_waker_of_a_closed_loop_wakes_nothing() -> None:
    async def made() -> Waker:
        return Waker("orders")

    asyncio.run(made()).wake()
