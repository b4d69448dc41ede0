"""Consumers of other libraries read from the embedded cluster, assigned and in groups."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest

from aioproducer.testing import FakeCluster
from aioproducer.testing.kafka import MissingToolError
from aioproducer.testing.kafka.cache import kafka_jars

VALUES = [b"value-%d" % number for number in range(60)]
HEADERS = [("h", b"\x00\xff"), ("n", None), ("h", b"2")]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PROFILES = ["4.4.0", "3.9.1", "2.8", "2.4", "2.1"]


def write(bootstrap_servers: str, *, codec: str = "none") -> None:
    """Send the values to topic `t`, in turn to its two partitions, with librdkafka."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap_servers, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5}
    )
    for number, value in enumerate(VALUES):
        producer.produce(
            "t", value, b"key", partition=number % 2, headers=HEADERS, timestamp=1_700_000_000_000 + number
        )
    assert producer.flush(10) == 0


def read_with_confluent(bootstrap_servers: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition("t", partition, 0) for partition in (0, 1)])
    found: list[bytes] = []
    while len(found) < len(VALUES):
        messages = consumer.consume(len(VALUES), 5)
        assert messages
        assert all(message.error() is None and message.headers() == HEADERS for message in messages)
        found += [message.value() for message in messages]
    consumer.close()
    return found


def read_with_kafka_python(bootstrap_servers: str) -> list[bytes]:
    import kafka  # noqa: PLC0415 - warns of its own use of importlib

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap_servers.split(","), auto_offset_reset="earliest", consumer_timeout_ms=5000
    )
    consumer.assign([kafka.TopicPartition("t", partition) for partition in (0, 1)])
    messages: Iterator[object] = iter(consumer)
    found = [next(messages).value for _ in VALUES]  # type: ignore[attr-defined]
    consumer.close()
    return found


async def read_with_aiokafka(bootstrap_servers: str) -> list[bytes]:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([aiokafka.TopicPartition("t", partition) for partition in (0, 1)])
    async with consumer:
        return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in VALUES]


@pytest.mark.parametrize("codec", CODECS)
async def test_every_codec_is_read_by_aiokafka(codec: str) -> None:
    """Values, headers, keys and times arrive unchanged."""
    async with FakeCluster(2, topics={"t": 2}) as cluster:
        await asyncio.to_thread(write, cluster.bootstrap_servers, codec=codec)

        assert sorted(await read_with_aiokafka(cluster.bootstrap_servers)) == sorted(VALUES)


@pytest.mark.parametrize("codec", CODECS)
async def test_records_are_decoded_for_tests(codec: str) -> None:
    async with FakeCluster(1, topics={"t": 2}) as cluster:
        await asyncio.to_thread(write, cluster.bootstrap_servers, codec=codec)
        records = cluster.records("t", 1)

    assert [record.value for record in records] == VALUES[1::2]
    assert [record.offset for record in records] == list(range(30))
    assert {record.headers for record in records} == {tuple(HEADERS)}
    assert [record.timestamp for record in records] == [1_700_000_000_000 + number for number in range(1, 60, 2)]
    assert [record.sequence for record in records] == list(range(30))


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
async def test_every_profile_is_read_by_confluent_and_aiokafka(profile: str) -> None:
    async with FakeCluster(2, topics={"t": 2}, profile=profile) as cluster:
        await asyncio.to_thread(write, cluster.bootstrap_servers)

        assert sorted(await asyncio.to_thread(read_with_confluent, cluster.bootstrap_servers)) == sorted(VALUES)
        assert sorted(await read_with_aiokafka(cluster.bootstrap_servers)) == sorted(VALUES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("profile", ["4.4.0", "2.1"])
async def test_kafka_python_reads(profile: str) -> None:
    async with FakeCluster(2, topics={"t": 2}, profile=profile) as cluster:
        await asyncio.to_thread(write, cluster.bootstrap_servers)

        assert sorted(await asyncio.to_thread(read_with_kafka_python, cluster.bootstrap_servers)) == sorted(VALUES)


async def test_reader_follows_a_leader_that_dies() -> None:
    async with FakeCluster(3, topics={"t": 2}) as cluster:
        await asyncio.to_thread(write, cluster.bootstrap_servers)

        await cluster.kill(cluster.leader_of("t", 0))

        assert sorted(await read_with_aiokafka(cluster.bootstrap_servers)) == sorted(VALUES)


async def test_group_shares_partitions_and_goes_on_where_it_was() -> None:
    async with FakeCluster(1, topics={"t": 2}) as cluster:
        await asyncio.to_thread(write, cluster.bootstrap_servers)
        options = {
            "bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "heartbeat_interval_ms": 50,
            "auto_offset_reset": "earliest", "enable_auto_commit": False,
        }  # fmt: skip
        first, second = (aiokafka.AIOKafkaConsumer("t", **options) for _ in range(2))
        await first.start()
        await second.start()
        await until(lambda: [len(first.assignment()), len(second.assignment())] == [1, 1])
        (partition,) = second.assignment()
        for _ in range(10):
            await second.getone()
        await second.commit()
        await second.stop()
        await until(lambda: len(first.assignment()) == 2)

        assert await first.committed(partition) == 10
        await first.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - consumers have no event for it
            await asyncio.sleep(0.01)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("version", [pytest.param("3.9.1", marks=pytest.mark.nightly), "4.4.0"])
async def test_java_reads(version: str) -> None:
    try:
        jars = await kafka_jars(version)
    except MissingToolError as missing:
        pytest.skip(str(missing))
    source = str(Path(__file__).with_name("AssignedReader.java"))
    async with FakeCluster(2, topics={"t": 2}) as cluster:
        await asyncio.to_thread(write, cluster.bootstrap_servers)
        command = ["java", "-cp", f"{jars}/*", source, cluster.bootstrap_servers, "t", str(len(VALUES))]
        java = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        output, _ = await asyncio.wait_for(java.communicate(), 60)

    assert sorted(line.split()[2] for line in output.decode().splitlines()) == sorted(v.decode() for v in VALUES)
