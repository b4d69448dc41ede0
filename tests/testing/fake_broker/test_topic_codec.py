"""A topic with a `compression.type` keeps its batches in that codec, not the producer's."""

import pytest

from aioproducer._protocol.compression import CompressionType, compress
from aioproducer.testing.fake_broker.log.record_batch import checksum, decode_records, read_header
from aioproducer.testing.fake_broker.topics.topics import TopicRequest
from tests.reference.record_batch import Batch, Record, encode_batch
from tests.testing.model_network import WALL_CLOCK_MS, ModelNetwork

IN_TOPIC = {
    "uncompressed": CompressionType.NONE,
    "gzip": CompressionType.GZIP,
    "snappy": CompressionType.SNAPPY,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
RECORDS = tuple(Record(b"k", b"%d" % number * 50, WALL_CLOCK_MS + number) for number in range(9))


def kept(configs: dict[str, str], codec: CompressionType) -> bytes:
    network = ModelNetwork()
    network.model.topics.create(TopicRequest(name="packed", partitions=1, configs=configs))
    batch = Batch(RECORDS, codec=codec, producer_id=7, producer_epoch=0, base_sequence=0)

    answer = network.client().produce("packed", encode_batch(batch, lambda records: compress(codec, None, records)))

    assert answer.error_code == 0
    (logged,) = network.partition("packed").log.batches()
    return logged.data


@pytest.mark.parametrize("came_in", CompressionType)
@pytest.mark.parametrize("setting", IN_TOPIC)
def test_batch_is_kept_in_the_codec_of_the_topic(setting: str, came_in: CompressionType) -> None:
    """Records, producer and sequence stay the same; the checksum is new."""
    data = kept({"compression.type": setting}, came_in)

    header = read_header(data)
    assert header.codec == IN_TOPIC[setting]
    assert (header.crc, header.size) == (checksum(data), len(data))
    assert (header.producer_id, header.base_sequence, header.max_timestamp) == (7, 0, WALL_CLOCK_MS + 8)
    assert [(each.value, each.timestamp) for each in decode_records(data)] == [
        (each.value, each.timestamp) for each in RECORDS
    ]


@pytest.mark.parametrize("came_in", CompressionType)
def test_batch_is_kept_as_it_came_where_the_topic_names_none(came_in: CompressionType) -> None:
    assert read_header(kept({}, came_in)).codec == came_in


def test_batch_is_repacked_when_its_topic_sets_times() -> None:
    configs = {"compression.type": "lz4", "message.timestamp.type": "LogAppendTime"}

    data = kept(configs, CompressionType.GZIP)

    assert read_header(data).is_log_append_time
    assert (read_header(data).codec, read_header(data).crc) == (CompressionType.LZ4, checksum(data))
