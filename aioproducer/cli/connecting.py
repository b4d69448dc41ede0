"""Connects a command to a cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._producer.connection_security import cluster_access
from aioproducer.cli.waiting import explained_wait
from aioproducer.config import ProducerConfig

CONNECT_TIMEOUT_S: Final = 10.0  # how long commands wait for a broker by default


@asynccontextmanager
async def connected(config: ProducerConfig, timeout_s: float, *, client_id: str) -> AsyncIterator[ClusterRequests]:
    """Run with connections to a cluster whose nodes are known.

    Standard error gets one line if the first answer takes long.
    """
    access = cluster_access(config)
    async with ClusterRequests(config.bootstrap, timeout_s, client_id=client_id, access=access) as requests:
        servers = ",".join(config.bootstrap_servers)
        async with explained_wait(f"an answer from {servers}", timeout_s, lambda: requests.last_error):
            await requests.refresh()
        yield requests
