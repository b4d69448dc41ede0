"""Records whose serializers are awaited: flush, close, and the ends of a transaction and of a process wait for them."""

import asyncio
import subprocess
import sys

import pytest

from aioproducer import BlockingProducer
from tests.fakes.producing import ClusterElsewhere


async def serialize_slowly(value: bytes) -> bytes:
    await asyncio.sleep(0.05)
    return b"!" + value


@pytest.mark.parametrize("end", ["flush", "close"])
def test_blocking_producer_waits_for_what_is_being_serialized(cluster: ClusterElsewhere, end: str) -> None:
    producer = BlockingProducer(cluster.bootstrap_servers, value_serializer=serialize_slowly)
    producer.start()
    sent = [producer.send_threadsafe("orders", b"v") for _ in range(3)]
    getattr(producer, end)()
    assert [future.exception(0.5) for future in sent] == [None] * 3
    producer.close()


def test_blocking_transaction_commits_what_is_being_serialized(cluster: ClusterElsewhere) -> None:
    with BlockingProducer(
        cluster.bootstrap_servers, value_serializer=serialize_slowly, transactional_id="t"
    ) as producer:
        with producer.transaction():
            sent = producer.send_threadsafe("orders", b"v")
        assert sent.exception(0.5) is None
        assert producer.statistics().records_acknowledged == 1


@pytest.mark.timing
@pytest.mark.parametrize("call", ["send_threadsafe", "enqueue"])
@pytest.mark.parametrize("value", ["soon", "late"])
def test_program_that_ends_delivers_what_is_being_serialized(cluster: ClusterElsewhere, call: str, value: str) -> None:
    program = f"""
import asyncio
from aioproducer import BlockingProducer

async def serialize(value):
    await asyncio.sleep(60 if value == b"late" else 0.1)
    return value

producer = BlockingProducer({cluster.bootstrap_servers!r}, value_serializer=serialize, exit_flush_timeout_ms=2000)
producer.start()
producer.{call}("orders", b{value!r})
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0
    assert ("1 record" in ended.stderr, "not delivered" in ended.stderr) == (value == "late", value == "late")
