"""Consumer groups of the classic protocol: all of the cluster, and in each the generations and how a rebalance goes.

Source: GroupMetadataManager (classicGroup...) and ClassicGroup in Apache Kafka; KIP-345.
"""

from __future__ import annotations

import struct
import uuid
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.testing.fake_broker.committed_offsets import CommittedOffset, GroupOffsets, OffsetsProducers
from aioproducer.testing.fake_broker.group_members import GroupMembers, Member, Reply
from aioproducer.testing.fake_broker.wire import codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from aioproducer.records import TopicPartition
    from aioproducer.testing.fake_broker.log.producer_state import ProducerIdAndEpoch
    from aioproducer.testing.fake_broker.schedule import Appointment, Schedule
    from aioproducer.testing.fake_broker.settings import ClusterSettings
    from aioproducer.testing.fake_broker.wire.messages import Tree

_UTF_16 = struct.Struct(">H")

OFFSETS_TOPIC = "__consumer_offsets"
NEW_MEMBER_JOIN_S = 300.0  # longest wait of a new member's JoinGroup; no setting of Kafka changes it

_SHORTEST_WAIT_S = 0.1
"""Shortest time between two checks of the members, as rebalance time-outs may be 0: the clock must advance."""


class ConsumerGroups:
    """Groups by name; the first JoinGroup or commit creates a group."""

    def __init__(self, schedule: Schedule, random: Random, settings: ClusterSettings) -> None:
        self._schedule = schedule
        self._random = random
        self._offsets_partitions = settings.offsets_topic_partitions
        self._as_4_0 = settings.profile.coordinates_groups_as_4_0
        self.producers: OffsetsProducers = OffsetsProducers()
        self._groups: dict[str, ConsumerGroup] = {}

    def named(self, group_id: str) -> ConsumerGroup:
        group = self._groups[group_id] = self.found(group_id)
        group.exists = True
        return group

    def found(self, group_id: str) -> ConsumerGroup:
        """Return the group of this name, or an empty one that is not kept: a query creates no group."""
        group = self._groups.get(group_id)
        return ConsumerGroup(self._schedule, as_4_0=self._as_4_0) if group is None else group

    def existing(self) -> Mapping[str, ConsumerGroup]:
        return self._groups

    def delete(self, group_id: str) -> None:
        self._groups.pop(group_id).expect_none()

    def unload(self, group_id: str, now: float) -> None:
        """Refuse the requests that wait in a group, as its coordinator has changed."""
        self.found(group_id).unload(now)

    def new_member_id(self, begin: str | None) -> str:
        """Return a member id in Kafka's form: client id or instance id, and a random UUID."""
        return f"{begin or ''}-{uuid.UUID(int=self._random.getrandbits(128), version=4)}"

    def hold(
        self, group_id: str, producer: ProducerIdAndEpoch, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        self.producers.note_offsets(producer, self.offsets_partition_of(group_id))
        group = self.named(group_id)
        for partition, committed in offsets.items():
            group.offsets.hold(producer.producer_id, partition, committed)

    def forget(self, group_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]) -> None:
        """Drop pending offsets that a producer's open transaction has sent, as its log has refused more of it."""
        if self.producers.open_epoch(producer.producer_id, self.offsets_partition_of(group_id)) is not None:
            for partition in partitions:
                self.found(group_id).offsets.forget(producer.producer_id, partition)

    def finish_transaction(self, producer: ProducerIdAndEpoch, *, is_commit: bool, offsets_partition: int) -> None:
        self.producers.note_marker(producer, offsets_partition)
        for group_id, group in self._groups.items():
            if self.offsets_partition_of(group_id) == offsets_partition:
                group.offsets.finish_transaction(producer.producer_id, is_commit=is_commit)

    def drop_topic(self, topic: str) -> None:
        for group in self._groups.values():
            group.offsets.drop_topic(topic)

    def offsets_partition_of(self, group_id: str) -> int:
        """Return the partition of the offsets topic that holds a group: Java's hash of the name."""
        value = 0
        for (unit,) in _UTF_16.iter_unpack(group_id.encode("utf-16-be")):
            value = (31 * value + unit) & 0xFFFFFFFF
        return (value & 0x7FFFFFFF) % self._offsets_partitions


