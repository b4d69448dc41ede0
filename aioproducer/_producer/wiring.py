"""Makes the parts of a running producer, and connects them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from aioproducer._accumulator.batch_splitter import BatchSplitter
from aioproducer._accumulator.buffer_pool import BufferPool
from aioproducer._accumulator.events import ProducerEvents
from aioproducer._accumulator.open_batches import AccumulatorDependencies
from aioproducer._accumulator.record_accumulator import RecordAccumulator
from aioproducer._accumulator.wait_queues import WaitQueues
from aioproducer._native.append import RecordAppender
from aioproducer._native.measures import LatencyHistogram, Measures
from aioproducer._network.context import NetworkEvents
from aioproducer._network.metadata_refresher import MetadataRefresher
from aioproducer._network.network_client import NetworkClient
from aioproducer._producer.component_settings import (
    accumulator_settings,
    batch_options,
    metadata_settings,
    network_settings,
    produce_policy,
    retry_backoff,
    waiting_limits,
)
from aioproducer._producer.connection_security import connection_security
from aioproducer._producer.metadata_waits import MetadataWaits
from aioproducer._producer.record_hooks import RecordHooks
from aioproducer._sender.completion import Completion
from aioproducer._sender.compressor import BatchCompressor
from aioproducer._sender.flush_waiters import FlushWaiters
from aioproducer._sender.producer_id import ProducerIdFetcher
from aioproducer._sender.sender import Sender
from aioproducer._sender.settlement import Settlement
from aioproducer._timing.timers import TimerHeap
from aioproducer._timing.wakeup import Wakeup
from aioproducer._transactions.identity import identity_of
from aioproducer.partitioners import native_hash

if TYPE_CHECKING:
    import asyncio
    import random

    from aioproducer._logs import EventLog
    from aioproducer._producer.topic_options import OptionsByTopic
    from aioproducer._timing.retry_backoff import ExponentialBackoff
    from aioproducer._transactions.runner import Coordinators, TransactionRunner
    from aioproducer.config import ProducerConfig
    from aioproducer.errors import KafkaError
    from aioproducer.interceptors import InterceptorChain


class PartClasses(NamedTuple):
    """Classes of the parts that a producer without a network has others of (`testing/mock_producer.py`)."""

    client: type[NetworkClient] = NetworkClient
    metadata: type[MetadataRefresher] = MetadataRefresher
    accumulator: type[RecordAccumulator] = RecordAccumulator
    wait_queues: type[WaitQueues] = WaitQueues
    settlement: type[Settlement] = Settlement
    record_hooks: type[RecordHooks] = RecordHooks
    coordinators: type[Coordinators] | None = None  # None: the usual ones, imported only for transactions


@dataclass(slots=True, kw_only=True)
class ProducerDependencies:
    """Configuration, loop and hooks that the parts get from outside."""

    config: ProducerConfig
    topic_options: OptionsByTopic
    loop: asyncio.AbstractEventLoop
    client_id: str
    interceptors: InterceptorChain
    random: random.Random  # source of all jitter and choices
    wall_clock: Callable[[], int] | None  # milliseconds since the epoch; None reads the system's clock natively
    log: EventLog
    classes: PartClasses


class ProducerParts:
    """The parts of one producer; each is made behind those that it works with.

    Args:
        refuse: raises the error of a call that cannot be served now.
        on_fatal: called with an error after which nothing can be sent any more.
    """

    sender: Sender

    def __init__(
        self,
        dependencies: ProducerDependencies,
        *,
        refuse: Callable[[], NoReturn],
        on_fatal: Callable[[KafkaError], None],
    ) -> None:
        config, self.loop = dependencies.config, dependencies.loop
        self._make_parts_that_hold_records(dependencies, refuse)
        network_events = NetworkEvents(wake=self.wakeup.set)
        self.client = _client(dependencies, self.timers, network_events)
        classes, random, log = dependencies.classes, dependencies.random, dependencies.log
        self.metadata = classes.metadata(self.client, metadata_settings(config), random=random, log=log)
        self.metadata_waits = MetadataWaits(self.metadata, self.loop)
        backoff = retry_backoff(config, random)
        self._make_parts_that_end_records(dependencies, backoff, on_fatal)
        self.producer_ids = ProducerIdFetcher(
            self.client,
            self.identity,
            backoff,
            on_assigned=self.accumulator.offer_all,
            on_refused=self.settlement.fail_unstamped,
            log=log,
        )
        self.record_hooks = classes.record_hooks(
            config,
            dependencies.interceptors,
            appender=self.appender,
            metadata=self.metadata,
            completion=self.completion,
            log=log,
        )
        self.transactions = self._transactions(dependencies, backoff, on_fatal)
        self._make_sender(dependencies)
        network_events.node_failed = self.metadata.node_failed
        network_events.node_tried_again = self.metadata.node_tried_again
        self.events.unknown_partition = self.metadata_waits.ask_for_partitions
        self.events.batch_wanted = self.sender.batch_wanted
        self.events.topic_recreated = self.settlement.topic_recreated
        if self.transactions is not None:
            self.transactions.answer(self.events)

    def _make_parts_that_hold_records(self, dependencies: ProducerDependencies, refuse: Callable[[], NoReturn]) -> None:
        config, loop = dependencies.config, self.loop
        self.wakeup, self.events = Wakeup(loop), ProducerEvents()
        self.timers = TimerHeap(self.wakeup.set_alarm)
        self.flushes = FlushWaiters(loop)
        self.generations = self.flushes.generations
        self.identity = identity_of(config.transactional_id, is_idempotent=config.enable_idempotence)
        self.measures, self.latency = Measures(), LatencyHistogram()
        batching = accumulator_settings(config)
        self.pool = BufferPool(config.buffer_memory, batching.batch_size, on_return=self.wakeup.set)
        accumulator_dependencies = AccumulatorDependencies(
            pool=self.pool,
            timers=self.timers,
            generations=self.generations,
            producer_identity=self.identity,
            random=dependencies.random,
            clock=loop.time,
            wakeup=self.wakeup,
            events=self.events,
            options=batch_options(config),
            topic_options=dependencies.topic_options.batching,
            loop=loop,
            measures=self.measures,
        )
        self.accumulator = dependencies.classes.accumulator(batching, accumulator_dependencies)
        self.open_batches = self.accumulator.open_batches
        self.appender = RecordAppender(
            self.open_batches,
            refuse=refuse,
            batch_size=batching.batch_size,
            max_record_size=batching.max_record_size,
            wall_clock=dependencies.wall_clock,
            ignore_keys=config.partitioner_ignore_keys,
            key_hash=native_hash(config.partitioner) or 0,
        )

    def _make_parts_that_end_records(
        self,
        dependencies: ProducerDependencies,
        backoff: ExponentialBackoff,
        on_fatal: Callable[[KafkaError], None],
    ) -> None:
        self.completion = Completion(
            self.loop,
            self.pool,
            self.generations,
            latency=self.latency,
            topics=self.measures.topics,
            events=self.events,
            log=dependencies.log,
        )
        self.wait_queues = dependencies.classes.wait_queues(
            self.appender,
            self.open_batches,
            self.generations,
            self.timers,
            limits=waiting_limits(dependencies.config),
            on_failed=self.completion.fail_waiting,
            trouble=self.metadata_waits.topic_trouble,
        )
        self.settlement = dependencies.classes.settlement(
            accumulator=self.accumulator,
            splitter=BatchSplitter(self.pool, self.generations),
            identity=self.identity,
            backoff=backoff,
            completion=self.completion,
            clock=self.loop.time,
            metadata=self.metadata,
            events=self.events,
            on_fatal=on_fatal,
        )

    def _make_sender(self, dependencies: ProducerDependencies) -> None:
        transactions = self.transactions
        self.sender = Sender(
            produce_policy(dependencies.config),
            self.loop,
            accumulator=self.accumulator,
            wait_queues=self.wait_queues,
            compressor=BatchCompressor(self.loop, self.accumulator, wakeup=self.wakeup, log=dependencies.log),
            settlement=self.settlement,
            identity=self.identity,
            timers=self.timers,
            wakeup=self.wakeup,
            metadata=self.metadata,
            request_timeout_ms=dependencies.config.request_timeout_ms,
            ask_producer_id=self.producer_ids.ask if transactions is None else transactions.wake,
            transaction=None if transactions is None else transactions.of_request,
        )

    def _transactions(
        self,
        dependencies: ProducerDependencies,
        backoff: ExponentialBackoff,
        on_fatal: Callable[[KafkaError], None],
    ) -> TransactionRunner | None:
        """Return what runs the transactions; None without a transactional id."""
        if dependencies.config.transactional_id is None:
            return None
        from aioproducer._transactions.commit_abort import TransactionRecords  # noqa: PLC0415  # only then
        from aioproducer._transactions.runner import transaction_runner  # noqa: PLC0415  # only then

        records_of_transaction = TransactionRecords(
            appender=self.appender,
            wait_queues=self.wait_queues,
            accumulator=self.accumulator,
            completion=self.completion,
            settlement=self.settlement,
            flushes=self.flushes,
            unfinished=self.record_hooks.unfinished_records,
            fail_unfinished=self.record_hooks.fail_unfinished,
        )
        classes = dependencies.classes
        return transaction_runner(
            dependencies.config,
            self.identity,
            records_of_transaction,
            backoff=backoff,
            client=self.client,
            metadata=self.metadata,
            loop=self.loop,
            on_fatal=on_fatal,
            log=dependencies.log,
            **({} if classes.coordinators is None else {"coordinators": classes.coordinators}),
        )


def _client(dependencies: ProducerDependencies, timers: TimerHeap, events: NetworkEvents) -> NetworkClient:
    return dependencies.classes.client(
        bootstrap=dependencies.config.bootstrap,
        settings=network_settings(dependencies.config),
        security=connection_security(
            dependencies.config,
            dependencies.loop,
            wall_clock=dependencies.wall_clock,
            random=dependencies.random,
            log=dependencies.log,
        ),
        timers=timers,
        random=dependencies.random,
        events=events,
        log=dependencies.log,
        client_id=dependencies.client_id,
    )
