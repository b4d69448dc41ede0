"""A stream of answers in pieces of any size: what the conversation makes of it must not depend on the pieces."""

import itertools
import struct
from collections.abc import Sequence

from aioproducer._protocol.framing import FrameProtocol
from aioproducer.errors import ProtocolError, TlsError
from tests.programs.fuzz.decoders import decoders
from tests.programs.fuzz.mutations import Step, damaged

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
