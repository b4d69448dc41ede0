"""TxnOffsetCommit 0-5: offsets that a group commits with a producer's transaction.

The group's coordinator asks the transaction's, as the leader of any partition does: since version 5 the offsets are
added to the transaction by that, before it AddOffsetsToTxn has to come first. Since version 3 a member says who it is
(KIP-447), so that a consumer that has lost its partitions cannot commit for them.

Source: GroupCoordinatorService.commitTransactionalOffsets and ClassicGroup.validateOffsetCommit in Apache Kafka.
"""

from typing import TYPE_CHECKING, cast

from aioproducer.records import TopicPartition
from aioproducer.testing.model.apis.find_coordinator import coordinator_error
from aioproducer.testing.model.committed_offsets import CommittedOffset
from aioproducer.testing.model.consumer_group import ILLEGAL_GENERATION, ConsumerGroup
from aioproducer.testing.model.consumer_groups import OFFSETS_TOPIC, offsets_partition_of
from aioproducer.testing.model.exchange import Exchange
from aioproducer.testing.model.messages import Tree
from aioproducer.testing.model.transaction_checks import COORDINATOR_ERRORS, admit
from aioproducer.testing.model.transaction_entry import Claim

if TYPE_CHECKING:
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition

UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_LOAD_IN_PROGRESS = 14
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
PRODUCER_FENCED = 90
TRANSACTION_ABORTABLE = 120
_FIRST_WITH_ABORTABLE = 4
_FIRST_THAT_ADDS = 5


def answer_txn_offset_commit(exchange: Exchange) -> None:
    """Hold the offsets until the transaction ends."""
    request = cast("TxnOffsetCommitRequest", exchange.request())
    group = exchange.cluster.groups.named(request.group_id)
    error = coordinator_error(exchange, request.group_id)
    if error == 0 and any(_is_there(exchange, topic.name, 0) for topic in request.topics):
        error = _transaction_error(exchange, request) or group_error(group, request)
    answers: list[Tree] = []
    for topic in request.topics:
        partitions: list[Tree] = []
        for asked in topic.partitions:
            place = TopicPartition(topic.name, asked.partition_index)
            code = error if error or _is_there(exchange, *place) else UNKNOWN_TOPIC_OR_PARTITION
            if code == 0:
                group.offsets.hold(request.producer_id, place, _offset(asked))
            partitions.append({"partition_index": asked.partition_index, "error_code": code})
        answers.append({"name": topic.name, "partitions": partitions})
    exchange.reply_tree({"topics": answers}, exchange.now)


def _offset(asked: "TxnOffsetCommitRequestPartition") -> CommittedOffset:
    return CommittedOffset(int(asked.committed_offset), int(asked.committed_leader_epoch), asked.committed_metadata)


def _is_there(exchange: Exchange, topic_name: str, index: int) -> bool:
    topic = exchange.cluster.topics.named(topic_name)
    return topic is not None and topic.partition(index) is not None


def _transaction_error(exchange: Exchange, request: "TxnOffsetCommitRequest") -> int:
    """What the transaction's coordinator says, as the group's passes it on."""
    error = admit(
        exchange.cluster,
        Claim(request.transactional_id, request.producer_id, request.producer_epoch),
        TopicPartition(OFFSETS_TOPIC, offsets_partition_of(request.group_id)),
        adds=exchange.version >= _FIRST_THAT_ADDS,
        now=exchange.now,
    )
    if error in COORDINATOR_ERRORS:
        return COORDINATOR_LOAD_IN_PROGRESS
    if error == TRANSACTION_ABORTABLE and exchange.version < _FIRST_WITH_ABORTABLE:
        return INVALID_TXN_STATE
    return INVALID_PRODUCER_EPOCH if error == PRODUCER_FENCED else error


def group_error(group: ConsumerGroup, request: "TxnOffsetCommitRequest") -> int:
    """What the group says to who commits: a member of this generation, or somebody who names none."""
    if request.generation_id < 0 and group.is_empty:
        return 0
    if request.generation_id >= 0 or request.member_id or request.group_instance_id is not None:
        if group.is_empty and not group.generation:
            return ILLEGAL_GENERATION
        return group.member_error(request.member_id, request.generation_id, request.group_instance_id)
    return 0
