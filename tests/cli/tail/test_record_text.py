"""A record is one line, for any bytes."""

import json
from dataclasses import dataclass

import pytest

from aioproducer.cli.tail.output import TailFormat, line_writer


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


def test_value_is_its_bytes() -> None:
    write = line_writer(TailFormat.VALUE)

    assert [write(Shown(value)) for value in (b"\xff\x00", None)] == [b"\xff\x00\n", b"\n"]
