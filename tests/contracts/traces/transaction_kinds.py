"""Kinds of traces of transactions: producers that begin, write, send offsets, end, and are fenced.

What is right on one broker line may be wrong on another; the answers must be the same as that line's in any case.
"""

from tests.contracts.traces.message_codec import Tree
from tests.contracts.traces.writing import LATEST, TraceWriter

_READ_COMMITTED = 1
_TIMEOUT_MS = 60_000


class _Writer:
    """The requests that transactional id `$x` (and its rival `$y`) may send in one trace."""

    def __init__(self, writer: TraceWriter, *, most_right: bool) -> None:
        self.writer = writer
        self.right = 0.97 if most_right else 0.75
        self.id = "$x"

    @property
    def _is_wrong(self) -> bool:
        return not self.writer.chance(self.right)

    def _identity(self) -> Tree:
        draw = self.writer.random
        pid, epochs = self.id, 0
        if self._is_wrong:
            pid, epochs = draw.choice(((self.id, 1), (self.id, -1), (self.id, -2), ("p0", 0), ("p9", 0)))
        return {"producer_id": ["pid", pid], "producer_epoch": ["epoch", self.id, epochs]}

    def _transactional_id(self) -> str:
        return self.writer.random.choice(("", "$never")) if self.writer.chance((1 - self.right) / 8) else self.id

    def init(self, *, v: int | None = None) -> None:
        body: Tree = {"transaction_timeout": _TIMEOUT_MS}
        if self.writer.chance(0.35):
            body |= self._identity()
        if self.writer.chance(0.05):
            body["transaction_timeout"] = self.writer.random.choice((0, -1, 900_000, 900_001))
        more = {} if v is None else {"v": v}
        self.writer.add("INIT_PRODUCER_ID", {"transactional_id": self._transactional_id(), **body}, **more)

    def add_partitions(self) -> None:
        draw = self.writer.random
        topics: list[Tree] = [{"name": "$a", "partitions": draw.sample((0, 1), draw.randint(1, 2))}]
        if self._is_wrong:
            topics.append(draw.choice(({"name": "$never", "partitions": [0]}, {"name": "$b", "partitions": [0, 7]})))
        body = {"v3_and_below_transactional_id": self._transactional_id(), "v3_and_below_topics": topics}
        body |= {f"v3_and_below_{name}": value for name, value in self._identity().items()}
        self.writer.add("ADD_PARTITIONS_TO_TXN", body, v=draw.randint(0, 3))

    def produce(self, v: int) -> None:
        draw = self.writer.random
        partition = draw.choice((0, 0, 0, 1))
        words: dict[str, object] = {"n": self.writer.records(3), "of": self.id, "to": ["$a", partition]}
        if self._is_wrong:
            words |= draw.choice(
                ({"ahead": 2}, {"ahead": -1}, {"epochs": 1}, {"epochs": -1}, {"pid": "p0"}, {"pid": "p9"},
                 {"attributes": 0}, {"ahead": 7, "epochs": 1})
            )  # fmt: skip
        tid = draw.choice((None, "", "$never")) if self._is_wrong and self._is_wrong else self.id
        more = {} if tid is None else {"tid": tid}
        self.writer.produce([words], partition=partition, v=v, acks=draw.choice((-1, -1, 1)), **more)

    def end(self, v: int) -> None:
        body: Tree = {"transactional_id": self._transactional_id(), "committed": self.writer.chance(0.6)}
        self.writer.add("END_TXN", body | self._identity(), v=v)

    def end_again(self) -> None:
        """The EndTxn before this step, once more, as after a lost answer; or its contrary."""
        ends = [step for step in self.writer.steps if step["api"] == "END_TXN"]
        if ends:
            body = dict(ends[-1]["body"])
            body["producer_epoch"] = ["epoch", self.id, self.writer.random.choice((0, -1))]
            body["committed"] = self.writer.chance(0.5)
            self.writer.add("END_TXN", body, v=ends[-1]["v"])

    def look(self) -> None:
        draw = self.writer.random
        partition = draw.choice((0, 0, 1))
        match draw.choice(("fetch", "fetch", "ends", "transactions", "producers", "list")):
            case "fetch":
                self.writer.fetch(
                    "$a", partition, draw.choice((0, 0, 1, 4)), isolation_level=draw.choice((_READ_COMMITTED, 0))
                )
            case "ends":
                step = self.writer.list_offsets("$a", partition, draw.choice((LATEST, -3, ["now", -60_000])))
                step["body"]["isolation_level"] = draw.choice((_READ_COMMITTED, 0))
            case "transactions":
                ids = draw.sample(("$x", "$y", "$never"), draw.randint(1, 2))
                self.writer.add("DESCRIBE_TRANSACTIONS", {"transactional_ids": ids})
            case "producers":
                topics: list[Tree] = [{"name": draw.choice(("$a", "$a", "$never")), "partition_indexes": [partition]}]
                self.writer.add("DESCRIBE_PRODUCERS", {"topics": topics})
            case _:
                states = draw.choice(([], [], ["Ongoing"], ["Empty", "CompleteAbort"], ["Wild", "Dead"]))
                body = {"state_filters": states, "producer_id_filters": [["pid", self.id]], "duration_filter": -1}
                self.writer.add("LIST_TRANSACTIONS", body, v=draw.randint(0, 2))

    def close(self) -> None:
        for partition in (0, 1):
            for isolation_level in (_READ_COMMITTED, 0):
                step = self.writer.list_offsets("$a", partition, LATEST)
                step["body"]["isolation_level"] = isolation_level
                self.writer.fetch("$a", partition, 0, isolation_level=isolation_level)


