"""A cluster whose brokers take pushed metrics: the embedded one, and real Kafka with this project's plug-in."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from aioproducer._protocol.compression import CompressionType, decompress
from aioproducer.testing import ApiKey, FakeCluster, MetricsSubscription
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.errors import BrokerStartError
from aioproducer.testing.kafka.java_process import run_program
from aioproducer.testing.kafka.kafka_jars import kafka_jars
from aioproducer.testing.kafka.prerequisites import java_program
from tests.contracts.raw_client import RawClient
from tests.fakes.otlp import Push, decoded

SOURCE = Path(__file__).parent / "receiver" / "MetricsReceiver.java"
CLIENT_METRICS, SET = 16, 0


class MetricsReceiver(Protocol):
    """What a test does to such a cluster."""

    @property
    def bootstrap_servers(self) -> str: ...

    async def subscribe(self, prefixes: Sequence[str], interval_ms: int) -> None:
        """Replace what all clients are asked for."""

    def pushes(self, client_id: str) -> list[Push]:
        """The pushes of one client, oldest first."""


class FakeReceiver:
    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    async def subscribe(self, prefixes: Sequence[str], interval_ms: int) -> None:
        wanted = MetricsSubscription(prefixes=tuple(prefixes), interval_s=interval_ms / 1000)
        self._cluster.model.client_metrics.subscription = wanted

    def pushes(self, client_id: str) -> list[Push]:
        return [
            decoded(decompress(CompressionType(each.compression_type), each.data), is_last=each.is_last)
            for each in self._cluster.model.client_metrics.pushes
            if each.client_id == client_id
        ]


class RealReceiver(NamedTuple):
    kafka: KafkaCluster
    folder: Path

    @property
    def bootstrap_servers(self) -> str:
        return self.kafka.bootstrap_servers

    async def subscribe(self, prefixes: Sequence[str], interval_ms: int) -> None:
        message = import_module("kio.schema.incremental_alter_configs.v1.request")
        configs = {"metrics": ",".join(prefixes), "interval.ms": str(interval_ms)}
        asked = tuple(
            message.AlterableConfig(name=name, config_operation=SET, value=value) for name, value in configs.items()
        )
        resource = message.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="everything", configs=asked)
        client = await RawClient.connect(self.bootstrap_servers)
        answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False)
        await client.close()
        assert int(answer.responses[0].error_code) == 0, answer
        await asyncio.sleep(0.3)  # a broker sees a change a moment later

    def pushes(self, client_id: str) -> list[Push]:
        files = sorted(self.folder.glob(f"[0-9]*,{client_id},*"))
        return [decoded(file.read_bytes(), is_last=file.name.endswith(",true")) for file in files]


async def real_receiver(version: str, folder: Path) -> RealReceiver:
    """Return a real cluster with our plug-in; it is not started.

    Args:
        version: of Kafka.
        folder: of the plug-in and what it receives.
    """
    await _compile(await kafka_jars(version), folder)
    properties = {"metric.reporters": "MetricsReceiver", "receiver.folder": str(folder)}
    return RealReceiver(KafkaCluster(version, properties=properties, plugins=folder), folder)


async def _compile(jars: Path, classes: Path) -> None:
    class_path = os.pathsep.join(str(jars / name) for name in os.listdir(jars))  # noqa: PTH208  # a compiler takes no *
    compiler = [str(java_program()), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none"]
    try:
        await run_program([*compiler, "-cp", class_path, "-d", str(classes), str(SOURCE)])
    except BrokerStartError as error:
        if "jdk.compiler not found" in str(error):
            pytest.skip("this Java has no compiler")
        raise


def new_client_id() -> str:
    return f"client-{uuid.uuid4().hex[:8]}"
