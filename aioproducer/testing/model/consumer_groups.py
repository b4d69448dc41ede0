"""All consumer groups of the cluster, and the member ids given out."""

import uuid
from random import Random

from aioproducer.testing.model.consumer_group import ConsumerGroup
from aioproducer.testing.model.schedule import Schedule


class ConsumerGroups:
    """Groups by name; one is there as soon as somebody asks for it.

    Args:
        schedule: given to every group.
        random: member ids come from it.
    """

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self._groups: dict[str, ConsumerGroup] = {}
        self._member_ids: set[str] = set()

    def named(self, group_id: str) -> ConsumerGroup:
        """The group of this name."""
        if group_id not in self._groups:
            self._groups[group_id] = ConsumerGroup(self._schedule)
        return self._groups[group_id]

    def new_member_id(self, client_id: str | None) -> str:
        """A member id in Kafka's form: the client id and a random UUID."""
        member_id = f"{client_id or ''}-{uuid.UUID(int=self._random.getrandbits(128), version=4)}"
        self._member_ids.add(member_id)
        return member_id

    def has_named(self, member_id: str) -> bool:
        """Whether this member id was given out here."""
        return member_id in self._member_ids
