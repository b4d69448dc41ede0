"""Inputs of `aioproducer produce`: read without blocking the loop, cut into lines, and made into keys and values."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.cli.produce.input import (
    CHUNK_BYTES,
    READ_AHEAD,
    BadLineError,
    Chunk,
    Content,
    Format,
    InputReadError,
    LineSplitter,
    find_inputs,
    line_format,
    read_chunks,
)

OTHER_USER = 65_534


def test_each_unreadable_input_is_named(tmp_path: Path) -> None:
    (tmp_path / "there").touch()

    inputs, problems = find_inputs([f"{tmp_path}/there", f"{tmp_path}/gone", str(tmp_path), "-", "-"])

    assert [source.name for source in inputs] == [f"{tmp_path}/there", "standard input", "standard input"]
    assert problems == [
        f"{tmp_path}/gone: no such file or directory",
        f"{tmp_path}: is a directory",
        "- (standard input) is given twice",
    ]


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to read everything, if this is root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(OTHER_USER)
    try:
        yield
    finally:
        os.seteuid(user)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0)

    with as_nobody():
        assert find_inputs([f"{tmp_path}/secret"]) == ([], [f"{tmp_path}/secret: permission denied"])


def test_size_is_known_of_files_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    os.mkfifo(tmp_path / "pipe")

    inputs, _ = find_inputs([f"{tmp_path}/file", f"{tmp_path}/pipe"])

    assert [source.size_bytes for source in inputs] == [5, None]


async def test_inputs_come_one_after_another(tmp_path: Path) -> None:
    content = b"x" * (CHUNK_BYTES + 1)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").touch()
    (tmp_path / "c").write_bytes(b"c")
    inputs, _ = find_inputs([f"{tmp_path}/{name}" for name in "abc"])

    chunks = [chunk async for chunk in read_chunks(inputs)]

    assert chunks == [
        Chunk(0, content[:CHUNK_BYTES]),
        Chunk(0, b"x"),
        Chunk(0, b""),
        Chunk(1, b""),
        Chunk(2, b"c"),
        Chunk(2, b""),
    ]


async def test_file_that_goes_meanwhile_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    inputs, _ = find_inputs([f"{tmp_path}/a"])
    (tmp_path / "a").unlink()

    with pytest.raises(InputReadError, match=r"/a: no such file or directory$"):
        await anext(aiter(read_chunks(inputs)))


async def test_pipe_that_nobody_writes_to_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    inputs, _ = find_inputs([f"{tmp_path}/pipe"])

    async with aclosing(read_chunks(inputs)) as chunks:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(chunks)
    with (tmp_path / "pipe").open("wb") as pipe:  # lets the thread end
        pipe.write(b"late")


async def test_more_than_is_read_ahead_arrives(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * CHUNK_BYTES * (READ_AHEAD + 8))
    inputs, _ = find_inputs([f"{tmp_path}/large"])

    async with aclosing(read_chunks(inputs)) as chunks:
        await anext(chunks)
        taken = 1 + sum([1 async for chunk in chunks if chunk.data])

    assert taken == READ_AHEAD + 8


# Chunks become lines, wherever the cuts are


def split(chunks: list[bytes], max_line_bytes: int = 1_000) -> list[bytes | None]:
    splitter = LineSplitter(max_line_bytes)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [*lines, *splitter.finish()]


@given(st.lists(st.text("ab\r\n", max_size=8)))
def test_cuts_do_not_matter(pieces: list[str]) -> None:
    chunks = [piece.encode() for piece in pieces]
    whole = b"".join(chunks)
    expected = whole.removesuffix(b"\n").split(b"\n") if whole else []

    assert split(chunks) == expected


def test_last_line_needs_no_end() -> None:
    assert split([b"a\nb"]) == [b"a", b"b"]
    assert split([b"a\nb\n"]) == [b"a", b"b"]
    assert split([b"\n\n"]) == [b"", b""]


@given(st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=12))
def test_long_line_is_one_line_and_not_kept(pieces: list[str]) -> None:
    chunks = [piece.encode() for piece in pieces]
    whole = b"".join(chunks)
    lines = whole.removesuffix(b"\n").split(b"\n") if whole else []

    assert split(chunks, 4) == [line if len(line) <= 4 else None for line in lines]


def contents(kind: Format, *lines: bytes, key: str | None = None, limit: int = 1_000) -> list[Content]:
    reader = line_format(kind, key=key, max_record_bytes=limit)
    read = [content for line in lines if (content := reader.read(line)) is not None]
    reader.finish()
    return read


def keys(kind: Format, *lines: bytes, key: str) -> list[bytes | None]:
    return [content.key for content in contents(kind, *lines, key=key)]


def complaint(kind: Format, *lines: bytes, key: str | None = None, limit: int = 1_000) -> str:
    """What is said of the first bad line."""
    with pytest.raises(BadLineError) as caught:
        contents(kind, *lines, key=key, limit=limit)
    return str(caught.value)


# Plain lines


def test_plain_line_is_taken_byte_for_byte() -> None:
    lines = contents(Format.LINES, b"gr\xfcn\r", b"", b" \r\r", b"\xef\xbb\xbfa")

    assert [line.value for line in lines] == [b"gr\xfcn", b"", b" \r", b"\xef\xbb\xbfa"]
    assert {line.key for line in lines} == {None}


# JSON lines


def test_json_value_is_the_line_as_it_stands() -> None:
    """Spaces, escapes and the form of numbers are kept; blank lines and the byte order mark are not."""
    read = contents(Format.JSONL, b'\xef\xbb\xbf{"a": 1.10, "b":"\\u00fc"}\r', b"  ", b"", b"\r", b" [1e400]")

    assert [content.value for content in read] == [b'{"a": 1.10, "b":"\\u00fc"}', b" [1e400]"]


@pytest.mark.parametrize(
    "text, key",
    [
        ('"N14228"', b"N14228"),
        ('"ü"', "ü".encode()),
        ('""', b""),
        ("17", b"17"),
        ("1.50", b"1.50"),
        ("9" * 5_000, b"9" * 5_000),
        ("true", b"true"),
        ("null", None),
    ],
    ids=lambda value: str(value)[:9],
)
def test_json_key_is_the_field_as_text(text: str, key: bytes | None) -> None:
    assert keys(Format.JSONL, f'{{"id": {text}}}'.encode(), key="id") == [key]


def test_json_key_may_be_a_path() -> None:
    lines = (b'{"c": {"id": 1}}', b'{"c.id": 2, "c": {"id": 1}}')

    assert keys(Format.JSONL, *lines, key="c.id") == [b"1", b"2"]


@pytest.mark.parametrize(
    "line, said",
    [
        (b'{"id": 1', "not JSON: Expecting ',' delimiter at character 9"),
        (b'{"id": NaN}', "not JSON: NaN is no JSON number"),
        (b'{"id": 1} x', "not JSON: Extra data at character 11"),
        (b"[" * 100_000, "not JSON that can be read: nested too deeply"),
        (b'{"a": 1}', "no key field: 'id'"),
        (b"[1]", "not a JSON object, so it has no key field"),
        (b'{"id": [1]}', "the key field is no text, number or bool: 'id' is an array"),
        (b'{"id": {}}', "the key field is no text, number or bool: 'id' is an object"),
        (b'{"id": "\\ud800"}', "the key field is no valid Unicode: 'id'"),
        (b'{"id": "\xff"}', "not UTF-8: byte 0xff at position 9"),
        (b"\xff\xfe{\x00", "not UTF-8: it looks like UTF-16; to convert it: iconv -f utf-16 -t utf-8"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_bad_json_line_is_said_so(line: bytes, said: str) -> None:
    assert complaint(Format.JSONL, line, key="id") == said


def test_json_line_after_a_bad_one_is_read() -> None:
    reader = line_format(Format.JSONL, key=None, max_record_bytes=100)

    with pytest.raises(BadLineError):
        reader.read(b"{")
    assert reader.read(b"{}") == Content(b"{}", None)


# CSV


def test_csv_row_becomes_an_object_of_strings() -> None:
    header = b'\xef\xbb\xbfid,"50%s ""x"""\r'

    (content,) = contents(Format.CSV, header, b"", b'007,"M\xc3\xbcller, ""Jim""\t%s"\r', key="id")

    assert json.loads(content.value) == {"id": "007", '50%s "x"': 'Müller, "Jim"\t%s'}
    assert content.key == b"007"


