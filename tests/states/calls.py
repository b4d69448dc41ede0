"""Every public call of a producer, each as one thing to do; what comes of it in one word."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

from aioproducer import Producer

TOPIC = "t"
PATIENCE_S = 1.0  # virtual; what takes longer, waits

CALLS: Mapping[str, Callable[[Producer], object]] = MappingProxyType(
    {
        "start()": lambda producer: producer.start(),
        "start(wait=False)": lambda producer: producer.start(wait=False),
        "send": lambda producer: producer.send(TOPIC, b"v"),
        "send_and_wait": lambda producer: producer.send_and_wait(TOPIC, b"v"),
        "enqueue": lambda producer: producer.enqueue(TOPIC, b"v"),
        "send_nowait": lambda producer: producer.send_nowait(TOPIC, b"v"),
        "send_many": lambda producer: producer.send_many(TOPIC, [b"v"]),
        "send_threadsafe": lambda producer: producer.send_threadsafe(TOPIC, b"v"),
        "topic(...).send": lambda producer: producer.topic(TOPIC, value=bytes).send(b"v"),
        "partitions_for": lambda producer: producer.partitions_for(TOPIC),
        "flush()": lambda producer: producer.flush(),
        "close()": lambda producer: producer.close(),
        "close(0)": lambda producer: producer.close(0),
        "statistics()": lambda producer: producer.statistics(),
        "repr()": repr,
        "config": lambda producer: producer.config,
    }
)
"""By the name that the page about states has for it. What `send` returns is not awaited here."""

ACCEPTED_WHEN_RETURNED = {"send", "send_nowait", "send_threadsafe", "topic(...).send"}


async def outcome(producer: Producer, name: str) -> str:
    """Make a call: "ok", "waits" (it is cancelled then), or the name of the error's class."""
    return await outcome_of(CALLS[name], producer, is_accepted_when_returned=name in ACCEPTED_WHEN_RETURNED)


async def outcome_of(
    call: Callable[[Producer], object], producer: Producer, *, is_accepted_when_returned: bool = False
) -> str:
    """As `outcome`, of any call."""
    try:
        given = call(producer)
        if is_accepted_when_returned or not hasattr(given, "__await__"):
            return "ok"
        async with asyncio.timeout(PATIENCE_S) as patience:
            await given  # type: ignore[misc]  # asked above
    except TimeoutError as error:
        return "waits" if patience.expired() else type(error).__name__
    except Exception as error:  # noqa: BLE001  # that is the question
        return type(error).__name__
    return "ok"
