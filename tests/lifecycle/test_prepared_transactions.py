"""A prepared transaction outlives its producer and process, however they end: only `complete_transaction` ends it."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aioproducer import BlockingProducer, PreparedTransaction
from aioproducer.testing import ApiKey, FakeCluster
from aioproducer.testing.fake_cluster import ThreadedFakeCluster

pytestmark = [pytest.mark.slow, pytest.mark.timing]

PREPARE = """
import asyncio, gc, json, os, sys, warnings
from aioproducer import BlockingProducer, Producer
warnings.simplefilter("ignore", ResourceWarning)  # that producers are not closed
servers = sys.argv[1]

def prepare():
    producer = BlockingProducer(servers, transactional_id="x")
    producer.start()
    producer.begin_transaction()
    producer.enqueue("t", b"v", partition=0)
    print(json.dumps(producer.prepare_transaction()), flush=True)
    return producer

async def prepare_in_loop():
    producer = Producer(servers, transactional_id="x")
    await producer.start()
    await producer.begin_transaction()
    await producer.enqueue("t", b"v", partition=0)
    print(json.dumps(await producer.prepare_transaction()), flush=True)
    return producer
"""
ENDS = {
    "dropped": "prepare(); gc.collect()",
    "exit": "producer = prepare()",
    "fork, child drops it and exits": """
producer = prepare()
if (child := os.fork()) == 0:
    del producer
    gc.collect()
    sys.exit()
os.waitpid(child, 0)
os._exit(0)
""",
    "asyncio, dropped": """
async def main():
    await prepare_in_loop()
    gc.collect()
    await asyncio.sleep(0.05)
asyncio.run(main())
""",
    "asyncio, exit": """
producer = asyncio.run(prepare_in_loop())
""",
}


@pytest.fixture
def cluster() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(1, topics={"t": 1}) as cluster:
        yield cluster


@pytest.mark.parametrize("end", ENDS)
def test_end_of_its_producer_leaves_it_open(cluster: ThreadedFakeCluster, end: str) -> None:
    program = [sys.executable, "-W", "ignore", "-c", PREPARE + ENDS[end], cluster.bootstrap_servers]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    prepared = PreparedTransaction(*json.loads(done.stdout.splitlines()[0]))

    assert not [seen for seen in cluster.requests if seen.api is ApiKey.END_TXN]
    assert (cluster.end_offset("t", 0), cluster.last_stable_offset("t", 0)) == (1, 0)
    with BlockingProducer(cluster.bootstrap_servers) as other:
        other.complete_transaction(prepared)
    assert [record.value for record in cluster.committed_records("t", 0)] == [b"v"]
