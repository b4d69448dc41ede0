"""Rows that are larger than a producer takes, found before it sees them: one that it refuses ends its transaction."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from aioproducer._native.append import HEADER_SIZE
from aioproducer._producer.component_settings import accumulator_settings
from aioproducer.config import ProducerConfig

_RECORD_OVERHEAD: Final = 31
"""Most bytes of a record beside its key, value and headers: `RECORD_OVERHEAD` of `_native/record_bytes.pxd`."""
_BITS_OF_VARINT: Final = 7


class SizeLimit:
    """The largest record of a producer, its batch's header included, as its append counts it."""

    def __init__(self, config: ProducerConfig) -> None:
        self._bytes: Final = accumulator_settings(config).max_record_size

    def fitting(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return the positions of the rows that are not too large; None if all are not."""
        sizes = pa.repeat(pa.scalar(HEADER_SIZE + _RECORD_OVERHEAD, pa.int64()), batch.num_rows)
        for part in ("key", "value"):
            if part in batch.schema.names:
                lengths = pc.binary_length(batch.column(part)).cast(pa.int64())
                sizes = pc.add(sizes, lengths.fill_null(0))
        if "headers" in batch.schema.names:
            headers = batch.column("headers").to_pylist()
            sizes = pc.add(sizes, pa.array(map(_size_of_headers, headers), pa.int64()))
        else:
            sizes = pc.add(sizes, 1)
        fits = pc.less_equal(sizes, self._bytes)
        return None if pc.all(fits).as_py() is not False else pc.indices_nonzero(fits)


def _size_of_headers(headers: Sequence[Mapping[str, str | bytes | None] | None] | None) -> int:
    """Return the bytes of a row's headers; those that the producer refuses count as they are."""
    parts = [part or b"" for pair in headers or () for part in (pair or {}).values()]
    sizes = [len(part.encode() if isinstance(part, str) else part) for part in parts]
    return _size_of_varint(len(headers or ())) + sum(_size_of_varint(size) + size for size in sizes)


def _size_of_varint(number: int) -> int:
    """Return the bytes of a number that is 0 or more, with Kafka's zigzag before them."""
    return max(1, -(-(number << 1).bit_length() // _BITS_OF_VARINT))
