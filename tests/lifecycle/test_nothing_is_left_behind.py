"""Hundreds of starts, good and failing, and very many failed sends: nothing is left of any of them."""

import asyncio
import contextlib
import gc
import logging
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest

from aioproducer import BufferFullError, KafkaError, MetadataTimeoutError, Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_loop import in_virtual_time, virtual_loop
from tests.nightly import rounds

OURS = ("aioproducer", "tests.fakes.virtual_loop")
THEIRS = "aioproducer.testing"  # the cluster keeps what it was sent


class Count(NamedTuple):
    tasks: int
    timers: int  # timers of the virtual loop that are set and not cancelled
    threads: int
    files: int  # descriptors, sockets among them
    objects: int  # objects that the collector knows, of classes of the producer and of its transports


def count() -> Count:
    gc.collect()
    return Count(
        tasks=len(asyncio.all_tasks()),
        timers=virtual_loop().timers,
        threads=threading.active_count(),
        files=len(list(Path("/proc/self/fd").iterdir())),
        objects=sum(map(_is_ours, gc.get_objects())),
    )


def _is_ours(thing: object) -> bool:
    module = str(type(thing).__module__)
    return module.startswith(OURS) and not module.startswith(THEIRS)


STARTS = rounds(200, nightly=1_000)
FAILED_SENDS = int(os.environ.get("AIOPRODUCER_FAILED_SENDS", rounds(15_000, nightly=60_000)))
AT_A_TIME = 500
MOST_BLOCKS_MORE = 200  # of the interpreter: caches of this and that
FORBIDDEN = 29

pytestmark = pytest.mark.slow


@in_virtual_time
async def test_hundreds_of_starts_and_closes_leave_nothing() -> None:
    async with FakeCluster(1, topics={"t": 1}) as cluster:
        await start_and_close(cluster, 5)
        before = count()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await start_and_close(cluster, STARTS)
            await asyncio.sleep(1)
            after = count()

    assert after == before


async def start_and_close(cluster: FakeCluster, times: int) -> None:
    for number in range(times):
        producer = await Producer(cluster.bootstrap_servers).start()
        delivery = producer.send("t", b"v")
        if number % 3:
            await delivery
        await producer.close()


@in_virtual_time
async def test_hundreds_of_failing_starts_leave_nothing() -> None:
    async with FakeCluster(1) as cluster:
        cluster.faults.stall(Where(api=ApiKey.METADATA))
        await fail_to_start(cluster, 5)
        before = count()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await fail_to_start(cluster, STARTS)
            await asyncio.sleep(1)
            after = count()

    assert after == before


async def fail_to_start(cluster: FakeCluster, times: int) -> None:
    for number in range(times):
        servers = "127.0.0.1:1" if number % 3 == 0 else cluster.bootstrap_servers
        producer = Producer(servers, max_block_ms=50)
        with pytest.raises((MetadataTimeoutError, TimeoutError)):
            async with asyncio.timeout(0.02 if number % 3 == 1 else None):
                await producer.start()


@in_virtual_time
async def test_failed_sends_leave_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "aioproducer")  # pytest keeps every line
    async with FakeCluster(1, topics={"t": 1}, auto_create_topics=False) as cluster:
        cluster.faults.error(FORBIDDEN, Where(api=ApiKey.PRODUCE), times=None)
        producer = await Producer(
            cluster.bootstrap_servers,
            max_block_ms=100,
            max_waiting_records=50,
            metrics_sample_window_ms=3_600_000,  # readings of one window are kept: here the first alone
        ).start()
        await fail_to_send(producer, 4 * AT_A_TIME)
        clear(cluster)
        before, blocks = count(), sys.getallocatedblocks()
        await fail_to_send(producer, FAILED_SENDS)
        clear(cluster)
        after, more = count(), sys.getallocatedblocks() - blocks
        assert producer.statistics().buffer_available_bytes == producer.config.buffer_memory
        with contextlib.suppress(KafkaError):
            await producer.close(0)

    assert after == before
    assert more <= MOST_BLOCKS_MORE


def clear(cluster: FakeCluster) -> None:
    cluster.requests.clear()
    gc.collect()


async def fail_to_send(producer: Producer, times: int) -> None:
    for _ in range(times // AT_A_TIME):
        deliveries = []
        for number in range(AT_A_TIME):
            topic = "nowhere" if number % 10 == 0 else "t"
            with contextlib.suppress(BufferFullError, TypeError, ValueError):
                value = (b"v", b"v", b"v", 5, bytes(2_000_000) if number % 100 == 4 else b"w")[number % 5]
                deliveries.append(producer.send(topic, value))
        assert len(deliveries) >= 50  # as many as may wait for a topic
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        assert all(isinstance(result, KafkaError) for result in results)
