"""Every call, cancelled at every point where it suspends, in every state of the cluster, in every way."""

import asyncio

import pytest

from aioproducer import KafkaError, Producer, RecordMetadata, UndeliveredError
from aioproducer.testing import FakeCluster
from tests.fakes.event_loops import LOOPS
from tests.fakes.producing import producing
from tests.journeys.cancellation.calls import TARGETS
from tests.journeys.cancellation.case import Case, cases
from tests.journeys.cancellation.scene import STATES


@pytest.mark.slow
@pytest.mark.parametrize("call, state", cases(TARGETS, STATES))
def test_cancelled_anywhere_in_any_way(call: str, state: str) -> None:
    case = Case(TARGETS[call], state)

    case.sweep()

    assert case.failures == [], f"{len(case.failures)} of {case.runs} runs"


# A part of the sweep on real sockets, on asyncio's own loop, on uvloop, and with eager tasks where Python has them


CALLS = ("start", "send", "send_and_wait", "enqueue", "send_many, then the delivery", "flush", "close", "async with")


@pytest.mark.slow
@pytest.mark.parametrize("call, state", cases(CALLS, ["healthy", "unanswered", "memory full"]))
@pytest.mark.parametrize("loop", LOOPS)
def test_cancelled_as_it_suspends(loop: str, call: str, state: str) -> None:
    case = Case(TARGETS[call], state, LOOPS[loop])

    if state == "healthy":
        case.sweep_suspensions()
    else:
        case.sweep_first()

    assert case.failures == [], f"{len(case.failures)} of {case.runs} runs"


# Calls that are cancelled when their record has left its line, and their task has not had its turn yet


async def test_enqueue_cancelled_after_acceptance_says_so() -> None:
    """The cancellation cannot be refused, and the record was accepted: sending it again would double it."""
    told: list[tuple[RecordMetadata | None, KafkaError | None]] = []
    async with FakeCluster(1) as cluster, Producer(cluster.bootstrap_servers) as producer:
        calling = asyncio.create_task(
            producer.enqueue("t", b"v", on_delivery=lambda metadata, error: told.append((metadata, error)))
        )
        await asyncio.sleep(0)
        while producer.statistics().records_waiting:  # noqa: ASYNC110  # it must be seen in the very turn
            await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await calling
        await producer.flush()

        assert cancelled.value.__notes__ == ["aioproducer: the record for topic 't' had been accepted by then"]
        assert [error for _, error in told] == [None]


async def test_enqueue_cancelled_as_its_record_fails_has_no_note() -> None:
    async with producing(FakeCluster(1, auto_create_topics=False), max_block_ms=100) as (_, producer):
        calling = asyncio.create_task(producer.enqueue("nowhere", b"v"))
        await asyncio.sleep(0)
        while producer.statistics().records_waiting:  # noqa: ASYNC110  # it must be seen in the very turn
            await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await calling

        assert not getattr(cancelled.value, "__notes__", [])
        with pytest.raises(UndeliveredError):
            await producer.flush()
