"""What aiokafka logs is told once in a while, and only when it is needed."""

import logging
from collections.abc import Iterator

import pytest

from aioproducer.cli.tail._consumer import PASSING_S, REPEAT_AFTER_S, ConsumerLog

LIBRARY = logging.getLogger("aiokafka")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> Iterator[ConsumerLog]:
    taken, level = ConsumerLog(clock), LIBRARY.level
    LIBRARY.setLevel(logging.NOTSET)  # tests of other programs may have silenced it
    yield taken
    LIBRARY.setLevel(level)
    LIBRARY.removeHandler(taken)
    LIBRARY.propagate = True


def test_only_the_last_error_is_kept_while_starting(log: ConsumerLog, capsys: pytest.CaptureFixture[str]) -> None:
    LIBRARY.error("Unable connect to %s", "a:1")
    LIBRARY.error("Unable connect to %s", "b:2")
    LIBRARY.warning("never mind")

    assert log.last == "Unable connect to b:2"
    assert capsys.readouterr().err == ""


def test_passing_error_is_not_told(log: ConsumerLog, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    log.is_shown = True
    for _ in range(5):
        LIBRARY.error("no coordinator")
        clock.now += PASSING_S / 6

    assert capsys.readouterr().err == ""


def test_lasting_error_is_told_once_a_minute(
    log: ConsumerLog, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    log.is_shown = True
    for _ in range(round(REPEAT_AFTER_S + 30) * 4):
        LIBRARY.error("broker 1 is down")
        LIBRARY.error("broker 2 is down")
        clock.now += 0.25

    assert capsys.readouterr().err == 2 * "aioproducer: broker 1 is down\naioproducer: broker 2 is down\n"
