"""Real Kafka has the batches of each topic in its codec, and another client reads their records."""

import asyncio
import struct

import pytest

from aioproducer import Producer
from aioproducer.testing.kafka import KafkaCluster
from tests.contracts.other_reader import read

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
VALUES = [b"%d " % number * 100 for number in range(20)]


def codecs(kafka: KafkaCluster, topic: str) -> set[int]:
    """Return the codecs of the batches in the log file."""
    data = (kafka.node(1).log_folder / f"{topic}-0" / f"{0:020}.log").read_bytes()
    found, at = set[int](), 0
    while at < len(data):
        found.add(struct.unpack_from(">h", data, at + 21)[0] & 7)
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    return found


async def test_each_topic_is_stored_in_its_codec_and_read(kafka_431: KafkaCluster, topic: str) -> None:
    async with Producer(kafka_431.bootstrap_servers, compression_type="gzip") as producer:
        for codec in CODECS:
            typed = producer.topic(f"{topic}-{codec}", value=bytes, compression_type=codec, linger_ms=50)  # type: ignore[call-overload]
            for value in VALUES:
                await typed.enqueue(value, partition=0)
        await producer.send(f"{topic}-other", VALUES[0], partition=0)
        await producer.flush()

    for codec, number in {**CODECS, "other": CODECS["gzip"]}.items():
        assert codecs(kafka_431, f"{topic}-{codec}") == {number}
    for codec in CODECS:
        found = await asyncio.to_thread(read, kafka_431.bootstrap_servers, f"{topic}-{codec}", "read_committed")
        assert found == VALUES
