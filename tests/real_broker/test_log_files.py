"""What real Kafka has in its log files: records as their outcomes say, whole, and in the codec of their topic."""

import asyncio
import re
import struct
import time
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from aioproducer import Delivery, DeliveryTimeoutError, KafkaError, Outcome, Producer, PurgedError
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.cache import kafka_jars
from aioproducer.testing.kafka.programs import java_command, run_program
from tests.contracts.clients import read

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def outcome_of(delivery: Delivery, kind: type[KafkaError]) -> Outcome | None:
    error = delivery.exception()
    assert isinstance(error, kind)
    return error.outcome


@pytest.mark.parametrize("release", ["3.9.1", "4.4.0"])
async def test_log_holds_what_the_outcomes_say(  # noqa: PLR0915  # one story
    request: pytest.FixtureRequest, topic: str, release: str
) -> None:
    """Records that no caller awaits linger, so that they are certainly not sent; what is left of their batch is."""
    kafka: KafkaCluster = request.getfixturevalue(f"kafka_{release.replace('.', '')}")
    [node_id] = kafka.node_ids
    async with Producer(kafka.bootstrap_servers, linger_ms=10_000) as producer:
        await producer.send(topic, b"first", partition=0)
        await asyncio.to_thread(kafka.pause, node_id)
        try:
            on_wire = [producer.send(topic, b"on the wire", partition=0, deadline=limit) for limit in (1.0, None)]
            told = asyncio.ensure_future(asyncio.wait(on_wire, return_when=asyncio.FIRST_COMPLETED))
            await asyncio.sleep(0.2)
            ended = asyncio.Event()
            late = producer.send(topic, b"late", partition=0, deadline=1.0, on_delivery=lambda *_: ended.set())
            kept = producer.send(topic, b"kept", partition=0)
            await asyncio.gather(told, ended.wait())
            purged = producer.send(topic, b"purged", partition=0)
            assert producer.purge() == 1
        finally:
            await asyncio.to_thread(kafka.resume, node_id)
        await asyncio.gather(on_wire[1], kept)
        await producer.send(topic, b"last", partition=0)
        if on_wire[0].exception() is not None:  # else the broker answered just before it was frozen
            assert outcome_of(on_wire[0], DeliveryTimeoutError) is Outcome.UNKNOWN
        assert outcome_of(late, DeliveryTimeoutError) is Outcome.NOT_WRITTEN
        assert outcome_of(purged, PurgedError) is Outcome.NOT_WRITTEN

    found = await asyncio.to_thread(read, kafka.bootstrap_servers, topic, "read_committed")
    assert found == [b"first", b"on the wire", b"on the wire", b"kept", b"last"]


CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CODEC_VALUES = [b"%d " % number * 100 for number in range(20)]


def codecs(kafka: KafkaCluster, topic: str) -> set[int]:
    """Return the codecs of the batches in the log file."""
    data = (kafka.node(1).log_folder / f"{topic}-0" / f"{0:020}.log").read_bytes()
    found, at = set[int](), 0
    while at < len(data):
        found.add(struct.unpack_from(">h", data, at + 21)[0] & 7)
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    return found


async def test_each_topic_is_stored_in_its_codec_and_read(kafka_440: KafkaCluster, topic: str) -> None:
    async with Producer(kafka_440.bootstrap_servers, compression_type="gzip") as producer:
        for codec in CODECS:
            typed = producer.topic(f"{topic}-{codec}", value=bytes, compression_type=codec, linger_ms=50)  # type: ignore[call-overload]
            for value in CODEC_VALUES:
                await typed.enqueue(value, partition=0)
        await producer.send(f"{topic}-other", CODEC_VALUES[0], partition=0)
        await producer.flush()

    for codec, number in {**CODECS, "other": CODECS["gzip"]}.items():
        assert codecs(kafka_440, f"{topic}-{codec}") == {number}
    for codec in CODECS:
        found = await asyncio.to_thread(read, kafka_440.bootstrap_servers, f"{topic}-{codec}", "read_committed")
        assert found == CODEC_VALUES


TOOLS = {"3.9.1": (False, "kafka.tools.DumpLogSegments"), "4.4.0": (True, "org.apache.kafka.tools.DumpLogSegments")}
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
