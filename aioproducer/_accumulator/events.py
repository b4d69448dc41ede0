"""Events that the parts of a producer report upward."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

if TYPE_CHECKING:
    from aioproducer._accumulator.partition import Partition
    from aioproducer.errors import KafkaError
    from aioproducer.records import TopicPartition


class ProducerEvents(Protocol):
    """The producer's runtime, as the parts below it see it; each part gets it from its constructor.

    What the network reports is apart (`NetworkEvents` in `_network/context.py`): it serves clients that do not produce.
    """

    def wake(self) -> None:
        """Something may have become possible: the sender must look for work soon."""

    def timer_set_earlier(self, when: float) -> None:
        """A timer was set that is due before all others, at `when` (monotonic seconds)."""

    def memory_returned(self) -> None:
        """Memory came back while records wait for some; may be called while a transport releases a buffer."""

    def batch_opened(self, partition: Partition) -> None:
        """A batch was opened; reported in transactions only."""

    def batch_filled(self, topic_partition: TopicPartition, size: int) -> None:
        """A batch of `size` bytes was closed because it was full."""

    def unknown_partition(self, topic: str) -> None:
        """A record was refused for a partition that metadata does not name."""

    def topic_recreated(self, partition: Partition, *, exists: bool) -> None:
        """The topic of a partition was deleted and created again, with or without this partition."""

    def records_failed(self, error: KafkaError) -> None:
        """Accepted records have failed; errors raised by the send call itself are not reported here."""

    def abandoned_batch_ended(self) -> None:
        """A batch whose caller had given up was answered, or its connection was lost."""

    def log_lost(self, partition: Partition) -> None:
        """The log of a partition no longer has what was acknowledged: usually its topic was created again."""

    def failed_for_good(self, error: KafkaError) -> None:
        """Nothing can be sent any more."""

    def raise_not_accepting(self) -> NoReturn:
        """Raise the error of a call that cannot be served now."""
