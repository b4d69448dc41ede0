"""The families of runs: each says what its seeds may draw from.

To add one, add a row to `FAMILIES`; what a fault does is said in `fault_injector.py`, what callers do in `caller.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

NETWORK = (
    "drop before append",
    "drop after append",
    "half response",
    "half request",
    "late responses",
    "slow node",
    "repeated requests",
    "stalled reads",
    "fragments",
)
LEADERS = ("wrong leader", "stale metadata", "no leader")
DELAYS = (
    "drop before append",
    "drop after append",
    "late responses",
    "slow node",
    "stalled reads",
    "wrong leader",
    "stale metadata",
    "retriable code",
)
ANSWERS = ("no producer id", "retriable code", "final code", "throttle")
SURROUNDINGS = ("clock jumps", "user faults")


MIXED_VERBS: Mapping[str, int] = {"send": 6, "enqueue": 6, "nowait": 2, "wait": 2, "many": 1, "flush": 1, "gather": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Ranges that one family's seeds draw from; (low, high) are inclusive, and the high ends are rare."""

    name: str
    title: str
    faults: tuple[str, ...]
    always: tuple[str, ...] = ()
    at_start: tuple[str, ...] = ()  # faults of which every seed enables a random half, once, before anything is sent
    rare: tuple[str, ...] = ()  # faults of which a few seeds have one, once, drawn apart from everything else
    brokers: tuple[int, int] = (1, 5)
    partitions: tuple[int, int] = (1, 12)
    records: tuple[int, int] = (50, 400)
    clients: tuple[int, int] = (1, 6)
    acks: tuple[int, ...] = (-1,)
    idempotence: tuple[bool, ...] = (True,)
    in_flight: tuple[int, int] = (1, 5)
    batch_size: tuple[int, int] = (1, 65_536)
    linger_ms: tuple[int, int] = (0, 500)
    buffer_memory: tuple[int, int] = (1_024, 65_536)
    delivery_timeout_ms: tuple[int, int] = (500, 30_000)
    value_size: tuple[int, int] = (8, 2_000)
    compression: tuple[str, ...] = ("none", "none", "none", "none", "gzip", "lz4", "snappy", "zstd")
    replication: tuple[int, ...] = (1, 3)
    profiles: tuple[str, ...] = ("4.4.0", "3.9.1", "2.8", "2.4", "2.1")
    fault_count: tuple[int, int] = (2, 14)
    verbs: Mapping[str, int] = field(default_factory=lambda: MIXED_VERBS)
    cancels: float = 0.1  # share of the calls that are cancelled, with user faults
    closes_early: bool = False  # whether the producer is closed at any moment, by any task
    max_message_bytes: tuple[int, int] | None = None  # largest batch that the topic takes; None: a megabyte
    bulky: float = 0.0  # share of the seeds that have long records, and batches that are compressed in threads
    integer_edges: bool = False  # sequences, epochs, timestamps and sizes at the ends of their ranges
    calm_seeds: int = 16  # one in so many seeds has no fault at all: then everything must be acknowledged
    mechanisms: tuple[str, ...] = ()  # of SASL, one for each seed; nothing: brokers ask for no authentication
    is_transactional: bool = False  # the producer has a transactional id; callers send transactions, not records
    sends_offsets: float = 0.0  # share of the transactions that have offsets in them
    successors: bool = False
    """Whether other producers take the transactional id over, while the fenced ones go on until they notice."""

    pauses: float = 0.0
    """Share of a transaction's records after which its caller pauses, as long as strays take to arrive."""


COORDINATORS = ("busy", "moves", "lost", "late")
"""Faults of transaction and group coordinators: they load, move, lose their answers, or answer late."""

SECURITY = (
    "sessions end",
    "sessions end",
    "password changes",
    "slow password",
    "token trouble",
    "token trouble",
    "refused login",
    "lost login",
    "slow login",
    "forged login",
    "strict proxy",
    "certificates change",
    "certificates change",
    "impostor",
    "broken handshake",
    "tampered record",
)
"""Faults of authentication and TLS; those of what a run does not have are none."""

ALL = (*NETWORK, *LEADERS, *ANSWERS, *SURROUNDINGS)

_TRANSACTIONAL = Family(
    name="",
    title="",
    faults=(),
    is_transactional=True,
    brokers=(1, 4),
    partitions=(1, 6),
    records=(20, 120),
    clients=(1, 3),
    delivery_timeout_ms=(1_000, 20_000),
    buffer_memory=(8_192, 65_536),
    value_size=(8, 150),
    profiles=("4.4.0", "4.4.0", "3.9.1"),
)