class GroupState(StrEnum):
    """The state of a group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Identity(NamedTuple):
    """A member as a request names it."""

    member_id: str
    instance_id: str | None = None


class Committer(NamedTuple):
    """A member that commits offsets, as its request names it."""

    member_id: str
    generation: int
    instance_id: str | None


class ConsumerGroup:
    """One group and its committed offsets; `as_4_0`: giving back an unused id starts a rebalance.

        EMPTY --join--> PREPARING --all joined--> COMPLETING --leader's sync--> STABLE
          ^                 ^                          |                          |
          |                 +---- join, leave, session over, from any state; -----+
          |                       SyncGroup not sent in time
          +--- last member gone

    Members that do not join again within the longest rebalance time-out are dropped, unless they are static: those stay
    until their session is over. Once all have joined, each has the same time again to send its SyncGroup, or is
    dropped. A new member waits at most five minutes for the others: its connection may be gone, and it sends no
    heartbeats. An instance that returns to a stable group takes over its former member's assignment at once.
    """

    def __init__(self, schedule: Schedule, *, as_4_0: bool) -> None:
        self.state: GroupState = GroupState.EMPTY
        self.generation: int = 0
        self.protocol_type: str = ""
        self.protocol_name: str = ""
        self.leader: str = ""
        self.offsets: GroupOffsets = GroupOffsets()
        self.exists = False
        """Whether a client has joined or committed, which creates a group in Kafka; `ConsumerGroups` sets it."""
        self._schedule = schedule
        self._as_4_0 = as_4_0
        self._members = GroupMembers()
        self._deadline: Appointment | None = None
        self._sync_deadline: Appointment | None = None
        self._unsynced: set[str] = set()
        """Ids of this generation without a SyncGroup; as in Kafka, former ids of static members stay in it."""

    # Errors of requests

    def join_error(self, who: Identity, protocol_type: str, protocols: Mapping[str, bytes]) -> int:
        """Return the error of a JoinGroup; an empty member id is a new member's."""
        if who.member_id and not self.exists:
            return codes.UNKNOWN_MEMBER_ID
        if not self._accepts(protocol_type, protocols):
            return codes.INCONSISTENT_GROUP_PROTOCOL
        if not who.member_id or self._members.is_expected(who.member_id):
            return codes.NONE
        return self._members.error_of(*who)

    def _accepts(self, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
        if self.is_empty:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and not self._members.common_protocols().isdisjoint(protocols)

    def member_error(self, who: Identity, generation: int) -> int:
        """Return the error of a request that must come from a member of this generation."""
        error = self._members.error_of(*who)
        return error or (codes.NONE if generation == self.generation else codes.ILLEGAL_GENERATION)

    def sync_error(self, protocol_type: str | None, protocol_name: str | None) -> int:
        """Return the error of a SyncGroup with other protocols than the group's; None for a protocol matches any."""
        is_right = protocol_type in {None, self.protocol_type} and protocol_name in {None, self.protocol_name}
        return codes.NONE if is_right else codes.INCONSISTENT_GROUP_PROTOCOL

    def commit_error(self, who: Committer, *, is_transactional: bool) -> int:
        """Return the error of a commit: by a member or, while there are none, by a client without an id."""
        is_anonymous = who.generation < 0 and not who.member_id and who.instance_id is None
        if who.generation < 0 and self.is_empty:
            return codes.NONE
        if is_anonymous:
            return codes.NONE if is_transactional else codes.UNKNOWN_MEMBER_ID
        error = self.member_error(Identity(who.member_id, who.instance_id), who.generation)
        is_forming = self.state is GroupState.COMPLETING and not is_transactional
        return error or (codes.REBALANCE_IN_PROGRESS if is_forming else codes.NONE)

    @property
    def is_empty(self) -> bool:
        return not self._members

    @property
    def members(self) -> Sequence[Member]:
        return tuple(self._members)

    # Requests

    def expect(self, member_id: str, session_timeout_s: float, now: float) -> None:
        """Wait for a member to join with an id that is being given out; a rebalance waits for it too."""
        until = self._schedule.at(now + session_timeout_s, partial(self._expect_no_more, member_id))
        self._members.expect(member_id, until)

    def join(self, member: Member, protocol_type: str, *, knows_skipping: bool, now: float) -> None:
        """Add a member or take it again; its `join` is answered when all have joined."""
        self._members.expect_no_more(member.member_id)
        if self.is_empty:
            self.protocol_type = protocol_type
        former = self._members.of_instance(member.instance_id)
        known = self._members.get(member.member_id)
        if known is not None:
            self._join_again(known, member, now)
        elif former is not None:
            self._replace_member(former, member, knows_skipping=knows_skipping, now=now)
        else:
            self._members.add(member)
            member.is_new = True
            self._renew(member, now, NEW_MEMBER_JOIN_S)
            self._rebalance(now)

    def sync(self, member_id: str, assignments: Mapping[str, bytes], *, reply: Reply, now: float) -> None:
        """Take the leader's assignments, or wait for them."""
        member = self._members.get(member_id)
        if member is None or self.state is GroupState.PREPARING:
            reply(synced(codes.REBALANCE_IN_PROGRESS), now)
            return
        member.sync = reply
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._cancel_sync_deadline()
        if self.state is GroupState.COMPLETING and member_id == self.leader:
            self._assign(assignments)
            self.state = GroupState.STABLE
        if self.state is GroupState.STABLE:
            self._answer_syncs(codes.NONE, now)

    def heartbeat(self, member_id: str, now: float) -> int:
        """Renew a member's session; returns REBALANCE_IN_PROGRESS during a rebalance."""
        member = self._members.get(member_id)
        if member is not None:
            self._renew(member, now)
        return codes.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else codes.NONE

    def leave(self, leaving: Sequence[Identity], now: float) -> list[int]:
        """Remove members, by id or by instance, and pending ids; returns the error for each."""
        before = len(self._members)
        errors = [self._leave(who, now) for who in leaving]
        concerns_others = len(self._members) < before or self.state is GroupState.PREPARING or self._as_4_0
        if codes.NONE in errors and concerns_others and self.state is not GroupState.EMPTY:
            self._rebalance(now)
        return errors

    def expect_none(self) -> None:
        self._members.expect_no_more()

    def unload(self, now: float) -> None:
        """Hand the group to another coordinator: refuse waiting requests, forget members without a generation."""
        before = self.members
        for member in before:
            self._renew(member, now)  # it may have run out while they waited
            if member.is_new:
                self._members.remove(member)
        if self.is_empty and self.state is not GroupState.EMPTY:
            self._rebalance(now)
        for member in before:  # last: a response lets the next request of its connection in
            _answer_join(member, join_refused(codes.NOT_COORDINATOR, member.member_id), now)
            _answer_sync(member, synced(codes.NOT_COORDINATOR), now)

    def _leave(self, who: Identity, now: float) -> int:
        if self._members.is_expected(who.member_id):
            self._members.expect_no_more(who.member_id)
            return codes.NONE
        present = None if who.member_id else self._members.of_instance(who.instance_id)
        if present is not None:
            who = Identity(present.member_id, who.instance_id)
        member = self._members.get(who.member_id)
        error = self._members.error_of(*who)
        if error == codes.NONE and member is not None:
            self._forget(member, now)
        return error

    # Members that come back

    def _join_again(self, known: Member, again: Member, now: float) -> None:
        is_repeated = self.state is GroupState.COMPLETING  # it may have missed the response
        is_idle = self.state is GroupState.STABLE and known.member_id != self.leader
        if known.offers_as(again) and (is_repeated or is_idle):
            _answer_join(again, self.joined(known), now)
            return
        known.copy_terms_of(again)
        self._rebalance(now)

    def _replace_member(self, former: Member, member: Member, *, knows_skipping: bool, now: float) -> None:
        """Let a static member replace its instance's former member."""
        former_leader = self.leader
        self._forget(former, now, error=codes.FENCED_INSTANCE_ID)
        self._members.add(member)
        member.assignment = former.assignment
        if former_leader == former.member_id:
            self.leader = member.member_id
        self._renew(member, now)
        if self.state is not GroupState.STABLE or self._members.chosen_protocol() != self.protocol_name:
            self._rebalance(now)
        elif knows_skipping:
            _answer_join(member, {**self.joined(member), "skip_assignment": self.leader == member.member_id}, now)
        else:  # with its former id as leader in the response, it does not assign either
            _answer_join(member, {**self.joined(member), "leader": former_leader, "members": ()}, now)

    # Rebalancing

    def _rebalance(self, now: float) -> None:
        self._cancel_sync_deadline()
        is_first = self.state is GroupState.EMPTY
        if self.state is GroupState.COMPLETING:
            self._assign({})
            self._answer_syncs(codes.REBALANCE_IN_PROGRESS, now)
        if self.state is not GroupState.PREPARING:
            self.state = GroupState.PREPARING
            self._wait_for_joins(now)
        if is_first or self._members.have_all_joined:
            self._complete_join(now)

    def _wait_for_joins(self, now: float) -> None:
        wait_s = max(self._members.longest_rebalance_s, _SHORTEST_WAIT_S)
        self._deadline = self._schedule.at(now + wait_s, self._complete_join)

    def _complete_join(self, now: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        for member in self._members:
            if member.join is None and member.instance_id is None:
                self._forget(member, now)
        joined = [member.member_id for member in self._members if member.join is not None]
        if self._members and not joined:
            self._wait_for_joins(now)
            return
        self.generation += 1
        if not self._members:
            self.state = GroupState.EMPTY
            return
        self.state = GroupState.COMPLETING
        self.protocol_name = self._members.chosen_protocol()
        self.leader = self.leader if self.leader in joined else joined[0]
        self._wait_for_syncs(now)
        for member in self._members:
            member.is_new = False
            self._renew(member, now)
            _answer_join(member, self.joined(member), now)

    def _wait_for_syncs(self, now: float) -> None:
        self._unsynced = {member.member_id for member in self._members}
        self._sync_deadline = self._schedule.at(now + self._members.longest_rebalance_s, self._drop_unsynced)

    def _drop_unsynced(self, now: float) -> None:
        for member in self._members:
            if member.member_id in self._unsynced:
                self._forget(member, now)
        self._rebalance(now)

    def _cancel_sync_deadline(self) -> None:
        if self._sync_deadline is not None:
            self._sync_deadline.cancel()

    def _expect_no_more(self, member_id: str, now: float) -> None:
        self._members.expect_no_more(member_id)
        if self.state is GroupState.PREPARING and self._members.have_all_joined:
            self._complete_join(now)

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        for member in self._members:
            member.assignment = assignments.get(member.member_id, b"")

    # Sessions

    def _renew(self, member: Member, now: float, seconds: float | None = None) -> None:
        """Restart a member's session, for `seconds` instead of its own time-out if given."""
        member.end_session()
        seconds = member.session_timeout_s if seconds is None else seconds
        member.session = self._schedule.at(now + seconds, partial(self._expire, member))

    def _expire(self, member: Member, now: float) -> None:
        if self._members.get(member.member_id) is member and not member.is_excused:
            self._forget(member, now)
            self._rebalance(now)

    def _forget(self, member: Member, now: float, *, error: int = codes.UNKNOWN_MEMBER_ID) -> None:
        self._members.remove(member)
        fenced_id = member.member_id if error == codes.FENCED_INSTANCE_ID else ""
        _answer_join(member, join_refused(error, fenced_id), now)
        _answer_sync(member, synced(error), now)

    # Responses

    def joined(self, member: Member) -> Tree:
        """Return a member's JoinGroup response; only the leader's lists the members."""
        others = self._members if member.member_id == self.leader else ()
        return {
            "error_code": codes.NONE,
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol_name,
            "leader": self.leader,
            "member_id": member.member_id,
            "members": [
                {
                    "member_id": other.member_id,
                    "group_instance_id": other.instance_id,
                    "metadata": other.protocols[self.protocol_name],
                }
                for other in others
            ],
        }

    def _answer_syncs(self, error: int, now: float) -> None:
        for member in self._members:
            response = synced(error)
            if error == codes.NONE:
                names = {"protocol_type": self.protocol_type, "protocol_name": self.protocol_name}
                response = {**response, **names, "assignment": member.assignment}
            if _answer_sync(member, response, now):
                self._renew(member, now)


def join_refused(error: int, member_id: str) -> Tree:
    """Return the response to a JoinGroup that fails; the caller adapts it to versions before 7."""
    return {"error_code": error, "generation_id": -1, "protocol_name": None, "member_id": member_id}


def synced(error: int) -> Tree:
    return {"error_code": error, "protocol_type": None, "protocol_name": None, "assignment": b""}


def _answer_join(member: Member, response: Tree, now: float) -> None:
    reply, member.join = member.join, None
    if reply is not None:
        reply(response, now)


def _answer_sync(member: Member, response: Tree, now: float) -> bool:
    reply, member.sync = member.sync, None
    if reply is not None:
        reply(response, now)
    return reply is not None
