"""The state that a readiness probe and the inspector read of a producer, in one turn of its event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioproducer._native.measures import TIMES
from aioproducer._network.places import place_text
from aioproducer._producer.explaining import explain, state_and_note
from aioproducer._producer.kafka_metrics import value_of
from aioproducer._producer.statistics import take_snapshot
from aioproducer.metrics import HistogramValue, ProducerStatistics

if TYPE_CHECKING:
    from aioproducer._producer.producer_state import ProducerStateMachine
    from aioproducer._producer.runtime import ProducerRuntime
    from aioproducer.explanation import Explanation, Why

_NO_TIMES = HistogramValue(TIMES, (0,) * (len(TIMES) + 1), 0.0, 0.0)


class NodeView(NamedTuple):
    """A node that metadata names."""

    node_id: int
    place: str
    in_flight: int
    requests: int
    responses: int
    request_latency_s: float  # sum over `responses`
    blocked: Why | None  # None: it takes requests


class LiveView(NamedTuple):
    """A producer at one moment; nothing of it changes later."""

    state: str
    note: str  # why nothing can be sent in this state
    statistics: ProducerStatistics
    nodes: tuple[NodeView, ...]  # empty unless it runs
    queue_time: HistogramValue  # seconds from a record's call to its request
    request_latency: HistogramValue
    explanation: Explanation | None  # if it was asked for


def live_view(running: ProducerRuntime | None, lifecycle: ProducerStateMachine, *, explained: bool) -> LiveView:
    state, note = state_and_note(running, lifecycle)
    explanation = explain(running, lifecycle) if explained else None
    if running is None:
        return LiveView(
            state, note, ProducerStatistics(client_id=lifecycle.name), (), _NO_TIMES, _NO_TIMES, explanation
        )
    return LiveView(
        state,
        note,
        take_snapshot(running),
        () if note else _nodes(running),
        value_of(running.measures.queue_time),
        value_of(running.measures.request_latency),
        explanation,
    )


def _nodes(running: ProducerRuntime) -> tuple[NodeView, ...]:
    client = running.client
    rows, in_flight = client.counters_by_node.rows(), client.requests_in_flight()
    views = []
    for node_id, node in sorted(running.metadata.cluster.nodes.items()):
        counts = rows.get(node_id)
        views.append(
            NodeView(
                node_id,
                place_text(node.host, node.port),
                in_flight.get(node_id, 0),
                0 if counts is None else counts.requests,
                0 if counts is None else counts.responses,
                0.0 if counts is None else counts.request_latency_s,
                client.blocked(node_id),
            )
        )
    return tuple(views)
