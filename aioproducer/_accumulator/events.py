"""Events that the parts of a producer report to parts that are built later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer._accumulator.partition import Partition
    from aioproducer._native.delivery import BatchResult
    from aioproducer.errors import KafkaError
    from aioproducer.records import TopicPartition


class OnTopicRecreated(Protocol):
    """Function that continues with one partition of a topic that was deleted and created again."""

    def __call__(self, partition: Partition, *, exists: bool) -> None:
        """Continue with the partition, or end its batches if the new topic does not have it."""


def nothing(*_: object, **__: object) -> None:
    """Answer an event that concerns no part."""


class ProducerEvents:
    """Functions that the parts call; `_producer/wiring.py` says which part answers which event.

    What the network reports is apart (`NetworkEvents` in `_network/context.py`): it serves clients that do not produce.
    """

    __slots__ = (
        "abandoned_batch_ended",
        "batch_filled",
        "batch_opened",
        "batch_wanted",
        "log_lost",
        "many_batches_opened",
        "records_failed",
        "topic_recreated",
        "unknown_partition",
    )

    def __init__(self) -> None:
        self.batch_filled: Callable[[TopicPartition, int], None] = nothing
        """A batch of so many bytes was closed because it was full."""
        self.batch_wanted: Callable[[Partition, BatchResult], None] = nothing
        """A batch got its first waiter."""
        self.many_batches_opened: Callable[[], None] = nothing
        """As many batches were opened as one step of the event loop may."""
        self.unknown_partition: Callable[[str], None] = nothing
        """A record was refused for a partition of this topic that metadata does not name."""
        self.topic_recreated: OnTopicRecreated = nothing
        """The topic of a partition was deleted and created again, with or without this partition."""

        # Answered by transactions only.
        self.batch_opened: Callable[[Partition], None] = nothing
        """A batch was opened in a transaction."""
        self.records_failed: Callable[[KafkaError], None] = nothing
        """Accepted records have failed; errors raised by the send call itself are not reported here."""
        self.abandoned_batch_ended: Callable[[], None] = nothing
        """A batch whose caller had given up was answered, or its connection was lost."""
        self.log_lost: Callable[[Partition], None] = nothing
        """The log of a partition no longer has what was acknowledged: usually its topic was created again."""
