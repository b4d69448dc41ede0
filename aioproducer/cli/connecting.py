"""Connects a command to a cluster, and says what it waits for if that takes long."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer.cli.waiting import explained_wait

CLIENT_ID = "aioproducer-txn"


@asynccontextmanager
async def connected(
    bootstrap: Sequence[tuple[str, int]], timeout_s: float, *, client_id: str = CLIENT_ID
) -> AsyncIterator[ClusterRequests]:
    """Run with connections to a cluster whose nodes are known.

    Standard error gets one line if the first answer takes long.
    """
    async with ClusterRequests(bootstrap, timeout_s, client_id=client_id) as requests:
        servers = ",".join(f"{host}:{port}" for host, port in bootstrap)
        async with explained_wait(f"an answer from {servers}", timeout_s, lambda: requests.last_error):
            await requests.refresh()
        yield requests
