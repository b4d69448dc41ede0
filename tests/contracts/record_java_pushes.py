"""Writes what Kafka's own producer pushes: `python -m tests.contracts.record_java_pushes`.

The names, kinds and attributes of `tests/protocol/golden/java_pushes.json` are those of the Java producer of the newest
tested release, which a broker with our plug-in has received.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aioproducer.testing.kafka.java_process import java_command, run_program
from aioproducer.testing.kafka.kafka_jars import TESTED_VERSIONS, kafka_jars
from tests.contracts.metrics_receiver import real_receiver

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
