"""The worker, a process of its own: `python -m aioproducer.cli.demonstration.transfers.worker_program SERVERS`.

What it has not committed when it is killed nobody ever sees: its next life begins with the same transactional id, and
where the group's offsets say. The end of standard input ends it in order, and at once if that takes too long: it cannot
outlive the demo.
"""

import asyncio
import os
import sys
from typing import Final

from aiokafka import AIOKafkaConsumer

from aioproducer._producer.producer import Producer
from aioproducer.cli.demonstration.transfers.orders import GROUP, LEDGER, ORDERS, decode_order
from aioproducer.cli.running import run_until_signal
from aioproducer.integrations.aiokafka import ExactlyOnce, exactly_once

TRANSACTIONAL_ID = "bank-1"
MAX_RECORDS = 25
"""Orders a transaction: few, so that the worker is killed in the middle of one."""

END_S: Final = 15.0
"""For an end in order. With the demo its brokers may be gone, and a consumer may wait for them for ever."""

LEFT_ALONE: Final = 3
"""Exit code when that was not enough."""


async def main() -> None:
    """Carry orders out until standard input ends."""
    input_ended = asyncio.Event()
    watch = asyncio.create_task(_watch_input(input_ended))
    consumer = AIOKafkaConsumer(
        ORDERS,
        bootstrap_servers=sys.argv[1],
        group_id=GROUP,
        group_instance_id=TRANSACTIONAL_ID,  # after its restart it is the same member, and need not wait to be missed
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
        print("ready", flush=True)
        ending = asyncio.create_task(_stop_after(input_ended, batches))
        async for records, txn in batches:
            entries = [entry for record in records for entry in decode_order(record.value).entries()]
            for entry in entries:
                await txn.enqueue(LEDGER, entry.encode(), key=b"%d" % entry.account, partition=0)
        await ending
    watch.cancel()


async def _stop_after(input_ended: asyncio.Event, batches: ExactlyOnce) -> None:
    await input_ended.wait()
    batches.stop()


async def _watch_input(ended: asyncio.Event) -> None:
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin.buffer)
    await orders.read()
    ended.set()
    await asyncio.sleep(END_S)
    os._exit(LEFT_ALONE)


if __name__ == "__main__":
    run_until_signal(main)
