"""What is left of a batch that was taken apart, once its parts have ended; when batches are sent again, and counted."""

import pytest

from aioproducer import Delivery, KafkaError
from tests.fakes.scripted_sender import ScriptedSender

NOT_LEADER = 6
TOO_LARGE = 10
FORBIDDEN = 29
OUT_OF_ORDER = 45
CONCURRENT_TRANSACTIONS = 51


def split(script: ScriptedSender, *, records: int) -> None:
    """Send one batch of so many records, and have it refused as too large."""
    for _ in range(records):
        script.core.send(b"v" * 100)
    script.turn()
    script.answer(1, {0: TOO_LARGE})


def requests_at_once(script: ScriptedSender) -> int:
    """How many batches of the partition are sent before the first is answered."""
    for _ in range(7):
        script.core.send(b"v" * 100)
        script.turn()
    return script.in_flight()


def test_partition_pipelines_again_once_all_parts_are_acknowledged() -> None:
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
    """However they end."""
    script = ScriptedSender()
    script.confirm()
    split(script, records=4)
    script.answer(1, {0: FORBIDDEN})
    script.answer(1, {0: (0, 1)})
    script.turn(seconds=1)

    assert script.core.queue().parts == 0


def test_part_was_handed_over_as_often_as_the_batch_that_it_was_in() -> None:
    """An error told of no attempt, which means that the record was never sent; `retries` count anew."""
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


def test_part_of_a_part_was_handed_over_as_often_as_both_together() -> None:
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


def test_every_record_of_a_batch_that_is_sent_again_is_counted() -> None:
    """Kafka's record-retry-total, and not the number of batches."""
    script = ScriptedSender()
    for _ in range(7):
        script.core.send(b"v")
    script.turn()

    script.answer(1, {0: NOT_LEADER})

    assert script.settlement.counts.records_retried == 7


def test_what_is_not_over_in_a_moment_is_asked_for_at_the_ordinary_pace() -> None:
    """A partition whose markers never come would otherwise be asked for fifty times a second, for ever."""
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
def test_batch_refused_for_the_one_before_it_has_all_its_retries_left(others: int) -> None:
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


def attempts_of(delivery: Delivery) -> int | None:
    """As its error says."""
    error = delivery.exception()
    assert isinstance(error, KafkaError)
    return error.attempts
