"""Kinds of traces that ask, and that change topics."""

from tests.contracts.traces.message_codec import Tree
from tests.contracts.traces.writing import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP, TraceWriter

ILLEGAL_NAMES = ("", ".", "..", "a/b", "with space", "ä", "$" + "x" * 200, "x" * 250)


def offsets(writer: TraceWriter) -> None:
    """Fetch offsets by time and by position, and read from there."""
    writer.topic("$a", 2)
    for _ in range(writer.random.randint(1, 6)):
        start = -60_000 - writer.random.randint(0, 500) * 1000
        count = writer.records(4)
        deltas = [writer.random.choice((0, 10, 500, -700)) * index for index in range(count)]
        writer.produce(
            [{"n": count, "t": start, "dt": deltas, "codec": writer.random.choice((0, 1, 3)), "size": 50}],
            partition=writer.random.choice((0, 0, 0, 1)),
            acks=-1,
        )
    for _ in range(writer.random.randint(5, 14)):
        _ask(writer, partition=writer.random.choice((0, 0, 0, 1, 1, 7, -1)))


def _ask(writer: TraceWriter, *, partition: int) -> None:
    draw = writer.random
    topic = draw.choice(("$a", "$a", "$a", "$a", "$never"))
    match draw.choices(("offsets", "fetch", "epoch", "delete"), (10, 10, 2, 3))[0]:
        case "offsets":
            whens: tuple[object, ...] = (
                EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, -5, -9, 0, ["now", -60_000], ["now", -200_000],
                ["now", -draw.randint(50_000, 600_000)], ["now", 5_000_000], ["at", 2**62],
            )  # fmt: skip
            step = writer.list_offsets(topic, partition, draw.choice(whens), epoch=draw.choice((-1, -1, -1, 0, 1)))
            step["body"]["isolation_level"] = draw.choice((0, 0, 1))
        case "fetch":
            writer.fetch(
                topic,
                partition,
                draw.choice((0, 0, 1, 2, 3, 5, 8, 13, -1, 1000)),
                partition_max_bytes=draw.choice((1_000_000, 1_000_000, 400, 150, 61, 1, 0)),
                max_bytes=draw.choice((10_000_000, 10_000_000, 300, 1)),
                max_wait=draw.choice((0, 0, 30)),
                min_bytes=draw.choice((0, 1, 100)),
                isolation_level=draw.choice((0, 0, 1)),
                current_leader_epoch=draw.choice((-1, -1, 0, 1, 5)),
            )
        case "epoch":
            asked = [
                {
                    "partition": partition,
                    "current_leader_epoch": draw.choice((-1, 0, 3)),
                    "leader_epoch": draw.choice((0, 1, 5)),
                }
            ]
            writer.add("OFFSET_FOR_LEADER_EPOCH", {"replica_id": -1, "topics": [{"topic": topic, "partitions": asked}]})
        case _:
            place = {"partition_index": partition, "offset": draw.choice((0, 1, 2, 3, -1, -2, 1000))}
            writer.add("DELETE_RECORDS", {"topics": [{"name": topic, "partitions": [place]}], "timeout": 5000})


def reading(writer: TraceWriter) -> None:
    """Fetch several partitions and topics at once, with room for all or for some."""
    writer.topic("$a", 2)
    writer.topic("$b", 1)
    for topic, partition in (("$a", 0), ("$a", 1), ("$b", 0), ("$a", 0)):
        writer.produce([{"n": 3, "size": 100, "codec": writer.random.choice((0, 2))}], topic, partition, acks=1)
    for _ in range(writer.random.randint(3, 8)):
        draw = writer.random
        topics: list[Tree] = []
        for topic in draw.sample(("$a", "$b", "$never"), draw.randint(1, 2)):
            asked = [
                {
                    "partition": index,
                    "fetch_offset": draw.choice((0, 0, 3, 4, 6, 7)),
                    "partition_max_bytes": draw.choice((100_000, 500)),
                    "current_leader_epoch": -1,
                }
                for index in draw.sample((0, 1, 5), draw.randint(1, 2))
            ]
            topics.append({"topic": topic, "topic_id": f"#{topic[1:]}", "partitions": asked})
        body: Tree = {"replica_id": -1, "max_wait": 20, "min_bytes": 1, "max_bytes": draw.choice((10**7, 500, 5))}
        writer.add("FETCH", body | {"topics": topics, "session_id": 0, "session_epoch": -1})
    writer.ends()


