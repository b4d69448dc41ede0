"""A part of the sweep on real sockets, on asyncio's own loop, on uvloop, and with eager tasks where Python has them."""

import asyncio
import sys
from collections.abc import Callable

import pytest
import uvloop

from tests.cancellation.calls import TARGETS
from tests.cancellation.case import Case, cases


def eager_loop() -> asyncio.AbstractEventLoop:
    """A loop whose tasks begin in the call that makes them."""
    loop = asyncio.SelectorEventLoop()
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]  # 3.12 on
    return loop


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
if sys.version_info >= (3, 12):
    LOOPS["eager"] = eager_loop

CALLS = ("start", "send", "send_and_wait", "enqueue", "send_many, then the delivery", "flush", "close", "async with")


@pytest.mark.slow
@pytest.mark.parametrize("call, state", cases(CALLS, ["healthy", "unanswered", "memory full"]))
@pytest.mark.parametrize("loop", LOOPS)
def test_cancelled_as_it_suspends(loop: str, call: str, state: str) -> None:
    """As in virtual time."""
    case = Case(TARGETS[call], state, LOOPS[loop])

    if state == "healthy":
        case.sweep_suspensions()
    else:
        case.sweep_first()

    assert case.failures == [], f"{len(case.failures)} of {case.runs} runs"
