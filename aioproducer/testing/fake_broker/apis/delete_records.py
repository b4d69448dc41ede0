"""DeleteRecords 0-2: everything below an offset is gone, by moving the start of the log."""

from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.apis.list_offsets import leader_error
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.topics.topics import Topic
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest

_TO_THE_HIGH_WATERMARK = -1


def answer_delete_records(exchange: Exchange) -> None:
    request = cast("DeleteRecordsRequest", exchange.request())
    topics: list[Tree] = [
        {"name": topic.name, "partitions": [_partition(exchange, topic.name, asked) for asked in topic.partitions]}
        for topic in request.topics
    ]
    exchange.reply_tree({"topics": topics}, exchange.now)


def _partition(exchange: Exchange, topic_name: str, asked: "DeleteRecordsPartition") -> Tree:
    topic = exchange.cluster.topics.named(topic_name)
    partition = topic.partition(asked.partition_index) if topic else None
    error = exchange.injected_error(topic_name, asked.partition_index)
    error = error or leader_error(partition, exchange.broker.node_id, -1)
    low_watermark = -1
    if topic is not None and error == 0:
        low_watermark, error = _deleted(topic, asked.partition_index, asked.offset)
    return {"partition_index": asked.partition_index, "low_watermark": low_watermark, "error_code": error}


def _deleted(topic: Topic, index: int, offset: int) -> tuple[int, int]:
    """Return the new start of the log, or -1, and the error."""
    partition = topic.partitions[index]
    if not topic.config.is_deleted_from:
        return -1, codes.POLICY_VIOLATION
    end = partition.high_watermark
    offset = end if offset == _TO_THE_HIGH_WATERMARK else offset
    if not 0 <= offset <= end:
        return -1, codes.OFFSET_OUT_OF_RANGE
    partition.log.drop_before(offset)
    return partition.log.start_offset, 0
