"""W9: one process prepares transactions and is killed, another one completes them.

`python -m tests.programs.chaos.transacting.completing BOOTSTRAP TOPIC LIFE TRANSACTIONAL_ID...` prepares a transaction
under each id, prints them, and kills itself.
"""

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path

from aioproducer import KafkaError, PreparedTransaction, Producer, ProducerFencedError, TransactionAbortedError
from tests.programs.chaos.transacting.life import (
    ABORTED_SHARE,
    CLOSE_S,
    OPTIONS,
    PARTITIONS,
    RECORDS,
    TransactionHistory,
    Value,
    What,
)

COMPLETER = "completer"
MAX_BLOCK_MS = 20_000


class Completer:
    """Starts preparing processes, one after the other, and completes what each leaves."""

    def __init__(self, folder: str, bootstrap: str, topic: str, *transactional_ids: str) -> None:
        self.stop = asyncio.Event()
        self._bootstrap = bootstrap
        self._topic = topic
        self._transactional_ids = transactional_ids
        self._history = TransactionHistory(Path(folder, f"transactions-{COMPLETER}.jsonl"))
        self._chance = random.Random(f"{COMPLETER}/{os.getpid()}")

    async def run(self) -> None:
        producer = Producer(self._bootstrap, max_block_ms=MAX_BLOCK_MS, request_timeout_ms=5_000)
        lives = 0
        try:
            await producer.start(wait=False)
            while not self.stop.is_set():
                lives += 1
                await self._one_life(producer, f"{COMPLETER}.{os.getpid()}.{lives}")
        finally:
            await producer.close(CLOSE_S)

    async def _one_life(self, producer: Producer, life: str) -> None:
        for each in self._transactional_ids:
            self._history.write(each, f"{life}.{each}", 1, what=What.BEGIN)
        preparing = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.programs.chaos.transacting.completing"),
            *(self._bootstrap, self._topic, life, *self._transactional_ids),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await preparing.communicate()
        prepared = [PreparedTransaction(*json.loads(line)) for line in output.splitlines()]
        await asyncio.gather(*(self._complete(producer, life, each) for each in prepared))

    async def _complete(self, producer: Producer, life: str, prepared: PreparedTransaction) -> None:
        is_commit = self._chance.random() >= ABORTED_SHARE
        what = What.UNKNOWN
        try:
            await producer.complete_transaction(prepared, commit=is_commit)
            what = What.COMMITTED if is_commit else What.ABORTED
            await producer.complete_transaction(prepared, commit=is_commit)  # changes nothing
        except (ProducerFencedError, TransactionAbortedError):  # it timed out before it was completed
            what = What.ABORTED if what is What.UNKNOWN else what
        except KafkaError as error:
            print(f"{life} of {prepared.transactional_id}: {error!r}", flush=True)
        finally:
            self._history.write(prepared.transactional_id, f"{life}.{prepared.transactional_id}", 1, what=what)


async def prepare(producer: Producer, topic: str, life: str) -> None:
    """Print the prepared transaction; the producer stays open."""
    transactional_id = producer.config.transactional_id or ""
    try:
        await producer.start()
        await producer.begin_transaction()
        for index in range(RECORDS):
            value = Value(transactional_id, f"{life}.{transactional_id}", 1, index).encode()
            await producer.enqueue(topic, value, partition=index % PARTITIONS)
        print(json.dumps(await producer.prepare_transaction()), flush=True)
    except KafkaError as error:
        print(f"{life} of {transactional_id}: {error!r}", file=sys.stderr, flush=True)


async def main() -> None:
    bootstrap, topic, life, *transactional_ids = sys.argv[1:]
    producers = [Producer(bootstrap, transactional_id=each, **OPTIONS) for each in transactional_ids]  # type: ignore[arg-type]
    await asyncio.gather(*(prepare(producer, topic, life) for producer in producers))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main())
