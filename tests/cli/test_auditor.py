"""The reader of the demo of transactions, with a consumer that fails as aiokafka's does."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from aioproducer.cli.demonstration.transfers import auditor
from aioproducer.cli.demonstration.transfers.auditor import Auditor
from aioproducer.cli.demonstration.transfers.ledger_check import LedgerCheck
from aioproducer.cli.demonstration.transfers.orders import LEDGER, made_up_orders

ENTRIES = [entry.encode() for entry in made_up_orders(1)[0].entries()]


class Consumer:
    """A ledger of one order, behind a connection that is lost twice."""

    def __init__(self, **_: object) -> None:
        self.is_stopped = False
        self.at = 0
        made.append(self)

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Note it."""
        self.is_stopped = True

    def assign(self, partitions: list[object]) -> None:
        """One."""

    def seek(self, _: object, offset: int) -> None:
        """To the beginning."""
        self.at = offset

    async def end_offsets(self, partitions: list[object]) -> dict[object, int]:
        """Fail first."""
        if TROUBLES:
            raise TROUBLES.pop(0)
        return dict.fromkeys(partitions, len(ENTRIES))

    async def position(self, _: object) -> int:
        """How far it was read."""
        return self.at

    async def getmany(self, *, timeout_ms: int) -> dict[object, list[SimpleNamespace]]:  # noqa: ARG002 - as aiokafka's
        """All there is."""
        self.at = len(ENTRIES)
        found = [SimpleNamespace(offset=offset, value=value) for offset, value in enumerate(ENTRIES)]
        return {TopicPartition(LEDGER, 0): found}


made: list[Consumer] = []
TROUBLES: list[BaseException] = [asyncio.CancelledError(), KafkaConnectionError()]


async def test_cancellation_that_nobody_asked_for_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer raises one where a connection is lost; the reader goes on, until it is cancelled."""
    monkeypatch.setattr(auditor, "AIOKafkaConsumer", Consumer)
    check = LedgerCheck(1)
    reading = asyncio.create_task(Auditor("localhost:9092", check, loses_one=False).run())
    while not (check.done or reading.done()):  # noqa: ASYNC110 - another task's state
        await asyncio.sleep(0.01)
    assert (check.done, check.report().wrong_cuts, reading.done()) == (1, 0, False)

    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert [consumer.is_stopped for consumer in made] == [True] * 3
