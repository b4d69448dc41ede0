"""When callers are told: not while the sender is in the middle of its own work."""

from collections.abc import Callable

import pytest

from aioproducer import KafkaError, RecordMetadata
from tests.fakes.scripted_sender import ScriptedSender

Told = list[RecordMetadata | KafkaError | None]


def acknowledge(script: ScriptedSender) -> None:
    """It is in the log."""
    answer(script, 0)


def refuse(script: ScriptedSender) -> None:
    """The topic is forbidden."""
    answer(script, 29)


def answer(script: ScriptedSender, code: int) -> None:
    """Have node 1 answer, and let no callback of the loop run."""
    waits, script.loop.run = script.loop.run, lambda: None  # type: ignore[method-assign]  # the point of it
    script.answer(1, {0: (code, -1 if code else 5)})
    script.loop.run = waits  # type: ignore[method-assign]


def expire(script: ScriptedSender) -> None:
    """Its deadline comes while it is on the wire."""
    script.core.now += 1
    script.sender.run_once(script.core.now)


def give_up(script: ScriptedSender) -> None:
    """The producer closes."""
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
