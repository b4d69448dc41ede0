"""Hostile bytes: an answer or the one error that is promised, in bounded memory and a bounded number of steps."""

import functools
import pkgutil
import struct
import sys
import tracemalloc
from collections.abc import Callable
from importlib import import_module

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioproducer import _protocol as protocol
from aioproducer._protocol.produce import decode_produce_response
from aioproducer.errors import ProtocolError
from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.wire.messages import decode_request
from aioproducer.testing.fake_broker.wire.primitives import MalformedRequestError
from tests.programs.fuzz.decoders import ANSWERS, OF_ONE_VERSION, READ_OTHERWISE, decoders
from tests.programs.fuzz.mutations import (
    KINDS,
    Step,
    damaged,
)

# Cost of a decoder: its peak in bytes, and its calls. Neither depends on how busy the machine is.


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = work()
        _, peak = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return peak - before


def calls(work: Callable[[], object]) -> int:
    """Calls of functions, Python's and C's, that the work made."""
    made = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal made
        made += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return made


STEPS = st.lists(st.builds(Step, st.sampled_from(KINDS), st.integers(0, 2**16 - 1), st.integers(0, 255)), max_size=6)
UNPACKING = {name for name in decoders() if name.startswith(("decompress", "accepted_batch"))}
"""Those that make many bytes of few: a small batch may be large unpacked. Nothing hostile is unpacked by the producer
itself; these are its own batches and the embedded broker's."""
OF_TLS = {name for name in decoders() if name.startswith("TLS")}
"""Those whose cost is that of a handshake, whatever the bytes are."""
NEWEST = {name.partition(" v")[0]: name for name in decoders()}
FUZZED = [pytest.param(name, marks=() if name in NEWEST.values() else pytest.mark.nightly) for name in decoders()]
"""The newest of each, and at night all."""


def test_every_decoder_of_answers_is_here() -> None:
    """A new decoder needs a row in `ANSWERS`."""
    found = {
        function
        for module in pkgutil.walk_packages(protocol.__path__, f"{protocol.__name__}.")
        for name, function in vars(import_module(module.name)).items()
        if name.startswith("decode_")
    }
    otherwise = (decode for _, decode in READ_OTHERWISE.values())
    fuzzed = {getattr(decode, "func", decode) for decode in (*ANSWERS.values(), *OF_ONE_VERSION.values(), *otherwise)}

    assert found == fuzzed


@pytest.mark.parametrize("name", list(decoders()))
def test_whole_message_is_read(name: str) -> None:
    decoder = decoders()[name]

    decoder.decode(decoder.whole)


@pytest.mark.parametrize("name", FUZZED)
@settings(max_examples=60)
@given(steps=STEPS)
@example(steps=[])
def test_damaged_message_is_refused_or_read(name: str, steps: list[Step]) -> None:
    decoder = decoders()[name]

    decoder.check(damaged(decoder.whole, steps))


@pytest.mark.parametrize("name", FUZZED)
@settings(max_examples=25)
@given(payload=st.binary(max_size=300))
def test_garbage_is_refused_or_read(name: str, payload: bytes) -> None:
    decoders()[name].check(payload)


@pytest.mark.parametrize("name", [name for name in decoders() if name not in OF_TLS])
def test_every_cut_is_refused_or_read(name: str) -> None:
    decoder = decoders()[name]
    for end in range(len(decoder.whole)):
        decoder.check(decoder.whole[:end])


@pytest.mark.slow
@pytest.mark.parametrize("name", [each for each in FUZZED if each.values[0] not in UNPACKING | OF_TLS])
@settings(max_examples=10)
@given(steps=STEPS, more=st.integers(0, 2000))
def test_cost_is_bounded_by_the_bytes(name: str, steps: list[Step], more: int) -> None:
    """Memory and steps are bounded for any counts and lengths in it."""
    decoder = decoders()[name]
    payload = damaged(decoder.whole, steps) + bytes(more)
    decoder.check(payload)  # imports and caches

    assert peak_bytes(lambda: decoder.check(payload)) <= 32_768 + 32 * len(payload)
    assert calls(lambda: decoder.check(payload)) <= 500 + 10 * len(payload)


DENSEST = {
    # What a byte of an answer can cost at most: the smallest elements there are, as many as fit.
    "produce v8": struct.pack(">i", 1) + b"\xff\xff" + struct.pack(">iihqqqi", 1, 0, 87, -1, -1, -1, 20_000),
    "produce v9": b"\x02\x00\x02" + struct.pack(">ihqqq", 0, 87, -1, -1, -1) + b"\xa1\x9c\x01",
    "metadata v4": struct.pack(">iiii", 0, 0, -1, 20_000),
    "metadata v9": struct.pack(">i", 0) + b"\x01\x00" + struct.pack(">i", 1) + b"\xa1\x9c\x01",
}
ELEMENT = {
    "produce v8": struct.pack(">ih", 2**30, -1),
    "produce v9": struct.pack(">i", 2**30) + b"\x00\x00",
    "metadata v4": struct.pack(">hhbi", 3, -1, 0, 0),
    "metadata v9": struct.pack(">h", 3) + b"\x00\x00\x01" + struct.pack(">i", 0) + b"\x00",
}


@pytest.mark.parametrize("name", list(DENSEST))
def test_densest_answer_costs_a_fixed_multiple_of_its_bytes(name: str) -> None:
    """`max_frame_bytes` therefore bounds what a hostile broker can cost."""
    payload = DENSEST[name] + ELEMENT[name] * 20_000

    assert peak_bytes(functools.partial(decoders()[name].check, payload)) <= 32 * len(payload)


@pytest.mark.parametrize("version", [9, 13])
def test_claimed_counts_reserve_nothing(version: int) -> None:
    payload = b"\xff\xff\xff\xff\x07" + bytes(20)

    def read() -> None:
        with pytest.raises(ProtocolError):
            decode_produce_response(version, payload)

    assert peak_bytes(read) <= 65_536


@pytest.mark.parametrize("version", range(9, 13))
def test_client_that_claims_too_much_does_not_end_the_process(version: int) -> None:
    """The embedded broker hangs up: the library below it would abort the whole process."""
    with pytest.raises(MalformedRequestError, match="an array of 4294967294"):
        decode_request(ApiKey.METADATA, version, memoryview(b"\xff\xff\xff\xff\x0f"))
