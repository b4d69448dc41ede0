"""The user's code may end the background loop while other threads call."""

import asyncio
import threading

import pytest

from aioproducer import ProducerClosedError
from aioproducer._threads.calls import Limit
from aioproducer.blocking._background_loop import BackgroundLoop

CALLERS = 8
ROUNDS = 10
PATIENCE_S = 5.0
LIMIT = Limit(PATIENCE_S, TimeoutError)


async def idle() -> None:
    await asyncio.Event().wait()


async def answer() -> int:
    return 1


async def end_the_loop() -> None:
    raise SystemExit


def call_until_refused(background: BackgroundLoop, refusals: list[ProducerClosedError]) -> None:
    try:
        while True:
            background.call(answer, LIMIT)
    except ProducerClosedError as refusal:
        refusals.append(refusal)


@pytest.mark.filterwarnings("ignore:coroutine '_awaited' was never awaited")  # the loop was gone before its first step
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # `threading` is silent of it
def test_call_during_the_end_of_the_loop_raises() -> None:
    """A call never waits for a loop that is gone, at any moment."""
    for _ in range(ROUNDS):
        background, refusals = BackgroundLoop(lambda function: function(), last=answer), list[ProducerClosedError]()
        background.start(idle)
        callers = [
            threading.Thread(target=call_until_refused, args=(background, refusals), daemon=True)
            for _ in range(CALLERS)
        ]
        for caller in callers:
            caller.start()

        background.submit(end_the_loop, LIMIT)
        for caller in callers:
            caller.join(PATIENCE_S)

        assert len(refusals) == CALLERS
        background.stop()
