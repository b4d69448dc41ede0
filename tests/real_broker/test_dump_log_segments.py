"""Kafka's own reader of log files finds in them exactly what was sent, with every codec."""

import re
import time
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from aioproducer import Producer
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.java_process import java_command, run_program
from aioproducer.testing.kafka.kafka_jars import kafka_jars

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOOLS = {"3.9.1": (False, "kafka.tools.DumpLogSegments"), "4.3.1": (True, "org.apache.kafka.tools.DumpLogSegments")}
"""Whether it is among the tools' jars, and its name."""

Codec: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
TIMESTAMP = time.time_ns() // 1_000_000  # today: the broker deletes logs that are older than a week
VALUES = (b"a" * 300, None, b"", b"b" * 300)


@pytest.fixture(params=list(TOOLS))
def kafka(request: pytest.FixtureRequest) -> KafkaCluster:
    running: KafkaCluster = request.getfixturevalue(f"kafka_{request.param.replace('.', '')}")
    return running


@pytest.fixture(params=["none", "gzip", "snappy", "lz4", "zstd"])
def codec(request: pytest.FixtureRequest) -> Codec:
    name: Codec = request.param
    return name


@pytest.fixture
async def printed(kafka: KafkaCluster, codec: Codec, topic: str) -> str:
    await send_one_batch(kafka, topic, codec)
    return await dump(kafka, topic)


async def dump(kafka: KafkaCluster, topic: str) -> str:
    """Return the output of this version's own tool for the first log file of partition 0."""
    with_tools, main_class = TOOLS[kafka.version]
    jars = await kafka_jars(kafka.version, tools=with_tools)
    log = kafka.node(1).log_folder / f"{topic}-0" / "00000000000000000000.log"
    arguments = ("--deep-iteration", "--print-data-log", "--files", str(log))
    return await run_program(java_command(jars, main_class, arguments))


async def send_one_batch(kafka: KafkaCluster, topic: str, codec: Codec) -> None:
    """Four records: with a key and a header, without a value, with an empty one, and with a late timestamp."""
    async with Producer(kafka.bootstrap_servers, compression_type=codec, linger_ms=60_000) as producer:
        await producer.enqueue(topic, VALUES[0], key=b"k", headers=[("h", b"1")], partition=0, timestamp=TIMESTAMP)
        for index, value in enumerate(VALUES[1:], start=1):
            producer.send(topic, value, partition=0, timestamp=TIMESTAMP + index)


def fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S*)", line))


def test_batch_is_listed_as_it_was_sent(printed: str, codec: Codec, tmp_path: Path) -> None:
    (tmp_path / "listing.txt").write_text(printed, "utf-8")  # for the reader of a failure
    [batch] = [fields(line) for line in printed.splitlines() if line.startswith("baseOffset")]
    records = [fields(line) for line in printed.splitlines() if line.startswith("| offset")]

    assert [batch[name] for name in ("count", "magic", "compresscodec", "isvalid")] == ["4", "2", codec, "true"]
    assert [batch[name] for name in ("baseSequence", "lastSequence", "producerEpoch")] == ["0", "3", "0"]
    assert [record["valueSize"] for record in records] == ["300", "-1", "0", "300"]
    assert [record["CreateTime"] for record in records] == [str(TIMESTAMP + index) for index in range(4)]
    assert [(record["keySize"], record["headerKeys"]) for record in records] == [("1", "[h]"), *[("-1", "[]")] * 3]
