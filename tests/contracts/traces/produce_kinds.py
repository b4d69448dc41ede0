"""Kinds of traces that write: each draws one trace, most of what it sends is right, some of it is not."""

from tests.contracts.traces.steps import BatchWords
from tests.contracts.traces.writing import CODECS, TraceWriter

LAST_SEQUENCE = 2**31 - 1
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def sequences(writer: TraceWriter) -> None:
    """Send idempotent batches: in order, repeated, with gaps, under older and newer epochs, of unknown producers."""
    partitions = writer.random.choice((1, 1, 2))
    writer.topic("$a", partitions)
    writer.init_producer_id()
    line = _Line("p0", writer.random.choice((0, 0, 0, 0, 7, LAST_SEQUENCE - writer.random.randrange(12))))
    lines = {partition: line.copy() for partition in range(partitions)}
    for _ in range(writer.random.randint(8, 22)):
        partition = writer.random.randrange(partitions)
        _send_in_line(writer, lines[partition], partition)
    writer.ends()


class _Line:
    """The batches that one producer has sent to one partition."""

    def __init__(self, pid: str | int, sequence: int, epoch: int = 0) -> None:
        self.pid = pid
        self.sequence = sequence
        self.epoch = epoch
        self.sent: list[BatchWords] = []

    def copy(self) -> "_Line":
        return _Line(self.pid, self.sequence, self.epoch)

    def words(self, count: int, *, ahead: int = 0, epoch: int | None = None) -> dict[str, object]:
        sequence = (self.sequence + ahead) & LAST_SEQUENCE
        return {"n": count, "pid": self.pid, "epoch": self.epoch if epoch is None else epoch, "seq": sequence}

    def next(self, count: int) -> dict[str, object]:
        words = self.words(count)
        self.sequence = (self.sequence + count) & LAST_SEQUENCE
        self.sent.append(words)
        return words


