"""Calls that a transactional producer refuses in its state; its state stays as it was."""

from collections.abc import Awaitable, Callable

from aioproducer import IllegalStateError, KafkaError, Producer
from tests.programs.simulation.faults import TOPIC
from tests.programs.simulation.history import History

_Call = Callable[[], Awaitable[object]]


async def check_misuse(producer: Producer, history: History) -> None:
    """Call what cannot be done, while no transaction is open, and while one is."""

    async def send() -> None:
        producer.send(TOPIC, b"")

    for call in (producer.commit_transaction, producer.abort_transaction, send):
        await _check_refused(call, history, "without a transaction")
    await producer.begin_transaction()
    await _check_refused(producer.begin_transaction, history, "in a transaction")
    await producer.abort_transaction()


async def _check_refused(call: _Call, history: History, when: str) -> None:
    name = getattr(call, "__name__", "")
    try:
        await call()
    except IllegalStateError:
        return
    except KafkaError as error:
        history.violated("MISUSE", f"{name} {when} raised {error!r}")
    else:
        history.violated("MISUSE", f"{name} {when} was not refused")
