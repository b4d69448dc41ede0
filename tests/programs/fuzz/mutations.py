"""Damage to bytes: one list of steps, chosen by hypothesis or by a random number generator."""

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

NASTY = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\xff",
    b"\x7f\xff",  # the largest int16
    b"\x80\x00",  # the lowest
    b"\xff\xfe",  # -2
    b"\x7f\xff\xff\xff",  # the largest int32
    b"\x80\x00\x00\x00",  # the lowest
    b"\xff\xff\xff\xff",  # -1
    b"\xff\xff\xff\xfe",  # -2
    b"\x06\x40\x00\x00",  # 100 MiB
    b"\x7f" + b"\xff" * 7,  # the largest int64
    b"\x80" + b"\x00" * 7,  # the lowest
    b"\xff\xff\xff\xff\x07",  # a varint of 2^31 - 1
    b"\xff\xff\xff\xff\x0f",  # of 2^32 - 1
    b"\x80\x80\x80\x80\x00",  # of 0, in five bytes
    b"\x80" * 9 + b"\x01",  # of 2^63, in ten
    b"\xff" * 10,  # that does not end
    b"\xc3\x28",  # no UTF-8
    b"\x82SNAPPY\x00",
)
"""Pieces that decoders trip over."""

LONGEST_SLICE = 64


class Step(NamedTuple):
    kind: str
    at: int  # position, modulo the length
    argument: int  # amount, or choice


def _flip(data: bytearray, at: int, argument: int) -> None:
    if data:
        data[at] ^= 1 << argument % 8


def _cut(data: bytearray, at: int, _: int) -> None:
    del data[at:]


def _insert(data: bytearray, at: int, argument: int) -> None:
    data[at:at] = NASTY[argument % len(NASTY)]


def _overwrite(data: bytearray, at: int, argument: int) -> None:
    piece = NASTY[argument % len(NASTY)]
    data[at : at + len(piece)] = piece


def _delete(data: bytearray, at: int, argument: int) -> None:
    del data[at : at + 1 + argument % LONGEST_SLICE]


def _repeat(data: bytearray, at: int, argument: int) -> None:
    data[at:at] = data[at : at + 1 + argument % LONGEST_SLICE]


_DAMAGE: Mapping[str, Callable[[bytearray, int, int], None]] = MappingProxyType(
    {"flip": _flip, "cut": _cut, "insert": _insert, "overwrite": _overwrite, "delete": _delete, "repeat": _repeat}
)
KINDS = tuple(_DAMAGE)


def damaged(payload: bytes, steps: Sequence[Step]) -> bytes:
    data = bytearray(payload)
    for step in steps:
        _DAMAGE[step.kind](data, step.at % max(len(data), 1), step.argument)
    return bytes(data)


def random_steps(chance: random.Random) -> list[Step]:
    return [
        Step(chance.choice(KINDS), chance.randrange(1 << 16), chance.randrange(1 << 8))
        for _ in range(chance.randint(0, 6))
    ]
