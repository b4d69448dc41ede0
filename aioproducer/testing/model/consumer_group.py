"""One consumer group of the classic protocol: its members, generations, and how a rebalance goes.

    EMPTY --join--> PREPARING --all joined--> COMPLETING --leader's sync--> STABLE
      ^                 ^                          |                          |
      |                 +---- join, leave, session over, from any state ------+
      +--- last member gone

Members that do not join again within the longest rebalance time-out are dropped.

Source: GroupCoordinator in Apache Kafka; static membership (KIP-345) only as far as an instance takes the place of its
former self.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from aioproducer.testing.model.codes import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from aioproducer.testing.model.committed_offsets import GroupOffsets
from aioproducer.testing.model.messages import Tree
from aioproducer.testing.model.schedule import Appointment, Schedule

Reply = Callable[[Tree, float], None]
"""How a waiting JoinGroup or SyncGroup is answered: (answer, now)."""


class GroupState(Enum):
    """Where a group is between two rebalances."""

    EMPTY = auto()
    PREPARING = auto()
    COMPLETING = auto()
    STABLE = auto()


class Member:
    """One consumer in the group."""

    __slots__ = (
        "assignment", "client_id", "instance_id", "join", "member_id", "protocols", "rebalance_timeout_s", "session",
        "session_timeout_s", "sync",
    )  # fmt: skip

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = ""
        self.session_timeout_s = 0.0
        self.rebalance_timeout_s = 0.0
        self.protocols: dict[str, bytes] = {}
        self.assignment = b""
        self.join: Reply | None = None
        self.sync: Reply | None = None
        self.session: Appointment | None = None


class Committer(NamedTuple):
    """Who commits offsets, as its request says."""

    member_id: str
    generation: int
    instance_id: str | None


class ConsumerGroup:
    """One group and the offsets it has committed.

    Args:
        schedule: for sessions and rebalance time-outs.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name = ""
        self.leader = ""
        self.offsets = GroupOffsets()
        self.exists = False
        """Whether somebody has joined or committed; Kafka makes a group then."""
        self._schedule = schedule
        self._members: dict[str, Member] = {}
        self._deadline: Appointment | None = None

    # Requests

    def member_error(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        """The error of a request that must come from a member of this generation."""
        if instance_id is not None:
            present = self.member_of_instance(instance_id)
            if present is not None and present != member_id:
                return FENCED_INSTANCE_ID
        if member_id not in self._members:
            return UNKNOWN_MEMBER_ID
        return NONE if generation == self.generation else ILLEGAL_GENERATION

    def commit_error(self, who: Committer, *, is_transactional: bool) -> int:
        """The error for who commits offsets: a member, or while there are none somebody who names none."""
        names_nobody = who.generation < 0 and not who.member_id and who.instance_id is None
        if who.generation < 0 and self.is_empty:
            return NONE
        if names_nobody:
            return NONE if is_transactional else UNKNOWN_MEMBER_ID
        error = self.member_error(who.member_id, who.generation, who.instance_id)
        is_forming = self.state is GroupState.COMPLETING and not is_transactional
        return error or (REBALANCE_IN_PROGRESS if is_forming else NONE)

    @property
    def is_empty(self) -> bool:
        """Whether there are no members."""
        return not self._members

    @property
    def members(self) -> Sequence[Member]:
        """Who is in it, in the order in which they came."""
        return tuple(self._members.values())

    def accepts(self, protocols: Sequence[str], protocol_type: str) -> bool:
        """Whether a member that offers these protocols can live with the members there are."""
        if not self._members:
            return bool(protocols)
        common = self._common_protocols()
        return protocol_type == self.protocol_type and any(name in common for name in protocols)

    def join(self, member: Member, reply: Reply, now: float) -> None:
        """Take in a member, new or not; answered when all have joined."""
        self.exists = True
        self._replace_instance(member)
        known = self._members.get(member.member_id)
        if known is not None and self._answers_without_rebalance(known, member):
            reply(self.joined(known), now)
            return
        if known is not None and known.session is not None:
            known.session.cancel()
        member.join = reply
        self._members[member.member_id] = member
        self._rebalance(now)

    def sync(self, member_id: str, assignments: Sequence[tuple[str, bytes]], *, reply: Reply, now: float) -> None:
        """Take the leader's assignments, or wait for them."""
        member = self._members[member_id]
        if self.state is GroupState.PREPARING:
            reply(self._synced(REBALANCE_IN_PROGRESS), now)
            return
        member.sync = reply
        if self.state is GroupState.COMPLETING and member_id == self.leader:
            for assigned_id, assignment in assignments:
                if assigned_id in self._members:
                    self._members[assigned_id].assignment = assignment
            self.state = GroupState.STABLE
        if self.state is GroupState.STABLE:
            self._answer_syncs(NONE, now)
        self._renew(member, now)

    def heartbeat(self, member_id: str, now: float) -> int:
        """Keep a member's session alive; tells it of a rebalance."""
        self._renew(self._members[member_id], now)
        return REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else NONE

    def leave(self, member_id: str, now: float) -> int:
        """Let a member go."""
        if member_id not in self._members:
            return UNKNOWN_MEMBER_ID
        self._drop(self._members[member_id], now)
        return NONE

    def member_of_instance(self, instance_id: str) -> str | None:
        """The member id that a static member has now."""
        found = (member for member in self._members.values() if member.instance_id == instance_id)
        return next((member.member_id for member in found), None)

    # Rebalancing

    def _replace_instance(self, member: Member) -> None:
        if member.instance_id is None:
            return
        former = self.member_of_instance(member.instance_id)
        if former is not None and former != member.member_id:
            replaced = self._members.pop(former)
            if replaced.session is not None:
                replaced.session.cancel()
            self.leader = member.member_id if self.leader == former else self.leader

    def _answers_without_rebalance(self, known: Member, again: Member) -> bool:
        is_settled = self.state in {GroupState.STABLE, GroupState.COMPLETING}
        return is_settled and known.protocols == again.protocols and known.member_id != self.leader

    def _rebalance(self, now: float) -> None:
        if self.state is not GroupState.PREPARING:
            self._answer_syncs(REBALANCE_IN_PROGRESS, now)
            self.state = GroupState.PREPARING
            longest = max(member.rebalance_timeout_s for member in self._members.values())
            self._deadline = self._schedule.at(now + longest, self._give_up_waiting)
        if all(member.join is not None for member in self._members.values()):
            self._complete_join(now)

    def _give_up_waiting(self, now: float) -> None:
        if self.state is GroupState.PREPARING:
            for member in [member for member in self._members.values() if member.join is None]:
                self._forget(member)
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.generation += 1
        if not self._members:
            self.state = GroupState.EMPTY
            return
        self.state = GroupState.COMPLETING
        self.protocol_name = self._common_protocols()[0]
        if self.leader not in self._members:
            self.leader = next(iter(self._members))
        for member in list(self._members.values()):
            reply, member.join = member.join, None
            self._renew(member, now)
            if reply is not None:
                reply(self.joined(member), now)

    def _common_protocols(self) -> list[str]:
        """What all members offer, in the order the first of them prefers."""
        first, *others = self._members.values()
        return [name for name in first.protocols if all(name in other.protocols for other in others)]

    # Sessions

    def _renew(self, member: Member, now: float) -> None:
        if member.session is not None:
            member.session.cancel()
        member.session = self._schedule.at(now + member.session_timeout_s, partial(self._expire, member))

    def _expire(self, member: Member, now: float) -> None:
        if self._members.get(member.member_id) is member and member.join is None:
            self._drop(member, now)

    def _drop(self, member: Member, now: float) -> None:
        self._forget(member)
        if not self._members:
            self.state = GroupState.EMPTY
            self.generation += 1
        else:
            self._rebalance(now)

    def _forget(self, member: Member) -> None:
        del self._members[member.member_id]
        if member.session is not None:
            member.session.cancel()

    # Answers

    def joined(self, member: Member) -> Tree:
        """What a member learns when the group has formed; only the leader learns of the others."""
        others = self._members.values() if member.member_id == self.leader else ()
        return {
            "error_code": NONE,
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
        for member in list(self._members.values()):
            reply, member.sync = member.sync, None
            if reply is not None:
                reply(self._synced(error, member.assignment if error == NONE else b""), now)

    def _synced(self, error: int, assignment: bytes = b"") -> Tree:
        return {
            "error_code": error,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol_name,
            "assignment": assignment,
        }
