"""`MockProducer`, a `Producer` without a network, for unit tests.

As in:

    async with MockProducer() as producer:
        await place_order(producer, "o-1")

    assert [record.key for record in producer.history()] == [b"o-1"]

Source: org.apache.kafka.clients.producer.MockProducer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from aioproducer._producer.arguments import group_of, partitions_of_group
from aioproducer._producer.producer import Producer
from aioproducer._producer.producer_state import ProducerState
from aioproducer._producer.transaction import transactions_of
from aioproducer._producer.wiring import PartClasses
from aioproducer._transactions.verdicts import fenced_error
from aioproducer.errors import IllegalStateError, KafkaError
from aioproducer.records import check_topic_name
from aioproducer.security._cleared_frames import clears_frames
from aioproducer.testing._mock_parts import (
    MockAccumulator,
    MockClient,
    MockCoordinators,
    MockHooks,
    MockMetadata,
    MockSettlement,
    MockWaitQueues,
    has_serializers,
)
from aioproducer.testing._mock_records import SentRecords
from aioproducer.testing.fake_broker.settings import checked_topics

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import NoReturn, Unpack

    from aioproducer._producer.arguments import GroupArgument
    from aioproducer._producer.runtime import ProducerRuntime
    from aioproducer._transactions.prepared import PreparedTransaction
    from aioproducer.config import ProducerConfig, ProducerOptions
    from aioproducer.records import OffsetAndMetadata, ProducerRecord, TopicPartition
    from aioproducer.testing._mock_records import Run


class MockProducer(Producer):  # noqa: PLR0904  # what a test may ask
    """A `Producer` that sends nothing: the test looks at its records, and decides how they end.

    Everything in front of the network is the producer's own: states, checks of arguments, serializers, interceptors,
    partitioner, transactions. A topic that is not in `topics` has one partition as soon as it is used.

    With `auto_complete`, records are acknowledged in the next turn of the event loop. Otherwise `complete_next` and
    `error_next` end the oldest one; `flush`, `close` and a commit acknowledge all others, `close(0)` and an abort fail
    them. Those that `purge` ends, or their own deadlines, were never sent: they are not in `history`. `explain` knows
    none of them: see `pending`.

    Args:
        bootstrap_servers: checked, and not used.
        topics: numbers of partitions by name.
        auto_complete: acknowledge records without a call.
        **options: as `Producer`.

    Raises:
        TypeError, ValueError: `topics` or `auto_complete`.
        ConfigurationError: as `Producer`.
    """

    @clears_frames
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | ProducerConfig = "mock:9092",
        *,
        topics: Mapping[str, int] | None = None,
        auto_complete: bool = True,
        **options: Unpack[ProducerOptions],
    ) -> None:
        if not isinstance(auto_complete, bool):
            raise TypeError(f"auto_complete must be a bool, not {type(auto_complete).__name__}")
        self._topics = {name: max(1, partitions) for name, partitions in checked_topics(topics).items()}
        self._sent = SentRecords(auto_complete=auto_complete)
        super().__init__(bootstrap_servers, **options)

    # Records

    def history(self) -> list[ProducerRecord]:
        """Return the accepted records in order, with the partition, timestamp and headers they were accepted with.

        Key and value are those that the producer's serializers got, or bytes if it has none. Those of an open
        transaction come with its commit.
        """
        return self._records(self._sent.history.accepted)

    def uncommitted_records(self) -> list[ProducerRecord]:
        """Return the records of the open transaction."""
        return self._records(self._sent.history.uncommitted)

    def _records(self, runs: list[Run]) -> list[ProducerRecord]:
        self._sent.close_open()
        return [record for run in runs for record in run.records()]

    def clear(self) -> None:
        """Forget all records and offsets; a record that was not completed can still be."""
        self._sent.close_open()
        self._sent.history.clear()

    @property
    def pending(self) -> int:
        """Number of records that have not ended."""
        return self._sent.pending

    @property
    def flushed(self) -> bool:
        """Whether all records have ended."""
        return not self._sent.pending

    @property
    def closed(self) -> bool:
        """Whether the producer was closed."""
        return self._lifecycle.state is ProducerState.CLOSED

    def complete_next(self) -> None:
        """Acknowledge the oldest record that has not ended.

        Raises:
            IllegalStateError: every record has ended.
        """
        run = self._sent.take_next()
        if run is None:
            self._refuse_end("complete_next")
        self._sent.complete(run)

    def error_next(self, error: KafkaError) -> None:
        """Fail the oldest record that has not ended.

        Args:
            error: as its delivery raises it, with topic and partition; `BrokerError.of(code, text)` makes one of a
                broker's code.

        Raises:
            IllegalStateError: every record has ended.
            TypeError: not a `KafkaError`.
        """
        if not isinstance(error, KafkaError):
            raise TypeError(f"error must be a KafkaError, as deliveries raise, not {type(error).__name__}")
        run = self._sent.take_next()
        if run is None:
            self._refuse_end("error_next")
        self._sent.fail(run, error)

    def _refuse_end(self, method: str) -> NoReturn:
        sent = self._sent
        hint = "; with auto_complete=True they end by themselves" if sent.auto_complete else ""
        text = f"{method}: there is no record to end: {sent.total} were sent, and all have ended{hint}"
        raise IllegalStateError(text)

    # Transactions

    @property
    def transaction_initialized(self) -> bool:
        """Whether the producer has a `transactional_id` and has started."""
        return self._running is not None and self._running.transactions is not None

    @property
    def transaction_in_flight(self) -> bool:
        """Whether a transaction is open."""
        runner = None if self._running is None else self._running.transactions
        return runner is not None and runner.state_checks.is_open

    @property
    def commit_count(self) -> int:
        """Number of transactions that were committed."""
        runner = None if self._running is None else self._running.transactions
        return 0 if runner is None else runner.completer.counts.commit_time.count

    @property
    def abort_count(self) -> int:
        """Number of transactions that were aborted."""
        runner = None if self._running is None else self._running.transactions
        return 0 if runner is None else runner.completer.counts.abort_time.count

    def uncommitted_offsets(self) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the offsets that the open transaction has sent, by group."""
        return {group: dict(offsets) for group, offsets in self._sent.history.uncommitted_offsets.items()}

    def consumer_group_offsets(self) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the offsets that transactions have committed, by group."""
        return {group: dict(offsets) for group, offsets in self._sent.history.offsets.items()}

    def fence_producer(self) -> None:
        """Let another producer take the transactional id: every later call raises `ProducerFencedError`.

        Raises:
            IllegalStateError: the producer has no `transactional_id`, or is not running.
        """
        running = self._open_running()
        transactions_of(running)
        running.failed_for_good(fenced_error(str(self._config.transactional_id)))

    # Without brokers

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        check_topic_name(topic)
        running = self._open_running()
        running.metadata.add_topic(topic, running.loop.time())
        return await super().partitions_for(topic)

    async def committed_offsets(
        self, group: GroupArgument, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what transactions have committed for a group; arguments as `Producer.committed_offsets`."""
        member, wanted = group_of(group), partitions_of_group(partitions)
        self._open_running()
        committed = self._sent.history.offsets.get(member.group_id, {})
        return {topic_partition: committed.get(topic_partition) for topic_partition in wanted}

    async def _complete_elsewhere(
        self,
        prepared: PreparedTransaction,  # noqa: ARG002  # of the class above
        running: ProducerRuntime,  # noqa: ARG002
        *,
        is_commit: bool,  # noqa: ARG002
    ) -> None:
        raise IllegalStateError("a MockProducer knows only the transactions that it has prepared itself")

    def _part_classes(self) -> PartClasses:
        sent = self._sent
        return PartClasses(  # a partial class is called as the class it is of
            client=MockClient,
            metadata=cast("type[MockMetadata]", partial(MockMetadata, topics=self._topics)),
            accumulator=cast(
                "type[MockAccumulator]",
                partial(MockAccumulator, sent=sent, keeps_objects=has_serializers(self._config)),
            ),
            wait_queues=MockWaitQueues,
            settlement=cast("type[MockSettlement]", partial(MockSettlement, sent=sent)),
            record_hooks=cast("type[MockHooks]", partial(MockHooks, sent=sent)),
            coordinators=cast("type[MockCoordinators]", partial(MockCoordinators, sent=sent)),
        )
