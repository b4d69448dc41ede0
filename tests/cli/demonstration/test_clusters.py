"""The embedded brokers' process: starts, lets a broker die, and leaves nothing."""

import subprocess
import sys
from collections.abc import AsyncIterator

import psutil
import pytest

from aioproducer.cli.demonstration import embedded_program
from aioproducer.cli.demonstration.clusters import EmbeddedClusterError, EmbeddedClusterProcess
from aioproducer.testing.kafka.readiness import ask_for_cluster
from aioproducer.testing.kafka.server_properties import is_free

pytestmark = pytest.mark.slow


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedClusterProcess]:
    """Three brokers in a child process."""
    cluster = EmbeddedClusterProcess()
    await cluster.start()
    yield cluster
    await cluster.stop()


def ports_of(cluster: EmbeddedClusterProcess) -> list[int]:
    """Where its brokers listen."""
    return [int(server.rpartition(":")[2]) for server in cluster.bootstrap_servers.split(",")]


def test_what_takes_long_to_import_is_there_before_it_is_ready() -> None:
    """Later it would be imported on the event loop that every client waits for."""
    program = [sys.executable, "-X", "importtime", "-m", embedded_program.__name__]

    ended = subprocess.run(program, input="", capture_output=True, text=True, check=True)

    assert ended.stdout.startswith("ready ")
    assert "kio.schema.find_coordinator" in ended.stderr


async def test_killed_broker_is_gone_and_the_others_live(embedded: EmbeddedClusterProcess) -> None:
    """Its port is closed when `kill` returns, and the cluster has two brokers left."""
    await embedded.kill(2)

    first, second, third = ports_of(embedded)
    view = await ask_for_cluster("127.0.0.1", third)
    assert [is_free(port) for port in (first, second, third)] == [False, True, False]
    assert view is not None
    assert view.brokers == 2


async def test_stop_leaves_no_process_and_no_port(embedded: EmbeddedClusterProcess) -> None:
    """And may be called again."""
    ports = ports_of(embedded)

    await embedded.stop()
    await embedded.stop()

    assert embedded_programs() == []
    assert all(is_free(port) for port in ports)


def embedded_programs() -> list[psutil.Process]:
    """Children of this process that are embedded clusters; the session's real Kafka may be among the others."""
    return [child for child in psutil.Process().children() if "embedded_program" in " ".join(child.cmdline())]


async def test_process_that_ended_is_an_error(embedded: EmbeddedClusterProcess) -> None:
    """Not a wait without end."""
    (child,) = embedded_programs()
    child.kill()

    with pytest.raises(EmbeddedClusterError, match="ended unexpectedly"):
        await embedded.kill(1)


async def test_not_started_is_an_error() -> None:
    """It says so."""
    with pytest.raises(EmbeddedClusterError, match="not started"):
        await EmbeddedClusterProcess().kill(1)


def test_brokers_end_with_the_process_that_started_them() -> None:
    """Even if that is killed without a chance to clean up."""
    program = (
        "import asyncio\nfrom aioproducer.cli.demonstration.clusters import EmbeddedClusterProcess\n"
        "async def main():\n cluster = EmbeddedClusterProcess()\n await cluster.start()\n"
        " print(cluster.bootstrap_servers, flush=True)\n await asyncio.sleep(60)\nasyncio.run(main())"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        ready = parent.stdout.readline()
        (child,) = psutil.Process(parent.pid).children()

        parent.kill()
        ended, _ = psutil.wait_procs([child], 5)

    assert ended == [child]
    assert all(is_free(int(server.rpartition(":")[2])) for server in ready.split(","))