def _send_in_line(writer: TraceWriter, line: _Line, partition: int) -> None:
    count = writer.records()
    match writer.random.choices(
        ("next", "again", "gap", "old epoch", "new epoch", "stranger", "overlap", "other size"),
        (46, 22, 7, 5, 5, 4, 4, 4),
    )[0]:
        case "again" if line.sent:
            words: BatchWords = line.sent[-min(writer.random.randint(1, 8), len(line.sent))]
        case "gap":
            words = line.words(count, ahead=writer.random.choice((1, 2, 5, 1000, LAST_SEQUENCE // 2)))
        case "old epoch":
            words = line.words(count, epoch=max(0, line.epoch - writer.random.randint(1, 2)))
        case "new epoch":
            line.epoch += writer.random.choice((1, 1, 5, 30_000))
            line.epoch = min(line.epoch, 32_767)
            starts_wrong = writer.chance(0.3)
            words = line.words(count) if starts_wrong else _started(line, count)
        case "stranger":
            stranger = writer.random.choice((987_654_321, 987_654_322))
            words = {
                "n": count,
                "pid": stranger,
                "epoch": writer.random.randint(0, 3),
                "seq": writer.random.choice((0, 5)),
            }
        case "overlap" if line.sent:
            words = line.words(count, ahead=-1)
        case "other size" if line.sent:
            words = {**line.sent[-1], "n": count + 1}
        case _:
            words = line.next(count)
    writer.produce([words], partition=partition, acks=writer.random.choice((-1, -1, -1, 1)))


def _started(line: _Line, count: int) -> BatchWords:
    line.sequence = 0
    line.sent = []
    return line.next(count)


def odd_batches(writer: TraceWriter) -> None:
    """Send batches with one fault or two."""
    writer.topic("$a")
    for _ in range(writer.random.randint(5, 12)):
        words: dict[str, object] = {"n": writer.records(3), "codec": writer.random.choice(CODECS)}
        for _ in range(writer.random.choice((0, 1, 1, 1, 1, 2))):
            words.update(_oddity(writer))
        if words.get("body") or words.get("magic"):
            words["codec"] = 0
        writer.produce([words], acks=writer.random.choice((-1, -1, 1, 0)))
    writer.ends()


def _oddity(writer: TraceWriter) -> dict[str, object]:
    """Return one fault."""
    count, draw = writer.records(3), writer.random
    ways: list[dict[str, object]] = [
        {"crc": draw.choice((0, 1, 2**32 - 1))},
        {"count": draw.choice((-1, 0, 1, 2, 5, 2**31 - 1))},
        {"last_delta": draw.choice((-1, 0, 1, 5, 2**31 - 1))},
        {"base_offset": draw.choice((-1, 1, 5, 2**40))},
        {"magic": draw.choice((-1, 0, 1, 3, 99))},
        {"attributes": draw.choice((0x05, 0x06, 0x07, 0x08, 0x20, 0x30, 0x40, 0x80, 0x4000))},
        {"pid": 77, "epoch": draw.choice((-1, 0)), "seq": draw.choice((-1, 0, 3))},
        {"seq": draw.choice((0, 4))},
        {"epoch": 3},
        {"length": draw.choice((-1, 0, 5, 13, 14, 48, 49, 50, 2**31 - 1))},
        {"cut": draw.choice((1, 3, 20, 45, 60, 66))},
        {"trailing": "7a7a"},
        {"junk": draw.choice(("00", "7878", "0000000000"))},
        {"claims": {"0": draw.choice((-3, -1, 1, 2, 100))}},
        {"n": count, "deltas": [draw.choice((0, 1, 2, 3)) for _ in range(count)]},
        {"n": count, "dt": [draw.choice((-5000, 0, 10)) for _ in range(count)]},
        {"max_time": draw.choice((-3_600_000, -60_001, -59_000, 120_000))},
        {"body": draw.choice(("", "00", "ff" * 20, "1400000002610262000e"))},
        {"n": 0, "count": 0},
        {"size": 300, "n": 4},
    ]
    return draw.choice(ways)


def codecs(writer: TraceWriter) -> None:
    """Every codec at every version, with contents of its own, of another one, and of none."""
    writer.topic("$a")
    for _ in range(writer.random.randint(5, 12)):
        codec = writer.random.choice((1, 2, 3, 4))
        words: dict[str, object] = {"n": writer.records(8), "codec": codec, "size": writer.random.choice((4, 40, 4000))}
        match writer.random.choices(("right", "count", "body", "cut", "bits", "junk"), (50, 10, 20, 8, 6, 6))[0]:
            case "count":
                words["count"] = writer.random.choice((0, 1, 9, 100))
            case "body":
                words["body"] = writer.random.choice(
                    ("", "00", "1f8b08", "82534e4150505900", "04224d18", "28b52ffd", "ab" * 30)
                )
                words.pop("size")
            case "cut":
                words["cut"] = writer.random.choice((1, 8))
            case "bits":
                words["attributes"] = 7
                words["codec"] = 0
            case "junk":
                words["junk"] = "0000"
        writer.produce([words], acks=writer.random.choice((-1, 1)))
    writer.ends()


def times(writer: TraceWriter) -> None:
    """Send times before and after what a topic accepts, for both timestamp types."""
    writer.topic("$a", **_time_settings(writer))
    for _ in range(writer.random.randint(5, 12)):
        writer.produce([_timed_batch(writer)], acks=writer.random.choice((-1, 1)))
    for when in (-2 * HOUR_MS, -MINUTE_MS, HOUR_MS):
        writer.list_offsets("$a", 0, ["now", when])
    writer.list_offsets("$a", 0, -3)
    writer.ends()


def _time_settings(writer: TraceWriter) -> dict[str, str]:
    draw = writer.random
    possible = {
        "message_timestamp_type": ("LogAppendTime", 0.4),
        "message_timestamp_before_max_ms": (str(draw.choice((HOUR_MS, DAY_MS))), 0.5),
        "message_timestamp_after_max_ms": (str(draw.choice((HOUR_MS, DAY_MS))), 0.5),
        "cleanup_policy": ("compact", 0.2),
    }
    drawn = {name: value for name, (value, probability) in possible.items() if writer.chance(probability)}
    return {**drawn, "retention_ms": "-1"}  # else a look of the broker at what is too old would end a segment


_STARTS: tuple[object, ...] = (
    -MINUTE_MS, -MINUTE_MS, -MINUTE_MS, 10 * MINUTE_MS, 2 * HOUR_MS, -2 * HOUR_MS, 3 * DAY_MS, -3 * DAY_MS,
    ["at", -1], ["at", 0], ["at", 1000], ["at", -5],
)  # fmt: skip


def _timed_batch(writer: TraceWriter) -> BatchWords:
    draw = writer.random
    count = writer.records(5)
    odd: dict[str, tuple[object, float]] = {
        "dt": ([draw.choice((0, 5, 3 * HOUR_MS, -3 * HOUR_MS)) for _ in range(count)], 0.3),
        "attributes": (8, 0.15),
        "keyless": ([draw.randrange(count)], 0.2),
    }
    words = {name: value for name, (value, probability) in odd.items() if writer.chance(probability)}
    words |= {"n": count, "t": draw.choice(_STARTS), "codec": draw.choice(CODECS)}
    if writer.chance(0.3):
        words |= {"pid": 555, "epoch": 0, "seq": draw.choice((0, 5))}
    return words


def sizes(writer: TraceWriter) -> None:
    """Send batches about as large as a topic accepts; segments and copies that do not fit."""
    limit = writer.random.choice((200, 1000, 5000))
    configs = {"max_message_bytes": str(limit)}
    if writer.chance(0.3):
        configs["min_insync_replicas"] = "2"
    if writer.chance(0.3):
        configs = {"segment_bytes": "1048576", "max_message_bytes": "3000000"}
    writer.topic("$a", **configs)
    for _ in range(writer.random.randint(5, 10)):
        count = writer.records(4)
        room = (limit - 61 - 14 * count) // count
        size = max(0, room + writer.random.choice((-20, -2, -1, 0, 1, 2, 3, 4, 20, 200, 5000)))
        if "segment_bytes" in configs and writer.chance(0.3):
            size = 1_100_000 // count
        words: dict[str, object] = {"n": count, "size": size, "codec": writer.random.choice((0, 0, 0, 1, 4))}
        if writer.chance(0.2):
            words["crc"] = 1
        if writer.chance(0.3):
            words |= {"pid": 555, "epoch": 0, "seq": 0}
        writer.produce([words], acks=writer.random.choice((-1, -1, 1, 0)))
    writer.ends()


def several(writer: TraceWriter) -> None:
    """Send several topics, partitions and batches in one request, some unknown, with all acks."""
    writer.topic("$a", 2)
    writer.topic("$b", 3)
    sequence = 0
    for _ in range(writer.random.randint(4, 10)):
        data = []
        for topic in writer.random.sample(("$a", "$b", "$never", "$nor this"), writer.random.randint(1, 3)):
            indices = writer.random.sample((0, 1, 2, 3, -1, 99), writer.random.randint(1, 3))
            if writer.chance(0.1):
                indices.append(indices[0])
            data.append((topic, [(index, _some_batches(writer, sequence)) for index in indices]))
        sequence += 2
        writer.produce_all(data, acks=writer.random.choice((-1, -1, -1, 1, 1, 0, 2, -2, 5)))
    writer.ends()


def _some_batches(writer: TraceWriter, sequence: int) -> list[BatchWords] | None:
    ordinary: BatchWords = {"n": 2, "pid": 4242, "epoch": 0, "seq": sequence}
    kinds: tuple[list[BatchWords] | None, ...] = (
        [ordinary], [ordinary], [ordinary], [ordinary], [{"n": 2}], [{"n": 1}, {"n": 1}], [],
        [{"n": 1, "crc": 5}], [{"n": 1, "attributes": 0x10}], [{"n": 2}, {"raw": "00" * 10}],
        [{"n": 2}, {"n": 2, "cut": 40}], [{"n": 1, "magic": 1}], [{"n": 1, "magic": 3}], [{"n": 1, "length": 5}],
        [{"n": 1, "attributes": 6}], [{"n": 1, "codec": 4}], [{"n": 1, "magic": 0}], [{"n": 3, "deltas": [0, 2, 1]}],
    )  # fmt: skip
    return writer.random.choice(kinds)
