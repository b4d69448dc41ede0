"""Option sets of a read, with what Spark's own source reads, or that it refuses them; and the topics they are for.

Of three partitions of a topic, with 10, 5 and 8 records; the first three of the last partition are deleted. A second
topic has one partition with 4 records.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

COUNTS: Final = (10, 5, 8)
DELETED: Final = 3
OTHER_COUNT: Final = 4
START_MS: Final = 1_700_000_000_000
"""Time of the first record of each partition; the next ones follow a second after each other."""

KEPT: Final = {"retention.ms": "-1"}
"""Of topics whose records are old when they are written."""

Rows = dict[str, tuple[int, int]]
"""Partition -> first offset, and the one after the last; `o` is the partition of the other topic."""

ALL: Final[Rows] = {"0": (0, 10), "1": (0, 5), "2": (3, 8)}
NOTHING: Final[Rows] = {}


class OptionSet(NamedTuple):
    """Options beside the servers; `%t` and `%o` stand for the names of the topics."""

    options: Mapping[str, str]
    rows: Rows | None
    """None: refused."""


def _offsets(**numbers: int) -> str:
    return json.dumps({"%t": {name.removeprefix("p"): number for name, number in numbers.items()}})


def _times(**seconds: int) -> str:
    return _offsets(**{name: START_MS + 1_000 * second for name, second in seconds.items()})


def _at(second: int) -> str:
    return str(START_MS + 1_000 * second)


ON: Final = {"subscribe": "%t"}
LENIENT: Final = {**ON, "failOnDataLoss": "false"}
BOTH: Final = {**ALL, "o": (0, OTHER_COUNT)}

BATCHES: Final[Mapping[str, OptionSet]] = {
    "nothing said": OptionSet(ON, ALL),
    "earliest to latest": OptionSet({**ON, "startingOffsets": "EARLIEST", "endingOffsets": " latest "}, ALL),
    "start": OptionSet({**ON, "startingOffsets": _offsets(p0=2, p1=1, p2=4)}, {"0": (2, 10), "1": (1, 5), "2": (4, 8)}),
    "start at the earliest": OptionSet({**ON, "startingOffsets": _offsets(p0=-2, p1=-2, p2=-2)}, ALL),
    "start, one left out": OptionSet({**ON, "startingOffsets": _offsets(p0=2, p1=1)}, None),
    "start, unknown partition": OptionSet({**ON, "startingOffsets": _offsets(p0=2, p1=1, p2=4, p7=0)}, None),
    "start, unknown topic": OptionSet({**ON, "startingOffsets": '{"nowhere": {"0": 0}}'}, None),
    "start of nothing": OptionSet({**ON, "startingOffsets": "{}"}, None),
    "start at the latest": OptionSet({**ON, "startingOffsets": "latest"}, None),
    "start, one at the latest": OptionSet({**ON, "startingOffsets": _offsets(p0=2, p1=-1, p2=4)}, None),
    "start at -3": OptionSet({**ON, "startingOffsets": _offsets(p0=-3, p1=0, p2=4)}, None),
    "start before the log": OptionSet({**ON, "startingOffsets": _offsets(p0=0, p1=0, p2=1)}, None),
    "start before the log, lenient": OptionSet({**LENIENT, "startingOffsets": _offsets(p0=0, p1=0, p2=1)}, ALL),
    "start beyond the log": OptionSet({**ON, "startingOffsets": _offsets(p0=50, p1=0, p2=3)}, None),
    "start beyond the log, lenient": OptionSet({**LENIENT, "startingOffsets": _offsets(p0=50, p1=0, p2=3)}, None),
    "start that is no JSON": OptionSet({**ON, "startingOffsets": "first"}, None),
    "end": OptionSet({**ON, "endingOffsets": _offsets(p0=4, p1=-1, p2=5)}, {"0": (0, 4), "1": (0, 5), "2": (3, 5)}),
    "end, one left out": OptionSet({**ON, "endingOffsets": _offsets(p0=4, p1=3)}, None),
    "end, unknown partition": OptionSet({**ON, "endingOffsets": _offsets(p0=4, p1=3, p2=5, p3=1)}, None),
    "end at the earliest": OptionSet({**ON, "endingOffsets": "earliest"}, None),
    "end, one at the earliest": OptionSet({**ON, "endingOffsets": _offsets(p0=4, p1=-2, p2=5)}, None),
    "end beyond the log": OptionSet({**ON, "endingOffsets": _offsets(p0=50, p1=5, p2=8)}, None),
    "end beyond the log, lenient": OptionSet({**LENIENT, "endingOffsets": _offsets(p0=50, p1=5, p2=8)}, ALL),
    "end before the log": OptionSet({**ON, "endingOffsets": _offsets(p0=5, p1=5, p2=2)}, None),
    "start behind end": OptionSet(
        {**ON, "startingOffsets": _offsets(p0=5, p1=0, p2=3), "endingOffsets": _offsets(p0=4, p1=5, p2=8)}, None
    ),
    "start is end": OptionSet(
        {**ON, "startingOffsets": _offsets(p0=5, p1=5, p2=5), "endingOffsets": _offsets(p0=5, p1=5, p2=5)}, NOTHING
    ),
    "start and end of other partitions": OptionSet(
        {**ON, "startingOffsets": _offsets(p0=5, p1=0), "endingOffsets": _offsets(p0=6, p2=8)}, None
    ),
    "both beyond the log": OptionSet(
        {**ON, "startingOffsets": _offsets(p0=50, p1=0, p2=3), "endingOffsets": _offsets(p0=60, p1=2, p2=4)}, None
    ),
    "both beyond the log, lenient": OptionSet(
        {**LENIENT, "startingOffsets": _offsets(p0=50, p1=0, p2=3), "endingOffsets": _offsets(p0=60, p1=2, p2=4)},
        {"1": (0, 2), "2": (3, 4)},
    ),
    "start at a time": OptionSet({**ON, "startingTimestamp": _at(4)}, {"0": (4, 10), "1": (4, 5), "2": (4, 8)}),
    "start at a time that one has not": OptionSet({**ON, "startingTimestamp": _at(6)}, None),
    "start at a time that one has not, or latest": OptionSet(
        {**ON, "startingTimestamp": _at(6), "startingOffsetsByTimestampStrategy": "latest"},
        {"0": (6, 10), "2": (6, 8)},
    ),
    "start at no time": OptionSet({**ON, "startingTimestamp": "soon"}, None),
    "start at times": OptionSet(
        {**ON, "startingOffsetsByTimestamp": _times(p0=9, p1=1, p2=0)}, {"0": (9, 10), "1": (1, 5), "2": (3, 8)}
    ),
    "start at times, one left out": OptionSet({**ON, "startingOffsetsByTimestamp": _times(p0=9, p1=1)}, None),
    "start at a time rather than an offset": OptionSet(
        {**ON, "startingTimestamp": _at(4), "startingOffsets": "latest"}, {"0": (4, 10), "1": (4, 5), "2": (4, 8)}
    ),
    "end at a time": OptionSet({**ON, "endingTimestamp": _at(4)}, {"0": (0, 4), "1": (0, 4), "2": (3, 4)}),
    "end at a time that is to come": OptionSet({**ON, "endingTimestamp": _at(99)}, ALL),
    "end at times": OptionSet(
        {**ON, "endingOffsetsByTimestamp": _times(p0=1, p1=99, p2=5)}, {"0": (0, 1), "1": (0, 5), "2": (3, 5)}
    ),
    "end at times, unknown partition": OptionSet(
        {**ON, "endingOffsetsByTimestamp": _times(p0=1, p1=99, p2=5, p9=1)}, None
    ),
    "end at an earlier time": OptionSet({**ON, "startingTimestamp": _at(4), "endingTimestamp": _at(2)}, None),
    "assign": OptionSet({"assign": '{"%t": [0, 2]}'}, {"0": (0, 10), "2": (3, 8)}),
    "assign with offsets": OptionSet(
        {"assign": '{"%t": [0, 2]}', "startingOffsets": _offsets(p0=7, p2=-2)}, {"0": (7, 10), "2": (3, 8)}
    ),
    "assign with offsets of others": OptionSet(
        {"assign": '{"%t": [0, 2]}', "startingOffsets": _offsets(p0=7, p1=0, p2=-2)}, None
    ),
    "assign, unknown partition": OptionSet({"assign": '{"%t": [0, 7]}'}, {"0": (0, 10)}),
    "assign, unknown topic": OptionSet({"assign": '{"nowhere": [0]}'}, None),
    "assign of nothing": OptionSet({"assign": "orders"}, None),
    "two topics": OptionSet({"subscribe": "%t, %o,"}, BOTH),
    "unknown topic": OptionSet({"subscribe": "nowhere"}, None),
    "no topic": OptionSet({"subscribe": " , "}, None),
    "nothing to read": OptionSet({}, None),
    "two ways": OptionSet({**ON, "assign": '{"%t": [0]}'}, None),
    "pattern": OptionSet({"subscribePattern": "%t$|%o"}, BOTH),
    "pattern found within": OptionSet({"subscribePattern": "[a-z]-others"}, {"o": (0, OTHER_COUNT)}),
    "pattern of no topic": OptionSet({"subscribePattern": "^nowhere"}, NOTHING),
    "pattern that is none": OptionSet({"subscribePattern": "%t("}, None),
    "headers": OptionSet({**ON, "includeHeaders": "true"}, ALL),
    "more parts": OptionSet({**ON, "minPartitions": "7"}, ALL),
    "fewer parts": OptionSet({**ON, "minPartitions": "2"}, ALL),
    "small parts": OptionSet({**ON, "maxRecordsPerPartition": "4"}, ALL),
    "small parts, and more": OptionSet({**ON, "maxRecordsPerPartition": "6", "minPartitions": "9"}, ALL),
    "no parts": OptionSet({**ON, "minPartitions": "0"}, None),
    "limits of streams": OptionSet({**ON, "maxOffsetsPerTrigger": "2", "minOffsetsPerTrigger": "1"}, ALL),
    "limits that exclude each other": OptionSet({**ON, "maxOffsetsPerTrigger": "2", "minOffsetsPerTrigger": "3"}, None),
    "options of the consumer": OptionSet(
        {
            **ON,
            "groupIdPrefix": "mine",
            "fetchOffset.numRetries": "2",
            "kafka.group.id": "g",
            "kafka.session.timeout.ms": "10000",
            "kafka.max.poll.records": "3",
            "kafka.fetch.max.wait.ms": "100",
            "kafka.isolation.level": "read_committed",
            "kafka.acks": "all",
        },
        ALL,
    ),
    "reset": OptionSet({**ON, "kafka.auto.offset.reset": "earliest"}, None),
    "deserializer": OptionSet({**ON, "kafka.value.deserializer": "x"}, None),
    "auto commit": OptionSet({**ON, "kafka.enable.auto.commit": "true"}, None),
}
"""Of a batch."""

FROM_START: Final = {**ON, "startingOffsets": "earliest"}
STREAMS: Final[Mapping[str, OptionSet]] = {
    "nothing said": OptionSet(ON, NOTHING),
    "earliest": OptionSet(FROM_START, ALL),
    "start": OptionSet({**ON, "startingOffsets": _offsets(p0=2, p1=-1, p2=-2)}, {"0": (2, 10), "2": (3, 8)}),
    "start, one left out": OptionSet({**ON, "startingOffsets": _offsets(p0=2, p1=-1)}, None),
    "start beyond the log": OptionSet({**ON, "startingOffsets": _offsets(p0=50, p1=0, p2=3)}, None),
    "start at a time": OptionSet({**ON, "startingTimestamp": _at(4)}, {"0": (4, 10), "1": (4, 5), "2": (4, 8)}),
    "start at a time that one has not": OptionSet({**ON, "startingTimestamp": _at(6)}, None),
    "end": OptionSet({**FROM_START, "endingOffsets": "latest"}, None),
    "end at times": OptionSet({**FROM_START, "endingOffsetsByTimestamp": _times(p0=1, p1=1, p2=1)}, None),
    "limited": OptionSet({**FROM_START, "maxOffsetsPerTrigger": "7"}, ALL),
    "pattern": OptionSet({"subscribePattern": "%t|%o", "startingOffsets": "earliest"}, BOTH),
    "assign": OptionSet({"assign": '{"%t": [1]}', "startingOffsets": "earliest"}, {"1": (0, 5)}),
}
"""Of a stream with `availableNow`."""


SETS: Final = {"batch": BATCHES, "stream": STREAMS}


def options_of(name: str, sets: Mapping[str, OptionSet], topic: str) -> dict[str, str]:
    """Return the options of a set for a topic, and what lets a refusal come soon."""
    options = {
        key: value.replace("%t", topic).replace("%o", f"{topic}-others") for key, value in sets[name].options.items()
    }
    return {"fetchOffset.retryIntervalMs": "1", "kafkaConsumer.pollTimeoutMs": "2000", **options}


def places(rows: Rows, topic: str) -> list[tuple[str, int, int]]:
    """Return topic, partition and offset of each record."""
    return sorted(_places(rows, topic))


def _places(rows: Rows, topic: str) -> Iterator[tuple[str, int, int]]:
    for name, (first, last) in rows.items():
        of_other = name == "o"
        for offset in range(first, last):
            yield (f"{topic}-others" if of_other else topic), 0 if of_other else int(name), offset


def fill(servers: str, topic: str) -> None:
    """Make both topics; every second record has headers, and each third no key."""
    admin = AdminClient({"bootstrap.servers": servers})
    others = f"{topic}-others"
    for made in admin.create_topics(
        [NewTopic(topic, len(COUNTS), 1, config=KEPT), NewTopic(others, 1, 1, config=KEPT)]
    ).values():
        made.result(20)
    producer = Producer({"bootstrap.servers": servers})
    counts = [*((topic, number, count) for number, count in enumerate(COUNTS)), (others, 0, OTHER_COUNT)]
    for name, number, count in counts:
        for row in range(count):
            producer.produce(
                name,
                f"{number}-{row}".encode(),
                key=None if row % 3 == 0 else str(row).encode(),
                partition=number,
                timestamp=START_MS + 1_000 * row,
                headers=[("source", b"test"), ("none", None)] if row % 2 else None,
            )
    assert producer.flush(30) == 0
    for deleted in admin.delete_records([TopicPartition(topic, 2, DELETED)]).values():
        deleted.result(20)
