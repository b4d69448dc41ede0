"""Connects a command to a cluster, and says what it waits for if that takes long."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._producer.cluster_access import cluster_access
from aioproducer.cli.waiting import explained_wait
from aioproducer.config import ProducerConfig

CLIENT_ID = "aioproducer-txn"


@asynccontextmanager
async def connected(
    config: ProducerConfig, timeout_s: float, *, client_id: str = CLIENT_ID
) -> AsyncIterator[ClusterRequests]:
    """Run with connections to a cluster whose nodes are known.

    Standard error gets one line if the first answer takes long.
    """
    access = cluster_access(config)
    async with ClusterRequests(config.bootstrap, timeout_s, client_id=client_id, access=access) as requests:
        servers = ",".join(config.bootstrap_servers)
        async with explained_wait(f"an answer from {servers}", timeout_s, lambda: requests.last_error):
            await requests.refresh()
        yield requests
