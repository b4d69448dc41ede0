"""Three embedded brokers in a process of their own: `python -m aioproducer.cli.demonstration.embedded_program`.

One line on standard output says where they listen; then every line `kill NODE` on standard input is obeyed and
answered with `killed NODE`. The end of standard input ends the program: it cannot outlive the demo, however that ends.
"""

import asyncio
import sys

from aioproducer.cli.running import run_until_signal
from aioproducer.testing import FakeCluster
from aioproducer.testing.fake_broker.wire.messages import load_message_classes

NODES = 3
FAILOVER_DELAY_S = 0.5
"""From a broker's death until its partitions have new leaders: long enough to be seen."""


async def main() -> None:
    """Serve until standard input ends."""
    load_message_classes()  # now, not on the loop at the first transaction
    async with FakeCluster(NODES, min_insync_replicas=2, failover_delay_s=FAILOVER_DELAY_S) as cluster:
        print("ready", cluster.bootstrap_servers, flush=True)
        orders = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(orders), sys.stdin.buffer
        )
        while order := await orders.readline():
            node_id = int(order.split()[1])
            await cluster.kill(node_id)
            print("killed", node_id, flush=True)


if __name__ == "__main__":
    run_until_signal(main)
