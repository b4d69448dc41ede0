"""OffsetCommit 2-10, OffsetFetch 1-10 and TxnOffsetCommit 0-6: the committed offsets of consumer groups.

Since OffsetCommit 10, OffsetFetch 10 and TxnOffsetCommit 6 topics go by id; since OffsetFetch 8 one request may ask
for several groups.
For TxnOffsetCommit the group's coordinator asks the transaction's, as the leader of a partition does: since version 5
that adds the offsets to the transaction, before it AddOffsetsToTxn has to come first. Since version 3 a member names
itself (KIP-447), so that a consumer that has lost its partitions cannot commit for them.

Source: GroupCoordinatorService.commitTransactionalOffsets and ClassicGroup.validateOffsetCommit in Apache Kafka.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.apis.find_coordinator import coordinator_error
from aioproducer.testing.fake_broker.apis.transactions import COORDINATOR_ERRORS, admit
from aioproducer.testing.fake_broker.committed_offsets import NOT_COMMITTED, CommittedOffset
from aioproducer.testing.fake_broker.consumer_groups import OFFSETS_TOPIC, Committer, ConsumerGroup
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.log.producer_state import ProducerIdAndEpoch
from aioproducer.testing.fake_broker.topics import Topic
from aioproducer.testing.fake_broker.transaction_coordinator import Claim
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.offset_commit.v9.request import OffsetCommitRequest as CommitByName
    from kio.schema.offset_commit.v9.request import OffsetCommitRequestPartition
    from kio.schema.offset_commit.v10.request import OffsetCommitRequest as CommitById
    from kio.schema.offset_fetch.v7.request import OffsetFetchRequest as FetchForOne
    from kio.schema.offset_fetch.v9.request import OffsetFetchRequest as FetchByName
    from kio.schema.offset_fetch.v9.request import OffsetFetchRequestGroup as GroupByName
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequest as FetchById
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequestGroup as GroupById
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition

    from aioproducer.testing.fake_broker.wire._newer_classes import TxnOffsetCommitRequest as OfferById

_FIRST_BY_ID = 10
_FIRST_WITH_UNKNOWN_GROUP = 9
_FIRST_FOR_GROUPS = 8


def answer_offset_commit(exchange: Exchange) -> None:
    """Commit offsets; outside of a generation only while the group has no members.

    Unknown topics and partitions get their error first: the coordinator sees only the others. A commit renews its
    member's session.
    """
    request = cast("CommitByName", exchange.request())
    group = exchange.cluster.groups.found(request.group_id)
    error = coordinator_error(exchange, request.group_id)
    asked_for = list(_committed_topics(exchange, request))
    if not error and _reaches_coordinator(exchange, asked_for):
        error = _commit_error(exchange, group, request)
        if not error:
            group = exchange.cluster.groups.named(request.group_id)
            group.heartbeat(request.member_id, exchange.now)
    responses: list[Tree] = []
    for named, partitions in asked_for:
        topic = exchange.cluster.topics.find(named.name, named.topic_id)
        results = [_commit(group, topic, asked, error=named.error(topic) or error) for asked in partitions]
        responses.append({"name": named.name, "topic_id": named.topic_id, "partitions": results})
    exchange.reply_tree({"topics": responses}, exchange.now)


def _commit_error(exchange: Exchange, group: ConsumerGroup, request: "CommitByName") -> int:
    generation = request.generation_id_or_member_epoch
    if not group.exists and generation >= 0:
        tells = exchange.cluster.settings.profile.coordinates_groups_as_4_0
        return (
            codes.GROUP_ID_NOT_FOUND
            if tells and exchange.version >= _FIRST_WITH_UNKNOWN_GROUP
            else codes.ILLEGAL_GENERATION
        )
    return group.commit_error(
        Committer(request.member_id, generation, request.group_instance_id), is_transactional=False
    )


class _Named(NamedTuple):
    """A topic as a request names it: by name or by id."""

    name: str | None
    topic_id: uuid.UUID | None

    def error(self, topic: Topic | None) -> int:
        if topic is not None:
            return 0
        return codes.UNKNOWN_TOPIC_ID if self.name is None else codes.UNKNOWN_TOPIC_OR_PARTITION


def _committed_topics(
    exchange: Exchange, request: "CommitByName"
) -> Iterable[tuple[_Named, Sequence["OffsetCommitRequestPartition"]]]:
    if exchange.version < _FIRST_BY_ID:
        return [(_Named(topic.name, None), topic.partitions) for topic in request.topics]
    by_id = cast("CommitById", request)
    partitions = [cast("Sequence[OffsetCommitRequestPartition]", topic.partitions) for topic in by_id.topics]
    return zip([_Named(None, topic.topic_id) for topic in by_id.topics], partitions, strict=True)


def _reaches_coordinator(
    exchange: Exchange, asked_for: "Iterable[tuple[_Named, Sequence[OffsetCommitRequestPartition]]]"
) -> bool:
    topics = exchange.cluster.topics
    return any(
        topics.partition(named.name, asked.partition_index, named.topic_id) is not None
        for named, partitions in asked_for
        for asked in partitions
    )


def _commit(group: ConsumerGroup, topic: Topic | None, asked: "OffsetCommitRequestPartition", *, error: int) -> Tree:
    index = asked.partition_index
    committed = CommittedOffset(
        int(asked.committed_offset), int(asked.committed_leader_epoch), asked.committed_metadata or ""
    )
    if topic is not None and topic.partition(index) is None:
        error = codes.UNKNOWN_TOPIC_OR_PARTITION
    elif error == 0 and committed.is_too_large:
        error = codes.OFFSET_METADATA_TOO_LARGE
    elif error == 0 and topic is not None:
        group.offsets.commit(TopicPartition(topic.name, index), committed)
    return {"partition_index": index, "error_code": error}


def answer_offset_fetch(exchange: Exchange) -> None:
    if exchange.version < _FIRST_FOR_GROUPS:
        one = cast("FetchForOne", exchange.request())
        found = _fetched(exchange, one.group_id, _asked_by_name(one), require_stable=one.require_stable)
        exchange.reply_tree(found, exchange.now)
        return
    require_stable = cast("FetchByName", exchange.request()).require_stable
    groups = [
        {"group_id": group_id, **_fetched(exchange, group_id, asked, require_stable=require_stable)}
        for group_id, asked in _fetched_groups(exchange)
    ]
    exchange.reply_tree({"groups": groups}, exchange.now)


_Asked: TypeAlias = Sequence[tuple[_Named, Sequence[int]]] | None
"""Topics and their partitions; None for everything that the group has committed."""


def _fetched_groups(exchange: Exchange) -> list[tuple[str, _Asked]]:
    if exchange.version >= _FIRST_BY_ID:
        by_id = cast("FetchById", exchange.request())
        return [(group.group_id, _asked_by_id(group)) for group in by_id.groups]
    by_name = cast("FetchByName", exchange.request())
    return [(group.group_id, _asked_by_name(group)) for group in by_name.groups]


def _asked_by_id(group: "GroupById") -> _Asked:
    if group.topics is None:
        return None
    return [(_Named(None, topic.topic_id), topic.partition_indexes) for topic in group.topics]


def _asked_by_name(group: "GroupByName | FetchForOne") -> _Asked:
    if group.topics is None:
        return None
    return [(_Named(topic.name, None), topic.partition_indexes) for topic in group.topics]


def _fetched(exchange: Exchange, group_id: str, asked: _Asked, *, require_stable: bool) -> Tree:
    group = exchange.cluster.groups.found(group_id)
    error = coordinator_error(exchange, group_id)
    if error:
        return {"error_code": error, "topics": []}
    wanted = _everything(exchange, group) if asked is None else asked
    return {
        "error_code": 0,
        "topics": [_fetched_topic(_Look(exchange, group, require_stable), named, indexes) for named, indexes in wanted],
    }


def _everything(exchange: Exchange, group: ConsumerGroup) -> Sequence[tuple[_Named, Sequence[int]]]:
    found: dict[str, list[int]] = {}
    for topic, index in group.offsets.partitions():
        found.setdefault(topic, []).append(index)
    by_id = exchange.version >= _FIRST_BY_ID
    topics = [(name, exchange.cluster.topics.named(name), tuple(indexes)) for name, indexes in found.items()]
    return [
        (_Named(None if by_id else name, topic.topic_id if by_id else None), indexes)
        for name, topic, indexes in topics
        if topic is not None
    ]


class _Look(NamedTuple):
    exchange: Exchange
    group: ConsumerGroup
    require_stable: bool  # whether offsets that an open transaction is about to change are withheld


def _fetched_topic(look: _Look, named: _Named, indexes: Sequence[int]) -> Tree:
    topic = look.exchange.cluster.topics.find(named.name, named.topic_id)
    error = codes.UNKNOWN_TOPIC_ID if topic is None and named.name is None else 0
    name = topic.name if topic else named.name or ""
    partitions = [_fetched_partition(look, TopicPartition(name, index), error) for index in indexes]
    return {"name": name, "topic_id": named.topic_id, "partitions": partitions}


def _fetched_partition(look: _Look, partition: TopicPartition, error: int) -> Tree:
    found = look.group.offsets.get(partition)
    if look.require_stable and look.group.offsets.is_unstable(partition):
        found, error = NOT_COMMITTED, error or codes.UNSTABLE_OFFSET_COMMIT
    return {
        "partition_index": partition.partition,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": error,
    }


_FIRST_WITH_ABORTABLE = 4
_FIRST_THAT_ADDS = 5
_FIRST_BY_ID_IN_TXN = 6  # also the first with an error for an unknown group


def answer_txn_offset_commit(exchange: Exchange) -> None:
    """Hold the offsets until the transaction ends."""
    request = cast("TxnOffsetCommitRequest", exchange.request())
    groups = exchange.cluster.groups
    error = coordinator_error(exchange, request.group_id)
    asked_for = list(_offered_topics(exchange, request))
    there = {
        TopicPartition(topic.name, partition.partition_index): _offset(partition)
        for named, partitions in asked_for
        if (topic := exchange.cluster.topics.find(named.name, named.topic_id)) is not None
        for partition in partitions
        if topic.partition(partition.partition_index) is not None
    }
    if there and not error:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        error = _transaction_error(exchange, request) or _group_error(exchange, request)
        fitting = {
            topic_partition: committed for topic_partition, committed in there.items() if not committed.is_too_large
        }
        if fitting and not error:
            groups.hold(request.group_id, producer, fitting)
        elif error == codes.INVALID_PRODUCER_EPOCH and exchange.cluster.settings.profile.forgets_offsets:
            groups.forget(request.group_id, producer, there)
    responses = [_held_topic(exchange, named, partitions, there=there, error=error) for named, partitions in asked_for]
    exchange.reply_tree({"topics": responses}, exchange.now)


def _offered_topics(
    exchange: Exchange, request: "TxnOffsetCommitRequest"
) -> Iterable[tuple[_Named, Sequence["TxnOffsetCommitRequestPartition"]]]:
    if exchange.version < _FIRST_BY_ID_IN_TXN:
        return [(_Named(topic.name, None), topic.partitions) for topic in request.topics]
    by_id = cast("OfferById", request)
    return [(_Named(None, topic.topic_id), topic.partitions) for topic in by_id.topics]


def _held_topic(
    exchange: Exchange,
    named: _Named,
    partitions: Iterable["TxnOffsetCommitRequestPartition"],
    *,
    there: Mapping[TopicPartition, CommittedOffset],
    error: int,
) -> Tree:
    topic = exchange.cluster.topics.find(named.name, named.topic_id)
    held = [
        (index, there.get(TopicPartition(topic.name, index)) if topic else None)
        for index in (partition.partition_index for partition in partitions)
    ]
    results = [{"partition_index": index, "error_code": named.error(topic) or _code(at, error)} for index, at in held]
    return {"name": named.name, "topic_id": named.topic_id, "partitions": results}


def _offset(offered: "TxnOffsetCommitRequestPartition") -> CommittedOffset:
    epoch = int(offered.committed_leader_epoch)
    return CommittedOffset(int(offered.committed_offset), epoch, offered.committed_metadata or "")


def _code(committed: CommittedOffset | None, error: int) -> int:
    if committed is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    return error or (codes.OFFSET_METADATA_TOO_LARGE if committed.is_too_large else codes.NONE)


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
        return codes.ILLEGAL_GENERATION if exchange.version < _FIRST_BY_ID_IN_TXN else codes.GROUP_ID_NOT_FOUND
    who = Committer(request.member_id, request.generation_id, request.group_instance_id)
    return group.commit_error(who, is_transactional=True)
