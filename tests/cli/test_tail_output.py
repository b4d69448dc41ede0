"""Output of `aioproducer tail`: a record is one line, for any bytes; errors of aiokafka are told once in a while."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from aioproducer.cli._tail_consumer import PASSING_S, REPEAT_AFTER_S, ConsumerLog
from aioproducer.cli._tail_output import TailFormat, line_writer

LIBRARY = logging.getLogger("aiokafka")


@dataclass
class Shown:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str = "orders"
    partition: int = 2
    offset: int = 17
    timestamp: int = 1_700_000_000_123
    timestamp_type: int = 0


@pytest.mark.parametrize(
    "content, shown",
    [
        (None, "null"),
        (b"", ""),
        ("grün ✓".encode(), "grün ✓"),
        (b"a\nb\tc\x1b[2J\x00", r"a\nb\tc\x1b[2J\x00"),
        ("a\u2028b\u200b".encode(), r"a\u2028b\u200b"),
        (b"\xff\x00\n", "0xff000a"),
    ],
    ids=repr,
)
def test_text_is_one_printable_line(content: bytes | None, shown: str) -> None:
    line = line_writer(TailFormat.TEXT)(Shown(content, key=content))

    assert line.decode() == f"2:17\t{shown}\t{shown}\n"


def test_json_has_every_field() -> None:
    record = Shown(
        b"\xff\x00", key="ü\n".encode(), headers=(("a", b"1"), ("a", None), ("b", b"\xfe")), timestamp_type=1
    )

    line = line_writer(TailFormat.JSON)(record)

    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 2,
        "offset": 17,
        "timestamp": 1_700_000_000_123,
        "timestamp_type": "append",
        "key": "ü\n",
        "value": {"base64": "/wA="},
        "headers": [["a", "1"], ["a", None], ["b", {"base64": "/g=="}]],
    }


def test_json_controls_no_terminal() -> None:
    """The object is the same: a program reads what was sent."""
    text = "\x1b\x7f\x85\x9b\u202e\u2028\U000e0001 grün ✓ 😀"
    record = Shown(text.encode(), key=text.encode(), headers=((text, text.encode()),))

    line = line_writer(TailFormat.JSON)(record)

    assert line.decode().removesuffix("\n").isprintable()
    assert r"\u001b\u007f\u0085\u009b\u202e\u2028\udb40\udc01 grün ✓ 😀" in line.decode()
    decoded = json.loads(line)
    assert [decoded["key"], decoded["value"], decoded["headers"]] == [text, text, [[text, text]]]


def test_value_is_its_bytes() -> None:
    write = line_writer(TailFormat.VALUE)

    assert [write(Shown(value)) for value in (b"\xff\x00", None)] == [b"\xff\x00\n", b"\n"]


# Errors of aiokafka


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
