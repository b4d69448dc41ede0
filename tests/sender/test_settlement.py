"""What is left of a batch that was taken apart, once its parts have ended; when batches are sent again, and counted."""

from collections import deque
from collections.abc import Iterator

import pytest

from aioproducer import Delivery, KafkaError
from aioproducer._accumulator.partition_queue import ProducerBatch
from aioproducer._protocol.compression import CompressionType
from aioproducer._transactions.identity import TransactionalIdentity
from tests.fakes.scripted_sender import ScriptedSender

NOT_LEADER = 6
TOO_LARGE = 10
FORBIDDEN = 29
OUT_OF_ORDER = 45
CONCURRENT_TRANSACTIONS = 51
UNKNOWN_PRODUCER_ID = 59


def split(script: ScriptedSender, *, records: int) -> None:
    for _ in range(records):
        script.core.send(b"v" * 100)
    script.turn()
    script.answer(1, {0: TOO_LARGE})


def requests_at_once(script: ScriptedSender) -> int:
    for _ in range(7):
        script.core.send(b"v" * 100)
        script.turn()
    return script.in_flight()


def test_partition_pipelines_after_all_parts_are_acked() -> None:
    """Parts of parts too: until then they travel one by one."""
    script = ScriptedSender()
    script.confirm()
    split(script, records=4)
    assert script.in_flight() == 1
    for said in (TOO_LARGE, (0, 1), (0, 2), (0, 3)):
        assert script.core.queue().parts
        script.answer(1, {0: said})

    assert script.core.queue().parts == 0
    assert requests_at_once(script) == 5


def test_parts_that_fail_are_parts_no_more() -> None:
    script = ScriptedSender()
    script.confirm()
    split(script, records=4)
    script.answer(1, {0: FORBIDDEN})
    script.answer(1, {0: (0, 1)})
    script.turn(seconds=1)

    assert script.core.queue().parts == 0


def test_part_keeps_the_attempts_of_its_batch() -> None:
    """An error without an attempt would mean that the record was never sent; `retries` count again from 0."""
    script = ScriptedSender(retries=0, delivery_timeout_s=10)
    for _ in range(4):
        last = script.core.send(b"v" * 100)
    script.turn()
    for _ in range(2):
        script.answer(1, {0: TOO_LARGE})
    script.turn(seconds=10)

    assert (attempts_of(last), len(script.core.queue().queued)) == (1, 0)
    script = ScriptedSender(retries=0)
    refused = [script.core.send(b"v" * 100) for _ in range(2)]
    script.turn()
    for _ in range(2):
        script.answer(1, {0: TOO_LARGE})

    assert attempts_of(refused[0]) == 2


def test_part_of_a_part_counts_the_attempts_of_both() -> None:
    """All that was tried is told, and not only what the last split knew of."""
    script = ScriptedSender(retries=0)
    refused = [script.core.send(b"v" * 100) for _ in range(4)]
    script.turn()
    for _ in range(3):
        script.answer(1, {0: TOO_LARGE})

    assert attempts_of(refused[0]) == 3


def test_every_batch_that_is_taken_apart_is_counted() -> None:
    """Parts of parts too: who looks at the number sets `batch_size` by it."""
    script = ScriptedSender()
    split(script, records=4)
    script.answer(1, {0: TOO_LARGE})

    assert script.settlement.counts.batches_split == 2


def test_batch_that_could_not_be_taken_apart_is_not_counted() -> None:
    """There was no room to unpack it: it failed."""
    script = ScriptedSender(compression=CompressionType.GZIP)
    pool = script.core.pool
    deliveries = [script.core.send(b"v" * 100) for _ in range(2)]
    script.turn()
    while pool.try_lend(1, 1) is not None:
        pass
    while pool.lend_for_unpacking(100, 1) is not None:
        pass

    script.answer(1, {0: TOO_LARGE})

    assert "no room to unpack it" in str(deliveries[0].exception())
    assert script.settlement.counts.batches_split == 0


def test_part_that_fails_tells_what_the_whole_was_refused_with() -> None:
    """It had no attempt of its own."""
    script = ScriptedSender(delivery_timeout_s=10)
    last = [script.core.send(b"v" * 100) for _ in range(2)][-1]
    script.turn()
    script.answer(1, {0: TOO_LARGE})
    script.turn(seconds=10)

    error = last.exception()
    assert isinstance(error, KafkaError)
    assert "MESSAGE_TOO_LARGE" in str(error.last_broker_error)


def test_every_record_of_a_batch_that_is_sent_again_is_counted() -> None:
    """Kafka's record-retry-total, and not the number of batches."""
    script = ScriptedSender()
    for _ in range(7):
        script.core.send(b"v")
    script.turn()

    script.answer(1, {0: NOT_LEADER})

    assert script.settlement.counts.records_retried == 7