def _begun(writer: TraceWriter) -> _Writer:
    writer.topic("$a", 2)
    writer.topic("$b", 1)
    writer.init_producer_id()
    producer = _Writer(writer, most_right=writer.chance(0.6))
    producer.init()
    return producer


def transactions_v1(writer: TraceWriter) -> None:
    """Send what clients before KIP-890 send: partitions are added first."""
    producer = _begun(writer)
    for _ in range(writer.random.randint(10, 28)):
        match writer.random.choices(
            ("add", "produce", "end", "again", "look", "init", "rival"), (12, 16, 9, 2, 7, 2, 1)
        )[0]:
            case "add":
                producer.add_partitions()
            case "produce":
                producer.produce(writer.random.randint(3, 11))
            case "end":
                producer.end(writer.random.randint(0, 4))
            case "again":
                producer.end_again()
            case "look":
                producer.look()
            case "init":
                producer.init()
            case _:
                _rival(producer)
    producer.close()


def transactions_v2(writer: TraceWriter) -> None:
    """Send what clients of KIP-890 send: Produce adds partitions, EndTxn returns the next epoch."""
    producer = _begun(writer)
    for _ in range(writer.random.randint(10, 28)):
        match writer.random.choices(
            ("produce", "end", "again", "look", "init", "old", "rival"), (20, 10, 3, 8, 2, 2, 1)
        )[0]:
            case "produce":
                producer.produce(writer.random.choice((12, 12, 13)))
            case "end":
                producer.end(5)
            case "again":
                producer.end_again()
            case "look":
                producer.look()
            case "init":
                producer.init()
            case "old":
                writer.random.choice((producer.add_partitions, lambda: producer.produce(11), lambda: producer.end(3)))()
            case _:
                _rival(producer)
    producer.close()


def _rival(producer: _Writer) -> None:
    """Let another transactional id write to the same partition, and end its transaction or not."""
    producer.id = "$y"
    producer.init(v=4)
    producer.produce(12)
    if producer.writer.chance(0.5):
        producer.end(5)
    producer.id = "$x"


def transactional_offsets(writer: TraceWriter) -> None:
    """Send offsets of a group with a transaction, and read what others see of them."""
    producer = _begun(writer)
    draw = writer.random
    for _ in range(draw.randint(8, 22)):
        match draw.choices(("add", "commit", "end", "fetch", "plain", "produce", "init"), (8, 14, 8, 12, 2, 4, 1))[0]:
            case "add":
                body = {"transactional_id": producer.id, "group_id": draw.choice(("$g", "$g", "$h"))}
                identity = {"producer_id": ["pid", "$x"], "producer_epoch": ["epoch", "$x", draw.choice((0, 0, 0, -1))]}
                writer.add("ADD_OFFSETS_TO_TXN", body | identity, v=draw.randint(0, 4))
            case "commit":
                _txn_offset_commit(writer)
            case "end":
                producer.end(draw.choice((3, 4, 5, 5)))
            case "fetch":
                _offset_fetch(writer)
            case "plain":
                partitions = [
                    {"partition_index": 0, "committed_offset": draw.randint(0, 99), "committed_metadata": "m"}
                ]
                body = {"group_id": "$g", "generation_id_or_member_epoch": -1, "member_id": ""}
                body["topics"] = [{"name": "$a", "partitions": partitions}]
                writer.add("OFFSET_COMMIT", body, v=draw.randint(7, 9))
            case "produce":
                producer.produce(draw.choice((11, 12)))
            case _:
                producer.init()
    _offset_fetch(writer)


def _txn_offset_commit(writer: TraceWriter) -> None:
    draw = writer.random
    partitions = [
        {
            "partition_index": index,
            "committed_offset": draw.randint(0, 99),
            "committed_leader_epoch": draw.choice((-1, 0)),
            "committed_metadata": draw.choice(("", "note", None)),
        }
        for index in draw.sample((0, 1, 7), draw.choice((1, 1, 2)))
    ]
    topic = draw.choice(("$a",) * 6 + ("$never",))
    body: Tree = {
        "transactional_id": draw.choice(("$x",) * 8 + ("$never",)),
        "group_id": draw.choice(("$g", "$g", "$g", "$h")),
        "producer_id": ["pid", draw.choice(("$x",) * 8 + ("p0",))],
        "producer_epoch": ["epoch", "$x", draw.choice((0,) * 8 + (-1, 1))],
        "topics": [{"name": topic, "topic_id": f"#{topic[1:]}", "partitions": partitions}],
    }
    if writer.chance(0.2):
        body |= draw.choice(
            ({"generation_id": 3, "member_id": "someone"}, {"member_id": "someone"}, {"generation_id": 0},
             {"group_instance_id": "it", "member_id": "someone"})
        )  # fmt: skip
    writer.add("TXN_OFFSET_COMMIT", body, v=draw.randint(0, 6))


def _offset_fetch(writer: TraceWriter) -> None:
    draw = writer.random
    group, is_stable = draw.choice(("$g", "$g", "$h", "$nobody")), writer.chance(0.6)
    topics = [{"name": "$a", "partition_indexes": [0, 1]}]
    if writer.chance(0.5):
        writer.add("OFFSET_FETCH", {"group_id": group, "topics": topics, "require_stable": is_stable}, v=7)
    else:
        groups = [{"group_id": group, "topics": topics}]
        writer.add("OFFSET_FETCH", {"groups": groups, "require_stable": is_stable}, v=draw.choice((8, 9)))
