"""Questions of the driver: which partitions a read has, and what offsets they have."""

import asyncio
import re
from collections.abc import Collection, Coroutine, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError as ConsumerError

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._producer.connection_security import cluster_access
from aioproducer._shown_values import how_to_create
from aioproducer.errors import ConfigurationError, KafkaError
from aioproducer.spark._consumer import consumer_of
from aioproducer.spark._offsets import Bounds, Offsets, OffsetsChoice, Place, Side
from aioproducer.spark._options import COMMIT_TIMEOUT_MS, FIRST_ANSWER_TIMEOUT_S
from aioproducer.spark._process_log import process_log
from aioproducer.spark._source_options import SourceOptions, connection_config

ResultT = TypeVar("ResultT")

QUESTION_TIMEOUT_S: Final = 30
"""How long the driver waits for all answers of a question, once a broker has answered."""
LATER_ANSWER_TIMEOUT_S: Final = COMMIT_TIMEOUT_MS / 1_000
"""How long the driver of a running query waits for any broker: as long as a commit."""


_NONE: Final[Mapping[Side, OffsetsChoice]] = MappingProxyType({})
_NO_OFFSETS: Final[Mapping[Place, int]] = MappingProxyType({})


class Found(NamedTuple):
    """Offsets of the partitions that are read."""

    bounds: Bounds
    at_times: Mapping[Side, Mapping[Place, int | None]]
    """Of each choice by time: the first offset of that time; None if there is nothing so late."""


class ClusterOffsets:
    """Asks the cluster, as often as `fetchOffset.numRetries` says."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._has_answered = False
        self._told: set[Place] = set()  # of what was assigned and is not there: a stream asks several times a second

    def ask(
        self, choices: Mapping[Side, OffsetsChoice] = _NONE, *, at_least: Mapping[Place, int] = _NO_OFFSETS
    ) -> Found:
        """Return what each partition has, as far as a reader may see.

        Args:
            choices: whose times are looked for.
            at_least: latest offsets that were seen before: a broker that has just become a leader may know less
                for a moment, and is asked again.

        Raises:
            ConfigurationError: a topic does not exist, or a choice does not fit the partitions.
            KafkaError: no answer in time.
        """
        return asked(self._ask(choices, at_least))

    async def _ask(self, choices: Mapping[Side, OffsetsChoice], at_least: Mapping[Place, int]) -> Found:
        attempts_left = self._options.fetch_attempts
        while True:
            attempts_left -= 1
            try:
                # In a new query a wrong address is told at once. Later, brokers that are away come back.
                places = await self._places()
                self._has_answered = True
                found = await _in_time(self._look_up(places, choices))
            except (KafkaError, ConsumerError) as error:
                if not attempts_left or not self._has_answered or isinstance(error, ConfigurationError):
                    raise
                process_log().warning("offsets were not found, and are asked for again: %s", error)
            else:
                latest = found.bounds.latest
                if not attempts_left or all(latest.get(place, end) >= end for place, end in at_least.items()):
                    return found
            await asyncio.sleep(self._options.fetch_interval_ms / 1_000)

    async def _look_up(self, places: Collection[Place], choices: Mapping[Side, OffsetsChoice]) -> Found:
        times = {side: _times_of(choice, side, places) for side, choice in choices.items()}
        if not places:  # as with a pattern that no topic matches
            return Found(Bounds({}, {}), {})
        partitions = [TopicPartition(*place) for place in places]
        async with consumer_of(self._options) as consumer:
            earliest = await consumer.beginning_offsets(partitions)
            latest = await consumer.end_offsets(partitions)
            at_times = {side: await _at_times(consumer, wanted) for side, wanted in times.items()}
            return Found(Bounds(_offsets(earliest), _offsets(latest)), at_times)

    async def _places(self) -> list[Place]:
        config = connection_config(self._options.kafka)
        timeout_s = LATER_ANSWER_TIMEOUT_S if self._has_answered else FIRST_ANSWER_TIMEOUT_S
        async with ClusterRequests(
            config.bootstrap, timeout_s, client_id=config.client_id, access=cluster_access(config)
        ) as requests:
            cluster = await requests.refresh(topics := self._options.topics)
            if self._options.pattern is not None:
                cluster = await requests.refresh(topics := await self._topics_of(self._options.pattern))
        counts = {topic: cluster.partition_count(topic) or 0 for topic in topics}
        if missing := [topic for topic, count in counts.items() if not count]:
            option = "subscribe" if self._options.subscribe else "assign"
            text = f"{option}: no topic {', '.join(map(repr, missing))} exists; {how_to_create(missing[0])}"
            raise ConfigurationError(text, option=option)
        found = [(topic, number) for topic, count in counts.items() for number in range(count)]
        return self._assigned_of(found) if self._options.assigned else found

    async def _topics_of(self, pattern: re.Pattern[str]) -> tuple[str, ...]:
        async with consumer_of(self._options) as consumer:
            return tuple(sorted(topic for topic in await consumer.topics() if pattern.search(topic)))

    def _assigned_of(self, there: Collection[Place]) -> list[Place]:
        for place in self._options.assigned:
            if place not in there and place not in self._told:
                process_log().warning("assign: topic %r has no partition %s, which is left out", *place)
                self._told.add(place)
        return [place for place in there if place in self._options.assigned]


def _offsets(found: Mapping[TopicPartition, int]) -> Offsets:
    return {tuple(place): offset for place, offset in found.items()}


def _times_of(choice: OffsetsChoice, side: Side, places: Collection[Place]) -> Offsets:
    try:
        return choice.times_of(places)
    except ValueError as error:
        option = choice.option(side)
        raise ConfigurationError(f"{option}: {error}", option=option) from None


async def _at_times(consumer: AIOKafkaConsumer, times: Offsets) -> dict[Place, int | None]:
    if not times:
        return {}
    found = await consumer.offsets_for_times({TopicPartition(*place): time for place, time in times.items()})
    return {tuple(place): None if first is None else first.offset for place, first in found.items()}


async def _in_time(question: Coroutine[None, None, ResultT]) -> ResultT:
    try:
        return await asyncio.wait_for(question, QUESTION_TIMEOUT_S)
    except KafkaError:  # perhaps a TimeoutError too, which says more
        raise
    except TimeoutError:
        raise KafkaError(f"no answer from the cluster in {QUESTION_TIMEOUT_S} s") from None


def asked(question: Coroutine[None, None, ResultT]) -> ResultT:
    """Run a question to the cluster on a loop of its own.

    Raises:
        KafkaError: no answer in time, or a refusal.
    """
    try:
        return asyncio.run(question)
    except ConsumerError as error:
        raise KafkaError(f"{type(error).__name__}: {error}") from error