def test_long_wait_is_retried_at_the_ordinary_pace() -> None:
    """A partition whose markers never come would otherwise be tried fifty times a second."""
    script = ScriptedSender()
    script.core.send(b"v")
    for _ in range(51):
        script.turn(seconds=0.02)
        assert script.in_flight() == 1
        script.answer(1, {0: CONCURRENT_TRANSACTIONS})

    script.turn(seconds=0.9)
    assert script.in_flight() == 0
    script.turn(seconds=0.2)
    assert script.in_flight() == 1


@pytest.mark.parametrize("others", [1, 3])
def test_consequence_of_a_refusal_uses_up_no_retry(others: int) -> None:
    """What was the fault of another is not counted against it; its own failures are."""
    script = ScriptedSender(retries=1)
    script.confirm()
    script.core.send(b"not allowed")
    script.turn()
    waiting = []
    for _ in range(others):
        waiting.append(script.core.send(b"v"))
        script.turn()
    script.answer(1, {0: FORBIDDEN})
    for _ in waiting:
        script.answer(1, {0: OUT_OF_ORDER})

    script.answer(1, {0: NOT_LEADER})
    script.turn(seconds=1)
    assert (waiting[0].done(), script.in_flight()) == (False, 1)
    script.answer(1, {0: NOT_LEADER})

    assert attempts_of(waiting[0]) == 3


def test_what_refused_records_leave_pipelines() -> None:
    script = ScriptedSender()
    script.confirm()
    for _ in range(12):
        script.core.send(b"v")
    script.turn()
    script.answer(1, {0: [1, 3, 5, 7, 9, 11]})
    assert script.in_flight() == 1  # under a new epoch: the first is to say that the leader takes it
    script.answer(1, {0: (0, 1)})

    assert script.in_flight() == 5


def test_what_is_left_of_a_refused_batch_goes_under_a_new_epoch() -> None:
    """Its sequences were never written: those behind them would be out of order, and with no retries left, fail."""
    script = ScriptedSender()
    script.confirm()
    for _ in range(3):
        script.core.send(b"v" * 100)
    script.turn()
    script.answer(1, {0: [0]})

    (batch,) = script.core.queue().on_wire
    assert (batch.count, batch.identity.epoch, batch.identity.base_sequence) == (2, 1, 0)


def test_response_about_an_old_id_keeps_the_new_one() -> None:
    """Many partitions hear of it one after another; each would have another id asked for."""
    script = ScriptedSender(leaders=[1, 2])
    for partition in (0, 1):
        script.core.send(b"v", partition=partition)
    script.turn()
    script.answer(1, {0: UNKNOWN_PRODUCER_ID})
    assert script.core.identity.is_missing
    script.core.identity.assign(8, 0)

    script.answer(2, {1: UNKNOWN_PRODUCER_ID})

    assert script.core.identity.producer_id == 8


def test_late_ack_of_an_abandoned_batch_leaves_no_gap() -> None:
    """Its sequences are in the log: a transactional producer needs no other epoch for them."""
    script = ScriptedSender(delivery_timeout_s=10)
    shared = TransactionalIdentity()
    shared.assign(7, 0)
    shared.begin_transaction(pipelines_at_once=False)
    queue = script.core.queue()
    queue.identity = shared.of_partition()
    queue.identity.join_transaction()
    script.core.send(b"v")
    script.turn()
    script.turn(seconds=10)
    assert script.in_flight() == 1
    script.answer(1, {0: (0, 5)})

    assert not shared.needs_epoch


class LookedAt(deque[ProducerBatch]):
    """Batches that count how often they are iterated."""

    looks = 0

    def __iter__(self) -> Iterator[ProducerBatch]:
        """Count, and go through them."""
        self.looks += 1
        return super().__iter__()


@pytest.mark.parametrize("ends", ["deadline", "failure", "close"])
def test_long_queue_ends_in_one_go(ends: str) -> None:
    """It is not iterated for each batch: that would block the loop for seconds."""
    script = ScriptedSender(delivery_timeout_s=10, batch_size=200)
    script.confirm()
    waiting = [script.core.send(b"v" * 150) for _ in range(300)]
    script.turn()
    script.answer(1, {0: FORBIDDEN})  # the partition is to take another epoch as soon as nothing is on the wire
    queue = script.core.queue()
    queue.queued = queued = LookedAt(queue.queued)
    assert len(queued) > 200

    if ends == "deadline":
        script.turn(seconds=10)
    elif ends == "failure":
        script.settlement.fail_unstamped(KafkaError("no id"))
    else:
        script.settlement.fail_everything(KafkaError("closed"), script.core.now)
    script.loop.run()

    assert sum(delivery.done() for delivery in waiting) > 200
    assert queued.looks < 20


def attempts_of(delivery: Delivery) -> int | None:
    error = delivery.exception()
    assert isinstance(error, KafkaError)
    return error.attempts
