"""Checks of the arguments of `exactly_once`, and the assignment of an aiokafka consumer.

aiokafka has no public names for some of this; all uses of its private names are in this file and in
`ConsumerGroupMetadata.of`. In the order in which they happen during a rebalance::

    reassignment_in_progress = True       from here on `getmany` returns nothing
    listener.on_partitions_revoked
    JoinGroup, SyncGroup                  `generation` is the new one as soon as JoinGroup is answered
    a new Assignment object               and reassignment_in_progress = False, in one step
    listener.on_partitions_assigned

So generation and assignment belong together while no reassignment is in progress, and an assignment is over when
another object has replaced it. A listener would also be notified, but setting one means subscribing again.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

from aioproducer._producer.producer import Producer
from aioproducer.errors import ConfigurationError, IllegalStateError
from aioproducer.records import ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from aiokafka import AIOKafkaConsumer


LOOK_EVERY_S: Final = 0.02
"""How often a rebalancing consumer is polled for its assignment."""

_in_use: Final[WeakSet[AIOKafkaConsumer]] = WeakSet()


@contextmanager
def sole_use(consumer: AIOKafkaConsumer) -> Iterator[None]:
    """Refuse a second loop on the same consumer: each would commit past the other's uncommitted records.

    Raises:
        IllegalStateError: a loop reads with it.
    """
    if consumer in _in_use:
        raise IllegalStateError("another exactly_once loop reads with this consumer: each needs a consumer of its own")
    _in_use.add(consumer)
    try:
        yield
    finally:
        _in_use.discard(consumer)


class Membership:
    """The consumer's current assignment.

    Raises:
        IllegalStateError: it has none, or is between two.
    """

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.group: ConsumerGroupMetadata = ConsumerGroupMetadata.of(consumer)
        self.partitions: tuple[TopicPartition, ...] = tuple(
            TopicPartition(*partition) for partition in sorted(consumer.assignment())
        )
        self._subscriptions = consumer._subscription  # noqa: SLF001  # no public name: see above
        self._assignment = self._subscriptions.subscription.assignment

    @property
    def is_current(self) -> bool:
        """Whether this assignment still holds and no reassignment is in progress."""
        subscription = self._subscriptions.subscription
        return (
            subscription is not None
            and subscription.assignment is self._assignment
            and not self._subscriptions.reassignment_in_progress
        )


async def membership_of(consumer: AIOKafkaConsumer) -> Membership:
    """Return the consumer's assignment; waits while it has none, or no topic that matches its pattern.

    Raises:
        IllegalStateError: it is subscribed to nothing, or does not work any more.
        aiokafka.errors.KafkaError: what keeps it from joining its group.
    """
    while True:
        check_at_work(consumer)
        subscriptions = consumer._subscription  # noqa: SLF001  # no public name: see above
        if subscriptions.subscription is None:
            if subscriptions.subscribed_pattern is None:
                raise IllegalStateError("the consumer has no topics: subscribe it before")
            # Subscribed by a pattern: aiokafka looks for matching topics in its next metadata.
        elif not subscriptions.reassignment_in_progress:
            try:
                return Membership(consumer)
            except IllegalStateError:
                """Its heartbeat has just learnt that it is not a member any more: it will join again."""
        await asyncio.sleep(LOOK_EVERY_S)


def check_at_work(consumer: AIOKafkaConsumer) -> None:
    """Check that the consumer's own tasks are running; without them it stays a member forever and reads nothing.

    They end silently when a stray cancellation reaches them, as after the loss of a connection (seen with aiokafka
    0.14).

    Raises:
        IllegalStateError: one has ended: another consumer is needed.
        aiokafka.errors.KafkaError: what keeps it from joining its group.
    """
    has_ended = consumer._fetcher.error_future.done()  # noqa: SLF001  # the task that fetches
    try:
        consumer._coordinator.check_errors()  # noqa: SLF001  # as its own getmany does
    except asyncio.CancelledError:  # not of the task that runs: nothing is awaited here
        has_ended = True
    if has_ended:
        raise IllegalStateError("the consumer was stopped, or its own tasks have ended: start another consumer")


def check_consumer(consumer: AIOKafkaConsumer) -> None:
    """Check that a consumer can take part in exactly-once processing.

    Raises:
        TypeError: it is not an aiokafka consumer.
        ConfigurationError: it reads what was aborted, commits by itself, or has no group.
        IllegalStateError: it is not started.
    """
    options = {
        name: getattr(consumer, f"_{name}", None) for name in ("isolation_level", "enable_auto_commit", "group_id")
    }
    if not hasattr(consumer, "getmany"):
        raise TypeError(f"consumer must be an AIOKafkaConsumer, not {type(consumer).__name__}")
    if options["isolation_level"] != "read_committed":
        _refuse("isolation_level", '"read_committed"', "it would read records of transactions that are aborted")
    if options["enable_auto_commit"]:
        _refuse("enable_auto_commit", "False", "offsets are committed with the transaction, or not at all")
    if options["group_id"] is None:
        _refuse("group_id", "a name", "offsets are committed for a group")
    if consumer._coordinator is None:  # noqa: SLF001  # no public name: see above
        raise IllegalStateError("the consumer is not started: await consumer.start() first")


def _refuse(option: str, wanted: str, reason: str) -> None:
    raise ConfigurationError(f"the consumer needs {option}={wanted}: {reason}", option=option)


class NotAwaitableError(TypeError):
    """A function that is not a coroutine function. No record is at fault, so none is taken for poison."""


def to_await(name: str, result: object) -> Awaitable[object]:
    """Return what a user's function has returned, if it can be awaited.

    Raises:
        NotAwaitableError: names the argument that the function is.
    """
    if inspect.isawaitable(result):
        return result
    raise NotAwaitableError(f"{name} must be a coroutine function: it returned {type(result).__name__}")


class LoopLimits(NamedTuple):
    """Limits of a batch; see `exactly_once`."""

    max_records: int
    max_seconds: float
    shutdown_seconds: float

    def check(self, producer: Producer) -> None:
        """Check the limits, alone and against the producer's options.

        Raises:
            ConfigurationError: an option of the producer makes it impossible.
            TypeError: a limit is not a number, or `producer` is not a producer.
            ValueError: a limit out of range.
        """
        if not isinstance(producer, Producer):
            raise TypeError(f"producer must be a Producer, not {type(producer).__name__}")
        if not isinstance(self.max_records, int) or isinstance(self.max_records, bool):
            raise TypeError(f"max_records must be an int, not {type(self.max_records).__name__}")
        if self.max_records < 1:
            raise ValueError(f"max_records must be 1 or more, not {self.max_records}")
        for name, seconds in (("max_seconds", self.max_seconds), ("shutdown_seconds", self.shutdown_seconds)):
            if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
                raise TypeError(f"{name} must be a number, not {type(seconds).__name__}")
            if not 0 < seconds < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, not {seconds}")
        self._check_options(producer)

    def _check_options(self, producer: Producer) -> None:
        if producer.config.transactional_id is None:
            raise ConfigurationError(
                "the producer needs a transactional_id: one of this worker's own, the same after its restart",
                option="transactional_id",
            )
        timeout_ms = producer.config.transaction_timeout_ms
        if self.max_seconds * 1000 >= timeout_ms:
            raise ConfigurationError(
                f"transaction_timeout_ms={timeout_ms} of the producer must be above max_seconds={self.max_seconds:g}: "
                "the broker would abort every transaction",
                option="transaction_timeout_ms",
            )
