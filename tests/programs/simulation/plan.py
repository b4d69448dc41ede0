"""Plan of a run, drawn from one seed before anything happens: plain data, so that it can be shrunk.

What few seeds have (limits that are reached, batches so large that a thread compresses them, one more fault) is drawn
apart from everything else, so that a plan that has none of it is what it would be without.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.programs.simulation.families import FAMILIES, Family

APPEND_TIME = 0.15
"""Share of the topics with `message.timestamp.type=LogAppendTime`; recreated topics lose it, and have none."""

FROM_ZERO = 0.25  # share of the runs in which node ids begin at 0, as they may, instead of 1
SMALL_BATCH = 500  # bytes; most batches of fewer have a single record
USUAL = (149, 152)  # records of somewhat more than half of the runs
BEATS = (0.0, 0.01, 0.02, 0.04)  # beats in request timeouts. If much arrives together the loop takes fewer turns
LONGEST_PAUSE = 2.0  # longest pause that a broker asks for ("throttle"), in request timeouts

BURSTS = (16, 32, 64)
"""Records that callers bring at a time: with many records there are few requests, with few there are many."""


class PlannedFault(NamedTuple):
    at_s: float  # virtual seconds after the start
    fault: str  # a key of `FAULTS`
    seed: int  # seed of its own random choices, so that removing one fault leaves the others as they are


@dataclass(frozen=True, slots=True, kw_only=True)  # noqa: PLR0904 - one property for each choice
class Plan:
    family: Family
    seed: int
    options: Mapping[str, object]
    brokers: int
    partitions: int
    replication: int
    min_insync: int
    profile: str
    latency_s: float
    jitter_s: float
    replication_delay_s: float
    failover_delay_s: float
    records: int
    clients: int
    pace_s: float  # mean pause between two records of one caller
    max_message_bytes: int | None  # largest batch that the topic takes; None: a megabyte
    user_faults: bool  # whether callers are cancelled, and serializers and callbacks raise
    uses_bootstrap_name: bool
    starts_before_faults: bool
    chaos_s: float
    enabled: tuple[str, ...]
    faults: tuple[PlannedFault, ...]
    beat_s: float = 0.0  # see `SimulatedNetwork.beat_s`
    burst: int = 2  # records that callers bring at a time are at most one more
    keeps_append_time: bool = False  # the topic has message.timestamp.type=LogAppendTime
    schedule: str = "fifo"  # order where asyncio leaves it open: asyncio's own ("fifo"), or random priorities ("pct")
    first_node: int = 1

    @property
    def nodes(self) -> range:
        return range(self.first_node, self.first_node + self.brokers)

    @property
    def is_idempotent(self) -> bool:
        return bool(self.options["enable_idempotence"])

    @property
    def mechanism(self) -> str:
        """The mechanism of SASL; empty where brokers ask for no authentication."""
        mechanisms = self.family.mechanisms
        return Random(f"mechanism-{self.seed}").choice(mechanisms) if mechanisms else ""

    @property
    def tls(self) -> str:
        """The version of TLS that brokers speak; empty where connections are not encrypted."""
        versions = ("TLSv1.3", "TLSv1.3", "TLSv1.2", "", "")
        return Random(f"tls-{self.seed}").choice(versions) if self.family.mechanisms else ""

    @property
    def has_client_certificate(self) -> bool:
        return bool(self.tls) and Random(f"client-certificate-{self.seed}").random() < 0.4

    @property
    def is_honest(self) -> bool:
        """Whether what brokers say can be relied on."""
        return "lies" not in self.enabled

    @property
    def gives_up_early(self) -> bool:
        """Whether a batch has few attempts, however much time is left."""
        return "retries" in self.options

    @property
    def longest_pause_s(self) -> float:
        """Longest remaining pause of a broker that throttled just before everything was healed."""
        return LONGEST_PAUSE * self.number("request_timeout_ms") / 1000 if "throttle" in self.enabled else 0.0

    @property
    def has_sound_hooks(self) -> bool:
        """Whether the user has code around each record that never fails, drops a record, or changes one."""
        return not self.user_faults and self.seed % 4 == 2

    @property
    def has_serializer(self) -> bool:
        """Whether the user's own serializer is called for each value."""
        return self.has_sound_hooks or (self.user_faults and self.seed % 3 == 0)

    @property
    def has_partitioner(self) -> bool:
        """Whether the user's own partitioner says where records go that do not."""
        return (self.has_sound_hooks and self.seed % 8 == 2) or (self.user_faults and self.seed % 4 == 1)

    @property
    def has_interceptor(self) -> bool:
        """Whether the user's own interceptor sees all records, and drops some if the user makes faults."""
        return self.has_sound_hooks or (self.user_faults and self.seed % 8 == 3)

    @property
    def has_deadlines(self) -> bool:
        """Whether some records have deadlines of their own."""
        return bool(self.enabled) and self.seed % 5 in {3, 4}

    @property
    def acks(self) -> int:
        acks = self.options["acks"]
        assert isinstance(acks, int)
        return acks

    def number(self, option: str) -> int:
        value = self.options[option]
        assert isinstance(value, int)
        return value

    def with_options(self, **options: object) -> "Plan":
        """The same run with other options of the producer."""
        return dataclasses.replace(self, options={**self.options, **options})


