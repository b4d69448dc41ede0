"""Records with deadlines of their own: each ends at its time, and the others of its batch go on."""

import pytest

from aioproducer import Delivery, DeliveryTimeoutError, Outcome
from aioproducer._accumulator.batch_splitter import uncompressed
from aioproducer._accumulator.partition_queue import RecordDeadline
from aioproducer._protocol.compression import CompressionType
from aioproducer._transactions.identity import TransactionalIdentity
from tests.fakes.core_parts import CoreParts
from tests.fakes.scripted_sender import ScriptedSender
from tests.reference.record_batch import decode_records

NOT_LEADER = 6
TOO_LARGE = 10


def send(script: ScriptedSender, value: bytes, deadline_s: float | None = None) -> Delivery:
    core = script.core
    delivery = core.send(value)
    if deadline_s is not None:
        core.open_batches.limit(delivery, RecordDeadline(deadline_s, core.now + deadline_s))
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


def values_on_wire(core: CoreParts) -> list[list[bytes | None]]:
    return [
        [record.value for record in decode_records(bytes(uncompressed(batch)), count=batch.count, base_timestamp=0)]
        for batch in core.queue().on_wire
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
    assert "no broker leads it" in str(error_of(second)) or "leader" in str(error_of(second))
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
    script = ScriptedSender()
    kept, limited = send(script, b"1"), send(script, b"2", 1.0)
    script.turn()

    script.turn(seconds=1.01)

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
    assert script.core.queue().is_empty
    assert script.core.pool.available_bytes == script.core.pool.total_bytes


def test_sent_batch_of_overdue_records_is_not_sent_again() -> None:
    script = ScriptedSender()
    deliveries = [send(script, b"v", 1.0) for _ in range(2)]
    script.turn()
    script.turn(seconds=1.01)
    assert [error_of(delivery).outcome for delivery in deliveries] == [Outcome.UNKNOWN] * 2

    script.answer(1, {0: NOT_LEADER})
    script.turn(seconds=1)

    assert (script.in_flight(), script.core.queue().is_empty) == (0, True)


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
    [batch] = script.core.queue().on_wire
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
    script = ScriptedSender(delivery_timeout_s=10)
    send(script, b"1")
    send(script, b"2", 1.0)
    script.turn()
    script.turn(seconds=1.01)

    script.turn(seconds=9)

    assert script.completion.counts.records_failed == 2
    assert script.core.generations.unfinished == 0


def test_refused_record_that_ended_before_is_not_told_again() -> None:
    """A record that the broker refuses (KIP-467), after its deadline."""
    script = ScriptedSender()
    kept, limited = send(script, b"1"), send(script, b"2", 1.0)
    script.turn()
    script.turn(seconds=1.01)

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
    assert accumulator.drain(1, 1, core.now) == []
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
