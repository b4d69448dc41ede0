"""Sends a record with the installed wheel, and reads it back."""

import asyncio
from importlib.util import find_spec

from aioproducer import Producer
from aioproducer.testing import FakeCluster


async def main() -> None:
    """Send one compressed record to an embedded broker, over TCP."""
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, compression_type="zstd") as producer,
    ):
        metadata = await producer.send("orders", b"paid", key=b"customer-7")
        values = [record.value for record in cluster.records("orders", metadata.partition)]
    assert values == [b"paid"], values
    assert find_spec("pyspark_aioproducer"), "Spark finds the format by this module"
    print("the wheel sends")


asyncio.run(main())