def topics_made(writer: TraceWriter) -> None:
    """Create topics, also twice, extend, delete and recreate them, with valid and invalid arguments."""
    writer.topic("$a", writer.random.randint(1, 3))
    for _ in range(writer.random.randint(5, 12)):
        match writer.random.choices(("create", "delete", "grow", "look", "write"), (8, 4, 5, 4, 3))[0]:
            case "create":
                _create(writer)
            case "delete":
                names = writer.random.sample(("$a", "$b", "$c", "$never"), writer.random.randint(1, 2))
                by_id = writer.chance(0.4)
                states = [{"name": None, "topic_id": f"#{name[1:]}"} if by_id else {"name": name} for name in names]
                writer.add("DELETE_TOPICS", {"topic_names": names, "topics": states, "timeout": 10_000})
            case "grow":
                _grow(writer)
            case "look":
                writer.metadata(*writer.random.sample(("$a", "$b", "$c", "$never"), 2))
            case _:
                writer.produce(
                    [{"n": 2}], writer.random.choice(("$a", "$b", "$c")), writer.random.choice((0, 2)), acks=-1
                )
    for name in ("$a", "$b", "$c"):
        writer.metadata(name)


def _create(writer: TraceWriter) -> None:
    draw = writer.random
    topic: Tree = {
        "name": draw.choice(("$a", "$b", "$b", "$c", "$c", "$x.y", "$x_y", *ILLEGAL_NAMES)),
        "num_partitions": draw.choice((1, 1, 2, 3, -1, 0, -2)),
        "replication_factor": draw.choice((1, 1, 1, 1, -1, 0, 2, 3, -2)),
        "configs": draw.choice(_CONFIGS),
    }
    if writer.chance(0.15):
        topic |= {"num_partitions": -1, "replication_factor": -1, "assignments": draw.choice(_ASSIGNMENTS)}
    body: Tree = {"topics": [topic], "timeout": 10_000, "validate_only": writer.chance(0.2)}
    writer.add("CREATE_TOPICS", body)


def _config(name: str, value: str | None) -> list[Tree]:
    return [{"name": name, "value": value}]


_CONFIGS: tuple[list[Tree], ...] = (
    [],
    [],
    [],
    _config("max.message.bytes", "2000"),
    _config("cleanup.policy", "compact"),
    _config("cleanup.policy", "compact,delete"),
    _config("cleanup.policy", "shred"),
    _config("no.such.setting", "1"),
    _config("max.message.bytes", "many"),
    _config("max.message.bytes", "-5"),
    _config("min.insync.replicas", "0"),
    _config("retention.ms", None),
    _config("message.timestamp.type", "BrokerTime"),
    _config("compression.type", "zstd") + _config("retention.bytes", "10000"),
)
_ASSIGNMENTS: tuple[list[Tree], ...] = (
    [{"partition_index": 0, "broker_ids": [1]}],
    [{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 1, "broker_ids": [1]}],
    [{"partition_index": 0, "broker_ids": [1, 1]}],
    [{"partition_index": 0, "broker_ids": [9]}],
    [{"partition_index": 0, "broker_ids": []}],
    [{"partition_index": 1, "broker_ids": [1]}],
)


def _grow(writer: TraceWriter) -> None:
    draw = writer.random
    asked: Tree = {"name": draw.choice(("$a", "$a", "$b", "$never")), "count": draw.choice((1, 2, 3, 4, 6, 0, -1))}
    asked["assignments"] = draw.choice((None, None, None, None, None, [{"broker_ids": [1]}], [{"broker_ids": [5]}]))
    writer.add("CREATE_PARTITIONS", {"topics": [asked], "timeout": 10_000, "validate_only": writer.chance(0.2)})


def metadata(writer: TraceWriter) -> None:
    """Request topics by name and by id: known, unknown, illegal, and created on first use."""
    writer.topic("$a", 2)
    writer.topic("$b", 1)
    for _ in range(writer.random.randint(5, 14)):
        draw = writer.random
        match draw.choices(("names", "create", "ids", "all", "none"), (8, 6, 4, 1, 1))[0]:
            case "names":
                names = draw.sample(("$a", "$b", "$c", "$never", *ILLEGAL_NAMES[1:]), draw.randint(1, 3))
                writer.metadata(*names)
            case "create":
                name = draw.choice(("$a", "$c", "$c", "$d", "$e", *ILLEGAL_NAMES[1:6]))
                writer.metadata(name, create=writer.chance(0.8))
            case "ids":
                asked = [{"name": None, "topic_id": symbol} for symbol in draw.sample(("#a", "#b", "?1", "?2"), 2)]
                writer.add(
                    "METADATA", {"topics": asked, "allow_auto_topic_creation": False}, v=draw.choice((10, 11, 12, 13))
                )
            case "all":
                writer.add("METADATA", {"topics": None, "allow_auto_topic_creation": True}, v=draw.randint(1, 13))
            case _:
                writer.add("METADATA", {"topics": [], "allow_auto_topic_creation": True}, v=draw.randint(1, 13))


