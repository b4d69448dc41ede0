"""The worker of the demo of transactions: `python -m examples.demo.transfer_worker SERVERS`.

It carries out orders until its standard input ends. What it has not committed when it is killed is never seen: the
next process has the same transactional id, and continues at the group's offsets.
"""

import asyncio
import json
import logging
import os
import sys

from aiokafka import AIOKafkaConsumer

from aioproducer import Producer
from aioproducer.integrations.aiokafka import ExactlyOnce, exactly_once
from examples.demo.transfers import GROUP, LEDGER, ORDERS, Order, encode

TRANSACTIONAL_ID = "bank-1"
MAX_RECORDS = 25
"""Orders per transaction: few, so that the worker is killed in the middle of one."""

END_S = 5.0
"""Limit for the end: the brokers may be gone with the demo, and a consumer may wait for them forever."""

LEFT_ALONE = 3
"""Exit code after `END_S`."""


async def main() -> None:
    """Carry out orders until standard input ends."""
    input_ended = asyncio.Event()
    watch = asyncio.create_task(_watch_input(input_ended))
    consumer = AIOKafkaConsumer(
        ORDERS,
        bootstrap_servers=sys.argv[1],
        group_id=GROUP,
        group_instance_id=TRANSACTIONAL_ID,  # the same member after a restart, which need not wait for a time-out
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        metadata_max_age_ms=1_000,
    )
    async with (
        consumer,
        Producer(sys.argv[1], transactional_id=TRANSACTIONAL_ID) as producer,
        exactly_once(consumer, producer, max_records=MAX_RECORDS, max_seconds=0.05) as batches,
    ):
        stopping = asyncio.create_task(_stop_after(input_ended, batches))
        async for records, txn in batches:
            orders = [Order(*json.loads(record.value)) for record in records]
            for entry in (entry for order in orders for entry in order.entries()):
                await txn.enqueue(LEDGER, encode(entry), key=b"%d" % entry.account, partition=0)
        await stopping
    watch.cancel()


async def _stop_after(input_ended: asyncio.Event, batches: ExactlyOnce) -> None:
    await input_ended.wait()
    batches.stop()


async def _watch_input(ended: asyncio.Event) -> None:
    """Set the event at the end of standard input; end the process if it then takes too long."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    await reader.read()
    ended.set()
    await asyncio.sleep(END_S)
    os._exit(LEFT_ALONE)


if __name__ == "__main__":
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it reports a killed broker as an error
    asyncio.run(main())
