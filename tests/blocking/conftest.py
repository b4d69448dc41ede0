"""Fixtures of the tests of the producer for threads."""

import contextlib
from collections.abc import Iterator

import pytest

from aioproducer import BlockingProducer, UndeliveredError
from tests.fakes.producing import ClusterElsewhere, cluster_elsewhere


@pytest.fixture(scope="module")
def shared() -> Iterator[ClusterElsewhere]:
    with cluster_elsewhere() as elsewhere:
        yield elsewhere


@pytest.fixture
def cluster() -> Iterator[ClusterElsewhere]:
    with cluster_elsewhere() as elsewhere:
        yield elsewhere


@pytest.fixture
def blocking(cluster: ClusterElsewhere) -> Iterator[BlockingProducer]:
    producer = BlockingProducer(cluster.bootstrap_servers).start()
    yield producer
    with contextlib.suppress(UndeliveredError):
        producer.close(0)


@pytest.fixture
def unused(cluster: ClusterElsewhere) -> Iterator[BlockingProducer]:
    """Nothing but made."""
    producer = BlockingProducer(cluster.bootstrap_servers)
    yield producer
    producer.close()
