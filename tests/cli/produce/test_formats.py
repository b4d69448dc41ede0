"""Lines become keys and values, or complaints that say what is wrong."""

import json

import pytest

from aioproducer.cli.produce.formats import BadLineError, Content, Format, line_format


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
