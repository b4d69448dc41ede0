"""The sender's turns: what it asks for, sends, and does with answers, losses and deadlines."""

import asyncio

import pytest

from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK
from aioproducer._accumulator.producer_identity import LAST_EPOCH
from aioproducer._timing.timers import TICK_S
from aioproducer.errors import (
    BrokerConnectionError,
    DeliveryTimeoutError,
    KafkaError,
    Outcome,
    ProtocolError,
    UnsupportedVersionError,
)
from aioproducer.records import TopicPartition
from tests.fakes.scripted_sender import ScriptedSender, response
from tests.fakes.virtual_loop import run, virtual_loop


def test_record_is_sent_and_acknowledged() -> None:
    """With its offset; its memory is back."""
    script = ScriptedSender()
    delivery = script.core.send(b"v")
    script.turn()
    assert script.in_flight() == 1

    script.answer(1, {0: (0, 41)})

    assert delivery.result().offset == 41
    assert script.core.pool.available_bytes == script.core.pool.total_bytes


def test_one_request_takes_the_batches_of_many_partitions() -> None:
    """At most one of each."""
    script = ScriptedSender(leaders=[1] * 10)
    deliveries = [script.core.send(b"v", partition=number) for number in range(10)]
    script.turn()
    assert script.in_flight() == 1

    script.answer(1, {number: (0, number) for number in range(10)})

    assert [delivery.result().offset for delivery in deliveries] == list(range(10))


def test_nothing_is_sent_to_a_node_that_is_not_ready() -> None:
    """It goes once it is."""
    script = ScriptedSender()
    script.client.connections[1] = 0
    script.core.send(b"v")
    script.turn()
    assert script.in_flight() == 0

    script.client.connections[1] = 5
    script.turn()

    assert script.in_flight() == 1


def test_missing_leader_makes_metadata_be_asked_for() -> None:
    """And the topic be followed."""
    script = ScriptedSender(leaders=[-1])
    script.core.send(b"v")
    script.turn()

    assert (script.metadata.added, script.metadata.reasons) == (["t"], ["no_leader"])


def test_missing_producer_id_is_asked_for_and_nothing_is_sent() -> None:
    """An unstamped batch would be written without protection."""
    script = ScriptedSender()
    script.core.identity.discard(7)
    script.core.send(b"v")
    script.turn()

    assert (script.ids_asked, script.in_flight()) == (1, 0)


def test_confirmed_partition_has_up_to_five_requests_on_the_wire() -> None:
    """Before that, one."""
    script = ScriptedSender(batch_size=0)
    for _ in range(8):
        script.core.send(b"v")
    script.turn()
    assert script.in_flight() == 1

    script.answer(1, {0: (0, 0)})

    assert script.in_flight() == 5


def test_partition_left_out_of_the_answer_is_resent_on_another_connection() -> None:
    """Aiokafka hung."""
    script = ScriptedSender(leaders=[1, 1])
    deliveries = [script.core.send(b"v", partition=number) for number in (0, 1)]
    script.turn()
    script.answer(1, {0: (0, 3)})
    assert script.client.disconnected == [1]
    assert (deliveries[0].done(), deliveries[1].done()) == (True, False)

    script.turn(seconds=1)
    script.answer(1, {1: (0, 4)})

    assert deliveries[1].result().offset == 4


def test_answer_that_cannot_be_read_is_the_connections_business() -> None:
    """It closes, and the request is lost."""
    script = ScriptedSender()
    delivery = script.core.send(b"v")
    script.turn()
    [request] = script.client.requests[1]
    with pytest.raises(ProtocolError):
        request.on_response(memoryview(b"\x00\x00"), script.core.now)
    script.lose(1)
    script.turn(seconds=1)

    script.answer(1, {0: (0, 9)})

    assert delivery.result().offset == 9


def test_node_that_refuses_the_version_is_connected_to_anew() -> None:
    """And its batch sent again, with the version agreed on then."""
    script = ScriptedSender()
    delivery = script.core.send(b"v")
    script.turn()
    script.answer(1, {0: 35})
    assert script.client.retired == [1]

    script.turn(seconds=1)
    script.answer(1, {0: (0, 7)})

    assert delivery.result().offset == 7


def test_throttle_time_is_passed_on() -> None:
    """To the connection of that node."""
    script = ScriptedSender()
    script.core.send(b"v")
    script.turn()

    script.answer(1, {0: (0, 0)}, throttle_ms=250)

    assert script.client.throttled == [(1, 250)]


