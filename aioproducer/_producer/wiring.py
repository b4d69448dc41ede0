"""Builds the parts of a running producer and connects them."""

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
from aioproducer._sender.sender import Sender, SendPath
from aioproducer._sender.settlement import Settlement
from aioproducer._timing.timers import TimerHeap
from aioproducer._timing.wakeup import Wakeup
from aioproducer._transactions.identity import identity_of
from aioproducer.partitioners import native_hash

if TYPE_CHECKING:
    import asyncio
    import random

    from aioproducer._accumulator.producer_identity import ProducerIdentity
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


class AccumulatorParts(NamedTuple):
    """The parts that hold records and end them, and what they report to others through."""

    wakeup: Wakeup  # of the sender
    events: ProducerEvents
    timers: TimerHeap
    flushes: FlushWaiters
    identity: ProducerIdentity
    latency: LatencyHistogram
    pool: BufferPool
    accumulator: RecordAccumulator
    appender: RecordAppender
    completion: Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerParts:
    """The parts of one producer."""

    records: AccumulatorParts
    path: SendPath
    client: NetworkClient
    metadata_waits: MetadataWaits
    producer_ids: ProducerIdFetcher
    transactions: TransactionRunner | None  # None without a transactional id
    sender: Sender
    record_hooks: RecordHooks


def build_parts(
    dependencies: ProducerDependencies, *, refuse: Callable[[], NoReturn], on_fatal: Callable[[KafkaError], None]
) -> ProducerParts:
    """Build the parts, and connect their events.

    Args:
        refuse: raises the error of a call that cannot be served now.
        on_fatal: called with an error after which nothing can be sent any more.
    """
    config, log = dependencies.config, dependencies.log
    records = _accumulator_parts(dependencies, refuse)
    network_events = NetworkEvents(wake=records.wakeup.set)
    client = _client(dependencies, records.timers, network_events)
    metadata = dependencies.classes.metadata(client, metadata_settings(config), random=dependencies.random, log=log)
    metadata_waits = MetadataWaits(metadata, dependencies.loop)
    backoff = retry_backoff(config, dependencies.random)
    path = _send_path(
        dependencies,
        records,
        metadata_waits=metadata_waits,
        metadata=metadata,
        backoff=backoff,
        on_fatal=on_fatal,
    )
    producer_ids = ProducerIdFetcher(
        client,
        records.identity,
        backoff,
        on_assigned=records.accumulator.offer_all,
        on_refused=path.settlement.fail_unstamped,
        log=log,
    )
    transactions = _transactions(dependencies, records, path, client=client, backoff=backoff, on_fatal=on_fatal)
    sender = Sender(
        produce_policy(config),
        path,
        dependencies.loop,
        request_timeout_ms=config.request_timeout_ms,
        ask_producer_id=producer_ids.ask if transactions is None else transactions.wake,
        transaction=None if transactions is None else transactions.of_request,
    )
    network_events.node_failed = metadata.node_failed
    network_events.node_tried_again = metadata.node_tried_again
    records.events.unknown_partition = metadata_waits.ask_for_partitions
    records.events.batch_wanted = sender.batch_wanted
    records.events.topic_recreated = path.settlement.topic_recreated
    if transactions is not None:
        transactions.answer(records.events)
    return ProducerParts(
        records=records,
        path=path,
        client=client,
        metadata_waits=metadata_waits,
        producer_ids=producer_ids,
        transactions=transactions,
        sender=sender,
        record_hooks=dependencies.classes.record_hooks(
            config,
            dependencies.interceptors,
            appender=records.appender,
            metadata=metadata,
            completion=records.completion,
            log=log,
        ),
    )


