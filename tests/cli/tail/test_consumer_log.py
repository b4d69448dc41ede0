"""What aiokafka logs is told once in a while, and only when it is needed."""

import logging
from collections.abc import Iterator

import pytest

from aioproducer.cli.tail._consumer import PASSING_S, REPEAT_AFTER_S, ConsumerLog

LIBRARY = logging.getLogger("aiokafka")


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        """The time it is."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """What the log takes the time from."""
    return Clock()


@pytest.fixture
def log(clock: Clock) -> Iterator[ConsumerLog]:
    """In place, and taken away again."""
    taken = ConsumerLog(clock)
    yield taken
    LIBRARY.removeHandler(taken)
    LIBRARY.propagate = True


def test_only_the_last_error_is_kept_while_starting(log: ConsumerLog, capsys: pytest.CaptureFixture[str]) -> None:
    """The command tells it in its own line."""
    LIBRARY.error("Unable connect to %s", "a:1")
    LIBRARY.error("Unable connect to %s", "b:2")
    LIBRARY.warning("never mind")

    assert log.last == "Unable connect to b:2"
    assert capsys.readouterr().err == ""


def test_passing_error_is_not_told(log: ConsumerLog, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """It is over before anyone could do anything."""
    log.is_shown = True
    for _ in range(5):
        LIBRARY.error("no coordinator")
        clock.now += PASSING_S / 6

    assert capsys.readouterr().err == ""


def test_lasting_error_is_told_once_a_minute(
    log: ConsumerLog, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is logged several times a second while a broker is down."""
    log.is_shown = True
    for _ in range(round(REPEAT_AFTER_S + 30) * 4):
        LIBRARY.error("broker 1 is down")
        LIBRARY.error("broker 2 is down")
        clock.now += 0.25

    assert capsys.readouterr().err == 2 * "aioproducer: broker 1 is down\naioproducer: broker 2 is down\n"
