"""Real Apache Kafka starts, dies, freezes and comes back as told, and leaves no folder."""

import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from aioproducer.testing.kafka import BrokerStartError, KafkaCluster
from aioproducer.testing.kafka.broker_requests import ask_for_cluster
from aioproducer.testing.kafka.real_kafka import PREFIX, WorkingFolder


def port_of(kafka: KafkaCluster, node_id: int) -> int:
    return kafka.node(node_id).ports.broker_port


@pytest.mark.parametrize("nodes, ports", [(0, None), (2, [9092]), (2, [9092, 9092])])
def test_cluster_without_a_port_for_each_node_is_refused(nodes: int, ports: list[int] | None) -> None:
    """The constructor refuses it, not the start."""
    with pytest.raises(ValueError, match="node"):
        KafkaCluster(nodes=nodes, ports=ports)


def test_every_node_needs_an_advertised_port_of_its_own() -> None:
    """Two nodes cannot share a proxy."""
    with pytest.raises(ValueError, match="2 nodes need 2 different advertised ports"):
        KafkaCluster(nodes=2, advertised_ports=[20_001, 20_001])


async def test_busy_port_is_named_before_anything_starts() -> None:
    """The listener may belong to any program."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        with pytest.raises(BrokerStartError, match=f"port {port} on 127.0.0.1 is in use"):
            await KafkaCluster(ports=[port]).start()


@pytest.mark.kafka
@pytest.mark.parametrize("version", ["3.9.1", "4.4.0"])
async def test_single_node_is_ready_once_started(version: str, request: pytest.FixtureRequest) -> None:
    kafka: KafkaCluster = request.getfixturevalue(f"kafka_{version.replace('.', '')}")

    view = await ask_for_cluster("127.0.0.1", port_of(kafka, 1))

    assert view is not None
    assert (view.brokers, view.controller_id) == (1, 1)
    assert version in kafka.node(1).log_tail(10_000)


@pytest.mark.kafka
@pytest.mark.slow
async def test_killed_node_comes_back_on_its_port(three_kafka_nodes: KafkaCluster) -> None:
    await three_kafka_nodes.kill(2)
    assert not three_kafka_nodes.node(2).is_running
    assert await ask_for_cluster("127.0.0.1", port_of(three_kafka_nodes, 1)) is not None
    assert await ask_for_cluster("127.0.0.1", port_of(three_kafka_nodes, 2)) is None

    await three_kafka_nodes.restart(2)

    view = await ask_for_cluster("127.0.0.1", port_of(three_kafka_nodes, 2))
    assert view is not None
    assert view.brokers == 3


@pytest.mark.kafka
@pytest.mark.slow
async def test_node_that_cannot_start_says_why() -> None:
    kafka = KafkaCluster(properties={"num.io.threads": "none"})

    with pytest.raises(BrokerStartError, match=r"ended while starting[\s\S]*num\.io\.threads"):
        await kafka.start()

    assert kafka.node_ids == ()


@pytest.mark.kafka
@pytest.mark.slow
async def test_stopped_cluster_leaves_nothing() -> None:
    async with KafkaCluster(nodes=1) as kafka:
        node = kafka.node(1)
        kafka.pause(1)
        assert await_is_paused(kafka)
        kafka.resume(1)
        await kafka.kill(1, signal.SIGTERM)
        await kafka.restart(1)
        kafka.pause(1)

    assert not node.is_running
    assert not node.folder.exists()


def await_is_paused(kafka: KafkaCluster) -> bool:
    return "paused" in repr(kafka)


OWNER_THAT_DIES = """
import os
from aioproducer.testing.kafka.real_kafka import WorkingFolder
print(WorkingFolder().path, flush=True)
os._exit(1)
"""


@pytest.fixture
def temporary_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create folders below a temporary root, here and in child processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("temporary_root")
def test_removed_folder_is_gone() -> None:
    folder = WorkingFolder()
    (folder.path / "file").write_text("x", "utf-8")

    folder.remove()
    folder.remove()

    assert not folder.path.exists()


@pytest.mark.usefixtures("temporary_root")
def test_folder_of_a_dead_process_is_removed_by_the_next() -> None:
    mine = WorkingFolder()
    child = subprocess.run([sys.executable, "-c", OWNER_THAT_DIES], capture_output=True, text=True, check=False)
    orphan = Path(child.stdout.strip())
    assert orphan.name.startswith(PREFIX)
    assert orphan.exists()

    next_one = WorkingFolder()

    assert not orphan.exists()
    assert mine.path.exists()
    mine.remove()
    next_one.remove()
