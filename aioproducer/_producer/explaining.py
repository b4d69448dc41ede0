"""Explains what waits in a producer, in each of its states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioproducer._producer.producer_state import ProducerState
from aioproducer._sender.why_waiting import WaitReasons
from aioproducer.explanation import Explanation

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from aioproducer._accumulator.producer_identity import ProducerIdentity
    from aioproducer._accumulator.record_accumulator import RecordAccumulator
    from aioproducer._accumulator.wait_queues import WaitQueues
    from aioproducer._network.metadata_refresher import MetadataRefresher
    from aioproducer._network.network_client import NetworkClient
    from aioproducer._producer.producer_state import ProducerStateMachine
    from aioproducer._producer.record_hooks import RecordHooks
    from aioproducer.explanation import Waiting


class ExplainedParts(Protocol):
    """The parts that are looked at; `ProducerRuntime` has them."""

    loop: asyncio.AbstractEventLoop
    accumulator: RecordAccumulator
    wait_queues: WaitQueues
    identity: ProducerIdentity
    client: NetworkClient
    metadata: MetadataRefresher
    record_hooks: RecordHooks


def state_and_note(running: ExplainedParts | None, lifecycle: ProducerStateMachine) -> tuple[str, str]:
    """Return the state, and why nothing can be sent in it; an empty text where records are taken or delivered."""
    if lifecycle.is_forked:
        return (
            "forked",
            "the producer was made before a fork: what waits is in the parent; create a new one in this process",
        )
    state, note = lifecycle.state, ""
    if state is ProducerState.CLOSED:
        note = "the producer is closed: nothing waits"
    elif running is None:
        note = "it is not started"
    elif state is ProducerState.FAILED:
        note = f"the producer has failed, and with it all that waited ({lifecycle.failure()})"
    return state.value, note


def explain(running: ExplainedParts | None, lifecycle: ProducerStateMachine, topic: str | None = None) -> Explanation:
    state, note = state_and_note(running, lifecycle)
    if running is None or lifecycle.is_forked or lifecycle.state is ProducerState.CLOSED:
        return Explanation(lifecycle.name, state, note, ())
    now = running.loop.time()
    reasons = WaitReasons(running.accumulator, running.identity, running.client, running.metadata, now)
    waiting = (
        *reasons.batches(topic),
        *reasons.records(running.wait_queues, topic),
        *_not_serialized(running.record_hooks, now, topic),
    )
    return Explanation(lifecycle.name, state, note, waiting)


def _not_serialized(hooks: RecordHooks, now: float, topic: str | None) -> Iterator[Waiting]:
    return (record.explained(now) for record in hooks.unfinished_records if topic in {None, record.topic})
