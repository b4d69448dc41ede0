"""Plan of a cell (version, faults, topics, workloads, options), drawn from its seed, and orders of its processes."""

import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.programs.chaos.checker.cell_files import Limits, Topic

VERSIONS = ("4.4.0", "3.9.1")

ALL_FAULTS = (
    "kill_leader",
    "kill_controller",
    "kill_two",
    "freeze_leader",
    "rolling_restart",
    "elect_leaders",
    "grow_topic",
    "make_topic_again",
    "stop_producer",
    "resets",
    "delay",
    "thin_line",
    "half_open",
    "single_bytes",
)

CLIENTS_OF_A_PROCESS = 1_000_000  # client numbers are given to processes in blocks of this size


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """One producer process and its topic."""

    name: str
    kind: str
    number: int
    partitions: int
    rate: float  # records a second of a steady one, producers a second of a short one
    idempotent: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    version: str
    seconds: float
    faults: Sequence[str]
    longest_stop_s: float
    limits: Limits
    workloads: Sequence[Workload]
    client: str = "aioproducer"
    is_secured: bool = False  # whether producers connect by SASL over TLS, with sessions of ten seconds

    def topic(self, workload: Workload) -> Topic:
        return Topic(name=f"chaos-{workload.name}", idempotent=workload.idempotent)

    def options(self, workload: Workload) -> dict[str, Any]:
        rng = random.Random(f"{self.seed}/{workload.name}")
        identity = {"enable_idempotence": True} if workload.idempotent else {"enable_idempotence": False, "acks": 1}
        return {
            **identity,
            **self.limits,
            "linger_ms": rng.choice([5, 20, 100]),
            "batch_size": rng.choice([1_000, 4_000, 16_384, 65_536]),
            "buffer_memory": rng.choice([300_000, 1_000_000, 8_000_000]),
            "compression_type": rng.choice(["none", "lz4", "zstd", "gzip", "snappy"]),
            "max_in_flight_requests_per_connection": rng.randint(1, 5),
            "metadata_max_age_ms": rng.choice([2_000, 300_000]),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Scale:
    seconds: float
    longest_stop_s: float
    records_per_s: float
    producers_per_s: float


PATIENT = Limits(request_timeout_ms=5_000, delivery_timeout_ms=120_000, max_block_ms=60_000)

USUAL = Limits(request_timeout_ms=5_000, delivery_timeout_ms=12_000, max_block_ms=5_000)

HASTY = Limits(request_timeout_ms=5_000, delivery_timeout_ms=5_500, max_block_ms=1_000)
"""Deadlines shorter than most outages: records of an outage fail, and each outcome must be true.

No recovery is bounded with a shorter request timeout: on a busy machine followers alone take longer."""


SHORT = Limits(request_timeout_ms=3_900, delivery_timeout_ms=4_000, max_block_ms=4_000)
"""Deadlines of a comparison: most faults outlive them."""


def workloads(scale: Scale) -> list[Workload]:
    rate, short = scale.records_per_s, scale.producers_per_s
    return [
        Workload("idempotent", "steady", 1, partitions=12, rate=rate * 0.75, idempotent=True),
        Workload("acks1", "steady", 2, partitions=6, rate=rate * 0.25, idempotent=False),
        Workload("short", "short", 3, partitions=6, rate=short, idempotent=True),
    ]


def drawn(seed: int, scale: Scale, version: str | None = None) -> Plan:
    """A cell with everything in it, its deadlines and its version by its seed."""
    limits = random.Random(f"{seed}/limits").choice([PATIENT, USUAL, HASTY])
    return planned(seed, scale, version or VERSIONS[seed % 2], limits=limits, faults=ALL_FAULTS)


def planned(seed: int, scale: Scale, version: str, *, limits: Limits, faults: Sequence[str]) -> Plan:
    if limits is PATIENT:  # a process would have to be stopped for minutes
        faults = [fault for fault in faults if fault != "stop_producer"]
    return Plan(seed, version, scale.seconds, faults, scale.longest_stop_s, limits, workloads(scale))


def compared(seed: int, scale: Scale, version: str, *, client: str) -> Plan:
    """A cell that any client can run: one idempotent producer, and the faults that delete nothing."""
    faults = [fault for fault in ALL_FAULTS if fault != "make_topic_again"]
    steady = [workload for workload in workloads(scale) if workload.kind == "steady" and workload.idempotent]
    return Plan(seed, version, scale.seconds, faults, scale.longest_stop_s, SHORT, steady, client)


def gate(seed: int, scale: Scale) -> list[Plan]:
    """Three cells that with those of the next seed have every kind of fault, both versions and all deadlines.

    The last one is secured, and so is the session of transactions that the gate runs beside them.
    """
    deaths = ("kill_leader", "kill_controller", "kill_two")
    network = ("resets", "delay", "thin_line", "half_open", "single_bytes")
    moves = ("rolling_restart", "elect_leaders", "grow_topic", "make_topic_again")
    stops = ("freeze_leader", "stop_producer", "kill_leader")
    is_even = seed % 2 == 0
    last = ("4.4.0", USUAL, moves) if is_even else ("3.9.1", HASTY, stops)
    return [
        planned(seed, scale, "4.4.0", limits=PATIENT, faults=deaths),
        planned(seed + 1, scale, "3.9.1", limits=USUAL, faults=network),
        secured(planned(seed + 2, scale, last[0], limits=last[1], faults=last[2])),
    ]


def secured(plan: Plan) -> Plan:
    """Return the same with SASL over TLS, and sessions of ten seconds.

    A short-lived producer then makes several handshakes, so there are fewer: their process would only wait for its CPU.
    """
    rates = {"steady": 1.0, "short": 1 / 3}
    slower = [dataclasses.replace(each, rate=each.rate * rates[each.kind]) for each in plan.workloads]
    return dataclasses.replace(plan, is_secured=True, workloads=slower)


@dataclasses.dataclass(frozen=True, slots=True)
class Orders:
    """Orders for a producer process: one JSON object, its only argument."""

    name: str  # name of the process; its files are FOLDER/history-NAME.bin and FOLDER/end-NAME.json
    workload: str  # "steady": one producer for all of the cell; "short": many short-lived ones
    folder: str
    bootstrap: str
    topic: str
    topic_number: int
    first_client: int  # number of the first producer object; others follow
    rate: float  # records a second ("steady"), or producers a second ("short")
    seed: str
    options: dict[str, Any]  # options of `Producer`
    client: str  # in `peers.CLIENTS`

    def dumps(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @property
    def history_file(self) -> Path:
        return Path(self.folder, f"history-{self.name}.bin")

    @property
    def end_file(self) -> Path:
        return Path(self.folder, f"end-{self.name}.json")
