"""Renumbers records in place, to split a batch."""

from collections.abc import Set as AbstractSet

from typing_extensions import Buffer

from aioproducer._native.memory import Chunk

def renumber_records(chunk: Chunk, start: int, first: int, count: int) -> tuple[int, int]:
    """Rewrite in place `count` records, at byte `start` with offset delta `first`, to begin with offset delta 0.

    Returns:
        The bytes they take now, which is never more, and the highest of their timestamp deltas in ms.

    Raises:
        ValueError: the bytes are not such records.
    """

def remove_records(chunk: Chunk, start: int, count: int, gone: AbstractSet[int]) -> tuple[int, int]:
    """Rewrite in place records that begin with offset delta 0, without those at the positions `gone`.

    Returns:
        As `renumber_records`.

    Raises:
        ValueError: the bytes are not such records.
    """

def record_starts(records: Buffer, count: int) -> list[int]:
    """Return the byte offsets of `count` records, and of the end."""