def draw_plan(family_name: str, seed: int, *, schedule: str = "fifo") -> Plan:
    plan = _usual_plan(family_name, seed, schedule)
    trouble = rare_trouble(plan.family, seed) if plan.enabled else ()
    faults = tuple(_rare_fault(fault, plan) for fault in trouble)
    return dataclasses.replace(
        plan,
        enabled=(*plan.enabled, *trouble),
        faults=(*plan.faults, *faults),
        first_node=0 if Random(f"first-id-{family_name}-{seed}").random() < FROM_ZERO else 1,
    )


def _usual_plan(family_name: str, seed: int, schedule: str) -> Plan:
    family = bulky_family(FAMILIES[family_name], seed)
    rng = Random(f"{family_name}-{seed}")
    enabled = _enabled(family, rng)
    options = with_rare_options(_options(family, rng), family, seed)
    if not enabled:
        options |= {"delivery_timeout_ms": 60_000, "request_timeout_ms": 30_000, "max_block_ms": 60_000}
    if family.mechanisms:
        options |= _patient_options(options, is_calm=not enabled)
    brokers = min(rng.randint(*family.brokers), rng.randint(*family.brokers))
    replication = min(brokers, rng.choice(family.replication))
    request_s = min(options["request_timeout_ms"] / 1000, 0.5)  # type: ignore[operator]  # drawn as a number
    records = _records(family, options, rng)
    clients = min(_draw(rng, family.clients), records)
    chaos_s = min(rng.choice((0.3, 1.0, 2.0)) * options["delivery_timeout_ms"] / 1000, 20.0)  # type: ignore[operator]
    return Plan(
        family=family,
        seed=seed,
        options=options,
        brokers=brokers,
        partitions=_draw(rng, family.partitions),
        replication=replication,
        min_insync=2 if replication == 3 and rng.random() < 0.5 else 1,
        profile=rng.choice(family.profiles),
        latency_s=rng.choice((0.0005, 0.005, 0.02, 0.05)) * request_s,
        jitter_s=rng.choice((0.0, 0.001, 0.01, 0.05)) * request_s,
        replication_delay_s=rng.choice((0.0, 0.0, 0.002, 0.05)),
        failover_delay_s=rng.choice((0.0, 0.1, 1.0)),
        records=records,
        clients=clients,
        pace_s=rng.choice((0.0, 0.0, 0.5) if family.closes_early else (0.0, 0.5, 1.0)) * chaos_s * clients / records,
        max_message_bytes=_draw(rng, family.max_message_bytes) if family.max_message_bytes else None,
        user_faults="user faults" in enabled,
        uses_bootstrap_name=rng.random() < 0.5 or "cluster moves" in enabled,
        starts_before_faults=rng.random() < 0.7,
        chaos_s=chaos_s,
        enabled=enabled,
        faults=_faults(family, [fault for fault in enabled if fault != "user faults"], rng, chaos_s),
        beat_s=rng.choice(BEATS) * request_s,
        burst=rng.choice(BURSTS),
        keeps_append_time="topic changes" not in enabled
        and Random(f"topic-{family_name}-{seed}").random() < APPEND_TIME,
        schedule=schedule,
    )


