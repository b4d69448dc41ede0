"""What a producer uses is imported when it is made: not on the event loop, nor while another thread may fork."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aioproducer.testing import ClusterSecurity, FakeCluster
from aioproducer.testing.fake_cluster import ThreadedFakeCluster

USE = """
import asyncio, json, sys
from aioproducer import BlockingProducer, Producer

options = json.loads(sys.argv[2])

async def use_on_a_loop():
    async with Producer(**options) as producer:
        if "transactional_id" not in options:
            await producer.send_and_wait("t", bytes(2_000))
            return
        async with producer.transaction() as txn:
            await txn.send("t", bytes(2_000))
            await txn.send_offsets({("t", 0): 1}, "readers")

if sys.argv[1] == "asyncio":
    Producer(**options)
    before = set(sys.modules)
    asyncio.run(use_on_a_loop())
else:
    producer = BlockingProducer(**options)
    before = set(sys.modules)
    producer.send("t", bytes(2_000))
    producer.close()
print(sorted(set(sys.modules) - before))
"""


@pytest.fixture(scope="module", name="cluster")
def fixture_cluster() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(1, topics={"t": 1}, security=ClusterSecurity()) as cluster:
        yield cluster


def imported_by_first_use(face: str, options: dict[str, object]) -> str:
    command = [sys.executable, "-c", USE, face, json.dumps(options)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"compression_type": "zstd"}, {"transactional_id": "t"}, {"enable_metrics_push": True}],
    ids=["defaults", "zstd", "transactions", "metrics push"],
)
def test_first_start_imports_nothing(cluster: ThreadedFakeCluster, options: dict[str, object]) -> None:
    options = {"bootstrap_servers": cluster.bootstrap_servers, **options}

    assert imported_by_first_use("asyncio", options) == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "listener, mechanism", [("PLAINTEXT", ""), ("MTLS", ""), ("SASL_SSL", "SCRAM-SHA-256"), ("SASL_SSL", "PLAIN")]
)
def test_first_use_of_a_blocking_producer_imports_nothing(
    cluster: ThreadedFakeCluster, listener: str, mechanism: str
) -> None:
    options = cluster.client_options(listener, mechanism)

    assert imported_by_first_use("blocking", options) == "[]"


def test_start_imports_neither_rich_nor_structlog(cluster: ThreadedFakeCluster) -> None:
    """The application that has configured structlog has imported it."""
    shown = "[*map(sys.modules.get, ['rich', 'structlog'])]"
    program = USE.replace("sorted(set(sys.modules) - before)", shown)
    options = json.dumps({"bootstrap_servers": cluster.bootstrap_servers})
    ended = subprocess.run(
        [sys.executable, "-c", program, "asyncio", options], capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.stdout.strip() == "[None, None]", ended.stderr
