"""A worker that produces until SIGTERM, and loses no record then: `python worker.py [HOST:PORT]`.

Kubernetes, systemd and Docker send SIGTERM. The loop ends at its next turn, which may take `max_block_ms` if no broker
answers. Leaving `async with` then delivers accepted records, for at most `close_timeout_ms`. Keep the sum of both below
the time that your platform allows.
"""

import asyncio
import contextlib
import json
import signal
import sys
from itertools import count

from aioproducer import Producer

TOPIC = "measurements"
EVERY_S = 0.005
MAX_BLOCK_MS = 8_000
CLOSE_TIMEOUT_MS = 20_000
"""Kubernetes kills after 30 s."""


async def main(bootstrap_servers: str) -> None:
    """Measure until SIGTERM or Ctrl-C."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    producer = Producer(
        bootstrap_servers, client_id="worker", max_block_ms=MAX_BLOCK_MS, close_timeout_ms=CLOSE_TIMEOUT_MS
    )
    async with producer:
        print("working", flush=True)
        await work(producer, stopping)
        print("stopping", flush=True)
    print(f"{producer.statistics().records_acknowledged} records delivered")  # all: leaving the block raises otherwise


async def work(producer: Producer, stopping: asyncio.Event) -> None:
    """Send one measurement after another, with the sensor as key, so that each sensor's stay in order."""
    for number in count():
        measurement = {"sensor": number % 7, "value": number}
        await producer.enqueue(TOPIC, json.dumps(measurement).encode(), key=b"sensor-%d" % (number % 7))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVERY_S):
                await stopping.wait()
        if stopping.is_set():
            return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
