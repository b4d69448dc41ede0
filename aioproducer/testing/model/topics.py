"""Which topics there are, and who leads and copies their partitions."""

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from aioproducer.testing.model.partition import Partition
from aioproducer.testing.model.schedule import Schedule
from aioproducer.testing.model.settings import ClusterSettings
from aioproducer.testing.model.topic_configs import TopicConfig

INVALID_TOPIC_EXCEPTION = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class TopicRefusedError(Exception):
    """A topic cannot be made or changed like that; `code` is Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True, eq=False)
class Topic:
    """One topic; `partitions` by index."""

    name: str
    topic_id: uuid.UUID
    config: TopicConfig
    partitions: list[Partition] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        """Whether clients may not write to it."""
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> Partition | None:
        """The partition of this index, or None."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest:
    """What a new topic should be; -1: the cluster's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Sequence[Sequence[int]] = ()
    """Node ids of the copies of each partition, leader first; instead of the two counts."""


class TopicCatalogue:
    """All topics of the cluster, as its controller knows them.

    Args:
        settings: defaults for what a request leaves open.
        schedule: given to every partition.
        random: topic ids come from it.
        live_nodes: ids of the brokers that are up, ascending.
    """

    def __init__(
        self, settings: ClusterSettings, schedule: Schedule, *, random: Random, live_nodes: Callable[[], list[int]]
    ) -> None:
        self._settings = settings
        self._schedule = schedule
        self._random = random
        self._live_nodes = live_nodes
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._placed = 0

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def named(self, name: str) -> Topic | None:
        """The topic of this name, or None."""
        return self._by_name.get(name)

    def with_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        """The topic of this id, or None."""
        return self._by_id.get(topic_id) if topic_id is not None else None

    def find(self, name: str | None, topic_id: uuid.UUID | None) -> Topic | None:
        """The topic a request means by name or, where it gives none, by id."""
        return self.named(name) if name is not None else self.with_id(topic_id)

    def create(self, request: TopicRequest, *, validate_only: bool = False) -> Topic:
        """Make a topic.

        Raises:
            TopicRefusedError: the name is taken or illegal, or the counts, nodes or settings are.
        """
        check_name(request.name)
        if request.name in self._by_name:
            raise TopicRefusedError(TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' already exists.")
        try:
            config = TopicConfig(request.configs, self._settings.topic_defaults())
        except ValueError as error:
            raise TopicRefusedError(INVALID_CONFIG, str(error)) from error
        topic = Topic(request.name, uuid.UUID(int=self._random.getrandbits(128), version=4), config)
        topic.partitions = [self._new_partition(replicas) for replicas in self._placement(request)]
        if not validate_only:
            self._by_name[topic.name] = topic
            self._by_id[topic.topic_id] = topic
        return topic

    def delete(self, topic: Topic, now: float) -> None:
        """Forget a topic and all its records."""
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        for partition in topic.partitions:
            partition.delete(now)

    def add_partitions(self, topic: Topic, count: int, *, validate_only: bool = False) -> None:
        """Give a topic more partitions, `count` in all.

        Raises:
            TopicRefusedError: it has as many already.
        """
        present = len(topic.partitions)
        if count <= present:
            raise TopicRefusedError(
                INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {present} partition(s); {count} would not be an increase.",
            )
        copies = len(topic.partitions[0].replicas)
        if not validate_only:
            topic.partitions.extend(self._new_partition(self._place(copies)) for _ in range(count - present))

    def _new_partition(self, replicas: list[int]) -> Partition:
        return Partition(replicas, self._settings, self._schedule)

    def _placement(self, request: TopicRequest) -> list[list[int]]:
        if request.assignment:
            return [self._checked_assignment(nodes) for nodes in request.assignment]
        count = self._settings.num_partitions if request.partitions == -1 else request.partitions
        copies = self._settings.replication_factor if request.replication_factor == -1 else request.replication_factor
        if count < 1:
            raise TopicRefusedError(
                INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        self._check_copies(copies)
        return [self._place(copies) for _ in range(count)]

    def _check_copies(self, copies: int) -> None:
        live = len(self._live_nodes())
        if copies < 1:
            raise TopicRefusedError(INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
        if copies > live:
            raise TopicRefusedError(
                INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {copies} time(s): The target replication factor of {copies} "
                f"cannot be reached because only {live} broker(s) are registered.",
            )

    def _checked_assignment(self, nodes: Sequence[int]) -> list[int]:
        if not nodes or len(set(nodes)) != len(nodes) or not set(nodes) <= set(self._live_nodes()):
            raise TopicRefusedError(INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {nodes} is invalid.")
        return list(nodes)

    def _place(self, copies: int) -> list[int]:
        nodes = self._live_nodes()
        first = self._placed % len(nodes)
        self._placed += 1
        return [nodes[(first + step) % len(nodes)] for step in range(min(copies, len(nodes)))]


def check_name(name: str) -> None:
    """Check what Kafka's brokers check of a topic's name.

    Raises:
        TopicRefusedError: INVALID_TOPIC_EXCEPTION.
    """
    if name in {".", ".."} or not _LEGAL_NAME.fullmatch(name):
        raise TopicRefusedError(INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {name!r}")