_ROWS = (
    Family(
        name="D1",
        title="order in one partition",
        faults=(*NETWORK, "wrong leader", "crash", "retriable code", "throttle", *SURROUNDINGS),
        at_start=("cold",),
        brokers=(1, 3),
        partitions=(1, 1),
    ),
    Family(
        name="D2",
        title="several brokers",
        faults=(*ALL, "crash"),
        at_start=("tags",),
        brokers=(3, 5),
        partitions=(2, 12),
    ),
    Family(
        name="D3",
        title="acks=1 without idempotence",
        faults=(*NETWORK, *LEADERS, "crash", "crash with loss", "retriable code", "throttle", *SURROUNDINGS),
        brokers=(3, 5),
        acks=(1,),
        replication=(3,),
    ),
    Family(
        name="D4",
        title="acks=0",
        faults=(*NETWORK, *LEADERS, "crash", *SURROUNDINGS),
        rare=("stalled reads",),
        acks=(0,),
    ),
    Family(
        name="D5",
        title="leaders come and go",
        faults=(*NETWORK, "wrong leader", "no leader", "crash", "retriable code"),
        always=("stale metadata",),
        brokers=(3, 5),
        replication=(3,),
        bulky=0.1,
    ),
    Family(
        name="D6",
        title="brokers crash and come back",
        faults=(*NETWORK, *LEADERS, "retriable code", "user faults"),
        always=("crash",),
        brokers=(3, 5),
    ),
    Family(
        name="D7",
        title="brokers forget their producers",
        faults=(*NETWORK, "wrong leader", "stale metadata", "crash", "retriable code", "user faults"),
        always=("lost producer state",),
        at_start=("cold",),
        rare=("no ids",),
    ),
    Family(
        name="D8",
        title="little memory, impatient callers",
        faults=(*DELAYS, "throttle"),
        always=("user faults",),
        clients=(6, 25),
        buffer_memory=(1_024, 8_192),
        cancels=0.35,
    ),
    Family(
        name="D9",
        title="outages longer than deadlines",
        faults=(*NETWORK, *LEADERS, "crash", "user faults", "names"),
        always=("outage", "refusals"),
        brokers=(3, 5),
        delivery_timeout_ms=(500, 5_000),
        fault_count=(2, 8),
    ),
    replace(
        _TRANSACTIONAL,
        name="D10",
        title="transactions",
        faults=(*NETWORK, *LEADERS, "crash", "retriable code", "throttle", "user faults", "codes", *COORDINATORS),
        at_start=("tags",),
        rare=("expired",),
        bulky=0.15,
    ),
    replace(
        _TRANSACTIONAL,
        name="D11",
        title="offsets in transactions",
        faults=(
            "drop before append",
            "drop after append",
            "late responses",
            "slow node",
            "wrong leader",
            "stale metadata",
            "crash",
            "retriable code",
            "user faults",
        ),
        always=(*COORDINATORS, "late offsets", "late offsets"),
        rare=("expired",),
        sends_offsets=0.7,
        pauses=0.3,
    ),
    replace(
        _TRANSACTIONAL,
        name="D12",
        title="fenced producers, zombies",
        faults=(
            "drop after append",
            "late responses",
            "slow node",
            "repeated requests",
            "stalled reads",
            "stale metadata",
            "crash",
            *COORDINATORS,
        ),
        always=("strays", "strays", "strays"),
        rare=("expired",),
        successors=True,
        sends_offsets=0.3,
        pauses=0.2,
        delivery_timeout_ms=(1_000, 4_000),
    ),
    replace(
        _TRANSACTIONAL,
        name="D13",
        title="strays from one transaction in the next, versions that change",
        faults=(
            "drop before append",
            "drop after append",
            "slow node",
            "stalled reads",
            "wrong leader",
            "crash",
            "upgrade",
            *COORDINATORS,
        ),
        always=("late responses", "repeated requests", "strays", "strays", "strays"),
        rare=("downgrade", "expired"),
        sends_offsets=0.3,
        pauses=0.5,
        bulky=0.15,
        delivery_timeout_ms=(1_000, 4_000),
    ),
    Family(
        name="D14",
        title="metadata flaps, topics and brokers change",
        faults=(
            "drop after append",
            "slow node",
            "wrong leader",
            "no leader",
            "no producer id",
            "retriable code",
            "cluster moves",
            "user faults",
            "names",
            "codes",
            "releases",
        ),
        always=("stale metadata", "topic changes"),
        rare=("another cluster", "another cluster", "no ids"),
        brokers=(1, 5),
    ),
    Family(
        name="D16",
        title="closed at any moment",
        faults=(*NETWORK, *LEADERS, "crash", "retriable code", "throttle", "user faults", "outage"),
        bulky=0.2,
        closes_early=True,
    ),
    Family(
        name="D17",
        title="batches too large",
        faults=(*NETWORK, "wrong leader", "stale metadata", "retriable code", "final code", "user faults"),
        always=("split",),
        batch_size=(500, 131_072),
        buffer_memory=(8_192, 1_048_576),
        max_message_bytes=(600, 8_000),
    ),
    Family(
        name="D18",
        title="integer edges",
        faults=(*NETWORK, *LEADERS, "crash", "retriable code", "final code", "user faults"),
        profiles=("4.4.0", "3.9.1", "2.8"),
        integer_edges=True,
    ),
    Family(
        name="D19",
        title="throttled",
        faults=(*DELAYS, "user faults"),
        always=("throttle",),
    ),
    Family(
        name="D15",
        title="authentication",
        faults=(*NETWORK, *LEADERS, "crash", "retriable code", "throttle", *SECURITY, "user faults"),
        calm_seeds=6,
        brokers=(1, 3),
        fault_count=(4, 16),
        delivery_timeout_ms=(3_000, 30_000),
        profiles=("4.4.0", "4.4.0", "3.9.1", "2.4", "2.1"),
        acks=(-1, -1, -1, 1, 0),
        rare=("slow reads",),
        mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    ),
    Family(
        name="D20",
        title="hostile brokers",
        faults=(
            "drop before append",
            "half response",
            "late responses",
            "fragments",
            "stale metadata",
            "retriable code",
            "user faults",
            "lies",
        ),
        always=("hostile bytes", "codes"),
        fault_count=(6, 18),
    ),
)

FAMILIES: Mapping[str, Family] = {family.name: family for family in _ROWS}
