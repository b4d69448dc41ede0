"""What is left of a batch that was taken apart, once its parts have ended."""

from aioproducer import Delivery, KafkaError
from tests.fakes.scripted_sender import ScriptedSender

TOO_LARGE = 10
FORBIDDEN = 29


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


def attempts_of(delivery: Delivery) -> int | None:
    """As its error says."""
    error = delivery.exception()
    assert isinstance(error, KafkaError)
    return error.attempts
