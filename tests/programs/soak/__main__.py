"""Hours of load on real brokers, a fault a minute, and a look at what grows.

`python -m tests.programs.soak --minutes 45`.

Measures the highest rate first, and goes on at 70 % of it. Three nodes of Apache Kafka, three replicas, two of which
must have each record. At the end another client counts and reads back, and the verdict is printed.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from aioproducer import Producer, UndeliveredError
from aioproducer.testing.kafka import KafkaCluster
from tests.programs.chaos.administration import Administration
from tests.programs.chaos.arena import now
from tests.programs.soak.faults import FaultInjector
from tests.programs.soak.read_back import PartitionLog
from tests.programs.soak.verdict import Sample, Sampler, grown, growth, wrong

VALUE_BYTES = 100
SLICE_S = 0.01
LONGEST_DEBT_S = 0.5  # limit for catching up: what a stop of the brokers held back beyond it is left out


class Load:
    """Gives records to one topic.

    The value of a record begins with its number in its partition, so that a reader of the partition sees what is
    missing, doubled or out of order.
    """

    def __init__(self, producer: Producer, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self.accepted = [0] * partitions  # records by partition; the next one's number

    async def rush(self, seconds: float) -> float:
        began, before = time.monotonic(), sum(self.accepted)
        while time.monotonic() - began < seconds:
            await self._give(1_000)
        await self._producer.flush()
        return (sum(self.accepted) - before) / (time.monotonic() - began)

    async def stream(self, rate: float, until: float) -> None:
        """Give records at a rate (a second) until a monotonic time."""
        given, began = 0.0, time.monotonic()
        while (now := time.monotonic()) < until:
            due = (now - began) * rate - given
            if due > LONGEST_DEBT_S * rate:
                given += due - LONGEST_DEBT_S * rate
                due = LONGEST_DEBT_S * rate
            count = min(int(due), int(rate * SLICE_S) + 1)
            given += count
            await self._give(count)
            await asyncio.sleep(SLICE_S if due < rate * SLICE_S else 0)

    async def _give(self, count: int) -> None:
        accepted, topic, enqueue = self.accepted, self._topic, self._producer.enqueue
        partitions = len(accepted)
        for number in range(count):
            partition = number % partitions
            value = (b"%d " % accepted[partition]).ljust(VALUE_BYTES, b".")
            await enqueue(topic, value, partition=partition)
            accepted[partition] += 1


ROOT = Path(__file__).parents[3]
TOPIC = "soak"
PARTITIONS = 6
SHARE = 0.7
KEPT_BYTES = 256 * 1024 * 1024  # retention of each partition, on each node: a soak writes more than a disk holds

BROKER = {"log.retention.check.interval.ms": "5000"}
TOPIC_SETTINGS = {
    "retention.bytes": str(KEPT_BYTES),
    "segment.bytes": str(KEPT_BYTES // 4),
    "file.delete.delay.ms": "1000",
    "min.insync.replicas": "2",
}


class Soak:
    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self.asked = asked
        self.samples_file = folder / "samples.jsonl"
        self.samples: list[Sample] = []
        self.faults: list[tuple[float, str]] = []
        self.rate = 0.0
        self.acknowledged = 0
        self.found: list[str] = []
        self._began = time.monotonic()

    async def run(self) -> None:
        async with KafkaCluster(self.asked.kafka, nodes=3, properties=BROKER) as kafka:
            administration = Administration(kafka.bootstrap_servers)
            await administration.create(TOPIC, PARTITIONS, TOPIC_SETTINGS)
            producer = Producer(kafka.bootstrap_servers, request_timeout_ms=5_000)
            async with producer:
                load = Load(producer, TOPIC, PARTITIONS)
                await self._soak(
                    producer, load, FaultInjector(kafka, administration, seed=self.asked.seed, say=self._fault)
                )
                await self._end(producer)
            failed = producer.statistics().records_failed
            self.acknowledged = producer.statistics().records_acknowledged
            self.found += wrong(await read_back(kafka.bootstrap_servers), load.accepted, failed)
        self.found += grown(self.samples)

    async def _soak(self, producer: Producer, load: Load, injector: FaultInjector) -> None:
        await load.rush(self.asked.measure_s / 3)  # warm
        highest = await load.rush(self.asked.measure_s)
        self.rate = highest * SHARE
        print(f"{now()} highest rate {highest:,.0f}/s; soaking at {self.rate:,.0f}/s")
        self._began = time.monotonic()
        sampler = Sampler(producer, self.samples_file)
        sampling = asyncio.create_task(sampler.run(self._show), name="soak-samples")
        seconds = self.asked.minutes * 60
        async with asyncio.TaskGroup() as group:
            group.create_task(load.stream(self.rate, time.monotonic() + seconds), name="soak-load")
            group.create_task(injector.run(asyncio.get_running_loop().time() + seconds), name="soak-faults")
        sampling.cancel()
        self.samples = sampler.samples

    async def _end(self, producer: Producer) -> None:
        try:
            await producer.flush()
        except UndeliveredError as undelivered:
            print(f"{now()} {undelivered}")

    def _fault(self, what: str) -> None:
        self.faults.append((time.monotonic() - self._began, what))
        print(f"{now()} {what}", flush=True)

    def _show(self, sample: Sample) -> None:
        print(f"{now()} {sample}", flush=True)

    def totals(self) -> dict[str, object]:
        return {
            "kafka": self.asked.kafka,
            "minutes": self.asked.minutes,
            "records": self.acknowledged,
            "rate": round(self.rate),
            "rate_reached": round(statistics.median(each.rate for each in self.samples)),
            "faults": len(self.faults),
            "memory_growth_mib": round(growth(self.samples, "rss_mib"), 2),
            "objects_growth": round(growth(self.samples, "objects")),
            "lag_ms_max": max(each.lag_ms for each in self.samples),
            "violations": self.found,
        }


async def read_back(bootstrap: str) -> dict[int, PartitionLog]:
    """Have another client read, in a process of its own."""
    command = (sys.executable, "-m", "tests.programs.soak.read_back", bootstrap, TOPIC)
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1, cwd=ROOT)
    said, complaint = await process.communicate()
    if process.returncode:
        raise RuntimeError(complaint.decode())
    return {int(partition): PartitionLog(**log) for partition, log in json.loads(said).items()}


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--kafka", default="4.4.0")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the faults")
    parser.add_argument("--measure-s", type=float, default=20, help="seconds for finding the highest rate")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the samples there, as JSON lines")
    return parser.parse_args(given)


def main() -> int:
    asked = arguments(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(asked, Path(folder))
        with contextlib.suppress(KeyboardInterrupt):
            uvloop.run(soak.run())
        if asked.keep is not None:
            shutil.copy(soak.samples_file, asked.keep)
    print(json.dumps(soak.totals(), indent=2))
    print("PASSED" if not soak.found else "FAILED")
    return bool(soak.found)


if __name__ == "__main__":
    sys.exit(main())
