"""The topics of the cluster, and a controller's checks of their names and placement.

Source: Topic.validate and ReplicationControlManager in Apache Kafka; the texts are what 3.9.1 and 4.4.0 say.
"""

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from aioproducer.testing.fake_broker import MOST_PARTITIONS
from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.schedule import Schedule
from aioproducer.testing.fake_broker.settings import ClusterSettings
from aioproducer.testing.fake_broker.topic_configs import TopicConfig, TopicRefusedError, check_settings
from aioproducer.testing.fake_broker.wire import codes

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
_LONGEST_NAME = 249

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(slots=True, eq=False)
class Topic:
    """One topic; `partitions` by index."""

    name: str
    topic_id: uuid.UUID
    config: TopicConfig
    partitions: list[Partition] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest:
    """The topic to create; -1: the cluster's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """By partition: node ids of its copies, leader first; instead of the two counts."""


class TopicCatalogue:
    """All topics of the cluster, as its controller knows them."""

    def __init__(
        self,
        settings: ClusterSettings,
        schedule: Schedule,
        *,
        random: Random,
        live_nodes: Callable[[], list[int]],
        drop_offsets: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._schedule = schedule
        self._random = random
        self._live_nodes = live_nodes
        self._drop_offsets = drop_offsets
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._placed = 0

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def named(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def with_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        return self._by_id.get(topic_id) if topic_id is not None else None

    def find(self, name: str | None, topic_id: uuid.UUID | None) -> Topic | None:
        return self.named(name) if name is not None else self.with_id(topic_id)

    def partition(self, name: str | None, index: int, topic_id: uuid.UUID | None = None) -> Partition | None:
        topic = self.find(name, topic_id)
        return None if topic is None else topic.partition(index)

    def create(self, request: TopicRequest, *, validate_only: bool = False) -> Topic:
        check_name(request.name)
        if request.name in self._by_name:
            raise TopicRefusedError(codes.TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' already exists.")
        self._check_collision(request.name)
        config = self.config(request.configs)
        topic = Topic(request.name, uuid.UUID(int=self._random.getrandbits(128), version=4), config)
        topic.partitions = [self._new_partition(replicas) for replicas in self._placement(request)]
        if not validate_only:
            self._by_name[topic.name] = topic
            self._by_id[topic.topic_id] = topic
        return topic

    def config(self, configs: Mapping[str, str | None]) -> TopicConfig:
        defaults = self._settings.topic_defaults()
        check_settings(configs, defaults, smallest_segment=self._settings.profile.smallest_segment_bytes)
        return TopicConfig({name: value for name, value in configs.items() if value is not None}, defaults)

    def _check_collision(self, name: str) -> None:
        """Refuse a name that equals another topic's in metric names, which have no dots."""
        if "." not in name and "_" not in name:
            return
        for other in self._by_name:
            if other.replace(".", "_") == name.replace(".", "_"):
                message = f"Topic '{name}' collides with existing topic: {other}"
                raise TopicRefusedError(codes.INVALID_TOPIC_EXCEPTION, message)

    def delete(self, topic: Topic, now: float) -> None:
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        for partition in topic.partitions:
            partition.delete(now)
        self._drop_offsets(topic.name)

    def add_partitions(
        self,
        topic: Topic,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Increase a topic to `count` partitions; without `assignments` the cluster places them."""
        present = len(topic.partitions)
        if count == present:
            raise TopicRefusedError(codes.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
        if count < present:
            raise TopicRefusedError(
                codes.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {present} partition(s); {count} would not be an increase.",
            )
        check_count(count)
        if assignments is not None and len(assignments) != count - present:
            message = (
                f"Attempted to add {count - present} additional partition(s), but only {len(assignments)} "
                "assignment(s) were specified."
            )
            raise TopicRefusedError(codes.INVALID_REPLICA_ASSIGNMENT, message)
        self._check_assignments(assignments or ())
        if not validate_only:
            copies = len(topic.partitions[0].replicas)
            places = assignments or [self._place(copies) for _ in range(count - present)]
            topic.partitions.extend(self._new_partition(list(nodes)) for nodes in places)

    def _new_partition(self, replicas: list[int]) -> Partition:
        return Partition(replicas, self._settings, self._schedule)

    def _placement(self, request: TopicRequest) -> list[list[int]]:
        if request.assignment:
            return self._assigned(request)
        copies = self._settings.replication_factor if request.replication_factor == -1 else request.replication_factor
        if copies < 1:
            message = "Replication factor must be larger than 0, or -1 to use the default value."
            raise TopicRefusedError(codes.INVALID_REPLICATION_FACTOR, message)
        count = self._settings.num_partitions if request.partitions == -1 else request.partitions
        if count < 1:
            raise TopicRefusedError(
                codes.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        check_count(count)
        live = len(self._live_nodes())
        if copies > live:
            message = (
                f"Unable to replicate the partition {copies} time(s): The target replication factor of {copies} "
                f"cannot be reached because {self._settings.profile.too_few_brokers.format(live)}"
            )
            raise TopicRefusedError(codes.INVALID_REPLICATION_FACTOR, message)
        return [self._place(copies) for _ in range(count)]

    def _assigned(self, request: TopicRequest) -> list[list[int]]:
        for name, given in (("replication factor", request.replication_factor), ("numPartitions", request.partitions)):
            if given != -1:
                message = f"A manual partition assignment was specified, but {name} was not set to -1."
                raise TopicRefusedError(codes.INVALID_REQUEST, message)
        self._check_assignments(list(request.assignment.values()))
        if sorted(request.assignment) != list(range(len(request.assignment))):
            message = "partitions should be a consecutive 0-based integer sequence"
            raise TopicRefusedError(codes.INVALID_REPLICA_ASSIGNMENT, message)
        return [list(request.assignment[index]) for index in sorted(request.assignment)]

    def _check_assignments(self, assignments: Sequence[Sequence[int]]) -> None:
        for nodes in assignments:
            check_assignment(nodes, self._live_nodes())

    def _place(self, copies: int) -> list[int]:
        nodes = self._live_nodes()
        first = self._placed % len(nodes)
        self._placed += 1
        return [nodes[(first + step) % len(nodes)] for step in range(min(copies, len(nodes)))]


def check_name(name: str) -> None:
    fault = None
    if not name:
        fault = "the empty string is not allowed"
    elif name in {".", ".."}:
        fault = f"'{name}' is not allowed"
    elif len(name) > _LONGEST_NAME:
        fault = f"the length of '{name}' is longer than the max allowed length {_LONGEST_NAME}"
    elif not _LEGAL_NAME.fullmatch(name):
        fault = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if fault:
        raise TopicRefusedError(codes.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")


def check_count(partitions: int) -> None:
    """Refuse so many partitions that making them would hold up every client."""
    if partitions > MOST_PARTITIONS:
        message = f"Number of partitions was set to {partitions}; a topic here may have {MOST_PARTITIONS}."
        raise TopicRefusedError(codes.INVALID_PARTITIONS, message)


def check_assignment(nodes: Sequence[int], live_nodes: Sequence[int]) -> None:
    fault = None
    stranger = next((node for node in nodes if node not in live_nodes), None)
    twice = next((node for node in nodes if nodes.count(node) > 1), None)
    if not nodes:
        fault = "an empty replica list"
    elif stranger is not None:
        fault = f"broker {stranger}, but no such broker is registered"
    elif twice is not None:
        fault = f"the broker {twice} more than once"
    if fault:
        raise TopicRefusedError(codes.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {fault}.")
