"""One step of the loop is bounded in what it does, also with batches of a megabyte.

Work is counted, not timed: function calls of the package in one callback of the loop, and bytes compressed there.
"""

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import Self

import pytest

from aioproducer import KafkaError, Producer, UndeliveredError
from aioproducer._protocol.compression import compress
from aioproducer._sender.compressor import IN_LOOP_BYTES
from aioproducer.testing import ApiKey, FakeCluster, Faults, Where
from tests.fakes.scripted_broker import Heard, ScriptedBroker, metadata_body
from tests.fakes.virtual_loop import ClusterLoop, in_virtual_time

pytestmark = pytest.mark.slow

PRODUCE = Where(api=ApiKey.PRODUCE)
RECORDS = 18_000  # records of 40 bytes that fill most of a batch of a megabyte
MOST_CALLS = 30_000  # some thirty million instructions: what a slow machine does in ten milliseconds

_STEP = "_run"  # asyncio's handles run every callback, and every step of a task


class StepMeter:
    """Counts what the package does in each step of the loop, while it is entered."""

    def __init__(self) -> None:
        self.most_calls = 0
        self.most_compressed = 0
        self._calls = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_name == _STEP and code.co_filename.endswith("asyncio/events.py"):
            self._calls = 0
        elif event in {"call", "c_call"} and "/aioproducer/" in code.co_filename:
            self._calls += "/aioproducer/testing/" not in code.co_filename
            self.most_calls = max(self.most_calls, self._calls)
            if code is compress.__code__ and event == "call":
                self.most_compressed = max(self.most_compressed, *map(_size, frame.f_locals.values()))


def _size(value: object) -> int:
    return len(value) if isinstance(value, bytes | memoryview) else 0


ANSWERS: dict[str, Callable[[Faults], object]] = {
    "taken": lambda _: None,
    "batch refused": lambda faults: faults.error(17, PRODUCE),
    "too large": lambda faults: faults.error(10, PRODUCE, times=3),
    "all refused": lambda faults: faults.record_errors(dict.fromkeys(range(RECORDS), "no key"), PRODUCE),
    "half refused": lambda faults: faults.record_errors(dict.fromkeys(range(0, RECORDS, 2), "no key"), PRODUCE),
}


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_no_step_does_much(answer: str, codec: str) -> None:
    async with FakeCluster(1, auto_create_topics=False) as cluster:
        cluster.create_topic("orders", 1)
        producer = Producer(
            cluster.bootstrap_servers,
            batch_size=1024 * 1024,
            max_request_size=4 * 1024 * 1024,
            linger_ms=60_000,
            compression_type=codec,  # type: ignore[arg-type]  # one of two words
        )
        await producer.start()
        await producer.partitions_for("orders")
        ANSWERS[answer](cluster.faults)
        meter = StepMeter()
        with meter:
            deliveries = [producer.send("orders", b"%040d" % number) for number in range(RECORDS)]
            try:
                await producer.flush()
            except* KafkaError:
                assert any(delivery.exception() is not None for delivery in deliveries)

        await producer.close()
        assert meter.most_compressed <= IN_LOOP_BYTES
        assert 0 < meter.most_calls <= MOST_CALLS
        assert all(delivery.done() for delivery in deliveries)


class LargeCluster:
    """A broker that names a thousand others, and a topic of a hundred thousand partitions that they lead."""

    def __init__(self) -> None:
        nodes = [(number, f"host{number}" if number else "seed", 9092) for number in range(1000)]
        self._leaders = [number % 1000 for number in range(100_000)]
        self._bodies = (metadata_body(nodes), *(metadata_body(nodes, self._topics(epoch)) for epoch in range(3)))
        self._answers = 0

    def _topics(self, epoch: int) -> list[tuple[int, str, bytes, list[tuple[int, int]]]]:
        return [(0, "large", bytes(range(16)), [((leader + epoch) % 1000, epoch) for leader in self._leaders])]

    def __call__(self, broker: ScriptedBroker, heard: Heard) -> None:
        if heard.api_key == ApiKey.METADATA:
            broker.answer(heard, self._bodies[min(self._answers, len(self._bodies) - 1)])
            self._answers += 1


@in_virtual_time
async def test_no_step_does_much_for_a_large_cluster() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClusterLoop)
    cluster = LargeCluster()
    loop.servers["seed", 9092] = lambda: ScriptedBroker(cluster)
    meter = StepMeter()
    with meter:
        producer = await Producer("seed:9092", enable_idempotence=False, metadata_max_age_ms=1000).start()
        await producer.partitions_for("large")
        deliveries = [producer.send("large", b"x", key=b"%d" % number) for number in range(100)]
        await asyncio.sleep(5)
        with pytest.raises(UndeliveredError):
            await producer.close(0)

    assert all(delivery.done() for delivery in deliveries)
    assert 0 < meter.most_calls <= MOST_CALLS
