"""ListOffsets 1-11: the first and last offsets of a log, and the offset of a time.

For readers of committed records the last offset is the last stable one, and times are found below it.
"""

from typing import TYPE_CHECKING, NamedTuple, cast

from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest


_READ_COMMITTED = 1
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

FIRST_WITH = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""First version of each special timestamp."""


class _Found(NamedTuple):
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


def answer_list_offsets(exchange: Exchange) -> None:
    request = cast("ListOffsetsRequest", exchange.request())
    topics: list[Tree] = [
        {
            "name": topic.name,
            "partitions": [
                _partition(exchange, topic.name, asked, is_committed_only=request.isolation_level == _READ_COMMITTED)
                for asked in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    exchange.reply_tree({"topics": topics}, exchange.now)


def _partition(exchange: Exchange, topic_name: str, asked: "ListOffsetsPartition", *, is_committed_only: bool) -> Tree:
    topic = exchange.cluster.topics.named(topic_name)
    partition = topic.partition(asked.partition_index) if topic else None
    error = exchange.injected_error(topic_name, asked.partition_index)
    if asked.timestamp < 0 and exchange.version < FIRST_WITH.get(asked.timestamp, exchange.version + 1):
        error = error or codes.UNSUPPORTED_VERSION
    error = error or leader_error(partition, exchange.broker.node_id, asked.current_leader_epoch)
    found = _Found()
    if partition is not None and not error:
        end = partition.last_stable_offset if is_committed_only else partition.high_watermark
        found = _find(partition, asked.timestamp, end)
    return {
        "partition_index": asked.partition_index,
        "error_code": error,
        "timestamp": found.timestamp,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


def leader_error(partition: Partition | None, node_id: int, client_epoch: int) -> int:
    """Return the error unless this node leads the partition at the epoch the client knows (-1: any)."""
    if partition is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != node_id:
        return codes.NOT_LEADER_OR_FOLLOWER
    if client_epoch in {-1, partition.leader_epoch}:
        return 0
    return codes.FENCED_LEADER_EPOCH if client_epoch < partition.leader_epoch else codes.UNKNOWN_LEADER_EPOCH


def _find(partition: Partition, timestamp: int, end: int) -> _Found:
    match timestamp:
        case _ if timestamp == LATEST:
            return _Found(end, -1, partition.leader_epoch)
        case _ if timestamp in {EARLIEST, EARLIEST_LOCAL}:
            return _Found(partition.log.start_offset, -1, partition.leader_epoch)
        case _ if timestamp == MAX_TIMESTAMP:
            highest = partition.log.highest_timestamp()
            record = highest if highest is not None and highest.offset < end else None
        case _ if timestamp >= 0:
            record = partition.log.find_time(timestamp, limit=end)
        case _:
            record = None
    return _Found(record.offset, record.timestamp, record.leader_epoch) if record else _Found()
