"""Inputs are checked before anything is sent, and read without blocking the loop."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from aioproducer.cli.produce.read import CHUNK_BYTES, READ_AHEAD, Chunk, InputReadError, find_inputs, read_chunks

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
