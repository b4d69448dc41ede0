"""A cluster whose brokers take pushed metrics: the embedded one, and real Kafka with this project's plug-in.

`python -m tests.contracts.metrics_receiver` writes `tests/protocol/golden/java_pushes.json`: the names, kinds and
attributes that Kafka's own producer of the newest tested release pushes to such a broker.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import uuid
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aioproducer._protocol.compression import CompressionType, decompress
from aioproducer.testing import ApiKey, FakeCluster, MetricsSubscription
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.cache import TESTED_VERSIONS, kafka_jars
from aioproducer.testing.kafka.prerequisites import java_program
from aioproducer.testing.kafka.programs import BrokerStartError, java_command, run_program
from tests.contracts.clients import RawClient
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


GOLDEN = Path(__file__).parents[1] / "protocol" / "golden" / "java_pushes.json"
CLIENT_ID = "java"


async def record() -> None:
    version = TESTED_VERSIONS[0]
    with tempfile.TemporaryDirectory() as folder:
        receiver = await real_receiver(version, Path(folder))
        async with receiver.kafka:
            await receiver.subscribe(["*"], 200)
            tools = await kafka_jars(version, tools=True)
            properties = [f"bootstrap.servers={receiver.bootstrap_servers}", f"client.id={CLIENT_ID}"]
            load = ["--topic", "t", "--num-records", "3000", "--record-size", "100", "--throughput", "1000"]
            program = "org.apache.kafka.tools.ProducerPerformance"
            await run_program(java_command(tools, program, [*load, "--producer-props", *properties]))
            last = max(receiver.folder.glob(f"[0-9]*,{CLIENT_ID},*"))
            GOLDEN.write_text(json.dumps(_described(last.read_bytes()), indent=1, sort_keys=True) + "\n", "utf-8")


def _described(data: bytes) -> dict[str, list[str]]:
    """Return the kind and the attributes of each metric, by name."""
    described: dict[str, list[str]] = {}
    for of_producer in MetricsData.FromString(data).resource_metrics:
        for metric in of_producer.scope_metrics[0].metrics:
            kind = metric.WhichOneof("data")
            (point,) = metric.sum.data_points if kind == "sum" else metric.gauge.data_points
            described[metric.name] = [str(kind), *sorted(pair.key for pair in point.attributes)]
    return described


if __name__ == "__main__":
    asyncio.run(record())
