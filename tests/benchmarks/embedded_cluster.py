"""A program that serves the embedded cluster: it prints the address, and ends when its standard input is closed."""

import asyncio
import sys

import uvloop

from aioproducer.testing import FakeCluster
from tests.benchmarks.job import numbered_topics


async def serve(topics: int) -> None:
    async with FakeCluster(1, topics=dict.fromkeys(numbered_topics(topics), 1)) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
