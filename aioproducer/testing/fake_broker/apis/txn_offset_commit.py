"""TxnOffsetCommit 0-5: offsets that a group commits with a producer's transaction.

The group's coordinator asks the transaction's, as the leader of any partition does: since version 5 the offsets are
added to the transaction by that, before it AddOffsetsToTxn has to come first. Since version 3 a member says who it is
(KIP-447), so that a consumer that has lost its partitions cannot commit for them.

Source: GroupCoordinatorService.commitTransactionalOffsets and ClassicGroup.validateOffsetCommit in Apache Kafka.
"""

from typing import TYPE_CHECKING, cast

from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.apis.find_coordinator import coordinator_error
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.groups.committed_offsets import CommittedOffset
from aioproducer.testing.fake_broker.groups.consumer_group import Committer
from aioproducer.testing.fake_broker.groups.consumer_groups import OFFSETS_TOPIC
from aioproducer.testing.fake_broker.transactions.transaction_checks import COORDINATOR_ERRORS, admit
from aioproducer.testing.fake_broker.transactions.transaction_entry import Claim, ProducerIdAndEpoch
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition

_FIRST_WITH_ABORTABLE = 4
_FIRST_THAT_ADDS = 5


def answer_txn_offset_commit(exchange: Exchange) -> None:
    """Hold the offsets until the transaction ends."""
    request = cast("TxnOffsetCommitRequest", exchange.request())
    groups = exchange.cluster.groups
    error = coordinator_error(exchange, request.group_id)
    offered = {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in request.topics
        for partition in topic.partitions
    }
    there = {place: _offset(partition) for place, partition in offered.items() if _is_there(exchange, place)}
    if there and not error:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        error = _transaction_error(exchange, request) or _group_error(exchange, request)
        fitting = {place: committed for place, committed in there.items() if not committed.is_too_large}
        if fitting and not error:
            groups.hold(request.group_id, producer, fitting)
        elif error == codes.INVALID_PRODUCER_EPOCH and exchange.cluster.settings.profile.forgets_offsets:
            groups.forget(request.group_id, producer, there)
    answers: dict[str, list[Tree]] = {topic.name: [] for topic in request.topics}
    for place in offered:
        code = _code(there.get(place), error)
        answers[place.topic].append({"partition_index": place.partition, "error_code": code})
    topics = [{"name": name, "partitions": partitions} for name, partitions in answers.items()]
    exchange.reply_tree({"topics": topics}, exchange.now)


def _offset(offered: "TxnOffsetCommitRequestPartition") -> CommittedOffset:
    epoch = int(offered.committed_leader_epoch)
    return CommittedOffset(int(offered.committed_offset), epoch, offered.committed_metadata or "")


def _code(committed: CommittedOffset | None, error: int) -> int:
    if committed is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    return error or (codes.OFFSET_METADATA_TOO_LARGE if committed.is_too_large else codes.NONE)


def _is_there(exchange: Exchange, place: TopicPartition) -> bool:
    topic = exchange.cluster.topics.named(place.topic)
    return topic is not None and topic.partition(place.partition) is not None


def _transaction_error(exchange: Exchange, request: "TxnOffsetCommitRequest") -> int:
    """Return the transaction coordinator's error as the group coordinator passes it on; asked once per transaction."""
    groups = exchange.cluster.groups
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    partition = groups.offsets_partition_of(request.group_id)
    known = groups.producers.open_epoch(producer.producer_id, partition)
    verifies_epochs = exchange.cluster.settings.profile.verifies_epochs
    if groups.producers.is_before(producer, partition) and (verifies_epochs or known is not None):
        return codes.INVALID_PRODUCER_EPOCH
    if known is not None and (known == producer.epoch or not verifies_epochs):
        return 0
    error = admit(
        exchange.cluster,
        Claim(request.transactional_id, *producer),
        TopicPartition(OFFSETS_TOPIC, partition),
        adds=exchange.version >= _FIRST_THAT_ADDS,
        now=exchange.now,
    )
    if error in COORDINATOR_ERRORS:
        return codes.COORDINATOR_LOAD_IN_PROGRESS
    if error == codes.TRANSACTION_ABORTABLE and exchange.version < _FIRST_WITH_ABORTABLE:
        return codes.INVALID_TXN_STATE
    return codes.INVALID_PRODUCER_EPOCH if error == codes.PRODUCER_FENCED else error


def _group_error(exchange: Exchange, request: "TxnOffsetCommitRequest") -> int:
    group = exchange.cluster.groups.found(request.group_id)
    if not group.exists and request.generation_id >= 0 and exchange.cluster.settings.profile.coordinates_groups_as_4_0:
        return codes.ILLEGAL_GENERATION
    who = Committer(request.member_id, request.generation_id, request.group_instance_id)
    return group.commit_error(who, is_transactional=True)
