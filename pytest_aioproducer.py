"""Pytest fixtures for code that sends to Kafka: `kafka_cluster`, `kafka_producer` and `consumed`.

    async def test_order_is_sent(kafka_producer, consumed):
        await place_order(kafka_producer, "o-1")

        assert [record.key for record in consumed("orders")] == [b"o-1"]

- `kafka_cluster`: three brokers in a thread of their own, made by `FakeCluster.in_thread`, for the length of a test.
- `kafka_producer`: a started `Producer` in an async test, a started `BlockingProducer` in a sync test.
- `consumed`: a function that returns the records of a topic as a consumer reads them, see `FakeCluster.consumed`.

Pytest finds them where aioproducer is installed; nothing needs to be registered. They work in sync tests, and in async
tests with pytest-asyncio, in either mode, and with anyio's plugin.

This module stands beside the package because pytest imports it in every run of every project of the environment:
importing the package takes a quarter of a second, and what is imported before pytest-cov starts is not measured.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproducer import BlockingProducer, Producer
    from aioproducer.testing import LoggedRecord, ThreadedFakeCluster

# ruff: noqa: PLC0415 - only tests that ask for a fixture import the package


@pytest.fixture
def kafka_cluster() -> Iterator[ThreadedFakeCluster]:
    """Three Kafka brokers in a thread of this process (`FakeCluster.in_thread`); topics are created on first use."""
    from aioproducer.testing import FakeCluster

    with FakeCluster.in_thread() as cluster:
        yield cluster


@pytest.fixture
def kafka_producer(
    request: pytest.FixtureRequest, kafka_cluster: ThreadedFakeCluster
) -> Iterator[Producer | BlockingProducer]:
    """A producer for `kafka_cluster`: a `Producer` in an async test, else a started `BlockingProducer`.

    In an async test it starts and closes on the event loop that runs the test, before and after the test's own code.
    """
    from aioproducer import BlockingProducer, Producer

    test = request.function
    if not inspect.iscoroutinefunction(test):
        with BlockingProducer(kafka_cluster.bootstrap_servers) as blocking:
            yield blocking
        return
    producer = Producer(kafka_cluster.bootstrap_servers)

    @functools.wraps(test)
    async def test_with_producer(*args: object, **kwargs: object) -> None:
        async with producer:
            await test(*args, **kwargs)

    # An async fixture may run on another loop than the test, and each plugin wants its own kind of them.
    request.node.obj = test_with_producer
    yield producer
    request.node.obj = test


@pytest.fixture
def consumed(kafka_cluster: ThreadedFakeCluster) -> Callable[[str], list[LoggedRecord]]:
    """Return the records that a consumer can read now of a topic of `kafka_cluster`: `consumed("orders")`.

    See `FakeCluster.consumed`. It does not wait: records that were not acknowledged yet may be missing.
    """
    return kafka_cluster.consumed
