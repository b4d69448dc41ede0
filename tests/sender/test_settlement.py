"""What is left of a batch that was taken apart, once its parts have ended; when batches are sent again, and counted."""

from collections import deque
from collections.abc import Iterator

import pytest

from aioproducer import Delivery, DeliveryTimeoutError, KafkaError, Outcome
from aioproducer._accumulator.batch_splitter import uncompressed
from aioproducer._accumulator.partition import Batch, RecordDeadline
from aioproducer._protocol.compression import CompressionType
from aioproducer._transactions.identity import TransactionalIdentity
from tests.fakes.core_parts import CoreParts
from tests.fakes.scripted_sender import ScriptedSender
from tests.reference.record_batch import decode_records

NOT_LEADER = 6
TIMED_OUT = 7
TOO_LARGE = 10
FORBIDDEN = 29
OUT_OF_ORDER = 45
CONCURRENT_TRANSACTIONS = 51
UNKNOWN_PRODUCER_ID = 59


def split(script: ScriptedSender, *, records: int) -> list[Delivery]:
    """Have a batch refused as too large, and return the deliveries of its records."""
    deliveries = [script.core.send(b"v" * 100) for _ in range(records)]
    script.turn()
    script.answer(1, {0: TOO_LARGE})
    return deliveries


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
        assert script.core.partition().parts
        script.answer(1, {0: said})

    assert script.core.partition().parts == 0
    assert requests_at_once(script) == 5


def test_parts_that_fail_are_parts_no_more() -> None:
    script = ScriptedSender()
    script.confirm()
    split(script, records=4)
    script.answer(1, {0: FORBIDDEN})
    script.answer(1, {0: (0, 1)})
    script.turn(seconds=1)

    assert script.core.partition().parts == 0


def test_part_keeps_the_attempts_of_its_batch() -> None:
    """An error without an attempt would mean that the record was never sent; `retries` count again from 0."""
    script = ScriptedSender(retries=0, delivery_timeout_s=10)
    *_, last = split(script, records=4)
    script.answer(1, {0: TOO_LARGE})
    script.turn(seconds=10)

    assert (attempts_of(last), len(script.core.partition().queued)) == (1, 0)


def test_topic_is_suspected_where_it_may_be_another_one() -> None:
    """And not for an error of its leader, or for a lost connection."""
    script = ScriptedSender()
    script.core.send(b"v")
    for end in (
        lambda: script.answer(1, {0: TIMED_OUT}),
        lambda: script.lose(1),
        lambda: script.answer(1, {0: NOT_LEADER}),
    ):
        assert not script.metadata.suspected
        script.turn(seconds=1)
        end()

    assert script.metadata.reasons == ["produce_failed"] * 2
    assert len(script.metadata.suspected) == 1


def test_part_of_a_part_counts_the_attempts_of_both() -> None:
    """All that was tried is told, and not only what the last split knew of."""
    script = ScriptedSender(retries=0)
    refused = split(script, records=4)
    for _ in range(2):
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
    while pool.try_lend(1, script.core.node(1).reserve) is not None:
        pass
    while pool.lend_for_unpacking(100, script.core.node(1).reserve) is not None:
        pass

    script.answer(1, {0: TOO_LARGE})

    assert "no room to unpack it" in str(deliveries[0].exception())
    assert script.settlement.counts.batches_split == 0


def test_part_that_fails_tells_what_the_whole_was_refused_with() -> None:
    """It had no attempt of its own."""
    script = ScriptedSender(delivery_timeout_s=10)
    _, last = split(script, records=2)
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

    (batch,) = script.core.partition().on_wire
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
    partition = script.core.partition()
    partition.identity = shared.of_partition()
    partition.identity.join_transaction()
    script.core.send(b"v")
    script.turn()
    script.turn(seconds=10)
    assert script.in_flight() == 1
    script.answer(1, {0: (0, 5)})

    assert not shared.needs_epoch


class LookedAt(deque[Batch]):
    """Batches that count how often they are iterated."""

    looks = 0

    def __iter__(self) -> Iterator[Batch]:
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
    partition = script.core.partition()
    partition.queued = queued = LookedAt(partition.queued)
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


# Records with deadlines of their own