def test_csv_row_may_hold_line_ends() -> None:
    lines = [b"id,text", b'1,"a\r', b"", b'b ""c"", d', b'e"', b"2,f"]

    first, second = contents(Format.CSV, *lines, key="id")

    assert json.loads(first.value)["text"] == 'a\r\n\nb "c", d\ne'
    assert second.key == b"2"


def test_empty_csv_cell_is_no_key() -> None:
    """Records without a key are spread, those with an empty one would all go one way."""
    assert keys(Format.CSV, b"id,a", b",1", key="id") == [None]


@pytest.mark.parametrize(
    "line, said",
    [
        (b"1", "wrong number of fields: 1, expected 2"),
        (b"1,2,3", "wrong number of fields: 3, expected 2"),
        (b'1,"a"b', "not CSV: ',' expected after '\"'"),
        (b"1,\xe9", "not UTF-8: byte 0xe9 at position 3"),
        (b'1,"\xe9"b', "not UTF-8: byte 0xe9 at position 4"),
        (b'1,"a', "a quoted field begins here and does not end"),
    ],
    ids=repr,
)
def test_bad_csv_row_is_said_so(line: bytes, said: str) -> None:
    assert complaint(Format.CSV, b"id,name", line) == said


@pytest.mark.parametrize(
    "lines, said",
    [
        ((b'1,"a', b"\xe9", b"66,never a row", b'b"'), "not UTF-8: byte 0xe9 at position 1 of its line 2"),
        ((b'1,"\xe9', b"66,never a row", b'b"'), "not UTF-8: byte 0xe9 at position 4"),
        ((b'1,"\xe9', b'b"b'), "not UTF-8: byte 0xe9 at position 4"),
    ],
    ids=["second line", "first line", "no CSV either"],
)
def test_bad_byte_within_quotes_spoils_the_quoted_rows(lines: tuple[bytes, ...], said: str) -> None:
    """What follows in the cell is no row, although it may look like one."""
    reader = line_format(Format.CSV, key=None, max_record_bytes=1000)
    reader.read(b"id,text")

    assert [reader.read(line) for line in lines[:-1]] == [None] * (len(lines) - 1)
    with pytest.raises(BadLineError) as caught:
        reader.read(lines[-1])
    assert str(caught.value) == said
    assert reader.read(b"2,c") == Content(b'{"id":"2","text":"c"}', None)


