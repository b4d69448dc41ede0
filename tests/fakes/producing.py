"""A fake cluster and one producer on it, opened and closed together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

from aioproducer import Producer, ProducerOptions
from aioproducer.testing import FakeCluster


@asynccontextmanager
async def producing(
    cluster: FakeCluster, **options: Unpack[ProducerOptions]
) -> AsyncIterator[tuple[FakeCluster, Producer]]:
    async with cluster, Producer(cluster.bootstrap_servers, **options) as producer:
        yield cluster, producer
