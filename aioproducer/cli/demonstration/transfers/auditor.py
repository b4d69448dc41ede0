"""Reads the ledger with aiokafka's consumer, as everybody may who reads only what is committed, and adds it up."""

import asyncio
import contextlib

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from aioproducer.cli.demonstration.transfers.ledger_check import LedgerCheck
from aioproducer.cli.demonstration.transfers.orders import LEDGER, Entry, decode_entry

_POLL_MS = 100
_PAUSE_S = 0.05
_LEDGER = TopicPartition(LEDGER, 0)


class Auditor:
    """Goes on until cancelled.

    Args:
        bootstrap_servers: of the cluster.
        check: told of every entry, and of every cut.
        loses_one: leave out one entry, to see that the check would notice.
    """

    def __init__(self, bootstrap_servers: str, check: LedgerCheck, *, loses_one: bool) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._check = check
        self._loses_one = loses_one
        self._read: list[ConsumerRecord] = []
        """Not added up yet."""

    async def run(self) -> None:
        """Read up to what is committed now, add up, again."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            isolation_level="read_committed",
            metadata_max_age_ms=1_000,
            request_timeout_ms=5_000,
        )
        await consumer.start()
        try:
            consumer.assign([_LEDGER])
            consumer.seek(_LEDGER, 0)
            while True:
                with contextlib.suppress(KafkaError):  # a broker has just died: no cut now
                    await self._read_to_a_cut(consumer)
                await asyncio.sleep(_PAUSE_S)
        finally:
            await consumer.stop()

    async def _read_to_a_cut(self, consumer: AIOKafkaConsumer) -> None:
        """Add up all that was committed at the time of the question, and nothing that was later."""
        end = (await consumer.end_offsets([_LEDGER]))[_LEDGER]
        while await consumer.position(_LEDGER) < end:
            fetched = await consumer.getmany(timeout_ms=_POLL_MS)
            self._read += fetched.get(_LEDGER, [])
        entries = [decode_entry(record.value) for record in self._read if record.offset < end]
        self._read = self._read[len(entries) :]
        self._check.add(self._kept(entries))
        self._check.cut()

    def _kept(self, entries: list[Entry]) -> list[Entry]:
        if self._loses_one and entries:
            self._loses_one = False
            return entries[1:]
        return entries
