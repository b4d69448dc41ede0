"""Snapshots of a running producer for `Producer.statistics()`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioproducer.metrics import ProducerStatistics

if TYPE_CHECKING:
    from aioproducer._producer.runtime import ProducerRuntime
    from aioproducer._transactions.runner import TransactionRunner


def take_snapshot(running: ProducerRuntime) -> ProducerStatistics:
    """Return the current counters and gauges; reads each open batch."""
    counts, network = running.completion.counts, running.client.counters
    accepted = running.open_batches.records
    in_flight = running.client.requests_in_flight()
    updated_at = running.metadata.cluster.updated_at
    statistics = ProducerStatistics(
        client_id=running.lifecycle.name,
        records_sent=accepted,
        records_acknowledged=counts.records_acknowledged,
        records_failed=counts.records_failed,
        records_retried=running.settlement.counts.records_retried,
        records_filtered=counts.records_filtered,
        records_pending=max(accepted - counts.records_acknowledged - counts.batch_records_failed, 0),
        records_waiting=running.wait_queues.records + len(running.record_hooks.unfinished_records),
        waiting_bytes=running.wait_queues.bytes,
        batches_sent=counts.batches,
        batches_split=running.settlement.counts.batches_split,
        batch_bytes=counts.batch_bytes,
        buffer_total_bytes=running.pool.total_bytes,
        buffer_available_bytes=running.pool.available_bytes,
        buffer_free_bytes=running.pool.free_bytes,
        buffer_unallocated_bytes=running.pool.unallocated_bytes,
        buffer_exhausted=running.wait_queues.exhausted,
        requests_sent=network.requests,
        responses_received=network.responses,
        request_latency_total_s=network.request_latency_s,
        requests_in_flight=sum(in_flight.values()),
        requests_in_flight_by_node=in_flight,
        bytes_sent=network.bytes_out,
        bytes_received=network.bytes_in,
        connections=network.connections_created - network.connections_closed,
        connections_created=network.connections_created,
        connections_closed=network.connections_closed,
        connection_failures=network.connection_failures,
        authentications=network.authentications,
        authentication_failures=network.authentication_failures,
        reauthentications=network.reauthentications,
        reauthentication_failures=network.reauthentication_failures,
        reauthentication_latency_total_s=network.reauthentication_latency_s,
        metadata_age_s=running.loop.time() - updated_at if updated_at else None,
        metadata_error=str(error) if (error := running.metadata.last_error) is not None else None,
        interceptor_failures=running.record_hooks.interceptor_failures,
        delivery_latency_p50_s=running.latency.quantile_s(0.5),
        delivery_latency_p99_s=running.latency.quantile_s(0.99),
    )
    return _with_transactions(statistics, running.transactions)


def _with_transactions(statistics: ProducerStatistics, transactions: TransactionRunner | None) -> ProducerStatistics:
    if transactions is None:
        return statistics
    ended = transactions.completer.counts
    return replace(
        statistics,
        transactions_committed=ended.commit_time.count,
        transactions_aborted=ended.abort_time.count,
        commit_total_s=ended.commit_time.total,
        abort_total_s=ended.abort_time.total,
    )