def _accumulator_parts(dependencies: ProducerDependencies, refuse: Callable[[], NoReturn]) -> AccumulatorParts:
    config, loop = dependencies.config, dependencies.loop
    wakeup, events = Wakeup(loop), ProducerEvents()
    timers = TimerHeap(wakeup.set_alarm)
    flushes = FlushWaiters(loop)
    identity = identity_of(config.transactional_id, is_idempotent=config.enable_idempotence)
    latency = LatencyHistogram()
    batching = accumulator_settings(config)
    pool = BufferPool(config.buffer_memory, batching.batch_size, on_return=wakeup.set)
    accumulator_dependencies = AccumulatorDependencies(
        pool=pool,
        timers=timers,
        generations=flushes.generations,
        producer_identity=identity,
        random=dependencies.random,
        clock=loop.time,
        wakeup=wakeup,
        events=events,
        options=batch_options(config),
        topic_options=dependencies.topic_options.batching,
        loop=loop,
        measures=Measures(),
    )
    accumulator = dependencies.classes.accumulator(batching, accumulator_dependencies)
    appender = RecordAppender(
        accumulator.open_batches,
        refuse=refuse,
        batch_size=batching.batch_size,
        max_record_size=batching.max_record_size,
        wall_clock=dependencies.wall_clock,
        ignore_keys=config.partitioner_ignore_keys,
        key_hash=native_hash(config.partitioner) or 0,
    )
    completion = Completion(
        loop,
        pool,
        flushes.generations,
        latency=latency,
        topics=accumulator.measures.topics,
        events=events,
        log=dependencies.log,
    )
    return AccumulatorParts(wakeup, events, timers, flushes, identity, latency, pool, accumulator, appender, completion)


def _send_path(
    dependencies: ProducerDependencies,
    records: AccumulatorParts,
    *,
    metadata_waits: MetadataWaits,
    metadata: MetadataRefresher,
    backoff: ExponentialBackoff,
    on_fatal: Callable[[KafkaError], None],
) -> SendPath:
    generations = records.flushes.generations
    return SendPath(
        accumulator=records.accumulator,
        wait_queues=dependencies.classes.wait_queues(
            records.appender,
            records.accumulator.open_batches,
            generations,
            records.timers,
            limits=waiting_limits(dependencies.config),
            on_failed=records.completion.fail_waiting,
            trouble=metadata_waits.topic_trouble,
        ),
        compressor=BatchCompressor(dependencies.loop, records.accumulator, wakeup=records.wakeup, log=dependencies.log),
        settlement=dependencies.classes.settlement(
            accumulator=records.accumulator,
            splitter=BatchSplitter(records.pool, generations),
            identity=records.identity,
            backoff=backoff,
            completion=records.completion,
            clock=dependencies.loop.time,
            metadata=metadata,
            events=records.events,
            on_fatal=on_fatal,
        ),
        identity=records.identity,
        timers=records.timers,
        wakeup=records.wakeup,
        metadata=metadata,
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


def _transactions(
    dependencies: ProducerDependencies,
    records: AccumulatorParts,
    path: SendPath,
    *,
    client: NetworkClient,
    backoff: ExponentialBackoff,
    on_fatal: Callable[[KafkaError], None],
) -> TransactionRunner | None:
    if dependencies.config.transactional_id is None:
        return None
    from aioproducer._transactions.commit_abort import TransactionRecords  # noqa: PLC0415  # only then
    from aioproducer._transactions.runner import transaction_runner  # noqa: PLC0415  # only then

    records_of_transaction = TransactionRecords(
        appender=records.appender,
        wait_queues=path.wait_queues,
        accumulator=path.accumulator,
        completion=records.completion,
        settlement=path.settlement,
        flushes=records.flushes,
    )
    classes = dependencies.classes
    return transaction_runner(
        dependencies.config,
        path.identity,
        records_of_transaction,
        backoff=backoff,
        client=client,
        metadata=path.metadata,
        loop=dependencies.loop,
        on_fatal=on_fatal,
        log=dependencies.log,
        **({} if classes.coordinators is None else {"coordinators": classes.coordinators}),
    )
