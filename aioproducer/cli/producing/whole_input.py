"""`aioproducer produce --transactional`: all of the input becomes visible at once, or none of it ever does."""

import asyncio
from enum import StrEnum
from typing import Final

from aioproducer._producer.producer import Producer
from aioproducer.cli.producing.tally import Tally
from aioproducer.errors import KafkaError, Outcome, ProducerFencedError, TransactionTimeoutError

COMMIT_PATIENCE_S: Final = 120.0
"""How long a commit that brokers do not answer is asked after; each question takes `max.block.ms`."""

LONGEST_TRANSACTION_MS: Final = 900_000
"""The most that brokers allow unless told otherwise: reading the input is part of the transaction."""


class Fate(StrEnum):
    """What became of the transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """No broker said: it was asked to commit, and may have."""


class WholeInput:
    """One transaction around one run.

    Args:
        producer: started, with a transactional id.
        tally: told that nothing was delivered, if so.
    """

    def __init__(self, producer: Producer, tally: Tally) -> None:
        self.fate = Fate.OPEN
        self.fenced: ProducerFencedError | None = None
        """Another run has taken the transactional id."""
        self._producer = producer
        self._tally = tally

    @property
    def is_whole(self) -> bool:
        """Whether nothing that was read is missing but what is passed over on request."""
        tally = self._tally
        return not tally.under_way and all(problem.is_skipped for problem in tally.problems.values())

    async def begin(self) -> None:
        """Begin; what an earlier run with the same id has left open is aborted by then.

        Raises:
            KafkaError: it cannot.
        """
        await self._producer.begin_transaction()

    async def commit(self) -> None:
        """Make everything visible, or nothing.

        Raises:
            KafkaError: why it is not committed, or not known to be.
        """
        self.fate = Fate.UNKNOWN
        give_up_at = asyncio.get_running_loop().time() + COMMIT_PATIENCE_S
        while self.fate is Fate.UNKNOWN:
            try:
                await self._producer.commit_transaction()
                self.fate = Fate.COMMITTED
            except TransactionTimeoutError as error:
                if asyncio.get_running_loop().time() >= give_up_at:
                    raise KafkaError(self._not_known(error)) from error
            except KafkaError as error:
                if error.outcome is Outcome.UNKNOWN:
                    raise KafkaError(self._not_known(error)) from error
                await self.abort()
                raise

    async def abort(self) -> None:
        """Give it all up; what cannot be said to the broker now it finds out by itself, when the time is over."""
        self.fate = Fate.ABORTED
        self._tally.delivered = 0
        self._tally.partitions.clear()
        self._tally.under_way.clear()
        try:
            await self._producer.abort_transaction()
        except ProducerFencedError as error:
            self.fenced = error
        except KafkaError:
            """The producer is closed next, which tries again; and no broker commits what nobody told it to commit."""

    def _not_known(self, error: KafkaError) -> str:
        command = f"aioproducer txn describe {self._producer.config.transactional_id}"
        return f"whether it is committed is not known: {error}; ask: {command}"