def test_lost_requests_are_resent_in_order_on_the_new_connection() -> None:
    """One at a time until the first is acknowledged."""
    script = ScriptedSender(batch_size=0)
    script.confirm()
    deliveries = [script.core.send(b"%d" % number) for number in range(4)]
    script.turn()
    assert script.in_flight() == 4

    script.lose(1)
    script.turn(seconds=1)
    assert script.in_flight() == 1
    for offset in range(4):
        script.answer(1, {0: (0, 1 + offset)})

    assert [delivery.result().offset for delivery in deliveries] == [1, 2, 3, 4]


def test_request_that_was_never_handed_over_leaves_no_doubt() -> None:
    """Whatever ends its records later, they are not written."""
    script = ScriptedSender(delivery_timeout_s=10)
    script.client.send_error = BrokerConnectionError("not connected")
    delivery = script.core.send(b"v")
    script.turn()
    script.turn(seconds=10)

    error = delivery.exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert error.outcome is Outcome.NOT_WRITTEN


def test_request_that_was_never_handed_over_is_no_attempt() -> None:
    """Of one attempt that `retries=0` allows; it is no retry either."""
    script = ScriptedSender(retries=0)
    script.client.send_error = BrokerConnectionError("not connected")
    delivery = script.core.send(b"v")
    script.turn()
    script.client.send_error = None
    script.turn(seconds=1)
    assert script.settlement.counts.records_retried == 0

    script.answer(1, {0: 3})

    error = delivery.exception()
    assert isinstance(error, KafkaError)
    assert error.attempts == 1


def test_answer_that_uses_the_last_epoch_up_wakes_the_sender() -> None:
    """Nothing else would before the next record: another id is to be asked for."""
    script = ScriptedSender()
    script.core.identity.assign(7, LAST_EPOCH)
    script.core.send(b"v")
    script.turn()
    request = script.client.requests[1].pop()

    request.on_response(memoryview(response({0: 29})), script.core.now)

    assert script.core.identity.is_missing
    assert script.sender._is_woken  # noqa: SLF001  # no task sleeps here that could be seen to wake
    script.turn()
    assert script.ids_asked == 1


def test_node_that_speaks_no_common_version_fails_its_records_at_once() -> None:
    """As not written, and in its own words."""
    script = ScriptedSender()
    script.client.version_error = UnsupportedVersionError("too old")
    delivery = script.core.send(b"v")
    script.turn()

    error = delivery.exception()
    assert isinstance(error, UnsupportedVersionError)
    assert error.outcome is Outcome.NOT_WRITTEN


def test_batch_on_the_wire_at_its_deadline_fails_and_keeps_its_memory() -> None:
    """The transport may still read it."""
    script = ScriptedSender(delivery_timeout_s=10)
    delivery = script.core.send(b"v")
    script.turn()
    script.turn(seconds=10)
    error = delivery.exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert error.outcome is Outcome.UNKNOWN
    assert script.core.pool.lent_bytes > 0

    script.answer(1, {0: (0, 0)})

    assert script.core.pool.lent_bytes == 0


def test_partition_takes_a_new_epoch_only_after_the_late_answer() -> None:
    """Until then the old sequence may still be written."""
    script = ScriptedSender(delivery_timeout_s=10)
    script.confirm()
    script.core.send(b"late")
    script.turn()
    script.turn(seconds=10)
    delivery = script.core.send(b"next")
    script.turn()
    assert script.in_flight() == 1

    script.answer(1, {0: (0, 1)})
    assert script.in_flight() == 1
    script.answer(1, {0: (0, 2)})

    assert delivery.result().offset == 2
    assert script.core.queue().identity.epoch == 1


def test_each_deadline_is_kept_after_the_partition_was_busy_before() -> None:
    """Aiokafka and an earlier self forgot the later ones."""
    script = ScriptedSender(delivery_timeout_s=10)
    script.confirm()
    script.turn(seconds=9)
    script.client.connections[1] = 0
    delivery = script.core.send(b"v")
    script.turn(seconds=1)
    assert not delivery.done()

    script.turn(seconds=9)

    assert isinstance(delivery.exception(), DeliveryTimeoutError)


