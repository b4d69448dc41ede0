"""`Producer`, the class that users hold.

`_producer/send_methods.py` holds its send methods, `_producer/lifecycle.py` its start and close, and
`_producer/transaction.py` its transaction methods. `_producer/wiring.py` makes its parts and connects them.

Source: KafkaProducer in Apache Kafka.
"""

from __future__ import annotations

import contextlib
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from aioproducer._accumulator.wait_queues import still_unknown
from aioproducer._producer.admission import Admission
from aioproducer._producer.arguments import group_of, owned, partitions_of_group
from aioproducer._producer.component_settings import retry_backoff
from aioproducer._producer.lifecycle import LifecycleMethods, caller
from aioproducer._producer.names_elsewhere import OF_PRODUCERS, explains
from aioproducer._producer.process_end import end_began_at, refuse_at_the_end
from aioproducer._producer.producer_state import check_timeout
from aioproducer._producer.record_fields import check_names, owned_fields, shows_fields
from aioproducer._producer.send_methods import NonBlockingEnqueue, SendMethods
from aioproducer._producer.transaction import TransactionMethods
from aioproducer._shown_values import in_any_state
from aioproducer._threads.calls import CallFuture, call_on_loop, delivery_timeout
from aioproducer.config import ProducerConfig
from aioproducer.errors import IllegalStateError, KafkaError
from aioproducer.explanation import Explanation
from aioproducer.metrics import Health, Metric, ProducerStatistics
from aioproducer.records import check_topic_name
from aioproducer.security._cleared_frames import clears_frames

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from typing import Unpack

    from aioproducer._producer.arguments import GroupArgument
    from aioproducer._producer.producer_metrics import LiveView
    from aioproducer._producer.record_fields import RecordFields
    from aioproducer._producer.runtime import ProducerRuntime
    from aioproducer._producer.topic import KeyT, TopicRecords, ValueT
    from aioproducer._transactions.prepared import PreparedTransaction
    from aioproducer.config import ProducerOptions, TopicOptions
    from aioproducer.records import OffsetAndMetadata, RecordMetadata, TopicPartition


