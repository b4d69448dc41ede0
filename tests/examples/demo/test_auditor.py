"""The auditor of the demo of transactions, with a consumer that fails as aiokafka's does."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from examples.demo import transfers_show
from examples.demo.transfers import LEDGER, LedgerCheck, encode, made_up_orders
from examples.demo.transfers_show import Auditor

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
