"""The members of a consumer group of the classic protocol, and the protocols they have in common.

    asked without an id --> pending --joins with it--> member --leaves, session over, dropped--> unknown
                               |                          |
                               +-- leaves, session over --+-- same instance joins without an id --> fenced (82)

An id that is neither pending nor a member's is unknown, even if it was given out once.

Source: ClassicGroup in Apache Kafka; KIP-394 for pending ids, KIP-345 for instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from aioproducer.testing.fake_broker.schedule import Appointment

Reply = Callable[[Tree, float], None]  # sends the response to a waiting JoinGroup or SyncGroup: (response, now)


class Member:
    """One consumer in the group.

    Args:
        member_id: given out by the coordinator.
        instance_id: of a static member; it stays through restarts, the member id does not.
        protocols: metadata by the protocol's name, the preferred one first.
        client_id: as its requests say.
    """

    __slots__ = (
        "assignment", "client_id", "instance_id", "is_new", "join", "member_id", "protocols", "rebalance_timeout_s",
        "session", "session_timeout_s", "sync",
    )  # fmt: skip

    def __init__(
        self, member_id: str, instance_id: str | None, protocols: Mapping[str, bytes], *, client_id: str = ""
    ) -> None:
        self.member_id: str = member_id
        self.instance_id: str | None = instance_id
        self.protocols: Mapping[str, bytes] = protocols
        self.client_id: str = client_id
        self.session_timeout_s: float = 0.0
        self.rebalance_timeout_s: float = 0.0
        self.assignment: bytes = b""
        self.is_new: bool = False
        """Whether it has been in no generation yet; it may not know its id then, and sends no heartbeats."""
        self.join: Reply | None = None
        self.sync: Reply | None = None
        self.session: Appointment | None = None

    @property
    def is_excused(self) -> bool:
        """Whether it need not send heartbeats, as its own request waits; new members have `NEW_MEMBER_JOIN_S`."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def offers_as(self, other: Member) -> bool:
        """Whether it offers the same protocols, in the same order, with the same metadata."""
        return list(self.protocols.items()) == list(other.protocols.items())

    def copy_terms_of(self, again: Member) -> None:
        self.protocols = again.protocols
        self.session_timeout_s = again.session_timeout_s
        self.rebalance_timeout_s = again.rebalance_timeout_s
        self.join = again.join

    def end_session(self) -> None:
        if self.session is not None:
            self.session.cancel()


class GroupMembers:
    """The members of one group by id, and the ids that are given out but not used yet."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._pending: dict[str, Appointment] = {}

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def add(self, member: Member) -> None:
        self._by_id[member.member_id] = member

    def remove(self, member: Member) -> None:
        del self._by_id[member.member_id]
        member.end_session()

    # Ids that are given out

    def expect(self, member_id: str, until: Appointment) -> None:
        """Add a pending id, with the appointment that ends it."""
        self._pending[member_id] = until

    def is_expected(self, member_id: str) -> bool:
        return member_id in self._pending

    def expect_no_more(self, member_id: str | None = None) -> None:
        """Remove a pending id that was used, given back or has expired; None removes all."""
        for expected in list(self._pending) if member_id is None else [member_id]:
            until = self._pending.pop(expected, None)
            if until is not None:
                until.cancel()

    # Who asks

    def of_instance(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        return next((member for member in self if member.instance_id == instance_id), None)

    def error_of(self, member_id: str, instance_id: str | None) -> int:
        """Return the error of a request that must come from a member; the instance outweighs the id."""
        if instance_id is not None:
            present = self.of_instance(instance_id)
            if present is not None and present.member_id != member_id:
                return codes.FENCED_INSTANCE_ID
            if present is None:
                return codes.UNKNOWN_MEMBER_ID
        return codes.NONE if member_id in self._by_id else codes.UNKNOWN_MEMBER_ID

    # Rebalancing

    @property
    def have_all_joined(self) -> bool:
        """Whether every member waits in JoinGroup and no id is pending; true without members."""
        if not self._by_id:
            return True
        return not self._pending and all(member.join is not None for member in self)

    @property
    def longest_rebalance_s(self) -> float:
        return max((0.0, *(member.rebalance_timeout_s for member in self)))

    def common_protocols(self) -> set[str]:
        offered = [set(member.protocols) for member in self]
        return set.intersection(*offered) if offered else set()

    def chosen_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all of them offer."""
        common = self.common_protocols()
        votes = Counter(next(name for name in member.protocols if name in common) for member in self)
        return max(votes, key=lambda name: votes[name])
