"""Reads a whole topic with confluent-kafka and writes what it finds as a dump.

    python -m tests.programs.chaos.checker.read_log --bootstrap HOST:PORT --topic NAME --number 1 --out FILE

The reader is another implementation (librdkafka), so that a fault in our own reading cannot hide one in writing.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka

from tests.programs.chaos.checker.cell_files import LOG_ROW, Covered, Finding, decode, save_coverage

STALLED_S = 60.0  # a reader that finds nothing for so long gives up
ENDS_AGREE_S = 2.0  # ends of the log that do not move for so long are its ends


class LogNotReadableError(Exception):
    """The log could not be read to its end."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--topic-id", default="")
    parser.add_argument("--number", type=int, required=True, help="of the topic within the cell")
    parser.add_argument("--invoked-from-us", type=int, default=0)
    parser.add_argument("--acknowledged-until-us", type=int, default=2**62)
    parser.add_argument("--still-written", action="store_true", help="do not wait for the log to come to rest")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    consumer = make_consumer(asked.bootstrap)
    try:
        ends = log_ends(consumer, asked.topic) if asked.still_written else resting_ends(consumer, asked.topic)
        write_dump(asked.out, asked.number, records(consumer, asked.topic, ends))
    finally:
        consumer.close()
    covered = Covered(asked.number, asked.topic_id, asked.invoked_from_us, asked.acknowledged_until_us, ends)
    save_coverage(asked.out, covered)


def make_consumer(bootstrap: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-checker",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )


def log_ends(consumer: confluent_kafka.Consumer, topic: str) -> dict[int, int]:
    found = consumer.list_topics(topic, timeout=30).topics[topic]
    if found.error is not None or not found.partitions:
        raise LogNotReadableError(f"topic {topic}: {found.error}")
    ends = {}
    for partition in found.partitions:
        place = confluent_kafka.TopicPartition(topic, partition)
        low, high = consumer.get_watermark_offsets(place, timeout=30)
        if low != 0:
            raise LogNotReadableError(f"{topic}-{partition} begins at {low}")
        ends[partition] = high
    return ends


def resting_ends(consumer: confluent_kafka.Consumer, topic: str) -> dict[int, int]:
    ends = log_ends(consumer, topic)
    while True:
        time.sleep(ENDS_AGREE_S)
        before, ends = ends, log_ends(consumer, topic)
        if ends == before:
            return ends


def records(consumer: confluent_kafka.Consumer, topic: str, ends: dict[int, int]) -> Iterator[confluent_kafka.Message]:
    """Every record below `ends`, in each partition in the order of offsets."""
    open_ends = {partition: end for partition, end in ends.items() if end > 0}
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in open_ends])
    heard = time.monotonic()
    while open_ends:
        messages = consumer.consume(10_000, timeout=1.0)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > STALLED_S:
            raise LogNotReadableError(f"{topic}: nothing for {STALLED_S:.0f} s, still open: {open_ends}")
        for message in messages:
            error = message.error()
            if error is not None and not error.retriable():
                raise LogNotReadableError(f"{topic}: {error}")
            end = open_ends.get(message.partition(), 0)
            if error is not None or message.offset() >= end:
                continue
            yield message
            if message.offset() == end - 1:
                del open_ends[message.partition()]


def write_dump(out: Path, number: int, found: Iterator[confluent_kafka.Message]) -> None:
    with out.open("wb", buffering=1 << 20) as rows:
        for message in found:
            rows.write(dump_row(message, number))


def dump_row(message: confluent_kafka.Message, number: int) -> bytes:
    payload = decode(message.value())
    partition, epoch = message.partition(), message.leader_epoch()
    finding, client, n = Finding.CORRUPT, 0, 0
    if payload is not None:
        belongs = payload.topic == number and payload.partition in {-1, partition}
        finding, client, n = Finding.OURS if belongs else Finding.MISROUTED, payload.client, payload.n
    epoch = -1 if epoch is None else epoch
    return LOG_ROW.pack(finding, partition, epoch, client, n, message.offset(), message.timestamp()[1])


if __name__ == "__main__":
    main()