def send(script: ScriptedSender, value: bytes, deadline_s: float | None = None) -> Delivery:
    core = script.core
    delivery = core.send(value)
    if deadline_s is not None:
        core.open_batches.set_deadline(delivery, RecordDeadline(deadline_s, core.now + deadline_s))
    return delivery


def hold_back(script: ScriptedSender) -> None:
    """Leave the partition without a leader."""
    script.core.lead([-1])


def go_on(script: ScriptedSender) -> None:
    script.core.lead([1])
    script.turn()


def error_of(delivery: Delivery) -> DeliveryTimeoutError:
    error = delivery.exception()
    assert isinstance(error, DeliveryTimeoutError)
    return error


def one_overdue(**options: float) -> tuple[ScriptedSender, Delivery, Delivery]:
    """A batch of two records on the wire, and the deliveries: the second is past its deadline."""
    script = ScriptedSender(**options)
    kept, limited = send(script, b"1"), send(script, b"2", 1.0)
    script.turn()
    script.turn(seconds=1.01)
    return script, kept, limited


def values_on_wire(core: CoreParts) -> list[list[bytes | None]]:
    return [
        [record.value for record in decode_records(bytes(uncompressed(batch)), count=batch.count, base_timestamp=0)]
        for batch in core.partition().on_wire
    ]


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_unsent_record_leaves_its_batch_at_its_deadline(codec: CompressionType) -> None:
    script = ScriptedSender(compression=codec)
    hold_back(script)
    first, second, third = (send(script, value, limit) for value, limit in ((b"1", None), (b"2", 1.5), (b"3", None)))
    script.turn(seconds=1.4)
    assert not second.done()

    script.turn(seconds=0.11)

    assert error_of(second).outcome is Outcome.NOT_WRITTEN
    assert "not acknowledged within deadline=1.5 after 0 attempts: " in str(error_of(second))
    assert str(error_of(second)).endswith("the partition has no leader (as far as metadata says)")
    go_on(script)
    assert values_on_wire(script.core) == [[b"1", b"3"]]
    script.answer(1, {0: (0, 7)})
    assert [delivery.result().offset for delivery in (first, third)] == [7, 8]
    assert (script.completion.counts.records_acknowledged, script.completion.counts.records_failed) == (2, 1)
    assert script.core.generations.unfinished == 0


def test_record_of_a_compressed_batch_leaves_it_too() -> None:
    """The batch was compressed, and waits for its place on the wire."""
    script = ScriptedSender(compression=CompressionType.GZIP, idempotent=False)
    send(script, b"before" * 100)
    script.turn()
    kept, gone = send(script, b"1" * 100), send(script, b"2" * 100, 1.0)
    script.turn()
    script.core.flush()
    script.turn()

    script.turn(seconds=1.01)

    assert (error_of(gone).outcome, kept.done()) == (Outcome.NOT_WRITTEN, False)
    script.answer(1, {0: (0, 1)})
    [[value]] = values_on_wire(script.core)
    assert value == b"1" * 100


def test_record_on_the_wire_ends_unknown_and_its_batch_goes_on() -> None:
    script, kept, limited = one_overdue()

    assert (error_of(limited).outcome, kept.done()) == (Outcome.UNKNOWN, False)
    script.answer(1, {0: NOT_LEADER})
    script.turn(seconds=1)
    assert values_on_wire(script.core) == [[b"1", b"2"]]
    script.answer(1, {0: (0, 7)})
    assert kept.result().offset == 7
    assert (script.completion.counts.records_acknowledged, script.completion.counts.records_failed) == (1, 1)


def test_batch_whose_records_are_all_overdue_ends_as_a_whole() -> None:
    """As at `delivery_timeout_ms`: it is not sent again."""
    script = ScriptedSender()
    hold_back(script)
    deliveries = [send(script, b"v", limit) for limit in (1.0, 2.0)]
    script.turn(seconds=1.01)
    assert [delivery.done() for delivery in deliveries] == [True, False]

    script.turn(seconds=1.01)

    assert [error_of(delivery).outcome for delivery in deliveries] == [Outcome.NOT_WRITTEN] * 2
    assert script.core.partition().is_empty
    assert script.core.pool.available_bytes == script.core.pool.total_bytes


