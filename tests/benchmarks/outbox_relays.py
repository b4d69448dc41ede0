"""The relays that the scenario `outbox` compares, each in a process of its own.

usage: python -m tests.benchmarks.outbox_relays ours|plain|scheduled DSN BOOTSTRAP ROWS
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import asyncpg
import uvloop
from aiokafka import AIOKafkaProducer
from sqlalchemy.ext.asyncio import create_async_engine

from aioproducer.outbox import Outbox

PLAIN_TABLE: Final = """
CREATE TABLE plain_outbox (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic TEXT NOT NULL, key BYTEA, value BYTEA,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(), sent_at TIMESTAMPTZ);
CREATE INDEX plain_outbox_waiting ON plain_outbox (id) WHERE sent_at IS NULL;
"""
OLDEST: Final = """
SELECT id, topic, key, value FROM plain_outbox WHERE sent_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED
"""
SENT: Final = "UPDATE plain_outbox SET sent_at = now() WHERE id = ANY($1::bigint[])"
PAUSE_S: Final = 0.1


async def plain(dsn: str, bootstrap_servers: str, rows: int, *, pauses_always: bool) -> None:
    """Be the relay that services write by themselves, by asyncpg and aiokafka: at least once.

    A scheduled job pauses after each look, not only after one that finds no rows.
    """
    database = await asyncpg.connect(dsn)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", enable_idempotence=True, linger_ms=5)
    await producer.start()
    sent = 0
    while sent < rows:
        async with database.transaction():
            found = await database.fetch(OLDEST)
            sending = [await producer.send(row["topic"], row["value"], key=row["key"]) for row in found]
            await asyncio.gather(*sending)
            await database.execute(SENT, [row["id"] for row in found])
        sent += len(found)
        if pauses_always or not found:
            await asyncio.sleep(PAUSE_S)
    await producer.stop()
    await database.close()


async def ours(dsn: str, bootstrap_servers: str, rows: int) -> None:
    engine = create_async_engine(dsn.replace("postgresql:", "postgresql+asyncpg:"))
    async with Outbox().relay(engine, bootstrap_servers) as relay:
        while relay.statistics().rows_sent < rows:  # noqa: ASYNC110  # as a monitor looks
            await asyncio.sleep(0.01)
    await engine.dispose()


RELAYS: Final[Mapping[str, Callable[[str, str, int], Awaitable[None]]]] = {
    "ours": ours,
    "plain": partial(plain, pauses_always=False),
    "scheduled": partial(plain, pauses_always=True),
}


async def main(name: str, dsn: str, bootstrap_servers: str, rows: str) -> None:
    """Send so many rows, and print what it took, without the imports."""
    began, before = time.perf_counter(), time.process_time()
    await RELAYS[name](dsn, bootstrap_servers, int(rows))
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu": time.process_time() - before}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
