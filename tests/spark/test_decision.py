"""The manifest in the metadata of group offsets."""

import base64
import zlib
from dataclasses import replace
from random import Random

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.records import OffsetAndMetadata
from aioproducer.spark._decision_record import (
    MAX_METADATA_BYTES,
    Decision,
    SinkIds,
    TaskEntry,
    UnreadableDecisionError,
    decode_decision,
    encode_decision,
)


def of_tasks(count: int) -> Decision:
    random = Random(count)
    entries = (TaskEntry(number, 0, random.getrandbits(40), random.randrange(32_767), 2, 9) for number in range(count))
    return Decision(
        query="stream 8a1b",
        run="7c2d",
        former_runs=("6b1c",),
        batch=41,
        writes=("orders", ""),
        position=2,
        lane=5,
        revision=90,
        entries=tuple(entries),
    )


@pytest.mark.parametrize("count", [0, 1, 200, 800])
def test_a_decision_is_read_as_it_was_written(count: int) -> None:
    decision = of_tasks(count)
    offsets = encode_decision(decision, 12)
    assert decode_decision(offsets) == decision
    assert all(len(each.metadata.encode()) <= MAX_METADATA_BYTES for each in offsets.values())


def test_chunks_of_an_older_longer_manifest_are_not_read() -> None:
    offsets = encode_decision(of_tasks(800), 12)
    assert len(offsets) > 1
    newer = replace(of_tasks(2), revision=91)
    offsets.update(encode_decision(newer, 12))
    assert decode_decision(offsets) == newer


def test_more_tasks_than_the_partitions_hold_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"manifest of 2,000 tasks .* 1 partitions .*coalesce"):
        encode_decision(of_tasks(2_000), 1)


@pytest.mark.parametrize("offsets", [{}, {0: OffsetAndMetadata(0, "")}])
def test_nothing_is_decided_without_an_offset_or_after_a_reset(offsets: dict[int, OffsetAndMetadata]) -> None:
    assert decode_decision(offsets) is None


@pytest.mark.parametrize("metadata", ["", "mine", "1:mine", "2:", "1:" + "0" * 40, "9999999:x"])
def test_offsets_of_another_program_are_an_error(metadata: str) -> None:
    with pytest.raises(UnreadableDecisionError, match="offset 7"):
        decode_decision({0: OffsetAndMetadata(7, metadata)})


def test_a_missing_chunk_is_an_error() -> None:
    offsets = encode_decision(of_tasks(800), 12)
    del offsets[1]
    with pytest.raises(UnreadableDecisionError, match="chunk 1 of"):
        decode_decision(offsets)


@pytest.mark.parametrize("sink_id", ["", "a b", "ä", "a/b", "x" * 201])
def test_a_sink_id_that_cannot_name_a_group_is_refused(sink_id: str) -> None:
    with pytest.raises(ConfigurationError, match="sinkId="):
        SinkIds(sink_id)


def test_ids_of_a_sink_with_a_longer_name_are_not_its_own() -> None:
    ids = SinkIds("orders")
    assert ids.is_data_id(ids.data_id(7, 3, 1))
    for other in ("orders.0", "orders.0.1", "orders-2", "order"):
        assert not ids.is_data_id(SinkIds(other).data_id(7, 3, 1))
    assert not ids.is_data_id(ids.coordinator)


def test_manifest_of_a_later_format_is_not_read() -> None:
    text = base64.b85encode(zlib.compress(b'{"v": 3}')).decode()
    with pytest.raises(UnreadableDecisionError, match="format 3 of a later aioproducer; this reads 1 and 2"):
        decode_decision({0: OffsetAndMetadata(7, f"1:{text}")})


GOLDEN = {
    "stream": (
        OffsetAndMetadata(42, "1:c-pI0DpRsD)KMxdO)aWavQjE8DN0SuRj^1jOj6QODoHHPE>^ONjyBLS&@nMEFw`;EG14(LFo=z<1pxau5Lo"),
        Decision(query="stream 8a1b", batch=41, lane=1, revision=42, entries=(TaskEntry(0, 0, 4_001, 7, 2, 500),)),
    ),
    "finished job": (
        OffsetAndMetadata(3, "1:c-pI0DpRsD)KMxdO)aWavQjE4%~QzD&r3<HRMJr@Ni5DTR<eqYtpxz~RSd@"),
        Decision(query="run monday", batch=2, lane=0, revision=3, is_finished=True),
    ),
}
"""Written by the version before: format 1."""


@pytest.mark.parametrize("case", GOLDEN)
def test_decision_of_format_1_is_taken_over(case: str) -> None:
    written, expected = GOLDEN[case]
    assert decode_decision({0: written}) == expected
