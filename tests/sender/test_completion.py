"""When callers are told: not while the sender is in the middle of its own work; and what they are told then."""

from collections.abc import Callable

import pytest

from aioproducer import Delivery, KafkaError, RecordMetadata
from aioproducer._native.delivery import BatchResult
from aioproducer._sender.unseen_failures import KEPT
from tests.fakes.scripted_sender import ScriptedSender

Told = list[RecordMetadata | KafkaError | None]

NOT_LEADER = 6


def acknowledge(script: ScriptedSender, code: int = 0) -> None:
    """Have node 1 answer, and let no callback of the loop run."""
    waits, script.loop.run = script.loop.run, lambda: None  # type: ignore[method-assign]  # the point of it
    script.answer(1, {0: (code, -1 if code else 5)})
    script.loop.run = waits  # type: ignore[method-assign]


def refuse(script: ScriptedSender) -> None:
    acknowledge(script, 29)


def expire(script: ScriptedSender) -> None:
    script.core.now += 1
    script.sender.run_once(script.core.now)


def give_up(script: ScriptedSender) -> None:
    script.settlement.fail_everything(KafkaError("closed"), script.core.now)


@pytest.mark.parametrize("end", [acknowledge, refuse, expire, give_up])
def test_no_callback_runs_inside_the_senders_own_step(end: Callable[[ScriptedSender], None]) -> None:
    """It may send, flush or close, and would find a batch that has ended by half."""
    script = ScriptedSender(delivery_timeout_s=1)
    told: Told = []
    script.core.appender.append(
        "t", b"v", None, 0, None, None, lambda metadata, error: told.append(metadata if error is None else error)
    )
    script.turn()

    end(script)

    assert told == []
    script.loop.run()
    assert len(told) == 1


def sent_twice() -> tuple[ScriptedSender, Delivery]:
    script = ScriptedSender(delivery_timeout_s=10)
    delivery = script.core.send(b"v")
    script.turn()
    script.turn(seconds=4)
    script.answer(1, {0: NOT_LEADER})
    script.turn(seconds=1)
    assert script.in_flight() == 1
    return script, delivery


def test_error_has_the_time_since_the_call() -> None:
    """What a caller compares with `delivery_timeout_ms`."""
    script, delivery = sent_twice()
    refuse(script)
    script.loop.run()

    error = delivery.exception()
    assert isinstance(error, KafkaError)
    assert error.elapsed_s == pytest.approx(5)


def test_latency_counts_all_attempts() -> None:
    script, _ = sent_twice()
    acknowledge(script)

    assert script.latency.quantile_s(1.0) == pytest.approx(5, rel=0.07)


def test_failures_not_looked_at_are_bounded() -> None:
    script = ScriptedSender()
    for _ in range(3 * KEPT):
        script.core.send(b"v")
        script.turn()
        refuse(script)
        script.loop.run()

    flush = script.completion.unseen.begin_flush(script.core.generations.close())
    assert len(flush) <= KEPT + 1
    error = flush.take_error()
    assert error is not None
    assert error.count == 3 * KEPT


def test_calls_that_raise_while_a_trim_is_due_are_not_counted() -> None:
    """The trim that an earlier failure has asked for runs before their callers do."""
    script = ScriptedSender()
    results = [BatchResult(None, None) for _ in range(2 * KEPT)]  # type: ignore[arg-type]  # nothing waits for them

    def fail(failing: list[BatchResult]) -> None:
        for result in failing:
            script.completion.fail_result(result, KafkaError("no"), count=1, generation=0)

    def look() -> None:
        for result in results:
            result.delivery(0, 0).exception()

    fail([results.pop()])
    script.loop.call_soon(fail, results)
    script.loop.call_soon(script.loop.call_soon, look)
    script.loop.run()

    error = script.completion.unseen.begin_flush(0).take_error()
    assert error is not None
    assert error.count == 1