@explains(OF_PRODUCERS, other_block="__enter__")
class Producer(LifecycleMethods, SendMethods, TransactionMethods):
    """Gets records into Apache Kafka.

    ```python
    async with Producer("localhost:9092") as producer:
        metadata = await producer.send("orders", b"...", key=b"customer-7")
    ```

    May be constructed anywhere; it belongs to the event loop that starts it, and to that loop's thread.

    Args:
        bootstrap_servers: `"host:port,host:port"`, a sequence of `"host:port"`, or a whole `ProducerConfig`.
        **options: Kafka's names with `_` for `.`; see docs/reference/configuration.md.

    Raises:
        ConfigurationError: an option is invalid; before any I/O.
    """

    @clears_frames
    def __init__(
        self, bootstrap_servers: str | Sequence[str] | ProducerConfig, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__(ProducerConfig.of(bootstrap_servers, options), made_at=caller())
        self._append = self._refuse_record
        self._admission: Admission

    # Sending

    @shows_fields
    def send_threadsafe(
        self, topic: str, value: object = None, **fields: Unpack[RecordFields[object]]
    ) -> concurrent.futures.Future[RecordMetadata]:
        """Send from any thread; arguments as `send`, errors by the returned future. A `deadline` counts from this call.

        A `bytearray`, a `memoryview` and headers are copied; objects for a serializer must not change before the end.

        A thread that never waits for its futures can fill the memory of the process: wait for them now and then, or use
        a `BlockingProducer`, whose calls wait for room.

        Raises:
            IllegalStateError: not started, or its event loop is closed.
            ProducerClosedError: closing or closed; or the process ends, and nothing would send the record any more.
        """
        check_names("Producer.send_threadsafe", fields)
        if self._running is None or self._running.is_shut:
            self._lifecycle.refuse()
        config, running = self._topic_options.config_of(topic), self._running
        fields = owned_fields(fields, config.delivery_timeout_ms)
        sending = partial(self.send_and_wait, topic, owned(value), **fields)
        call_timeout = delivery_timeout((config.max_block_ms + config.delivery_timeout_ms) / 1000)
        future: CallFuture[RecordMetadata] = CallFuture(
            running.loop, call_timeout, is_loop_thread=running.appender.own_loop.is_on_thread
        )
        self._hand_over(running, sending, future)
        return future

    def _hand_over(
        self,
        running: ProducerRuntime,
        sending: Callable[[], Awaitable[RecordMetadata]],
        future: CallFuture[RecordMetadata],
    ) -> None:
        began_at = end_began_at()
        time_left_s = 0.0 if began_at is None else began_at + self._config.exit_flush_timeout_ms / 1000 - monotonic()
        if began_at is not None and (time_left_s <= 0 or not running.loop.is_running()):
            refuse_at_the_end()  # nothing would run the call, or report it
        call = object()

        def begin() -> Awaitable[RecordMetadata]:
            self._handed_over.pop(call, None)
            return sending()

        self._handed_over[call] = None
        future.add_done_callback(lambda _: self._handed_over.pop(call, None))
        try:
            call_on_loop(running.loop, begin, future)
        except RuntimeError:
            self._handed_over.pop(call, None)
            self._lifecycle.refuse_late("this record was")
        if end_began_at() is not None:  # the hook that reports losses may have looked before
            with contextlib.suppress(TimeoutError, KafkaError):
                future.wait(max(time_left_s, 0.0))
            if not future.done():
                self._is_loss_reported = False
                self._report_loss("was not closed when the program ended")

    def _non_blocking(self) -> NonBlockingEnqueue:
        """Return send methods for `BlockingProducer`; usable before `start()`."""
        return NonBlockingEnqueue(self._open_running, partitions_of=self.partitions_for)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic, asking a broker if need be.

        Raises:
            MetadataTimeoutError: the topic is still unknown after `max_block_ms`.
            BrokerError: brokers refuse to describe the topic.
        """
        check_topic_name(topic)
        running = self._open_running()
        max_block_ms = self._config.max_block_ms
        deadline = running.loop.time() + max_block_ms / 1000
        while (count := running.metadata.cluster.partition_count(topic)) is None:
            running.metadata.add_topic(topic, running.loop.time())
            error = running.metadata_waits.topic_refusal(topic)
            if error is not None:
                raise error
            began_at = running.loop.time()
            calls = running.waiting_calls
            with calls.waiting("partitions_for", calls.metadata, deadline=deadline, topic=topic) as call:
                call.called_at = deadline - max_block_ms / 1000  # of the first look, though this is a later one
                is_answered = await running.metadata_waits.next_response(deadline)
            running.measures.metadata_wait.record(running.loop.time() - began_at)
            self._open_running()  # raises if closed or failed meanwhile
            if not is_answered:
                trouble = running.metadata_waits.topic_trouble(topic)
                raise still_unknown(topic, f"max_block_ms={max_block_ms}", trouble)
        return list(range(count))

    async def committed_offsets(
        self, group: GroupArgument, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return a consumer group's committed offsets; waits while an open transaction may still change them.

        So a consumer that takes a partition over does not read again what the last owner is committing (KIP-447).

        Args:
            group: its id, or `ConsumerGroupMetadata`.
            partitions: (topic, partition) pairs; without any, no broker is asked.

        Returns:
            The next offset to read of each partition; None if nothing is committed.

        Raises:
            TransactionTimeoutError: a transaction over them is open for longer than `max_block_ms`.
            GroupAuthorizationError: no permission to describe the group.
            UnsupportedVersionError: the brokers are older than Kafka 2.5.
            TypeError, ValueError: an argument; names it and what is allowed.
        """
        from aioproducer._transactions.committed_offsets import CommittedOffsets  # noqa: PLC0415  # rarely used

        member, wanted = group_of(group), partitions_of_group(partitions)
        running = self._open_running()
        backoff = retry_backoff(self._config, self._random)
        request = CommittedOffsets(running.client, running.metadata, backoff=backoff, calls=running.calls)
        calls, deadline = running.waiting_calls, running.loop.time() + running.max_block_s
        why = calls.requests("FindCoordinator", "OffsetFetch")
        with calls.waiting("committed_offsets", why, deadline=deadline):
            return await request.fetch(member.group_id, wanted, timeout_s=running.max_block_s)

    def statistics(self) -> ProducerStatistics:
        """Return a frozen snapshot of counters and gauges; the fields' docs give Kafka's names."""
        if self._running is None:
            return ProducerStatistics(client_id=self._lifecycle.name)
        return self._running.statistics()

    def metrics(self) -> list[Metric]:
        """Return Kafka's metrics by name, group and tags, with histograms; callable from any thread.

        Empty before the start; after the close, what they were at its end. docs/reference/metrics.md lists the names.
        """
        if self._running is None:
            return []
        from aioproducer._producer.producer_metrics import read_metrics  # noqa: PLC0415  # only then

        return read_metrics(self._running)

    async def client_instance_id(self, timeout: float | None = None) -> str:  # noqa: ASYNC109  # part of the promise
        """Return the id by which the operators of the cluster find this producer's metrics (KIP-714).

        Waits until a broker has given it; Kafka's client returns null when the time is over.

        Args:
            timeout: seconds; None is `max_block_ms`.

        Raises:
            TimeoutError: no broker has given an id, with the reason: usually, that no broker takes metrics. At once if
                one has refused for good.
            IllegalStateError: `enable_metrics_push` is not set, or the producer is not started.
            ProducerClosedError: it is closed, or closes meanwhile.
            TypeError, ValueError: an invalid timeout.
        """
        check_timeout(timeout)
        running = self._open_running()
        if running.metrics_push is None:
            raise IllegalStateError("there is no client instance id without enable_metrics_push=True")
        timeout_s = running.max_block_s if timeout is None else timeout
        calls, deadline = running.waiting_calls, running.loop.time() + timeout_s
        why = calls.requests("GetTelemetrySubscriptions")
        with calls.waiting("client_instance_id", why, deadline=deadline):
            return await running.metrics_push.known_instance_id(running.calls, timeout_s)

    def health(self) -> Health:
        """Return whether records can be sent now: the producer runs, and its brokers answered last.

        Silence counts after `request_timeout_ms`. Waits for no broker: a producer that has nothing to send asks one for
        a small answer, which the next call sees. In any state; call it on the producer's event loop.
        """
        return self._probe().health

    def explain(self, topic: str | None = None) -> Explanation:
        """Return what waits and why, since and until when: each call, batch, and record that is in no batch yet.

        One pass over the partitions that have something to send. In any state; call it on the producer's event loop.

        Args:
            topic: only what is for this topic.

        Raises:
            TypeError, ValueError: an invalid topic name.
        """
        if topic is not None:
            check_topic_name(topic)
        if self._running is None:
            return Explanation(self._lifecycle.name, *self._lifecycle.state_and_note(is_started=False), ())
        return self._running.explain(topic)

    def _view(self, *, explained: bool) -> LiveView:
        """Return what readiness probes and the inspector show; `explained`, also why each record waits."""
        from aioproducer._producer.producer_metrics import live_view  # noqa: PLC0415  # only then

        return live_view(self._running, self._lifecycle, self.explain() if explained else None)

    def _probe(self) -> LiveView:
        """Return what readiness probes show; asks a broker for a response if none has come lately."""
        running = self._running
        if running is not None and not running.is_shut and running.appender.own_loop.is_here():
            running.metadata.ask_if_idle(running.loop.time())
        return self._view(explained=False)

    @in_any_state
    def __repr__(self) -> str:
        """Show state and load in one line."""
        statistics = self.statistics()
        return (
            f"<Producer {self._lifecycle.name!r} {self._lifecycle.state.value} "
            f"bootstrap={','.join(self._config.bootstrap_servers)} pending={statistics.records_pending} "
            f"waiting={statistics.records_waiting} acknowledged={statistics.records_acknowledged}>"
        )

    # Inside

    def _opened(self, running: ProducerRuntime) -> None:
        self._admission = Admission(running)
        if running.transactions is None:
            self._enable_sending(running)
        else:
            self._disable_sending()  # until a transaction begins

    def _forget_start(self) -> object:
        self._disable_sending()
        self.__dict__.pop("_admission", None)
        return super()._forget_start()

    def _open_admission(self) -> Admission:
        if not hasattr(self, "_admission"):  # new, still starting, or its start has failed
            self._lifecycle.refuse()
        self._check_whose_transaction()
        return self._admission

    async def _complete_elsewhere(
        self, prepared: PreparedTransaction, running: ProducerRuntime, *, is_commit: bool
    ) -> None:
        from aioproducer._transactions.prepared_completion import PreparedCompletion  # noqa: PLC0415  # for few

        completion = PreparedCompletion(
            prepared,
            is_commit=is_commit,
            client=running.client,
            metadata=running.metadata,
            backoff=retry_backoff(self._config, self._random),
        )
        calls, deadline = running.waiting_calls, running.loop.time() + running.max_block_s
        why = calls.requests("FindCoordinator", "EndTxn")
        with calls.waiting("complete_transaction", why, deadline=deadline):
            await completion.run(running.calls, running.max_block_s)

    def _use_serializers(self, records: TopicRecords[KeyT, ValueT]) -> None:
        records.use_serializers(self._serializers)

    def _use_options(self, topic: str, options: TopicOptions) -> None:
        self._topic_options.add(topic, options)
