"""A relay in a process of its own, which may kill itself before or after one of its requests.

usage: python -m tests.programs.outbox.relay URL BOOTSTRAP LEASE_S SHARDS [STEP]
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from itertools import count

from sqlalchemy.ext.asyncio import create_async_engine

from aioproducer._producer.transaction import Transaction
from aioproducer.outbox import Outbox
from aioproducer.outbox._kafka import ProducerLog
from aioproducer.outbox._leases import Leases
from aioproducer.outbox._store import SqlStore

STEPS: "count[int]" = count()


def dies_at(step: int, owner: type, name: str) -> None:
    """Have a method count itself twice, before and after, and kill the process where the count is the step."""
    method: Callable[..., Awaitable[object]] = getattr(owner, name)

    async def counted(self: object, *args: object) -> object:
        if next(STEPS) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await method(self, *args)
        if next(STEPS) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)


async def main(url: str, bootstrap: str, *, lease_s: float, shards: int) -> None:
    engine = create_async_engine(url)
    outbox = Outbox()
    relay = outbox.relay(
        engine, bootstrap, lease_s=lease_s, shards=shards, batch_rows=200, transaction_timeout_ms=5_000
    )
    async with relay:
        while True:
            await asyncio.sleep(1)
            print(relay.explain(), flush=True)


if __name__ == "__main__":
    url, bootstrap, lease_s, shards, *rest = sys.argv[1:]
    requests = {
        Leases: ("take_over", "resize"),
        SqlStore: ("settle", "claim", "read"),
        ProducerLog: ("open", "position", "commit"),
        Transaction: ("send_offsets",),
    }
    for owner, names in requests.items():
        for name in names:
            dies_at(int(rest[0]) if rest else -1, owner, name)
    asyncio.run(main(url, bootstrap, lease_s=float(lease_s), shards=int(shards)))
