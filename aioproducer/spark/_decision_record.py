"""Decision about a write: which tasks' transactions make it up, kept as group offsets of the sink.

A decision is one set of offsets of the group `aioproducer.<sinkId>`, committed in one transaction of the sink's
coordinator id: the offset is the record's revision, and the metadata is the manifest, cut into a chunk per partition
of the decision's topic. Chunks that an older, longer manifest left on further partitions have another offset. Of
decisions in several topics, the one of the highest revision counts.

    metadata of partition i    "<number of chunks>:<chunk i>"
    chunks, joined             base85 of zlib of JSON {"v": 2, "query": text, "run": text, "former": [run, ...],
                               "batch": number, "writes": [topic, ...], "position": number, "lane": number,
                               "finished": bool, "tasks": [[partition, attempt, pid, epoch, version, rows], ...]}

Format 1 is read too: {"v": 1, "query": text, "tasks": [...]}. Its offset is the number of the batch + 1, its lane that
number modulo 2, and it is finished if it has no tasks.

No I/O.
"""

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import ConfigurationError, KafkaError
from aioproducer.records import OffsetAndMetadata

MAX_METADATA_BYTES: Final = 4_000
"""Per partition: `offset.metadata.max.bytes` of a broker is 4,096 unless changed."""

FORMAT: Final = 2
LANES: Final = 8
"""Sets of data ids, which the driver's preparations use in turn."""
MAX_SINK_ID_CHARACTERS: Final = 200
_SINK_ID = re.compile(r"[A-Za-z0-9._-]+")


class SinkIds:
    """The names a sink has on the brokers.

    Data ids have one of eight lanes, by the coordinator's epoch: tasks of two drivers that prepared one after the other
    share none, so neither ends the other's transactions.

    Args:
        sink_id: 1 to 200 of the characters A-Z a-z 0-9 . _ -

    Raises:
        ConfigurationError: anything else.
    """

    def __init__(self, sink_id: str) -> None:
        if not (_SINK_ID.fullmatch(sink_id) and len(sink_id) <= MAX_SINK_ID_CHARACTERS):
            raise ConfigurationError(
                f"sinkId={sink_id!r}: it names transactional ids and a group, so it must be 1 to "
                f"{MAX_SINK_ID_CHARACTERS} of the characters A-Z a-z 0-9 . _ -"
            )
        self.sink_id: Final = sink_id
        self.coordinator: Final = f"{sink_id}.coord"
        self.group: Final = f"aioproducer.{sink_id}"
        self.prefix: Final = f"{sink_id}."
        self._data_id = re.compile(rf"{re.escape(sink_id)}\.([0-{LANES - 1}])\.\d+\.\d+")

    def data_id(self, lane: int, partition: int, attempt: int) -> str:
        """Return the transactional id of one attempt of one task."""
        return f"{self.prefix_of_lane(lane)}{partition}.{attempt}"

    def prefix_of_lane(self, lane: int) -> str:
        """Return the beginning of each data id of a lane."""
        return f"{self.prefix}{lane}."

    def is_data_id(self, transactional_id: str) -> bool:
        """Return whether an id is of a task of this sink."""
        return self._data_id.fullmatch(transactional_id) is not None


