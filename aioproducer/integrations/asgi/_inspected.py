"""State of a producer for the inspector's page, as JSON: no payload, no configuration, a limited number of rows."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from aioproducer.explanation import WaitReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer._producer.live_view import LiveView, NodeView
    from aioproducer.explanation import Waiting

PARTITIONS: Final = 50
REASONS: Final = 8
NODES: Final = 100


@dataclass(slots=True)
class _Group:
    """Batches and records with something in common, and the oldest of them."""

    oldest: Waiting
    batches: int = 0
    records: int = 0
    size: int = 0

    def add(self, waiting: Waiting) -> None:
        self.batches += 1
        self.records += waiting.records
        self.size += waiting.size
        if waiting.age_s > self.oldest.age_s:
            self.oldest = waiting


def document_of(view: LiveView) -> dict[str, object]:
    """Return the state for the page, which computes rates from the totals of two answers."""
    statistics = view.statistics
    waiting = () if view.explanation is None else view.explanation.waiting
    by_reason: dict[object, _Group] = {}
    by_partition: dict[object, _Group] = {}
    for each in waiting:
        by_reason.setdefault((each.reason, each.node_id, each.detail), _Group(each)).add(each)
        by_partition.setdefault((each.topic, each.partition), _Group(each)).add(each)
    by_words = _merged(by_reason.values())
    reasons = nlargest(REASONS, by_words.items(), key=lambda item: item[1].records)
    worst = nlargest(PARTITIONS, by_partition.values(), key=lambda group: group.oldest.age_s)
    return {
        "client_id": statistics.client_id,
        "state": view.state,
        "note": view.note,
        "acknowledged": statistics.records_acknowledged,
        "bytes": statistics.batch_bytes,
        "requests": statistics.requests_sent,
        "failed": statistics.records_failed,
        "retried": statistics.records_retried,
        "refused": statistics.buffer_exhausted,
        "buffer_total": statistics.buffer_total_bytes,
        "buffer_used": statistics.buffer_total_bytes - statistics.buffer_available_bytes,
        "waiting_records": statistics.records_pending + statistics.records_waiting,
        "bounds_s": view.request_latency.bounds,
        "request_latency": view.request_latency.counts,
        "queue_time": view.queue_time.counts,
        "metadata_error": statistics.metadata_error,
        "nodes": [_node(node) for node in view.nodes[:NODES]],
        "nodes_left": max(len(view.nodes) - NODES, 0),
        "reasons": [
            {"words": words, "records": group.records, "oldest_s": group.oldest.age_s} for words, group in reasons
        ],
        "reasons_left": len(by_words) - len(reasons),
        "partitions": [_partition(group) for group in worst],
        "partitions_left": len(by_partition) - len(worst),
    }


def unseen(error: Exception) -> dict[str, object]:
    """Return what the page shows of a producer that cannot be read."""
    return {"client_id": "", "state": "unknown", "note": str(error)}


def _node(node: NodeView) -> dict[str, object]:
    why = node.blocked
    state = "connected"
    if why is not None and why.reason is WaitReason.THROTTLED:
        state = "throttled"
    elif why is not None and why.reason is WaitReason.CONNECTING:
        state = "idle" if why.since is None else "down"
    return {
        "id": node.node_id,
        "place": node.place,
        "state": state,
        "detail": why.detail if why is not None and state in {"throttled", "down"} else "",
        "in_flight": node.in_flight,
        "requests": node.requests,
        "responses": node.responses,
        "latency_s": node.request_latency_s,
    }


def _merged(groups: Iterable[_Group]) -> dict[str, _Group]:
    """Return the groups by their words, which not all reasons, nodes and details tell apart."""
    merged: dict[str, _Group] = {}
    for group in groups:
        words = _words(group.oldest)
        known = merged.setdefault(words, group)
        if known is not group:
            known.records += group.records
            known.oldest = max(known.oldest, group.oldest, key=lambda each: each.age_s)
    return merged


def _partition(group: _Group) -> dict[str, object]:
    oldest = group.oldest
    return {
        "topic": oldest.topic,
        "partition": oldest.partition,
        "node": oldest.node_id,
        "reason": oldest.reason.value,
        "words": _words(oldest),
        "batches": group.batches,
        "records": group.records,
        "size": group.size,
        "attempts": oldest.attempts,
        "age_s": oldest.age_s,
        "until_s": oldest.until_s,
        "deadline_s": oldest.deadline_s,
    }


def _words(waiting: Waiting) -> str:
    """Return the reason without the partition, which errors begin with: the same for all partitions."""
    return waiting.words.replace(f"{waiting.topic}-{waiting.partition}: ", "", 1)


def documents_of(views: Iterable[LiveView | Exception]) -> list[dict[str, object]]:
    return [unseen(view) if isinstance(view, Exception) else document_of(view) for view in views]
