"""Frames and correlation ids, without a connection."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._protocol.framing import FrameProtocol
from aioproducer.errors import ProtocolError, TlsError


def talk(count: int = 0, *, flexible: bool = True) -> FrameProtocol[int]:
    """A conversation with requests 0 to count - 1 in flight."""
    conversation: FrameProtocol[int] = FrameProtocol("me")
    for number in range(count):
        conversation.send(0, 13, [b"x"], flexible=flexible, context=number)
    return conversation


def frame(correlation_id: int, body: bytes = b"", tags: bytes = b"\x00") -> bytes:
    return struct.pack(">ii", 4 + len(tags) + len(body), correlation_id) + tags + body


@pytest.mark.parametrize("flexible", [True, False])
def test_request_frame_is_laid_out_as_drawn(flexible: bool) -> None:  # noqa: FBT001
    tail = memoryview(b"tail")

    pieces = talk().send(3, 12, [b"body", tail], flexible=flexible, context=0)

    tags = b"\x00" if flexible else b""
    header = struct.pack(">hhih", 3, 12, 0, 2) + b"me" + tags
    assert b"".join(pieces) == struct.pack(">i", len(header) + 8) + header + b"bodytail"
    assert pieces[1] is tail


@given(st.lists(st.binary(max_size=30), max_size=6), st.lists(st.integers(0, 200), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_answers(bodies: list[bytes], cuts: list[int]) -> None:
    conversation = talk(len(bodies))
    stream = b"".join(frame(number, body) for number, body in enumerate(bodies))
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})

    answers = [
        (context, bytes(payload))
        for start, end in itertools.pairwise(edges)
        for context, payload in conversation.receive(stream[start:end])
    ]

    assert answers == list(enumerate(bodies))
    assert conversation.in_flight == 0


def test_large_answer_is_gathered_with_few_copies() -> None:
    conversation = talk(1)
    body = bytes(range(256)) * 40_000
    stream = frame(0, body)

    answers = [
        bytes(payload)
        for start in range(0, len(stream), 65_536)
        for _, payload in conversation.receive(stream[start : start + 65_536])
    ]

    assert answers == [body]


def test_answers_before_a_bad_frame_count() -> None:
    conversation = talk(2)
    answers = conversation.receive(frame(0, b"good") + struct.pack(">i", -1))

    assert bytes(next(answers)[1]) == b"good"
    with pytest.raises(ProtocolError):
        next(answers)


def test_size_that_comes_in_pieces_is_put_together() -> None:
    conversation = talk(1)

    first = list(conversation.receive(frame(0, b"body")[:2]))
    ((_, payload),) = conversation.receive(frame(0, b"body")[2:])

    assert (first, bytes(payload)) == ([], b"body")


@pytest.mark.parametrize("size", [-1, 3, 2**31 - 1], ids=["negative", "too small", "too large"])
def test_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"an answer of {size} bytes"):
        list(talk(1).receive(struct.pack(">i", size)))


@pytest.mark.parametrize(
    "start, error, text",
    [
        (b"\x15\x03\x03\x00\x02", TlsError, "speaks TLS"),
        (b"HTTP/1.1 400 Bad Request", ProtocolError, "an HTTP server"),
        (b"SSH-2.0-OpenSSH_9.2", ProtocolError, "an SSH server"),
    ],
    ids=["TLS", "HTTP", "SSH"],
)
def test_other_protocol_is_named(start: bytes, error: type[ProtocolError], text: str) -> None:
    with pytest.raises(error, match=text):
        list(talk(1).receive(start))


def test_answer_out_of_order_is_refused() -> None:
    with pytest.raises(ProtocolError, match="answered request 1, the oldest unanswered is 0"):
        list(talk(2).receive(frame(1)))


def test_answer_to_nothing_is_refused() -> None:
    with pytest.raises(ProtocolError, match="was not asked"):
        list(talk().receive(frame(0)))


def test_without_a_response_nothing_is_in_flight() -> None:
    conversation = talk()
    conversation.send(0, 13, [b"x"], flexible=True, context=7, expects_response=False)
    conversation.send(0, 13, [b"x"], flexible=True, context=8)

    assert [context for context, _ in conversation.receive(frame(1))] == [8]


def test_api_versions_is_answered_with_the_plain_header() -> None:
    conversation = talk()
    conversation.send(18, 4, [b""], flexible=True, context=0)

    ((_, payload),) = conversation.receive(frame(0, b"body", tags=b""))

    assert bytes(payload) == b"body"


def test_tags_of_the_response_header_are_passed_over() -> None:
    ((_, payload),) = talk(1).receive(frame(0, b"body", tags=b"\x01\x05\x02xy"))

    assert bytes(payload) == b"body"


@pytest.mark.parametrize("tags", [b"", b"\x01", b"\x01\x05\x7f", b"\xff\xff\xff\xff\xff\xff"])
def test_broken_tags_are_refused(tags: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(talk(1).receive(frame(0, tags=tags)))


@pytest.mark.parametrize("piece", [1, 5, 1000])
def test_error_of_broken_tags_is_the_same_however_the_bytes_come(piece: int) -> None:
    """Positions are those in the frame, behind another one too."""
    conversation = talk(2)
    stream = frame(0, b"good") + frame(1, b"xx", tags=b"\x01\x05\x7f")

    pieces = [stream[start : start + piece] for start in range(0, len(stream), piece)]
    with pytest.raises(ProtocolError, match="ends at 134 of 9 bytes"):
        [list(conversation.receive(each)) for each in pieces]


def test_frame_whose_size_has_no_room_is_refused_at_the_call() -> None:
    class Huge(bytes):
        __slots__ = ()

        def __len__(self) -> int:
            return 2**31 - 1

    conversation = talk()
    with pytest.raises(OverflowError, match="does not fit a frame"):
        conversation.send(0, 13, [Huge()], flexible=True, context=0)

    assert conversation.in_flight == 0
    assert conversation.send(0, 13, [b"x"], flexible=True, context=1)[0][8:12] == bytes(4)


def test_correlation_ids_start_again_after_the_last() -> None:
    conversation: FrameProtocol[int] = FrameProtocol("me", first_correlation_id=2**31 - 1)
    conversation.send(0, 13, [b"x"], flexible=True, context=1)
    conversation.send(0, 13, [b"x"], flexible=True, context=2)

    answers = conversation.receive(frame(2**31 - 1) + frame(0))

    assert [context for context, _ in answers] == [1, 2]


def test_unanswered_requests_are_given_back_oldest_first() -> None:
    conversation = talk(3)
    list(conversation.receive(frame(0)))

    assert conversation.take_in_flight() == [1, 2]
    assert conversation.in_flight == 0


API_VERSIONS, METADATA = 18, 3
SMALL = 64 * 1024


def announced(size: int) -> bytes:
    return struct.pack(">i", size)


def asked(api_key: int, largest_response: int | None) -> FrameProtocol[int]:
    conversation: FrameProtocol[int] = FrameProtocol("me")
    conversation.send(api_key, 0, [b"x"], flexible=False, context=0, largest_response=largest_response)
    return conversation


@pytest.mark.parametrize("largest", [SMALL, 10 * SMALL])
def test_answer_is_refused_above_the_limit_of_its_request(largest: int) -> None:
    conversation = asked(API_VERSIONS, largest)
    conversation.send(METADATA, 12, [b"x"], flexible=True, context=1)

    assert list(conversation.receive(announced(largest) + struct.pack(">i", 0) + bytes(largest - 4)))
    assert list(conversation.receive(announced(largest + 1))) == []
    with pytest.raises(ProtocolError, match=f"{largest + 1} bytes to a request of API key 18.* {largest} allowed"):
        list(asked(API_VERSIONS, largest).receive(announced(largest + 1)))


def test_large_unrequested_answer_is_not_held() -> None:
    with pytest.raises(ProtocolError, match="to no request"):
        list(talk().receive(announced(SMALL + 1)))


def test_answer_whose_end_has_not_come_is_let_go() -> None:
    """A closed connection is kept for its error; the received part of a response is not."""
    conversation = talk(1)
    list(conversation.receive(announced(1000) + bytes(500)))
    assert conversation.held_bytes == 500

    conversation.drop_held()

    assert conversation.held_bytes == 0
