"""The handshake as a list of steps."""

import struct

import pytest

from aioproducer._protocol.api_versions import ApiVersions, handshake
from aioproducer._protocol.messages import METADATA, PRODUCE, Api
from aioproducer._protocol.transaction_admin_messages import DESCRIBE_TRANSACTIONS
from aioproducer._protocol.transaction_messages import OFFSET_FETCH
from aioproducer.errors import BrokerError, ProtocolError, UnsupportedVersionError
from tests.fakes.scripted_broker import api_versions_body

OLD_SHAPE = struct.pack(">hihhhhhhhhh", 0, 3, 0, 3, 9, 3, 0, 9, 18, 0, 2)


def play(*answers: bytes) -> tuple[list[int], ApiVersions]:
    talk = handshake("1.0")
    asked = [next(talk).version]
    for answer in answers:
        try:
            asked.append(talk.send(memoryview(answer)).version)
        except StopIteration as finished:
            versions: ApiVersions = finished.value
            return asked, versions
    pytest.fail("the handshake asks for more")


def test_one_question_is_enough_for_a_new_broker() -> None:
    asked, versions = play(api_versions_body())

    assert asked == [4]
    assert versions.highest_common(PRODUCE) == 13


def test_old_broker_is_asked_again_in_version_0() -> None:
    asked, versions = play(struct.pack(">hi", 35, 0), OLD_SHAPE)

    assert asked == [4, 0]
    assert versions.highest_common(PRODUCE) == 9


def test_broker_that_refuses_every_version_is_asked_twice() -> None:
    with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION") as caught:
        play(struct.pack(">hi", 35, 0), struct.pack(">hi", 35, 0))

    assert caught.value.code == 35


def test_unknown_code_is_an_error() -> None:
    with pytest.raises(BrokerError, match="newer than this client"):
        play(api_versions_body(error_code=999))


def test_broker_without_a_needed_request_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="too old"):
        play(api_versions_body(((0, 0, 2), (3, 0, 13))))


@pytest.mark.parametrize("answer", [b"", b"\x00", b"\x00\x00", bytes(100)])
def test_garbage_is_a_protocol_error(answer: bytes) -> None:
    with pytest.raises((ProtocolError, UnsupportedVersionError)):
        play(answer)


@pytest.mark.parametrize(
    "ranges, text",
    [
        ({}, "does not speak Produce at all"),
        ({0: (14, 20)}, "too new"),
        ({0: (0, 2)}, "too old"),
        ({0: (5, 4)}, "at all"),
        ({0: (-3, 13)}, "at all"),
    ],
)
def test_no_common_version_names_the_older_side(ranges: dict[int, tuple[int, int]], text: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=text):
        ApiVersions(ranges).highest_common(PRODUCE)


@pytest.mark.parametrize(
    "api, ranges, text",
    [
        (PRODUCE, {0: (0, 2)}, "this client 3 to 13; Kafka 2.1 or newer is needed"),
        (OFFSET_FETCH, {9: (0, 6)}, "this client 7 to 7; Kafka 2.5 or newer is needed"),
        (DESCRIBE_TRANSACTIONS, {}, "at all; Kafka 3.0 or newer is needed"),
        (OFFSET_FETCH, {9: (8, 10)}, "speaks OffsetFetch 8 to 10, this client 7 to 7$"),
    ],
)
def test_release_that_is_needed_is_named(api: Api, ranges: dict[int, tuple[int, int]], text: str) -> None:
    """The error names the release that the request needs; a newer one does not help."""
    with pytest.raises(UnsupportedVersionError, match=text):
        ApiVersions(ranges).highest_common(api)


def test_highest_common_version_is_taken_never_the_lowest() -> None:
    """Kafka 4 lists Produce 0 and refuses it (KAFKA-18659)."""
    versions = ApiVersions({0: (0, 20), 3: (0, 12)})

    assert versions.highest_common(PRODUCE) == 13
    assert versions.highest_common(PRODUCE, at_most=11) == 11
    assert versions.highest_common(METADATA) == 12
