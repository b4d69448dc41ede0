"""A transacting process: `python -m tests.chaos.transacting FOLDER BOOTSTRAP TOPIC TRANSACTIONAL_ID NAME`.

One transaction after the other, three in ten aborted on purpose, until SIGTERM. Who is fenced starts anew after a
while, and so fences in turn.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from pathlib import Path

from aioproducer import KafkaError, Producer, TransactionAbortableError
from aioproducer.errors import TransactionTimeoutError, UndeliveredError
from tests.chaos.transacting.history import PARTITIONS, RECORDS, TransactionHistory, Value, What

ABORTED_SHARE = 0.3
CLOSE_S = 20.0
BETWEEN_S = 0.02
STAND_ASIDE_S = (1.0, 4.0)
OPTIONS = {"request_timeout_ms": 5_000, "delivery_timeout_ms": 30_000, "max_block_ms": 20_000, "linger_ms": 2}


class AbortOnPurposeError(Exception):
    """Raised in the body of a transaction that is to be aborted."""


class Transacting:
    """One process."""

    def __init__(self, folder: str, bootstrap: str, topic: str, *names: str) -> None:
        self.stop = asyncio.Event()
        self._bootstrap = bootstrap
        self._topic = topic
        self._transactional_id, self._name = names
        self._history = TransactionHistory(Path(folder, f"transactions-{self._name}.jsonl"))
        self._rng = random.Random(f"{self._name}/{os.getpid()}")
        self._lives = 0

    async def run(self) -> None:
        """Life after life."""
        while not self.stop.is_set():
            self._lives += 1
            life = f"{self._name}.{os.getpid()}.{self._lives}"
            try:
                await self._live(life)
            except KafkaError as error:
                print(f"life {life} ended: {type(error).__name__}: {error}", flush=True)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stop.wait(), self._rng.uniform(*STAND_ASIDE_S))

    async def _live(self, life: str) -> None:
        """One producer, until it is of no use any more.

        Raises:
            KafkaError: fenced, or brokers could not be reached.
        """
        producer = Producer(self._bootstrap, transactional_id=self._transactional_id, **OPTIONS)  # type: ignore[arg-type]
        number = 0
        try:
            await producer.start()
            while not self.stop.is_set():
                number += 1
                await self._transact(producer, life, number)
                await asyncio.sleep(self._rng.expovariate(1 / BETWEEN_S))
        finally:
            with contextlib.suppress(UndeliveredError):
                await producer.close(CLOSE_S)

    async def _transact(self, producer: Producer, life: str, number: int) -> None:
        """One transaction, and what is known of its end."""
        what = What.UNKNOWN
        try:
            await self._fill(producer, life, number)
            what = What.COMMITTED
        except (AbortOnPurposeError, TransactionAbortableError):
            what = What.ABORTED
        except TransactionTimeoutError as error:  # not known to be over; the next one waits for it
            print(f"{life}/{number}: {type(error).__name__}: {error}", flush=True)
        finally:
            self._history.write(self._transactional_id, life, number, what=what)

    async def _fill(self, producer: Producer, life: str, number: int) -> None:
        """Begin, send, and end.

        Raises:
            AbortOnPurposeError: three times in ten.
        """
        async with producer.transaction() as txn:
            self._history.write(self._transactional_id, life, number, what=What.BEGIN)
            for index in range(RECORDS):
                value = Value(self._transactional_id, life, number, index).encode()
                await txn.enqueue(self._topic, value, partition=index % PARTITIONS)
            if self._rng.random() < ABORTED_SHARE:
                raise AbortOnPurposeError


async def main() -> None:
    """Run until SIGTERM."""
    transacting = Transacting(*sys.argv[1:])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, transacting.stop.set)
    await transacting.run()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
    asyncio.run(main())
