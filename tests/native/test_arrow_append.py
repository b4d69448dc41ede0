"""Rows of Arrow tables are appended as the same rows would be, given as objects."""

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._accumulator.wait_queue import WaitingRecord
from aioproducer._native.append_many import BulkAppend
from aioproducer._native.arrow_append import ArrowAppend
from aioproducer._native.delivery import BatchResult
from aioproducer._producer.arrow import ArrowRecords, ColumnNames
from aioproducer.errors import KafkaError
from tests.arrow_tables import RecordTable, damaged_headers, record_tables
from tests.fakes.core_parts import CoreParts

if TYPE_CHECKING:
    from aioproducer._native.append_many import Row

PARTITIONS = 3
SETTINGS = st.fixed_dictionaries(
    {
        "memory": st.sampled_from([10_000, 1_000_000]),
        "batch_size": st.sampled_from([256, 1_024, 16_384]),
        "max_record_size": st.sampled_from([2_500, 8_000]),
        "ignore_keys": st.booleans(),
    }
)


class Ends(NamedTuple):
    """What became of the rows of one call."""

    refused: list[tuple[int, type[Exception], str]]
    waited: "list[tuple[int, Row]]"
    sent: list[tuple[object, int, bytes]]
    places: list[tuple[int, int, int]]


def appended(many: BulkAppend, parts: CoreParts) -> Ends:
    ends = Ends([], [], [], [])
    is_over = False
    while not is_over:
        try:
            is_over = many.run()
        except (TypeError, ValueError, KafkaError) as error:
            assert many.is_at_row
            ends.refused.append((many.position, type(error), str(error)))
            continue
        if many.waiting is not None:
            ends.waited.append((many.position, many.waiting))
            join(parts, many.waiting)
            acknowledge_all(parts, ends)
    parts.flush()
    acknowledge_all(parts, ends)
    for share in many.shares:
        deliveries = [(position, delivery.result()) for position, delivery in share.deliveries()]
        ends.places.extend((position, metadata.partition, metadata.offset) for position, metadata in deliveries)
        offsets = [metadata.offset for _, metadata in deliveries]
        assert (share.first, share.last) == (
            offsets[0] - share.batch_result.base_offset,
            offsets[-1] - share.batch_result.base_offset,
        )
        assert len(share) == len(deliveries)
    return ends


def join(parts: CoreParts, row: "Row") -> None:
    """Let a row wait for memory."""
    value, key, partition, timestamp, headers = row
    as_bytes, key_as_bytes, at, size = parts.appender.measure("t", value, key, partition, timestamp, headers)
    result = BatchResult(None, None)  # type: ignore[arg-type]  # nobody awaits it
    record = WaitingRecord("t", result, timestamp=at, size=size, called_at=parts.now)
    record.value, record.key, record.partition, record.headers = as_bytes, key_as_bytes, partition, headers
    parts.wait_queues.join(record, is_counted=False)


def acknowledge_all(parts: CoreParts, ends: Ends) -> None:
    while batches := parts.drain():
        for batch in batches:
            ends.sent.append((batch.queue.topic_partition, batch.count, bytes(memoryview(batch.chunk)[: batch.size])))
            parts.acknowledge(batch, base_offset=1000 * len(ends.sent))
        parts.wait_queues.serve()


def both(given_table: RecordTable, settings: dict[str, int]) -> tuple[Ends, Ends]:
    ends = []
    for is_arrow in (False, True):
        parts = CoreParts(leaders=(1,) * PARTITIONS, **settings)
        appender = parts.appender
        if is_arrow:
            many: BulkAppend = ArrowAppend(appender, "t", iter(ArrowRecords(given_table.table, ColumnNames())))
        else:
            many = BulkAppend(appender, "t", given_table.rows)  # type: ignore[arg-type]  # some are to be refused
        ends.append(appended(many, parts))
    return ends[0], ends[1]


@given(record_tables(partitions=PARTITIONS), SETTINGS)
def test_columns_are_appended_as_their_rows_are(given_table: RecordTable, settings: dict[str, int]) -> None:
    expected, found = both(given_table, settings)

    assert found == expected
    assert len(found.places) + len(found.refused) + len(found.waited) == len(given_table.rows)


@given(record_tables(partitions=PARTITIONS, is_keyed=False), SETTINGS)
def test_keyless_columns_fill_one_batch_after_another(given_table: RecordTable, settings: dict[str, int]) -> None:
    """To its end, as rows do (KIP-794)."""
    expected, found = both(given_table, settings)

    assert found == expected


@given(record_tables(partitions=PARTITIONS))
def test_rows_of_columns_are_objects_again(given_table: RecordTable) -> None:
    parts = CoreParts()
    many = ArrowAppend(parts.appender, "t", iter(ArrowRecords(given_table.table, ColumnNames())))

    assert list(many.remaining()) == given_table.rows


def test_name_that_is_not_utf8_refuses_its_row() -> None:
    """As a header that is none does."""
    headers = damaged_headers()
    table = RecordTable(
        pa.table({"value": [b"v"], "headers": headers.array}), [(b"v", None, None, None, *headers.rows)]
    )

    expected, found = both(table, {})

    assert found == expected
    assert [error for _, error, _ in found.refused] == [TypeError]


@pytest.mark.parametrize("rows", [1, 1_023, 1_024, 1_025, 5_000])
def test_position_is_the_calls_whatever_the_batches(rows: int) -> None:
    values = [b"%d" % row for row in range(rows)]
    table = pa.Table.from_batches(
        pa.record_batch({"value": [*values[start : start + 700]]}) for start in range(0, rows, 700)
    )
    refused = pa.table({"value": [bytes(300_000), b"last"]})
    objects: list[tuple[object, ...]] = [
        (value, None, None, None, None) for value in [*values, bytes(300_000), b"last"]
    ]

    expected, found = both(RecordTable(pa.concat_tables([table, refused]), objects), {})

    assert found == expected
    assert [position for position, *_ in found.refused] == [rows]


def test_appending_goes_on_after_a_pause() -> None:
    parts = CoreParts()
    many = ArrowAppend(parts.appender, "t", iter(ArrowRecords(pa.table({"value": [b"v"] * 10}), ColumnNames())))
    parts.appender.pause_wanted = True

    assert not many.run()
    assert not parts.appender.pause_wanted
    assert many.position == 0
    assert many.run()
    assert many.position == 9