def test_memory_of_what_is_overdue_is_lent_in_the_same_turn() -> None:
    """Nothing else may happen for long that would have it looked at."""
    script = ScriptedSender(delivery_timeout_s=10)
    script.client.connections[1] = 0
    pool = script.core.pool
    held = [pool.try_lend(pool.total_bytes * 3 // 4, None), pool.try_lend(pool.total_bytes // 4 - SMALLEST_CHUNK, 1)]
    overdue = script.core.send(b"v")
    script.turn(seconds=5)
    waiting = script.core.wait_in_queue()
    assert None not in held
    assert pool.available_bytes == 0

    script.turn(seconds=5)

    assert overdue.done()
    assert not waiting.is_waiting


def test_records_without_acknowledgement_complete_when_written() -> None:
    """And end unknown when the connection is lost before."""
    script = ScriptedSender(acks=0, idempotent=False)
    first, second = script.core.send(b"1"), None
    script.turn()
    written = script.client.requests[1].pop(0)
    assert written.on_written is not None
    written.on_written()
    second = script.core.send(b"2")
    script.turn()
    script.lose(1)

    assert first.result().offset == -1
    error = second.exception()
    assert isinstance(error, KafkaError)
    assert error.outcome is Outcome.UNKNOWN


def test_fatal_answer_is_reported_once() -> None:
    """Nothing this producer sends later can succeed."""
    script = ScriptedSender()
    delivery = script.core.send(b"v")
    script.turn()

    script.answer(1, {0: 31})

    assert delivery.exception() is not None
    assert len(script.fatal) == 1


def test_known_new_leader_ends_the_pause_before_a_retry() -> None:
    """The pause is for the one who refused (KAFKA-15415)."""
    script = ScriptedSender()
    script.core.send(b"v")
    script.turn()
    script.core.lead([2], epoch=1)

    script.answer(1, {0: 6})

    assert script.in_flight(2) == 1


def test_defect_while_an_answer_is_applied_leaves_no_record_without_an_end() -> None:
    """The batch it hit fails there; the others when the producer does."""
    script = ScriptedSender()
    script.refreshed = None  # asking for metadata fails
    delivery = script.core.send(b"v")
    script.turn()

    script.answer(1, {0: 6})

    error = delivery.exception()
    assert isinstance(error, KafkaError)
    assert error.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("end", ["deadline", "close"])
def test_overtaken_batch_ends_once_with_the_last_unresolved_one(end: str) -> None:
    """It waits for a new epoch behind an ambiguous one when both are given up."""
    script = ScriptedSender(batch_size=0, delivery_timeout_s=10)
    script.confirm()
    deliveries = [script.core.send(b"v") for _ in range(4)]
    script.turn()
    for said in (7, 19, (0, 3), 10):
        script.answer(1, {0: said})
    script.client.connections[1] = 0

    if end == "close":
        script.settlement.fail_everything(KafkaError("closed"), script.core.now)
    script.turn(seconds=10)

    outcomes = [getattr(delivery.exception(), "outcome", None) for delivery in deliveries]
    assert outcomes == [Outcome.UNKNOWN, Outcome.NOT_WRITTEN, None, Outcome.NOT_WRITTEN]


@pytest.mark.parametrize("partitions", [10, 10_000])
def test_idle_partitions_cost_a_turn_nothing(partitions: int) -> None:
    """Only the one that has something is looked at."""
    script = ScriptedSender(leaders=[1] * partitions)
    script.core.send(b"v", partition=3)
    script.turn()

    assert script.in_flight() == 1
    assert TopicPartition("t", 3) == script.core.queue(3).topic_partition


def test_alarm_that_rings_soon_is_not_put_off_by_a_timer_that_is_due_still_sooner() -> None:
    """No alarm is set for less than a tick; one that was set before may have less than that left."""

    async def story() -> list[str]:
        loop = virtual_loop()
        script = ScriptedSender(loop=loop)
        fired: list[str] = []
        timers, due = script.core.timers, loop.time() + 10 * TICK_S
        task = asyncio.create_task(script.sender.run())
        timers.schedule(due, lambda _: fired.append("first"))
        await asyncio.sleep(9.4 * TICK_S)
        timers.schedule(due - 0.2 * TICK_S, lambda _: fired.append("sooner"))
        await asyncio.sleep(0.7 * TICK_S)
        task.cancel()
        await asyncio.wait((task,))
        return fired

    assert run(story()) == ["sooner", "first"]
