"""What aiokafka logs is told once in a while, and only when it is needed."""

import logging
from collections.abc import Iterator

import pytest

from aioproducer.cli.tailing.consumer_log import ConsumerLog


@pytest.fixture
def log() -> Iterator[ConsumerLog]:
    """In place, and taken away again."""
    library = logging.getLogger("aiokafka")
    taken = ConsumerLog()
    yield taken
    library.removeHandler(taken)
    library.propagate = True


def test_only_the_last_error_is_kept_while_starting(log: ConsumerLog, capsys: pytest.CaptureFixture[str]) -> None:
    """The command tells it in its own line."""
    library = logging.getLogger("aiokafka.client")

    library.error("Unable connect to %s", "a:1")
    library.error("Unable connect to %s", "b:2")
    library.warning("never mind")

    assert log.last == "Unable connect to b:2"
    assert capsys.readouterr().err == ""


def test_each_error_is_told_once_a_minute(log: ConsumerLog, capsys: pytest.CaptureFixture[str]) -> None:
    """It is logged several times a second while a broker is down."""
    log.is_shown = True
    for _ in range(100):
        logging.getLogger("aiokafka").error("broker 1 is down")
        logging.getLogger("aiokafka").error("broker 2 is down")

    assert capsys.readouterr().err == "aioproducer: broker 1 is down\naioproducer: broker 2 is down\n"
