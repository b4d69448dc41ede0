"""Decision about a batch: which tasks' transactions make up a batch, kept as group offsets of the sink.

A decision is one set of offsets of the group `aioproducer.<sinkId>`, committed in one transaction of the sink's
coordinator id: the offset is the batch's number + 1, and the metadata is the manifest, cut into a chunk per partition
of the decision's topic. Chunks that an older, longer manifest left on further partitions have another offset.

    metadata of partition i    "<number of chunks>:<chunk i>"
    chunks, joined             base85 of zlib of JSON {"v": 1, "query": text, "tasks": [[partition, attempt, pid,
                               epoch, version, rows], ...]}

No I/O.
"""

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import ConfigurationError, KafkaError
from aioproducer.records import OffsetAndMetadata

MAX_METADATA_BYTES: Final = 4_000
"""Per partition: `offset.metadata.max.bytes` of a broker is 4,096 unless changed."""

FORMAT: Final = 1
MAX_SINK_ID_CHARACTERS: Final = 200
_SINK_ID = re.compile(r"[A-Za-z0-9._-]+")


class SinkIds:
    """The names a sink has on the brokers; data ids alternate between even and odd batches.

    A batch's ids are used again two batches later, so the transactions of the last decided batch can be committed
    again any number of times: none of its ids has been initialised since.

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
        self._data_id = re.compile(rf"{re.escape(sink_id)}\.([01])\.\d+\.\d+")

    def data_id(self, batch: int, partition: int, attempt: int) -> str:
        """Return the transactional id of one attempt of one task."""
        return f"{self.sink_id}.{batch % 2}.{partition}.{attempt}"

    def parity_of(self, transactional_id: str) -> int | None:
        """Return 0 or 1 for a data id of this sink; None for an id that belongs to something else."""
        found = self._data_id.fullmatch(transactional_id)
        return None if found is None else int(found[1])


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


@dataclass(frozen=True, slots=True)
class Decision:
    """Last batch that was decided."""

    batch: int
    query: str
    """`stream <queryId>` or `run <runId>`."""
    entries: tuple[TaskEntry, ...] = ()

    def transactions(self, ids: SinkIds) -> list[PreparedTransaction]:
        """Return the transaction of each entry, in their order."""
        return [
            PreparedTransaction(
                ids.data_id(self.batch, entry.partition, entry.attempt), entry.producer_id, entry.epoch, entry.version
            )
            for entry in self.entries
        ]


def encode_decision(decision: Decision, partitions: int) -> dict[int, OffsetAndMetadata]:
    """Return the offset and the metadata of each of the topic's partitions that the decision needs.

    Raises:
        ConfigurationError: more tasks than fit into the metadata of all partitions.
    """
    document = json.dumps(
        {"v": FORMAT, "query": decision.query, "tasks": decision.entries}, separators=(",", ":"), ensure_ascii=False
    )
    text = base64.b85encode(zlib.compress(document.encode(), 9)).decode()
    room = MAX_METADATA_BYTES - len(f"{partitions}:")
    chunks = [text[start : start + room] for start in range(0, len(text), room)]
    if len(chunks) > partitions:
        raise ConfigurationError(
            f"the manifest of {len(decision.entries):,} tasks takes {len(text):,} bytes; the topic's {partitions} "
            f"partitions hold {partitions * room:,}: write with fewer tasks, as with df.coalesce(n)"
        )
    return {
        number: OffsetAndMetadata(decision.batch + 1, f"{len(chunks)}:{chunk}") for number, chunk in enumerate(chunks)
    }


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
        if document["v"] != FORMAT:
            raise UnreadableDecisionError(f"format {document['v']} of a later aioproducer; this one reads {FORMAT}")
        entries = tuple(TaskEntry(*map(int, task)) for task in document["tasks"])
        return Decision(first.offset - 1, str(document["query"]), entries)
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise UnreadableDecisionError(f"offset {first.offset}, metadata {first.metadata[:80]!r}: {error}") from error


def _chunks(first: OffsetAndMetadata, offsets: Mapping[int, OffsetAndMetadata]) -> Iterator[str]:
    count = int(first.metadata.partition(":")[0])
    for number in range(count):
        chunk = offsets.get(number)
        if chunk is None or chunk.offset != first.offset:
            raise ValueError(f"chunk {number} of {count} is missing")
        yield chunk.metadata.partition(":")[2]


def described_tasks(entries: Sequence[TaskEntry], ids: SinkIds, batch: int) -> str:
    """Return the transactional ids of tasks with their rows, for an error; those after twenty are only counted."""
    named = [f"{ids.data_id(batch, each.partition, each.attempt)} ({each.rows:,} rows)" for each in entries[:20]]
    more = len(entries) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


class UnreadableDecisionError(KafkaError):
    """Another program has written the group's offsets."""
