"""Records that callers bring, with one aim or many, and everything that a call can be given, or must refuse.

Every record that anybody tries to send has a `Story`; it begins here.
"""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from aioproducer import KafkaError, RecordMetadata
from tests.programs.simulation.history import RecordId, Story
from tests.programs.simulation.users_code import headers_for
from tests.programs.simulation.workload import Workload

POISON = "a value that the serializer refuses"
_TEXT = b"the quick brown fox jumps over the lazy dog " * 2_000
_NOISE = Random(0).randbytes(90_000)
_HURRIED = 0.4  # share of the records with deadlines of their own, where the plan has them
_SAME_AIM = 0.9
"""Share of the groups of records of one call, or of a few in a row, that go to one partition, or have one key."""


def serialize(value: object) -> bytes:
    """Serialize values of a producer that has a serializer; some cannot be."""
    if value == POISON:
        raise ValueError(POISON)
    assert isinstance(value, bytes)
    return value


class Aim(NamedTuple):
    partition: int | None
    key: bytes | None


class Drafts:
    """The records of one caller."""

    def __init__(self, load: Workload, number: int, *, share: int, chance: Random) -> None:
        plan = load.plan
        self.left = share
        self.sent = 0
        self.aim: Callable[[], Aim] = self._new_aim
        self._load = load
        self._number = number
        self._chance = chance
        self._with_faults = plan.user_faults
        self._has_serializer = plan.has_serializer
        high = min(plan.family.value_size[1], plan.number("buffer_memory") // 16)
        self._smallest = plan.family.value_size[0]
        self._largest = max(self._smallest, high)
        self._usual = max(self._smallest, min(self._largest, 150))
        self._has_partitioner = plan.has_partitioner
        self._goes_to_edges = plan.family.integer_edges
        self._hurry = Random(f"deadlines-{plan.family.name}-{plan.seed}-{number}")

    def group(self) -> int:
        """Draw how many records come together: sometimes one, usually some, more where the plan says so."""
        chance = self._chance
        size = 1 if chance.random() < 0.15 else 2 + int(chance.random() * self._load.plan.burst)
        return min(size, self.left)

    def take_aim(self) -> None:
        """Decide where the next records go: all to one place, or each anywhere."""
        if self._chance.random() < _SAME_AIM:
            aim = self._new_aim()
            self.aim = lambda: aim
        else:
            self.aim = self._new_aim

    def _new_aim(self) -> Aim:
        bits = self._chance.getrandbits(32)
        partition = (bits >> 8) % self._load.plan.partitions if bits & 1 else None
        key = b"k%d|" % ((bits >> 20) % 20) if bits & 0xE < 4 else None
        return Aim(partition, key)

    def story(self, verb: str) -> Story:
        """Begin the story of the next record, which goes where the others of its group do."""
        aim = self.aim()
        return self.story_for(verb, aim.partition, aim.key)

    def story_for(self, verb: str, partition: int | None, key: bytes | None) -> Story:
        """Begin the story of the next record."""
        load = self._load
        record = RecordId(self._number, 0, self.sent)
        self.sent += 1
        self.left -= 1
        story = Story(
            record,
            len(load.history.stories),
            load.topic,
            self._value(record),
            key,
            verb,
            load.now(),
            partition,
            is_free=partition is None and key is None,
            is_by_key=self._is_by_key(partition, key),
        )
        return load.history.begin(story)

    def _is_by_key(self, partition: int | None, key: bytes | None) -> bool:
        return partition is None and key is not None and not self._has_partitioner

    def _value(self, record: RecordId) -> bytes:
        bits = self._chance.getrandbits(48)
        low, high = self._smallest, self._usual if bits & 0xF < 13 else self._largest
        size = low + (bits >> 8 & 0xFFFF) % (high - low + 1)
        filler = _TEXT if bits & 0xF0 < 0xA0 else _NOISE
        start = (bits >> 24) % 500
        return b"%d.%d.%d|" % record + filler[start : start + size]

    def arguments(self, story: Story) -> dict[str, Any]:
        """Return what a call for this record is given; what is not what the story says must be refused."""
        chance = self._chance
        dice = chance.random()
        arguments: dict[str, Any] = {"value": story.value, "key": story.key, "partition": story.partition}
        if dice < 0.5:
            arguments["on_delivery"] = self._callback(story, misbehaves=self._with_faults and dice < 0.15)
        if 0.45 < dice < 0.55:
            story.given_timestamp = arguments["timestamp"] = round(1_700_000_000_000 + chance.uniform(-1e6, 1e6))
        if 0.4 < dice < 0.6:
            arguments["headers"] = story.headers = headers_for(story)
        if self._load.plan.has_deadlines and self._hurry.random() < _HURRIED:
            share = 10 ** self._hurry.uniform(-3, 0)
            story.deadline_s = arguments["deadline"] = share * self._load.delivery_timeout_s
            self._load.watch_deadline(story)
        if self._goes_to_edges and chance.random() < 0.2:
            self._go_to_the_edge(story, arguments)
        if self._with_faults and chance.random() < 0.05:
            self._spoil(arguments)
        return arguments

    def _go_to_the_edge(self, story: Story, arguments: dict[str, Any]) -> None:
        """Send a tombstone, or a time at the end of time."""
        if story.key is None or story.partition is not None:
            arguments["key"] = story.key = b"%d.%d.%d|" % story.record
            story.is_free, story.is_by_key = False, self._is_by_key(story.partition, story.key)
            if self._chance.random() < 0.5:
                arguments["value"] = story.value = None
        if self._chance.random() < 0.5:
            story.given_timestamp = arguments["timestamp"] = self._chance.choice((0, 1, 2**31, 2**62, 2**63 - 1))

    def _spoil(self, arguments: dict[str, Any]) -> None:
        """Make it a call that must be refused."""
        spoilt: list[tuple[str, object]] = [("partition", -1), ("key", 5), ("timestamp", -5), ("headers", [1])]
        if self._has_serializer:
            spoilt.append(("value", POISON))
        name, value = self._chance.choice(spoilt)
        arguments[name] = value

    def _callback(
        self, story: Story, *, misbehaves: bool
    ) -> Callable[[RecordMetadata | None, KafkaError | None], object]:
        story.expects_callback = True

        def on_delivery(metadata: RecordMetadata | None, error: KafkaError | None) -> object:
            if story.was_called_back:
                self._load.history.violated("ENDS_ONCE", f"{story.record} was called back twice")
            story.was_called_back = True
            if metadata is not None:
                story.acknowledge(metadata, self._load.now())
                self._load.turns.called_back(story)
            elif error is not None:
                story.fail(error, self._load.now())
            self._load.check_bound(story, story.called_at, self._load.lives_s(story))
            self._load.history.note("caller", "%s is called back: %s", story.record, story.end)
            return _misbehave(story.order) if misbehaves else None

        return on_delivery


def _misbehave(dice: int) -> object:
    """Misbehave as callbacks of users do: fail, return something, or be a coroutine function."""
    if dice % 2:
        raise RuntimeError("the caller's own callback fails")
    return "an unused result" if dice % 4 else _unawaited()


async def _unawaited() -> None:
    """Stands for what an async callback would have done."""
