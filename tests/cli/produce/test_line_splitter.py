"""Chunks become lines, wherever the cuts are."""

from hypothesis import given
from hypothesis import strategies as st

from aioproducer.cli.produce.read import LineSplitter


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