def greetings(writer: TraceWriter) -> None:
    """Send ApiVersions, producer ids, coordinators; unknown versions, requests too short or too long."""
    writer.topic("$a", 1)
    for _ in range(writer.random.randint(5, 14)):
        draw = writer.random
        writer.connection = draw.choice((0, 0, 1, 2))
        match draw.choices(("versions", "producer", "coordinator", "too new", "damaged", "write"), (5, 6, 4, 3, 6, 3))[
            0
        ]:
            case "versions":
                _greet(writer)
            case "producer":
                more: Tree = {"producer_id": draw.choice((-1, -1, 5)), "producer_epoch": draw.choice((-1, -1, 0))}
                writer.init_producer_id(**(more if writer.chance(0.4) else {}))
            case "coordinator":
                keys = draw.sample(("$group", "other", ""), draw.randint(1, 2))
                key_type = draw.choice((0, 0, 0, 5, -1))
                writer.add("FIND_COORDINATOR", {"key": keys[0], "key_type": key_type, "coordinator_keys": keys})
            case "too new":
                api, version = draw.choice(
                    (("PRODUCE", 14), ("METADATA", 14), ("FETCH", 19), ("PRODUCE", 50), ("300", 0), ("-1", 0))
                )
                writer.add(api, {}, v=version, exact=True)
            case "damaged":
                _damaged(writer)
            case _:
                writer.produce([{"n": 1}], acks=draw.choice((-1, 1)))
    writer.connection = 0
    writer.ends()


def _greet(writer: TraceWriter) -> None:
    draw = writer.random
    names = draw.choice((("aioproducer", "1.0"), ("a b", "1"), ("", ""), ("-x", "1.0"), ("x", "1.0-"), ("x", "1_0")))
    meant: tuple[Tree, ...] = ({}, {}, {"cluster_id": "other", "node_id": 1}, {"cluster_id": "other"}, {"node_id": 7})
    body: Tree = {"client_software_name": names[0], "client_software_version": names[1], **draw.choice(meant)}
    writer.add("API_VERSIONS", body, v=draw.choice((0, 1, 2, 3, 3, 4, 4, 5, 5, 99)), exact=True)


def _damaged(writer: TraceWriter) -> None:
    """A request whose bytes are not quite its own."""
    draw = writer.random
    match draw.choice(("produce", "metadata", "offsets")):
        case "produce":
            step = writer.produce([{"n": 2}], acks=draw.choice((-1, 1, 0)))
        case "metadata":
            step = writer.metadata("$a")
        case _:
            step = writer.list_offsets("$a", 0, LATEST)
    match draw.choice(("cut", "more", "patch")):
        case "patch" if step["api"] != "LIST_OFFSETS":
            step["patch"] = (0, draw.choice(("7fff", "7fffffff")))  # the length of what comes first
        case "cut":
            step["cut"] = draw.choice((1, 2, 5, 15, 30))
        case _:
            step["more"] = "00" * draw.choice((1, 4, 20))


def pipelined(writer: TraceWriter) -> None:
    """Send several requests on a connection before the first response, on more than one connection."""
    writer.topic("$a", 2)
    writer.init_producer_id()
    sequence = 0
    for _ in range(writer.random.randint(2, 4)):
        writer.connection = writer.random.choice((0, 1))
        for _ in range(writer.random.randint(2, 5)):
            match writer.random.choices(("next", "skip", "plain", "ask"), (10, 2, 3, 3))[0]:
                case "next":
                    step = writer.produce([{"n": 2, "pid": "p0", "epoch": 0, "seq": sequence}], acks=-1)
                    sequence += 2
                case "skip":
                    step = writer.produce([{"n": 2, "pid": "p0", "epoch": 0, "seq": sequence + 4}], acks=-1)
                case "plain":
                    step = writer.produce([{"n": 1}], partition=1, acks=1)
                case _:
                    step = writer.list_offsets("$a", writer.random.choice((0, 1)), LATEST)
            step["pipelined"] = True
        del writer.steps[-1]["pipelined"]
    writer.connection = 0
    writer.ends()
