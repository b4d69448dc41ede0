"""Real brokers that tell their clients to connect through a link of the test."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.server_properties import free_ports
from tests.kafka_releases import PROPERTIES, RELEASES, releases_of_each_run, version_of_release


class Proxied(NamedTuple):
    """Start a node that advertises another port than its own."""

    kafka: KafkaCluster
    port: int
    release: str


@pytest.fixture(scope="session", params=releases_of_each_run("3.9.1", "4.4.0"))
def proxied_kafka(request: pytest.FixtureRequest, kafka_thread: ThreadPoolExecutor) -> Iterator[Proxied]:
    (port,) = free_ports(1)
    kafka = KafkaCluster(
        version_of_release(request.param),
        advertised_ports=[port],
        properties=PROPERTIES,
        features=RELEASES[request.param],
    )
    kafka_thread.submit(lambda: asyncio.run(kafka.start())).result()
    yield Proxied(kafka, port, request.param)
    kafka_thread.submit(lambda: asyncio.run(kafka.stop())).result()
