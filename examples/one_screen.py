"""The producer on one screen: `python one_screen.py [HOST:PORT]`, with `aioproducer broker` in another terminal."""

import asyncio
import sys
from typing import NamedTuple

from aioproducer import Producer


class Order(NamedTuple):
    """An order to send."""

    id: bytes
    body: bytes


ORDERS = [Order(b"customer-%d" % (number % 10), b'{"order": %d}' % number) for number in range(1_000)]


async def main(bootstrap_servers: str) -> None:
    """Send one record and wait for it, then many and wait for all."""
    async with Producer(bootstrap_servers) as producer:
        metadata = await producer.send("orders", b"...", key=b"customer-7")  # delivered: offset, partition, timestamp
        print(f"delivered to partition {metadata.partition} at offset {metadata.offset}")

        for order in ORDERS:
            await producer.enqueue("orders", order.body, key=order.id)  # waits only for room in the buffer
        await producer.flush()  # raises if anything was not delivered
        print(f"{producer.statistics().records_acknowledged} records delivered")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
