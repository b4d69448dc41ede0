"""The answer of Fetch 4-18, by hand: the batches of the logs go out as they are, uncopied and undecoded."""

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from aioproducer.testing.fake_broker.effects import Buffer
from aioproducer.testing.fake_broker.transactions.open_transactions import AbortedTransaction
from aioproducer.testing.fake_broker.wire.primitives import Writer
from aioproducer.testing.fake_broker.wire.produce_wire import NodeEndpoint, encode_endpoints

FIRST_WITH_LOG_START = 5
FIRST_WITH_SESSIONS = 7
FIRST_WITH_PREFERRED_REPLICA = 11
FIRST_WITH_LEADER_HINT = 12
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_ENDPOINTS = 16

_FRONT = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_LEADER = struct.Struct(">iib")
_CURRENT_LEADER_TAG = 1


@dataclass(slots=True)
class FetchedPartition:
    topic: str | None
    topic_id: uuid.UUID | None
    index: int
    error_code: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    batches: Sequence[Buffer] = field(default_factory=list)
    last_stable_offset: int = -1
    aborted: Sequence[AbortedTransaction] | None = None
    """Aborted transactions that may have records here; None for read_uncommitted."""

    leader: tuple[int, int] | None = None  # node id and leader epoch, if another node leads the partition

    @property
    def size_bytes(self) -> int:
        return sum(len(batch) for batch in self.batches)


def encode_fetch(
    version: int,
    partitions: Sequence[FetchedPartition],
    *,
    flexible: bool,
    throttle_ms: int = 0,
    error_code: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """Encode a response; session id 0 declines a fetch session."""
    writer = Writer(flexible=flexible)
    writer.int32(throttle_ms)
    if version >= FIRST_WITH_SESSIONS:
        writer.int16(error_code)
        writer.int32(0)
    topics = [(key, list(group)) for key, group in groupby(partitions, key=lambda part: (part.topic, part.topic_id))]
    writer.count(len(topics))
    for (topic, topic_id), of_topic in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            writer.fixed((topic_id or uuid.UUID(int=0)).bytes)
        else:
            writer.string(topic)
        writer.count(len(of_topic))
        for partition in of_topic:
            _write_partition(writer, version, partition)
        writer.tagged_fields()
    has_endpoints = bool(endpoints) and version >= FIRST_WITH_ENDPOINTS
    writer.tagged_fields([(0, encode_endpoints(endpoints))] if has_endpoints else None)
    return writer.finish()


def _write_partition(writer: Writer, version: int, partition: FetchedPartition) -> None:
    offsets = (partition.high_watermark, partition.last_stable_offset)
    writer.pack(_FRONT, partition.index, partition.error_code, *offsets)
    if version >= FIRST_WITH_LOG_START:
        writer.int64(partition.log_start_offset)
    writer.count(-1 if partition.aborted is None else len(partition.aborted))
    for aborted in partition.aborted or ():
        writer.pack(_ABORTED, aborted.producer_id, aborted.first_offset)
        writer.tagged_fields()
    if version >= FIRST_WITH_PREFERRED_REPLICA:
        writer.int32(-1)
    writer.large(list(partition.batches), partition.size_bytes)
    hint = partition.leader if version >= FIRST_WITH_LEADER_HINT else None
    writer.tagged_fields([(_CURRENT_LEADER_TAG, _LEADER.pack(*hint, 0))] if hint else None)
