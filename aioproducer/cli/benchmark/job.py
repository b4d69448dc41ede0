"""What a worker process is told and what it answers, as JSON between the two processes."""

import dataclasses
import json
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Self

KEY = "customer-1234"
TEXT_HEADERS = (("trace", "0af7651916cd43dd8448eb211c80319c"), ("source", "bench"))
"""Of records that are text; the client encodes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of one client in a fresh process."""

    work: str
    """Module under `clients` and function in it: "ours.enqueue"."""

    bootstrap_servers: str = ""
    topic: str = ""
    partitions: int = 4
    records: int = 0
    """How many are measured."""

    warmup_records: int = 0
    """Sent and flushed before the measuring starts: connection, metadata and producer id are there."""

    value_bytes: int = 100
    linger_ms: int = 5
    batch_size: int | None = None
    """In bytes; `None`: the client's own default."""

    per_transaction: int = 0
    """Records in each transaction, in turn to each partition; 0: no transactions."""

    tasks: int = 1
    """How many asyncio tasks share the work."""

    seconds: float = 0.0
    """How long, where a scenario measures for a time and not a number of records."""

    buffer_memory: int = 0
    """In bytes, where a scenario fills it."""

    java_jars: str = ""
    """Folder of the Java producer's class path."""

    def to_json(self) -> str:
        """One line for the worker's command line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))

    @property
    def transactions(self) -> int:
        """How many are measured."""
        return self.records // self.per_transaction

    def end_offsets(self, transactions: int) -> int:
        """What so many transactions add to the end offsets: their records, and a marker in each partition."""
        return transactions * (self.per_transaction + min(self.per_transaction, self.partitions))

    @property
    def value(self) -> bytes:
        """The value of every record."""
        return b"v" * self.value_bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a worker found."""

    acknowledged: int
    """Records the broker acknowledged, the warm-up's included: what the end offsets must add up to."""

    figures: dict[str, float]
    """What was measured, by the names in `figures.FIGURES`."""

    configuration: dict[str, str] = field(default_factory=dict)
    """What the client was configured with, in its own words, but for addresses."""

    def to_json(self) -> str:
        """One line for the worker's standard output."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


class Stopwatch:
    """Wall time and this process's CPU time, all threads, since it was made."""

    def __init__(self) -> None:
        self._wall_start_s = perf_counter()
        self._cpu_start_s = process_time()

    def figures(self, records: int) -> dict[str, float]:
        """Rate and cost of so many records handled until now."""
        seconds = perf_counter() - self._wall_start_s
        cpu_s = process_time() - self._cpu_start_s
        return {"records_per_s": records / seconds, "cpu_us_per_record": cpu_s / records * 1e6}


def as_text(configuration: dict[str, object]) -> dict[str, str]:
    """A client's configuration as it is printed."""
    return {name: str(value) for name, value in configuration.items()}