def _enabled(family: Family, rng: Random) -> tuple[str, ...]:
    """Half of a family's faults; none of them in one seed of some."""
    is_calm = rng.randrange(family.calm_seeds) == 0 and not family.max_message_bytes and not family.integer_edges
    half = [fault for fault in family.faults if rng.random() < 0.5]
    return () if is_calm and not family.always else (*family.always, *half)


def _options(family: Family, rng: Random) -> dict[str, object]:
    delivery_ms = _draw(rng, family.delivery_timeout_ms, middle=5_000)
    linger_ms = min(_draw(rng, family.linger_ms, middle=10), delivery_ms // 3)
    request_ms = rng.choice((delivery_ms - linger_ms, delivery_ms // 2, max(delivery_ms // 8, 100)))
    acks = rng.choice(family.acks)
    backoff_ms = rng.choice((20, 50, 100))
    return {
        "acks": acks,
        "enable_idempotence": acks == -1 and rng.choice(family.idempotence),
        "max_in_flight_requests_per_connection": rng.randint(*family.in_flight),
        "linger_ms": linger_ms,
        "batch_size": _draw(rng, family.batch_size, middle=1_000, below=0.1),
        "buffer_memory": _draw(rng, family.buffer_memory, middle=16_384, below=0.3),
        "compression_type": rng.choice(family.compression),
        "delivery_timeout_ms": delivery_ms,
        "request_timeout_ms": min(request_ms, delivery_ms - linger_ms),
        "max_block_ms": rng.choice((200, 2_000, 60_000)),
        "retry_backoff_ms": backoff_ms,
        "retry_backoff_max_ms": rng.choice((4 * backoff_ms, 1_000)),
        "reconnect_backoff_ms": rng.choice((5, 50)),
        "reconnect_backoff_max_ms": rng.choice((50, 1_000)),
        "socket_connection_setup_timeout_ms": rng.choice((300, 2_000)),
        "socket_connection_setup_timeout_max_ms": 3_000,
        "metadata_max_age_ms": rng.choice((delivery_ms, 10 * delivery_ms, 300_000)),
        "metadata_recovery_rebootstrap_trigger_ms": rng.choice((1_000, 5_000)),
        "max_waiting_records": rng.choice((65_536, 65_536, 20)),
    }


def _patient_options(options: Mapping[str, object], *, is_calm: bool) -> dict[str, object]:
    """Return what an authentication, with many round trips, needs where nothing goes wrong."""
    if is_calm:
        return {"socket_connection_setup_timeout_ms": 10_000, "socket_connection_setup_timeout_max_ms": 30_000}
    max_block_ms = options["max_block_ms"]
    assert isinstance(max_block_ms, int)
    return {"max_block_ms": max(2_000, max_block_ms)}


def _records(family: Family, options: Mapping[str, object], rng: Random) -> int:
    """Draw the number of records: about 150, and few where each takes a batch, a request and a response alone."""
    low, high = family.records
    batch_size, buffer_memory = options["batch_size"], options["buffer_memory"]
    assert isinstance(batch_size, int)
    assert isinstance(buffer_memory, int)
    if min(batch_size, buffer_memory // 4) < SMALL_BATCH:
        return rng.randint(low, max(low, high // 5))
    dice = rng.random()
    if dice < 0.35 or high <= USUAL[1]:
        return rng.randint(low, min(USUAL[0], high))
    return rng.randint(*USUAL) if dice < 0.95 else rng.randint(USUAL[1], high)


def _draw(rng: Random, bounds: tuple[int, int], *, middle: int | None = None, below: float = 0.5) -> int:
    """A number between bounds: `below` of the time under `middle`, and there rather near the lower bound."""
    low, high = bounds
    centre = middle if middle is not None and low < middle < high else (low + high) // 2
    if rng.random() < below:
        return max(low, round(math.exp(rng.uniform(math.log(low + 1), math.log(centre + 1)))) - 1)
    return min(rng.randint(centre, high), rng.randint(centre, high))


def _faults(family: Family, faults: list[str], rng: Random, chaos_s: float) -> tuple[PlannedFault, ...]:  # noqa: PLR0917
    if not faults:
        return ()
    count = rng.randint(*family.fault_count)
    times = sorted(rng.uniform(0, chaos_s) for _ in range(count))
    first = tuple(PlannedFault(0.0, fault, rng.getrandbits(32)) for fault in family.at_start if rng.random() < 0.5)
    return first + tuple(PlannedFault(at, rng.choice(faults), rng.getrandbits(32)) for at in times)


def _rare_fault(fault: str, plan: Plan) -> PlannedFault:
    """Draw a rare fault, before anything is sent, or at any time."""
    salt = {"stalled reads": "F8"}.get(fault, fault)  # its former name: seeds go on meaning the same run
    # the text is a part of the seed: another one would draw other plans
    rng = Random(f"strike-{salt}-{plan.seed}")
    return PlannedFault(rng.choice((0.0, plan.chaos_s)) * rng.random(), fault, rng.getrandbits(32))


_RARELY = 0.2
_MEMORY_OF_A_PROBE = 5 / 8  # share of the buffer that the last record takes, to see whether there is room for it
_OVERHEAD = 400  # bytes that a record, its batch and its request have at most beside the value

_BULKY: Mapping[str, object] = {"batch_size": 131_072, "buffer_memory": 1_048_576}
_BULKY_VALUES = (4_000, 20_000)
_BULKY_RECORDS = 60
_CODECS = ("gzip", "lz4", "snappy", "zstd")


def bulky_family(family: Family, seed: int) -> Family:
    """The family, with few and long records in some seeds of those that have them."""
    if Random(f"bulky-{family.name}-{seed}").random() >= family.bulky:
        return family
    low, high = family.records
    records = (min(low, _BULKY_RECORDS), min(high, _BULKY_RECORDS))
    return dataclasses.replace(family, value_size=_BULKY_VALUES, records=records)


def with_rare_options(options: Mapping[str, object], family: Family, seed: int) -> dict[str, object]:
    """Add options that most seeds leave as they are by default."""
    rng = Random(f"rare-{family.name}-{seed}")
    bulky = _bulky_options(family, seed)
    buffer_memory = bulky.get("buffer_memory", options["buffer_memory"])
    assert isinstance(buffer_memory, int)
    small: Mapping[str, object] = {
        "connections_max_idle_ms": rng.choice((200, 2_000)),
        "metadata_max_idle_ms": 5_000,
        "max_request_size": _longest(family, buffer_memory) + _OVERHEAD,
        "retries": rng.choice((1, 2, 3)),
    }
    rare = {name: value for name, value in small.items() if rng.random() < _RARELY}
    buffers = {name: -1 for name in ("send_buffer_bytes", "receive_buffer_bytes") if rng.random() < _RARELY}
    if rng.random() < _RARELY:
        rare["partitioner_adaptive_partitioning_enable"] = False
    if rng.random() < _RARELY:
        rare["partitioner_availability_timeout_ms"] = rng.choice((1, 100))
    return {**options, **bulky, **rare, **buffers}


def rare_trouble(family: Family, seed: int) -> tuple[str, ...]:
    """One of the family's rare faults, in few seeds."""
    rng = Random(f"trouble-{family.name}-{seed}")
    return (rng.choice(family.rare),) if family.rare and rng.random() < _RARELY else ()


def _longest(family: Family, buffer_memory: int) -> int:
    """Return the longest value that is sent: a record of it must still fit."""
    has_probe = not family.closes_early and family.max_message_bytes is None
    return round(buffer_memory * _MEMORY_OF_A_PROBE) if has_probe else family.value_size[1]


def _bulky_options(family: Family, seed: int) -> dict[str, object]:
    """Return options that make the batches of long records so large that a thread compresses them."""
    if family.value_size != _BULKY_VALUES:
        return {}
    return {**_BULKY, "compression_type": Random(f"codec-{family.name}-{seed}").choice(_CODECS)}