def test_sent_batch_of_overdue_records_is_not_sent_again() -> None:
    script = ScriptedSender()
    deliveries = [send(script, b"v", 1.0) for _ in range(2)]
    script.turn()
    script.turn(seconds=1.01)
    assert [error_of(delivery).outcome for delivery in deliveries] == [Outcome.UNKNOWN] * 2

    script.answer(1, {0: NOT_LEADER})
    script.turn(seconds=1)

    assert (script.in_flight(), script.core.partition().is_empty) == (0, True)


def test_refused_batch_gives_up_its_sequence_with_the_record() -> None:
    """It is known not to be written: the others are sent under another epoch."""
    script = ScriptedSender()
    kept, limited = send(script, b"1"), send(script, b"2", 1.0)
    script.turn()
    hold_back(script)
    script.answer(1, {0: NOT_LEADER})

    script.turn(seconds=1.01)

    assert error_of(limited).outcome is Outcome.NOT_WRITTEN
    go_on(script)
    [batch] = script.core.partition().on_wire
    assert (batch.count, batch.identity.epoch, batch.identity.base_sequence) == (1, 1, 0)
    script.answer(1, {0: (0, 7)})
    assert kept.result().offset == 7


def test_ambiguous_batch_keeps_its_bytes() -> None:
    script = ScriptedSender()
    send(script, b"1")
    limited = send(script, b"2", 1.0)
    script.turn()
    before = values_on_wire(script.core)
    hold_back(script)
    script.lose(1)

    script.turn(seconds=1.01)

    assert error_of(limited).outcome is Outcome.UNKNOWN
    go_on(script)
    assert values_on_wire(script.core) == before


def test_part_that_continues_a_sequence_keeps_its_records() -> None:
    script = ScriptedSender()
    deliveries = [send(script, b"v" * 100, limit) for limit in (None, None, None, 1.0)]
    script.turn()
    script.answer(1, {0: TOO_LARGE})

    script.turn(seconds=1.01)

    assert error_of(deliveries[3]).outcome is Outcome.UNKNOWN
    for said in ((0, 1), (0, 3)):
        script.answer(1, {0: said})
    assert [delivery.result().offset for delivery in deliveries[:3]] == [1, 2, 3]


def test_batch_that_fails_tells_only_those_who_wait() -> None:
    """A record that ended on its own is not counted twice."""
    script, _, _ = one_overdue(delivery_timeout_s=10)

    script.turn(seconds=9)

    assert script.completion.counts.records_failed == 2
    assert script.core.generations.unfinished == 0


def test_refused_record_that_ended_before_is_not_told_again() -> None:
    """A record that the broker refuses (KIP-467), after its deadline."""
    script, kept, limited = one_overdue()

    script.answer(1, {0: [1]})
    script.answer(1, {0: (0, 0)})

    assert error_of(limited).outcome is Outcome.UNKNOWN
    assert kept.result().offset == 0
    assert (script.completion.counts.records_acknowledged, script.completion.counts.records_failed) == (1, 1)
    assert script.core.generations.unfinished == 0


def test_many_records_of_one_grain_end_together() -> None:
    script = ScriptedSender()
    hold_back(script)
    send(script, b"0")
    deliveries = [send(script, b"v", 1 + number / 10_000) for number in range(90)]

    script.turn(seconds=1.011)

    assert all(delivery.done() for delivery in deliveries)
    assert "within the deadline of each record after" in str(error_of(deliveries[0]))
    assert script.log.names().count("batch_failed") == 1


def test_record_of_a_batch_in_compression_ends_afterwards() -> None:
    script = ScriptedSender(compression=CompressionType.GZIP)
    kept, limited = send(script, b"1"), send(script, b"2", 1.0)
    accumulator, core = script.core.accumulator, script.core
    core.flush()
    assert core.drain() == []
    [batch] = accumulator.take_unsealed()
    script.turn(seconds=1.01)
    assert not limited.done()

    accumulator.sealed(batch, None)
    script.turn()

    assert (error_of(limited).outcome, kept.done()) == (Outcome.NOT_WRITTEN, False)
    assert values_on_wire(core) == [[b"1"]]


def test_transaction_learns_of_a_record_that_ended() -> None:
    script = ScriptedSender()
    hold_back(script)
    send(script, b"1")
    limited = send(script, b"2", 1.0)

    script.turn(seconds=1.01)

    assert [str(error) for error in script.core.events.failed] == [str(error_of(limited))]
    assert not isinstance(script.core.identity, TransactionalIdentity)
