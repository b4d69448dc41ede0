"""A batch taken apart is the same records, in the same order, each with its own caller."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._accumulator.batch_splitter import MOST_CUT_OUT, Range, around, halves, neighbours, uncompressed
from aioproducer._accumulator.open_batches import BATCHES_BEFORE_GROWTH, BatchSizeLimits
from aioproducer._accumulator.partition import Batch, BatchState, RecordDeadline
from aioproducer._accumulator.producer_identity import NO_IDENTITY
from aioproducer._native.delivery import Delivery
from aioproducer._native.produce import encode_header
from aioproducer._protocol.compression import CompressionType, compress
from tests.fakes.core_parts import CoreParts, sequences
from tests.reference import record_batch as reference
from tests.reference.record_batch import Record, decode_batch

NULLABLE = st.none() | st.binary(max_size=40)
RECORDS = st.lists(
    st.builds(
        Record,
        key=NULLABLE,
        value=NULLABLE,
        timestamp=st.integers(0, 10**13),
        headers=st.lists(st.tuples(st.text(max_size=3), NULLABLE), max_size=2).map(tuple),
    ),
    min_size=2,
    max_size=8,
)


def batch_of(core: CoreParts, records: Sequence[Record]) -> tuple[Batch, list[Delivery]]:
    deliveries = []
    for each in records:
        delivery = core.appender.append("t", each.value, each.key, 0, each.timestamp, each.headers, None)
        assert delivery is not None
        deliveries.append(delivery)
    core.flush()
    [batch] = core.drain()
    core.partition().on_wire.remove(batch)
    return batch, deliveries


def records_of(*values: bytes) -> list[Record]:
    return [Record(None, value, 1_000 + index) for index, value in enumerate(values)]


def seal(core: CoreParts, batch: Batch) -> None:
    """Compress a batch that is on no wire, as sealing does before it gets there."""
    data = compress(CompressionType.GZIP, None, batch.records())
    batch.replace_records(core.pool.replace(batch.chunk, data), len(data), CompressionType.GZIP)


def fill(core: CoreParts) -> None:
    while core.pool.try_lend(1, core.node(1).reserve) is not None:
        pass


def decoded(part: Batch) -> reference.Batch:
    return decode_batch(encode_header(part) + bytes(part.records()))


@given(RECORDS, st.lists(st.integers(0, 7), max_size=4), st.booleans())
def test_parts_are_the_same_records_in_the_same_order(records: list[Record], cuts: list[int], sealed: bool) -> None:  # noqa: FBT001
    core = CoreParts()
    batch, deliveries = batch_of(core, records)
    if sealed:
        seal(core, batch)
    ranges = around(batch, [Range(cut, cut + 1) for cut in cuts if cut < batch.count])

    parts = core.splitter.split(batch, ranges, keeps_sequences=True)

    assert [record for part in parts for record in decoded(part).records] == records
    found = [(delivery._batch_result, delivery._position) for delivery in deliveries]
    assert found == [(part.result, index) for part in parts for index in range(part.count)]


@given(RECORDS)
def test_parts_can_be_split_again_down_to_single_records(records: list[Record]) -> None:
    """The memory is returned when the last part has ended."""
    core = CoreParts()
    waiting, singles = [batch_of(core, records)[0]], list[Batch]()
    while waiting:
        batch = waiting.pop()
        if batch.count == 1:
            singles.append(batch)
        else:
            waiting += reversed(core.splitter.split(batch, halves(batch), keeps_sequences=True))
    orders = [batch.order for batch in singles]

    assert [decoded(batch).records[0] for batch in singles] == records
    assert orders == sorted(set(orders))
    for batch in singles:
        assert core.pool.lent_bytes > 0
        core.pool.give_back(batch.chunk)
    assert core.pool.lent_bytes == 0


def test_parts_say_the_latest_timestamp_of_their_own_records() -> None:
    """Brokers echo the timestamp to a duplicate, which tells its response from that of the original."""
    core = CoreParts()
    batch, _ = batch_of(core, [Record(None, b"v", timestamp) for timestamp in (1_005, 1_009, 1_001, 1_003)])

    parts = core.splitter.split(batch, halves(batch), keeps_sequences=True)

    assert [(part.base_timestamp, part.max_timestamp) for part in parts] == [(1_005, 1_009), (1_005, 1_003)]


# Where to cut


@given(RECORDS)
def test_halves_are_near_the_middle_by_bytes(records: list[Record]) -> None:
    """Neither is empty; moving the cut by a record makes the larger one no smaller."""
    batch, _ = batch_of(CoreParts(), records)
    first, second = halves(batch)

    assert (first.first, first.stop, second.stop) == (0, second.first, batch.count)
    assert 0 < first.stop < batch.count


@pytest.mark.parametrize(
    "sizes, middle",
    [((1, 1), 1), ((500, 1, 1), 1), ((1, 1, 500), 2), ((9, 9, 9, 9), 2)],
    ids=["two", "large first", "large last", "equal"],
)
def test_cut_leaves_records_on_both_sides(sizes: tuple[int, ...], middle: int) -> None:
    batch, _ = batch_of(CoreParts(), records_of(*(bytes(size) for size in sizes)))

    assert halves(batch) == [Range(0, middle), Range(middle, len(sizes))]


@pytest.mark.parametrize(
    "refused, ranges",
    [
        ([], [(0, 5)]),
        ([0], [(0, 1), (1, 5)]),
        ([2], [(0, 2), (2, 3), (3, 5)]),
        ([4, 1], [(0, 1), (1, 2), (2, 4), (4, 5)]),
        ([1, 2, 3], [(0, 1), (1, 4), (4, 5)]),
        ([0, 1, 2, 3, 4], [(0, 5)]),
    ],
)
def test_refused_records_are_cut_out(refused: list[int], ranges: list[tuple[int, int]]) -> None:
    batch, _ = batch_of(CoreParts(), records_of(b"0", b"1", b"2", b"3", b"4"))

    assert around(batch, neighbours(dict.fromkeys(refused, "no key"))) == ranges


def test_neighbours_refused_for_different_reasons_are_split() -> None:
    assert neighbours({3: None, 1: "no key", 2: "no key", 4: "too old"}) == [(1, 3), (3, 4), (4, 5)]


def test_no_more_are_cut_out_than_a_step_has_time_for() -> None:
    found = neighbours(dict.fromkeys(range(0, 10_000, 2)))

    assert found == [(index, index + 1) for index in range(0, 2 * MOST_CUT_OUT, 2)]


# What parts inherit


def test_parts_keep_the_sequences_of_their_records() -> None:
    core = CoreParts()
    batch, _ = batch_of(core, records_of(b"0", b"1", b"2"))

    parts = core.splitter.split(batch, around(batch, [Range(1, 2)]), keeps_sequences=True)

    assert sequences(parts) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("idempotent, keeps_sequences", [(True, False), (False, True)])
def test_parts_have_no_sequence_where_records_are_left_out(*, idempotent: bool, keeps_sequences: bool) -> None:
    """They get new ones; parts of a batch without idempotence never have one."""
    core = CoreParts(idempotent=idempotent)
    batch, _ = batch_of(core, records_of(b"0", b"1"))

    parts = core.splitter.split(batch, halves(batch), keeps_sequences=keeps_sequences)

    assert [part.identity for part in parts] == [NO_IDENTITY] * 2


def test_parts_stand_between_the_batches_before_and_behind() -> None:
    core = CoreParts()
    batch, _ = batch_of(core, records_of(b"0", b"1"))
    core.now += 1
    core.send()

    parts = core.splitter.split(batch, halves(batch), keeps_sequences=True)

    behind = core.partition().open_batch
    assert behind is not None
    assert batch.order <= parts[0].order < parts[1].order < behind.order
    assert {part.called_at for part in parts} == {batch.called_at}
    assert {(part.state, part.is_part) for part in parts} == {(BatchState.QUEUED, True)}


def test_flush_that_waited_for_the_batch_waits_for_its_parts() -> None:
    core = CoreParts()
    batch, _ = batch_of(core, records_of(b"0", b"1"))

    first, second = core.splitter.split(batch, halves(batch), keeps_sequences=True)

    assert not core.generations.is_finished(batch.generation)
    core.generations.leave(first.generation)
    assert not core.generations.is_finished(batch.generation)
    core.generations.leave(second.generation)
    assert core.generations.is_finished(batch.generation)


# Memory


def test_plain_batch_is_split_when_no_memory_is_left() -> None:
    core = CoreParts(memory=16 * 1024)
    batch, _ = batch_of(core, records_of(b"0", b"1"))
    fill(core)

    assert len(core.splitter.split(batch, halves(batch), keeps_sequences=True)) == 2


def test_compressed_batches_are_unpacked_beside_a_full_buffer() -> None:
    """At most two batches of the largest size at a time; their memory is returned."""
    core = CoreParts(memory=64 * 1024)
    fill(core)
    full = core.pool.lent_bytes
    largest = core.settings.batch_size
    for _ in range(3):
        chunks = [core.pool.lend_for_unpacking(largest, core.node(1).reserve) for _ in range(2)]

        assert core.pool.lend_for_unpacking(1, core.node(1).reserve) is None
        assert core.pool.lent_bytes == full
        for chunk in chunks:
            assert chunk is not None
            core.pool.give_back(chunk)


def test_parts_unpacked_beside_a_full_buffer_are_sealed_again() -> None:
    """Each part gets memory of its own until the last has left the shared chunk."""
    core = CoreParts(memory=64 * 1024)
    batch, _ = batch_of(core, records_of(bytes(5000), bytes(5000)))
    seal(core, batch)
    fill(core)

    parts = core.splitter.split(batch, halves(batch), keeps_sequences=True)
    for part in parts:
        seal(core, part)
    for part in parts:
        core.pool.give_back(part.chunk)

    assert [part.count for part in parts] == [1, 1]
    assert all(core.pool.lend_for_unpacking(core.settings.batch_size, core.node(1).reserve) for _ in range(2))


def test_compressed_batch_without_room_to_unpack_stays_whole() -> None:
    core = CoreParts(memory=64 * 1024)
    batch, deliveries = batch_of(core, records_of(bytes(5000), bytes(5000)))
    seal(core, batch)
    fill(core)
    while core.pool.lend_for_unpacking(1024, core.node(1).reserve) is not None:
        pass
    before = bytes(batch.records())

    assert core.splitter.split(batch, halves(batch), keeps_sequences=True) == []

    assert (bytes(batch.records()), batch.compression) == (before, CompressionType.GZIP)
    assert not batch.result.moved
    assert deliveries[1]._batch_result is batch.result


def test_compressed_batch_gives_back_its_compressed_bytes() -> None:
    core = CoreParts()
    batch, _ = batch_of(core, records_of(bytes(5000), bytes(5000)))
    seal(core, batch)

    parts = core.splitter.split(batch, halves(batch), keeps_sequences=True)

    assert core.pool.lent_bytes == parts[0].chunk.capacity
    assert parts[0].chunk is parts[1].chunk
    assert {part.compression for part in parts} == {0}


@pytest.mark.parametrize("codec", list(CompressionType), ids=lambda codec: codec.name)
def test_uncompressed_records_are_those_that_were_written(codec: CompressionType) -> None:
    core = CoreParts()
    batch, _ = batch_of(core, records_of(b"one", b"two"))
    before = bytes(batch.records())
    if codec:
        data = compress(codec, None, batch.records())
        batch.replace_records(core.pool.replace(batch.chunk, data), len(data), codec)

    assert bytes(uncompressed(batch)) == before


# Records taken out, or set apart


@given(RECORDS, st.sets(st.integers(0, 7), min_size=1), st.booleans())
def test_batch_without_some_records_is_the_others_in_order(
    records: list[Record],
    chosen: set[int],
    sealed: bool,  # noqa: FBT001
) -> None:
    core = CoreParts()
    batch, deliveries = batch_of(core, records)
    if sealed:
        seal(core, batch)
    positions = sorted(position for position in chosen if position < batch.count)[: batch.count - 1]
    batch.move_to(BatchState.QUEUED)

    batch.is_sealed = sealed
    cut = core.splitter.cut_out(batch, positions)

    kept = [position for position in range(len(records)) if position not in positions]
    whole = decoded(batch)
    assert list(whole.records) == [records[position] for position in kept]
    assert batch.max_timestamp == max(record.timestamp for record in whole.records)
    assert (batch.count, batch.callers, batch.is_sealed) == (len(kept), len(kept), False)
    assert [places(deliveries, position) for position in kept] == [(batch.result, place) for place in range(len(kept))]
    assert [places(deliveries, position) for position in positions] == [(cut, place) for place in range(len(positions))]


@given(RECORDS, st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_records_set_apart_stay_in_their_batch(records: list[Record], first: set[int], second: set[int]) -> None:
    """Taken out later, with others, they leave it without a caller."""
    core = CoreParts()
    batch, deliveries = batch_of(core, records)
    batch.move_to(BatchState.QUEUED)
    apart = sorted(position for position in first if position < batch.count - 1)
    cut = sorted(position for position in second - first if position < batch.count)[: batch.count - 1 - len(apart)]

    result = core.splitter.detach(batch, apart)

    assert list(decoded(batch).records) == records
    assert (batch.count, batch.callers) == (len(records), len(records) - len(apart))
    others = [position for position in range(len(records)) if position not in apart]
    assert [places(deliveries, position) for position in apart] == [(result, place) for place in range(len(apart))]
    assert [places(deliveries, position) for position in others] == [(batch.result, position) for position in others]

    core.splitter.cut_out(batch, cut)

    left = [position for position in others if position not in cut]
    assert list(decoded(batch).records) == [records[position] for position in left]
    assert [places(deliveries, position) for position in left] == [(batch.result, place) for place in range(len(left))]


def test_batch_that_cannot_be_unpacked_keeps_its_records() -> None:
    core = CoreParts()
    batch, _ = batch_of(core, records_of(b"a" * 100, b"b" * 100))
    seal(core, batch)
    batch.move_to(BatchState.QUEUED)
    result = batch.result
    while core.pool.lend_for_unpacking(100, core.node(1).reserve) is not None:
        pass

    assert core.splitter.cut_out(batch, [0]) is None
    assert (batch.result, batch.count, batch.compression) == (result, 2, CompressionType.GZIP)


def test_parts_keep_deadlines_and_records_set_apart() -> None:
    core = CoreParts()
    batch, deliveries = batch_of(core, records_of(b"a", b"b", b"c"))
    for number, delivery in enumerate(deliveries):
        batch.set_deadline(delivery, RecordDeadline(1.0, 10.0 + number))
    batch.take_due(10.0)
    core.splitter.detach(batch, [0])

    parts = core.splitter.split(batch, [Range(0, 2), Range(2, 3)], keeps_sequences=True)

    assert [(part.first_deadline, part.callers) for part in parts] == [(11.0, 1), (12.0, 1)]


def places(deliveries: list[Delivery], position: int) -> tuple[object, int]:
    return deliveries[position]._batch_result, deliveries[position]._position


# Smaller batches of topics whose batches were refused as too large

BATCH_SIZE = 256 * 1024


def acknowledge(limits: BatchSizeLimits, batches: int) -> None:
    for _ in range(batches):
        limits.acknowledged("t")


def test_topic_never_refused_has_the_batch_size() -> None:
    limits = BatchSizeLimits(BATCH_SIZE)
    acknowledge(limits, 10)

    assert (limits.of("t"), len(limits.by_topic)) == (BATCH_SIZE, 0)


def test_refusal_halves_the_limit() -> None:
    limits = BatchSizeLimits(BATCH_SIZE)
    for _ in range(5):
        limits.refused("t", BATCH_SIZE)

    assert (limits.of("t"), limits.of("other")) == (BATCH_SIZE // 2, BATCH_SIZE)

    limits.refused("t", BATCH_SIZE // 2)

    assert limits.of("t") == BATCH_SIZE // 4


def test_limit_grows_with_acknowledged_batches() -> None:
    limits = BatchSizeLimits(BATCH_SIZE)
    limits.refused("t", BATCH_SIZE)
    acknowledge(limits, BATCHES_BEFORE_GROWTH - 1)
    limits.refused("t", BATCH_SIZE)
    acknowledge(limits, BATCHES_BEFORE_GROWTH - 1)
    assert limits.of("t") == BATCH_SIZE // 2

    acknowledge(limits, 1)
    assert limits.of("t") == int(BATCH_SIZE // 2 * 1.05)

    acknowledge(limits, 20 * BATCHES_BEFORE_GROWTH)
    assert (limits.of("t"), len(limits.by_topic)) == (BATCH_SIZE, 0)
