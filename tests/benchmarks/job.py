"""Job and outcome of a worker process, which travel as JSON, and how a worker measures time."""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Self

WARMUP_TRANSACTIONS = 3
KEY = "customer-1234"
TEXT_HEADERS = (("trace", "0af7651916cd43dd8448eb211c80319c"), ("source", "bench"))
"""Of text records; the client encodes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of one client in a fresh process."""

    work: str
    """Module in `clients` and function in it: "ours.enqueue"."""

    bootstrap_servers: str = ""
    topic: str = ""
    topics: int = 1
    """Number of topics to which records go in turn; see `topic_names`."""

    partitions: int = 4
    """Of each topic."""

    records: int = 0
    """Number of measured records."""

    warmup_records: int = 0
    """Sent and flushed before the clock starts, so that connection, metadata and producer id exist."""

    value_bytes: int = 100
    linger_ms: int = 5
    batch_size: int | None = None
    """In bytes; None for the client's own default."""

    per_transaction: int = 0
    """Records in each transaction, sent to each partition in turn."""

    tasks: int = 1
    """Number of asyncio tasks, or of tasks of Spark, that share the work."""

    buffer_memory: int = 0
    """In bytes, for scenarios that fill it."""

    folder: str = ""
    """Of the files to read, for Spark."""

    secured_servers: str = ""
    """Addresses of the TLS listener that the client uses; empty for plaintext."""

    ca_file: str = ""
    """CA of that listener; empty for plaintext."""

    java_jars: str = ""
    """Folder of the Java producer's class path."""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))

    @property
    def topic_names(self) -> list[str]:
        """The topics of the job: `topic`, or as many as it wants, with its name and a number."""
        return [self.topic] if self.topics == 1 else [f"{self.topic}-{number}" for number in range(self.topics)]

    @property
    def transactions(self) -> int:
        return self.records // self.per_transaction

    def end_offsets(self, transactions: int) -> int:
        """Return what transactions add to the end offsets: their records, and one marker in each partition."""
        return transactions * (self.per_transaction + min(self.per_transaction, self.partitions))

    @property
    def value(self) -> bytes:
        return b"v" * self.value_bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a worker."""

    acknowledged: int
    """Acknowledged records including the warm-up, which must equal the sum of the end offsets."""

    figures: dict[str, float]
    """Figures by their names in `report.FIGURES`."""

    configuration: dict[str, str] = field(default_factory=dict)
    """The client's configuration without addresses."""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


class Stopwatch:
    """Wall time, and CPU time of all threads of this process, since it was created."""

    def __init__(self) -> None:
        self._wall_start_s = perf_counter()
        self._cpu_start_s = process_time()

    def figures(self, records: int) -> dict[str, float]:
        """Return rate and cost of the records handled until now."""
        seconds = perf_counter() - self._wall_start_s
        cpu_s = process_time() - self._cpu_start_s
        return {"records_per_s": records / seconds, "cpu_us_per_record": cpu_s / records * 1e6}


def numbered_topics(number: int) -> list[str]:
    """Return the names of topics that a broker has beside the one of the job."""
    return [f"numbered-{index}" for index in range(number)]


def as_text(configuration: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in configuration.items()}


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` % of the values do not exceed (nearest rank)."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def figures_of_each(latencies_s: Sequence[float], stopwatch: Stopwatch) -> dict[str, float]:
    """Return what a record cost, and the quantiles of records that were awaited one after another."""
    cpu = stopwatch.figures(len(latencies_s))["cpu_us_per_record"]
    return {"cpu_us_per_record": cpu, **latency_figures(latencies_s)}


def latency_figures(latencies_s: Sequence[float]) -> dict[str, float]:
    """Return median and 99th percentile in microseconds."""
    return {"p50_us": percentile(latencies_s, 50) * 1e6, "p99_us": percentile(latencies_s, 99) * 1e6}
