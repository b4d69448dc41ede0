"""The only broker is killed in the commit of a batch and started again."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.conftest import running_kafka
from tests.spark.crashes.case import Case
from tests.spark.crashes.driver import send, wait_until
from tests.spark.crashes.faulty_source import Point

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(400)]

DEATHS = [
    ("broker killed before the decision", Point("decision", 1)),
    ("broker killed in the decision", Point("decided.half", 2)),
    ("broker killed in the round", Point("round.half", 3)),
]


@pytest.fixture(params=["4.3.1", "3.9.1"])
def own_kafka(request: pytest.FixtureRequest, kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """One node that the test may kill."""
    yield from running_kafka(request.param, kafka_thread)


def test_broker_killed(
    make_case: Callable[..., Case], own_kafka: KafkaCluster, kafka_thread: ThreadPoolExecutor
) -> None:
    """The commit goes on when the broker is back, or the query dies and its next start goes on."""

    def on_broker(act: Callable[[], object]) -> None:
        kafka_thread.submit(lambda: asyncio.run(act())).result()  # type: ignore[arg-type]

    case = make_case(own_kafka)
    driver = case.driver(*(point for _, point in DEATHS))
    try:
        for label, point in DEATHS:
            asleep = driver.wait_for_point(point)
            on_broker(lambda: own_kafka.kill(1))
            send(asleep, signal.SIGCONT)
            on_broker(lambda: own_kafka.restart(1))
            begun = asyncio.run(_now())
            committed = Path(case.checkpoint, "commits", str(point.batch))
            wait_until(lambda: committed.exists() or not driver.is_running, lambda: driver.log[-3000:])
            if not committed.exists():
                driver.kill()
                later = [each for _, each in DEATHS if each.batch > point.batch]
                driver = case.driver(*later, cores=3)
                driver.wait_for_batch(point.batch)
            case.check(label, committed.stat().st_mtime - begun, point.batch * 0)
        case.finish("broker killed", driver, 0.0)
    finally:
        driver.kill()