class TaskEntry(NamedTuple):
    """A task's prepared transaction, as the manifest keeps it."""

    partition: int
    """Number of Spark's partition, not of Kafka's."""
    attempt: int
    producer_id: int
    epoch: int
    version: int
    """`transaction.version` in which it was begun: 1 or 2."""
    rows: int

    @classmethod
    def of(cls, transaction: PreparedTransaction, *, partition: int, attempt: int, rows: int) -> "TaskEntry":
        """Return the entry of a transaction that has been prepared."""
        return cls(partition, attempt, transaction.producer_id, transaction.epoch, transaction.version, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The last write that was decided, and where it is in its batch."""

    query: str
    """`stream <queryId>` or `run <runId>`."""
    run: str = ""
    """Spark's id of the stream's run, another after each start; empty for a job, and where format 1 was read."""
    former_runs: tuple[str, ...] = ()
    """Those before, the latest first: a driver that slept while another took over must not go on."""
    batch: int = 0
    writes: tuple[str, ...] = ("",)
    """Topic of each decided write of this batch, in order; empty if rows name it, or it is not known."""
    position: int = 1
    """How many of them the run has seen: decided itself, or found decided by an older run."""
    lane: int = 0
    revision: int = 1
    """Grows with every record of the sink."""
    is_finished: bool = False
    """All its transactions are committed, and need not be looked at any more."""
    entries: tuple[TaskEntry, ...] = ()

    def transactions(self, ids: SinkIds) -> list[PreparedTransaction]:
        """Return the transaction of each entry, in their order."""
        return [
            PreparedTransaction(
                ids.data_id(self.lane, entry.partition, entry.attempt), entry.producer_id, entry.epoch, entry.version
            )
            for entry in self.entries
        ]

    def finished(self) -> "Decision":
        """Return the record that follows once all is committed."""
        return replace(self, revision=self.revision + 1, is_finished=True, entries=())


def encode_decision(decision: Decision, partitions: int) -> dict[int, OffsetAndMetadata]:
    """Return the offset and the metadata of each of the topic's partitions that the decision needs.

    Raises:
        ConfigurationError: more tasks than fit into the metadata of all partitions.
    """
    document = json.dumps(
        {
            "v": FORMAT,
            "query": decision.query,
            "run": decision.run,
            "former": decision.former_runs,
            "batch": decision.batch,
            "writes": decision.writes,
            "position": decision.position,
            "lane": decision.lane,
            "finished": decision.is_finished,
            "tasks": decision.entries,
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )
    text = base64.b85encode(zlib.compress(document.encode(), 9)).decode()
    room = MAX_METADATA_BYTES - len(f"{partitions}:")
    chunks = [text[start : start + room] for start in range(0, len(text), room)]
    if len(chunks) > partitions:
        raise ConfigurationError(
            f"the manifest of {len(decision.entries):,} tasks takes {len(text):,} bytes; the topic's {partitions} "
            f"partitions hold {partitions * room:,}: write with fewer tasks, as with df.coalesce(n)"
        )
    revision, count = decision.revision, len(chunks)
    return {number: OffsetAndMetadata(revision, f"{count}:{chunk}") for number, chunk in enumerate(chunks)}


def decode_decision(offsets: Mapping[int, OffsetAndMetadata]) -> Decision | None:
    """Return the decision that committed offsets keep; None if nothing was decided, or it was forgotten by `reset`.

    Raises:
        UnreadableDecisionError: something else has written offsets of this group.
    """
    first = offsets.get(0)
    if first is None or first.offset == 0:
        return None
    try:
        text = "".join(_chunks(first, offsets))
        document = json.loads(zlib.decompress(base64.b85decode(text)))
        if document["v"] == 1:
            return _of_format_1(first.offset, document)
        if document["v"] != FORMAT:
            raise UnreadableDecisionError(f"format {document['v']} of a later aioproducer; this reads 1 and {FORMAT}")
        return Decision(
            query=str(document["query"]),
            run=str(document["run"]),
            former_runs=tuple(map(str, document["former"])),
            batch=int(document["batch"]),
            writes=tuple(map(str, document["writes"])),
            position=int(document["position"]),
            lane=int(document["lane"]),
            revision=first.offset,
            is_finished=bool(document["finished"]),
            entries=_entries_of(document),
        )
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise UnreadableDecisionError(f"offset {first.offset}, metadata {first.metadata[:80]!r}: {error}") from error


def _of_format_1(offset: int, document: Mapping[str, object]) -> Decision:
    entries = _entries_of(document)
    return Decision(
        query=str(document["query"]),
        batch=offset - 1,
        lane=(offset - 1) % 2,
        revision=offset,
        is_finished=not entries,
        entries=entries,
    )


def _entries_of(document: Mapping[str, Any]) -> tuple[TaskEntry, ...]:
    return tuple(TaskEntry(*map(int, task)) for task in document["tasks"])


def _chunks(first: OffsetAndMetadata, offsets: Mapping[int, OffsetAndMetadata]) -> Iterator[str]:
    count = int(first.metadata.partition(":")[0])
    for number in range(count):
        chunk = offsets.get(number)
        if chunk is None or chunk.offset != first.offset:
            raise ValueError(f"chunk {number} of {count} is missing")
        yield chunk.metadata.partition(":")[2]


def described_tasks(entries: Sequence[TaskEntry], ids: SinkIds, lane: int) -> str:
    """Return the transactional ids of tasks with their rows, for an error; those after twenty are only counted."""
    named = [f"{ids.data_id(lane, each.partition, each.attempt)} ({each.rows:,} rows)" for each in entries[:20]]
    more = len(entries) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


class UnreadableDecisionError(KafkaError):
    """Another program has written the group's offsets."""