def test_open_quote_does_not_take_in_the_file() -> None:
    """Past the size of a record it is given up, and the next line is a row again."""
    reader = line_format(Format.CSV, key=None, max_record_bytes=20)
    reader.read(b"id,name")

    assert reader.read(b'1,"' + b"a" * 10) is None
    with pytest.raises(BadLineError, match="does not end"):
        reader.read(b"b" * 10)
    assert not reader.is_open
    assert reader.read(b"2,c") is not None


@pytest.mark.parametrize(
    "header, said",
    [
        (b"id,id", "the header names a field twice: 'id'"),
        (b"id,\xe9", "not UTF-8: byte 0xe9 at position 4"),
        (b'id,"a"b', "not CSV: ',' expected after '\"'"),
        (
            b"id,n\r1,x\r2,y\r",
            r"not CSV: a CR that is neither in quotes nor before LF; where lines end with CR alone: tr '\r' '\n'",
        ),
        (b"a,idd", "--key: no such field: 'id' is not among a, idd; did you mean 'idd'?"),
    ],
    ids=repr,
)
def test_bad_csv_header_is_said_so(header: bytes, said: str) -> None:
    """It spoils the whole input: no line is a row before there is one."""
    reader = line_format(Format.CSV, key="id", max_record_bytes=1_000)
    with pytest.raises(BadLineError) as caught:
        reader.read(header)

    assert (str(caught.value), reader.needs_header) == (said, True)
