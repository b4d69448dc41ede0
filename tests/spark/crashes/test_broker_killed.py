"""The only broker is killed in the commit of a batch and started again."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.conftest import running_kafka
from tests.spark.crashes.case import ROWS, MakeCase
from tests.spark.crashes.driver import send, stamp
from tests.spark.crashes.faulty_source import Point

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]

DEATHS = [
    ("broker killed before the decision", Point("decision", 1)),
    ("broker killed in the decision", Point("decided.half", 2)),
    ("broker killed in the round", Point("round.half", 3)),
]


@pytest.fixture(params=["4.4.0", "3.9.1"])
def own_kafka(request: pytest.FixtureRequest, kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """One node that the test may kill."""
    yield from running_kafka(request.param, kafka_thread)


def test_broker_killed(make_case: MakeCase, own_kafka: KafkaCluster, kafka_thread: ThreadPoolExecutor) -> None:
    """The commit goes on when the broker is back, or the query dies and its next start goes on."""

    def on_broker(act: Callable[[int], Awaitable[None]]) -> None:
        kafka_thread.submit(lambda: asyncio.run(_await(act(1)))).result()

    case = make_case(own_kafka)
    times = {}
    driver = case.driver(*(point for _, point in DEATHS))
    try:
        for label, point in DEATHS:
            asleep = driver.wait_for_point(point)
            on_broker(own_kafka.kill)
            send(asleep, signal.SIGCONT)
            on_broker(own_kafka.restart)
            begun = stamp(case.folder / "begun")
            committed = driver.try_batch(point.batch)
            if committed is None:
                driver.kill()
                driver = case.driver(*(later for _, later in DEATHS if later.batch > point.batch), cores=3)
                committed = driver.wait_for_batch(point.batch)
            times[label] = committed - begun
        rows = (driver.halt() + 1) * ROWS
    finally:
        driver.kill()
    for label, point in DEATHS:
        case.check(label, times[label], (point.batch + 1) * ROWS)
    case.check_end(rows)


async def _await(answer: Awaitable[None]) -> None:
    await answer
