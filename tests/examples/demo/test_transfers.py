"""The demo of transactions: whether the ledger adds up, the auditor, and the worker."""

import asyncio
import json
import sys
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from examples.demo import transfer_worker, transfers_show
from examples.demo.transfers import ACCOUNTS, BALANCE, LEDGER, Entry, LedgerCheck, Order, encode, made_up_orders
from examples.demo.transfers_show import Auditor

ORDERS = made_up_orders(3)
ALL = ACCOUNTS * BALANCE


def checked(*numbers: int) -> LedgerCheck:
    entries = [entry for order in ORDERS for entry in order.entries()]
    check = LedgerCheck(len(ORDERS))
    check.cut(entries[number] for number in numbers)
    return check


def test_complete_ledger_holds() -> None:
    check = checked(0, 1, 2, 3, 4, 5)

    assert (check.holds, check.done, check.total, check.wrong_cuts) == (True, 3, ALL, 0)


def test_part_of_the_ledger_adds_up_and_is_not_complete() -> None:
    check = checked(0, 1)

    assert (check.holds, check.done, check.total, check.wrong_cuts) == (False, 1, ALL, 0)


def test_torn_order_is_found() -> None:
    check = checked(0, 1, 2, 3, 4)

    assert (check.holds, check.torn, check.wrong_cuts) == (False, 1, 1)
    assert check.total != ALL


def test_order_carried_out_twice_is_found() -> None:
    check = checked(0, 1, 2, 3, 4, 5, 0, 1)

    assert (check.holds, check.doubled, check.wrong_cuts) == (False, 1, 0)


def test_orders_and_entries_survive_json() -> None:
    order = ORDERS[0]

    assert Order(*json.loads(encode(order))) == order
    assert [Entry(*json.loads(encode(entry))) for entry in order.entries()] == list(order.entries())


def test_lines_fit_a_narrow_terminal() -> None:
    assert max(map(len, checked(0, 1).lines())) <= 60


ENTRIES = [encode(entry) for entry in made_up_orders(1)[0].entries()]


class Consumer:
    """A ledger of one order, behind a connection that is lost twice."""

    def __init__(self, **_: object) -> None:
        self.is_stopped = False
        self.at = 0
        made.append(self)

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        self.is_stopped = True

    def assign(self, partitions: list[object]) -> None:
        """Do nothing."""

    def seek(self, _: object, offset: int) -> None:
        self.at = offset

    async def end_offsets(self, partitions: list[object]) -> dict[object, int]:
        """Fail twice, then return the end."""
        if TROUBLES:
            raise TROUBLES.pop(0)
        return dict.fromkeys(partitions, len(ENTRIES))

    async def position(self, _: object) -> int:
        return self.at

    async def getmany(self, *, timeout_ms: int) -> dict[object, list[SimpleNamespace]]:  # noqa: ARG002 - as aiokafka's
        self.at = len(ENTRIES)
        found = [SimpleNamespace(offset=offset, value=value) for offset, value in enumerate(ENTRIES)]
        return {TopicPartition(LEDGER, 0): found}


made: list[Consumer] = []
TROUBLES: list[BaseException] = [asyncio.CancelledError(), KafkaConnectionError()]


async def test_cancellation_by_the_consumer_does_not_end_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aiokafka raises one if a connection is lost; the auditor continues until it is cancelled."""
    monkeypatch.setattr(transfers_show, "AIOKafkaConsumer", Consumer)
    check = LedgerCheck(1)
    reading = asyncio.create_task(Auditor("localhost:9092", check).run())
    while not (check.done or reading.done()):  # noqa: ASYNC110 - another task's state
        await asyncio.sleep(0.01)
    assert (check.done, check.wrong_cuts, reading.done()) == (1, 0, False)

    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert [consumer.is_stopped for consumer in made] == [True] * 3


@pytest.mark.slow
@pytest.mark.timing
async def test_worker_of_silent_brokers_ends_with_the_demo() -> None:
    """The demo may have been killed together with its brokers."""
    is_over = asyncio.Event()

    async def say_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await is_over.wait()
        writer.close()
        await writer.wait_closed()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", transfer_worker.__name__, f"{host}:{port}"), stdin=asyncio.subprocess.PIPE
    )
    try:
        assert worker.stdin is not None
        worker.stdin.close()

        assert await worker.wait() == transfer_worker.LEFT_ALONE
    finally:
        if worker.returncode is None:
            worker.kill()
        is_over.set()
        silent.close()
        await silent.wait_closed()
