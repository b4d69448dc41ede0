"""Damage to bytes, one list of steps, chosen by hypothesis or by a random number generator, and damaged streams.

What a conversation makes of a stream of answers must not depend on the pieces in which it comes.
"""

import itertools
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from aioproducer._protocol.framing import FrameProtocol
from aioproducer.errors import ProtocolError, TlsError
from tests.programs.fuzz.decoders import decoders

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


PRODUCE_VERSION = 13
REQUESTS = 4
MAX_FRAME_BYTES = 1 << 20


def talking(count: int = REQUESTS) -> FrameProtocol[int]:
    conversation: FrameProtocol[int] = FrameProtocol("me", MAX_FRAME_BYTES)
    for number in range(count):
        conversation.send(0, PRODUCE_VERSION, [b"x"], flexible=True, context=number)
    return conversation


def frame(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", 5 + len(body), correlation_id) + b"\x00" + body


ANSWER = decoders()[f"produce v{PRODUCE_VERSION}"].whole
STREAM = b"".join(frame(number, ANSWER) for number in range(REQUESTS))


def in_pieces(stream: bytes, sizes: Sequence[int]) -> list[bytes]:
    ends = itertools.accumulate(itertools.cycle(sizes))
    edges = [0, *itertools.takewhile(lambda end: end < len(stream), ends), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


def heard(pieces: Sequence[bytes]) -> tuple[list[tuple[int, bytes]], str | None]:
    conversation = talking()
    answers: list[tuple[int, bytes]] = []
    try:
        for piece in pieces:
            answers.extend((number, bytes(payload)) for number, payload in conversation.receive(piece))
    except (ProtocolError, TlsError) as error:
        return answers, str(error)
    return answers, None


def check_stream(steps: Sequence[Step], sizes: Sequence[int]) -> None:
    """Hear a damaged stream whole, in pieces, and one byte at a time: the same answers, then the same error."""
    stream = damaged(STREAM, steps)
    whole = heard([stream])
    assert heard(in_pieces(stream, sizes)) == whole
    assert heard(in_pieces(stream, [1])) == whole
