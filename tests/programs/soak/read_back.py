"""The log as librdkafka reads it, in a process of its own.

`python -m tests.programs.soak.read_back BOOTSTRAP TOPIC`.

Counts all, and reads the last records of each partition: a soak writes more than can be read again.
Prints one line of JSON.
"""

import json
import sys
from dataclasses import asdict, dataclass, field

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition

READ_BACK = 50_000

SILENCE_S = 30.0


@dataclass(slots=True)
class PartitionLog:
    end_offset: int
    read: int = 0
    disorder: list[str] = field(default_factory=list)
    """The first places at which a number does not follow the one before."""
    last_number: int = -1


def read_partition(consumer: Consumer, topic: str, partition: int) -> PartitionLog:
    place = TopicPartition(topic, partition)
    first, end = consumer.get_watermark_offsets(place, timeout=SILENCE_S)
    log = PartitionLog(end)
    offset = max(first, end - READ_BACK)
    if offset >= end:
        return log
    consumer.assign([TopicPartition(topic, partition, offset)])
    while offset < end - 1:
        messages = consumer.consume(5_000, timeout=SILENCE_S)
        if not messages:
            text = f"partition {partition} ends at {end}, and nothing comes after {offset}"
            raise RuntimeError(text)
        for message in messages:
            offset = message.offset() or 0
            look(log, message, offset)
    return log


def look(log: PartitionLog, message: confluent_kafka.Message, offset: int) -> None:
    number = int((message.value() or b"-1").split(b" ")[0])
    if log.read and number != log.last_number + 1 and len(log.disorder) < 10:
        log.disorder.append(f"number {number} after {log.last_number} at offset {offset}")
    log.last_number = number
    log.read += 1


def main(bootstrap: str, topic: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "soak", "enable.auto.commit": False, "log_level": 0}
    )
    partitions = consumer.list_topics(topic, timeout=SILENCE_S).topics[topic].partitions
    found = {number: asdict(read_partition(consumer, topic, number)) for number in sorted(partitions)}
    consumer.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:3])
