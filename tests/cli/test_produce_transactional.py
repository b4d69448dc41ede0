"""`aioproducer produce --transactional`: all of the input or nothing, as a reader of what is committed sees it."""

import asyncio
import signal
from pathlib import Path

import confluent_kafka
import pytest

from tests.cli.commands import Ended, ended, feed, run, started

pytestmark = [pytest.mark.slow, pytest.mark.timing]

PATIENCE_S = 60.0
END_OF_PARTITION = -191  # librdkafka's own code

LINES = b"".join(b"%d\n" % number for number in range(500))


def read_committed(bootstrap_servers: str, topic: str) -> list[bytes]:
    """All that is committed of what is in the topic now, by librdkafka.

    Its reader comes to the first open transaction, and says that this is the end. Brokers write the markers of a commit
    after their answer, so the reader goes on until it is behind all records, committed or not.
    """
    ends = end_offsets(bootstrap_servers, topic)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in ends])
    values: list[bytes] = []
    left = set(ends)
    while left:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"a transaction stays open: {left} are not read to their ends, {ends}"
        if message.error() is None:
            values.append(message.value())
            continue
        assert message.error().code() == END_OF_PARTITION
        if message.offset() >= ends[message.partition()]:
            left.discard(message.partition())
    consumer.close()
    return sorted(values, key=lambda value: (len(value), value))


def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """The end of each partition, behind records of open transactions too."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "reader", "isolation.level": "read_uncommitted"}
    )
    numbers = consumer.list_topics(topic, 10).topics[topic].partitions
    partitions = {number: confluent_kafka.TopicPartition(topic, number) for number in numbers}
    ends = {number: consumer.get_watermark_offsets(each, timeout=10)[1] for number, each in partitions.items()}
    consumer.close()
    return ends


async def seen(bootstrap_servers: str, topic: str) -> list[bytes]:
    return await asyncio.to_thread(read_committed, bootstrap_servers, topic)


async def produce(bootstrap_servers: str, topic: str, *arguments: str, stdin: bytes = LINES) -> Ended:
    return await run("produce", topic, "-b", bootstrap_servers, "--transactional", *arguments, stdin=stdin)


async def test_whole_input_is_committed(broker: str, topic: str) -> None:
    produced = await produce(broker, topic)

    assert produced.code == 0
    assert produced.errors[0].startswith(f"500 records delivered to {topic}")
    assert await seen(broker, topic) == LINES.split()


async def test_one_bad_line_and_nothing_is_there(broker: str, topic: str, tmp_path: Path) -> None:
    lines = b'{"a": 1}\n' * 300 + b"{broken\n" + b'{"a": 1}\n'
    (tmp_path / "good.jsonl").write_bytes(b'{"b": 2}\n')

    produced = await produce(broker, topic, "-f", "jsonl", stdin=lines)
    again = await produce(broker, topic, "-f", "jsonl", str(tmp_path / "good.jsonl"))

    assert produced.code == 1
    assert any("the transaction is aborted: nothing of the input is in" in line for line in produced.errors)
    assert again.code == 0
    assert await seen(broker, topic) == [b'{"b": 2}']


async def test_bad_lines_may_be_passed_over(broker: str, topic: str) -> None:
    produced = await produce(broker, topic, "-f", "jsonl", "--skip-bad-lines", stdin=b'{"a": 1}\n{broken\n{"a": 2}\n')

    assert produced.code == 1
    assert await seen(broker, topic) == [b'{"a": 1}', b'{"a": 2}']


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signal_aborts(broker: str, topic: str, number: signal.Signals) -> None:
    arguments = ["produce", topic, "-b", broker, "--transactional"]
    async with started(*arguments) as process:
        await feed(process, LINES)
        await asyncio.to_thread(_wait_for_records, broker, topic)
        process.send_signal(number)
        stopped = await ended(process)

    assert stopped.code == 128 + number
    assert "aborting the transaction" in stopped.errors[0]
    assert "the transaction is aborted: nothing of the input is in" in stopped.errors[1]
    assert await seen(broker, topic) == []


async def test_killed_run_is_cleared_away_by_the_next(broker: str, topic: str) -> None:
    """At once: it need not wait for the transaction's time to be over."""
    async with started("produce", topic, "-b", broker, "--transactional") as process:
        await feed(process, LINES)
        await asyncio.to_thread(_wait_for_records, broker, topic)
        process.kill()
        await process.wait()

    produced = await produce(broker, topic, stdin=b"one\n")

    assert produced.code == 0
    assert await seen(broker, topic) == [b"one"]


async def test_second_run_with_the_same_id_stops_the_first(broker: str, topic: str) -> None:
    async with started("produce", topic, "-b", broker, "--transactional") as process:
        await feed(process, LINES)
        await asyncio.to_thread(_wait_for_records, broker, topic)
        second = await produce(broker, topic, stdin=b"two\n")
        first = await ended(process, b"more\n")

    assert (first.code, second.code) == (1, 0)
    assert any("a newer producer has taken it over" in line for line in first.errors)
    assert await seen(broker, topic) == [b"two"]


async def test_id_without_a_transaction_is_told() -> None:
    told = await run("produce", "t", "--transactional-id", "x")

    assert (told.code, told.errors) == (2, ["--transactional-id 'x' needs --transactional"])


async def test_what_no_transaction_can_have_is_told() -> None:
    """By the configuration's own words."""
    told = await run("produce", "t", "--transactional", "-X", "acks=1")

    assert (told.code, len(told.errors)) == (2, 1)
    assert "acks" in told.errors[0]


def _wait_for_records(bootstrap_servers: str, topic: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "watcher",
            "isolation.level": "read_uncommitted",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 100,
        }
    )
    consumer.subscribe([topic])
    message = None
    while message is None or message.error() is not None:
        message = consumer.poll(20)
    consumer.close()
