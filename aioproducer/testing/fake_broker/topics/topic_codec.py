"""Packs a batch anew where its topic wants another codec than its producer used.

What arrives and what is kept then differ in size, and Kafka holds both against `max.message.bytes`: a batch that was
small enough on the wire may be refused for what it would be in the log.

Source: LogValidator.buildRecordsAndAssignOffsets in Apache Kafka.
"""

from collections.abc import Mapping
from types import MappingProxyType

from aioproducer._protocol.compression import CompressionType, compress
from aioproducer.testing.fake_broker.log.record_batch import HEADER_SIZE, BatchHeader, decompress, repacked

CODECS: Mapping[str, CompressionType] = MappingProxyType(
    {"uncompressed": CompressionType.NONE, **{each.name.lower(): each for each in CompressionType if each}}
)
"""By what `compression.type` of a topic says; missing is `producer`, which keeps what the producer used."""


def in_codec_of_topic(batch: memoryview, header: BatchHeader, codec: CompressionType) -> memoryview:
    """Return a checked batch in the codec of its topic."""
    records = decompress(header.codec, batch[HEADER_SIZE:])
    return memoryview(repacked(batch, codec=codec, records=compress(codec, None, records)))
