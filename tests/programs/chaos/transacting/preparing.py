"""A process that prepares a transaction under each of its ids, prints them, and kills itself.

`python -m tests.programs.chaos.transacting.preparing BOOTSTRAP TOPIC LIFE TRANSACTIONAL_ID...`
"""

import asyncio
import json
import os
import signal
import sys

from aioproducer import KafkaError, Producer
from tests.programs.chaos.transacting.history import PARTITIONS, RECORDS, Value
from tests.programs.chaos.transacting.life import OPTIONS


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
