"""Every public call of a producer, its outcome in one word, and the outcomes that the page about states promises."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
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
        "purge()": lambda producer: producer.purge(),
        "close()": lambda producer: producer.close(),
        "close(0)": lambda producer: producer.close(0),
        "statistics()": lambda producer: producer.statistics(),
        "metrics()": lambda producer: producer.metrics(),
        "explain()": lambda producer: producer.explain(),
        "repr()": repr,
        "config": lambda producer: producer.config,
    }
)
"""Calls by their name on the page about states. The result of `send` is not awaited here."""

ACCEPTED_WHEN_RETURNED = {"send", "send_nowait", "send_threadsafe", "topic(...).send"}


async def outcome(producer: Producer, name: str) -> str:
    """Make a call: "ok", "waits" (it is cancelled then), or the name of the error's class."""
    return await outcome_of(CALLS[name], producer, is_accepted_when_returned=name in ACCEPTED_WHEN_RETURNED)


async def outcome_of(
    call: Callable[[Producer], object], producer: Producer, *, is_accepted_when_returned: bool = False
) -> str:
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


# The tables of the page about states, as data: what the tests hold the producer to

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"


WITH_AN_ID = "## With a transactional id"


def cells() -> dict[tuple[str, str], str]:
    """(where the producer is, call) -> "ok", "waits", or the name of an error."""
    return _cells_in(PAGE.read_text("utf-8").partition(WITH_AN_ID)[0])


def transactional_cells() -> dict[tuple[str, str], str]:
    """The same of a producer with a transactional id."""
    return _cells_in(PAGE.read_text("utf-8").partition(WITH_AN_ID)[2])


def _cells_in(text: str) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    places: list[str] = []
    lines = text.splitlines()
    for line, following in pairwise([*lines, ""]):
        if following.startswith("| ---"):
            places = _columns(line)[1:]
        elif line.startswith("| `"):
            call, *outcomes = _columns(line)
            found.update(zip(((place, call) for place in places), outcomes, strict=True))
    return found


def _columns(line: str) -> list[str]:
    return [column.strip().strip("`") for column in line.strip().strip("|").split("|")]
