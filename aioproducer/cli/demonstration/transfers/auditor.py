"""Reads the ledger with aiokafka's consumer, as everybody may who reads only what is committed, and adds it up."""

import asyncio
import contextlib
from collections.abc import Iterator

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from aioproducer.cli.demonstration.transfers.ledger_check import LedgerCheck
from aioproducer.cli.demonstration.transfers.orders import LEDGER, Entry, decode_entry

_POLL_MS = 100
_PAUSE_S = 0.05
_PATIENCE_S = 5.0
"""Until a consumer is taken for one that will never go on."""
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
        self._next = 0
        """The offset to be read next."""

    async def run(self) -> None:
        """Read up to what is committed now, add up, again."""
        while True:
            with _no_cut_now():
                await self._read_until_trouble()
            await asyncio.sleep(_PAUSE_S)

    async def _read_until_trouble(self) -> None:
        """Read with a consumer of its own: one that has lost a broker may wait for ever, or end without a word.

        Raises:
            KafkaError, TimeoutError: it came to nothing this time.
        """
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            isolation_level="read_committed",
            metadata_max_age_ms=1_000,
            request_timeout_ms=5_000,
        )
        try:
            await consumer.start()
            consumer.assign([_LEDGER])
            consumer.seek(_LEDGER, self._next)
            while True:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._read_to_a_cut(consumer)
                await asyncio.sleep(_PAUSE_S)
        finally:
            await consumer.stop()

    async def _read_to_a_cut(self, consumer: AIOKafkaConsumer) -> None:
        """Add up all that was committed at the time of the question, and nothing that was later."""
        end = (await consumer.end_offsets([_LEDGER]))[_LEDGER]
        while await consumer.position(_LEDGER) < end:
            for record in (await consumer.getmany(timeout_ms=_POLL_MS)).get(_LEDGER, []):
                self._read.append(record)
                self._next = record.offset + 1
        entries = [decode_entry(record.value) for record in self._read if record.offset < end]
        self._read = self._read[len(entries) :]
        self._check.add(self._kept(entries))
        self._check.cut()

    def _kept(self, entries: list[Entry]) -> list[Entry]:
        if self._loses_one and entries:
            self._loses_one = False
            return entries[1:]
        return entries


@contextlib.contextmanager
def _no_cut_now() -> Iterator[None]:
    """Suppress what aiokafka raises when a broker dies: its errors, and sometimes a cancellation nobody asked for.

    Raises:
        asyncio.CancelledError: somebody did.
    """
    try:
        yield
    except (KafkaError, TimeoutError):
        """Another broker will lead soon."""
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
