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
import os
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

    In an async test it starts and closes on the event loop that runs the test, before and after the test's own code;
    with `@given` of Hypothesis for each example, of which each may have a loop of its own.

    Raises:
        RuntimeError: an async test that runs already asks for it by `getfixturevalue`.
    """
    from aioproducer import BlockingProducer, Producer

    test = request.function
    _check_test_can_start_it()
    of_hypothesis = getattr(test, "hypothesis", None)
    body = test if of_hypothesis is None else of_hypothesis.inner_test
    if not inspect.iscoroutinefunction(body):
        with BlockingProducer(kafka_cluster.bootstrap_servers) as blocking:
            yield blocking
        return
    producer = Producer(kafka_cluster.bootstrap_servers)

    @functools.wraps(body)
    async def test_with_producer(*args: object, **kwargs: object) -> None:
        if producer.explain().state == "closed":
            # by the example before: other fixtures hold this object, so it is made again in its place
            Producer.__init__(producer, kafka_cluster.bootstrap_servers)
        async with producer:
            await body(*args, **kwargs)

    # An async fixture may run on another loop than the test, and each plugin wants its own kind of them.
    if of_hypothesis is None:
        request.node.obj = test_with_producer
        yield producer
        request.node.obj = test
    else:
        of_hypothesis.inner_test = test_with_producer
        yield producer
        of_hypothesis.inner_test = body


def _check_test_can_start_it() -> None:
    """Refuse a request from within a running async test, where nothing is left that could start and close it.

    Raises:
        RuntimeError: says what to do instead.
    """
    import asyncio

    is_in_test = os.environ.get("PYTEST_CURRENT_TEST", "").endswith(" (call)")
    loop = asyncio._get_running_loop()  # noqa: SLF001 - None where no loop runs, instead of an exception
    if is_in_test and loop is not None:
        raise RuntimeError(
            "kafka_producer must be an argument of the async test, or of a fixture that it uses: getfixturevalue "
            "within the test comes too late to start it. Or make one there: "
            "`async with Producer(kafka_cluster.bootstrap_servers) as producer:`"
        )


@pytest.fixture
def consumed(kafka_cluster: ThreadedFakeCluster) -> Callable[[str], list[LoggedRecord]]:
    """Return the records that a consumer can read now of a topic of `kafka_cluster`: `consumed("orders")`.

    See `FakeCluster.consumed`. It does not wait: records that were not acknowledged yet may be missing.
    """
    return kafka_cluster.consumed
