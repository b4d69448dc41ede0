"""The settings of one embedded cluster, and the checks of what its constructor is given."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import TypedDict

from aioproducer.records import check_topic_name
from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.fake_broker import MOST_PARTITIONS
from aioproducer.testing.fake_broker.client_metrics import MetricsSubscription
from aioproducer.testing.fake_broker.numbers import check_seconds, check_whole_number
from aioproducer.testing.fake_broker.topic_configs import TOPIC_CONFIG_DEFAULTS
from aioproducer.testing.fake_broker.version_profiles import PROFILES, Features, VersionProfile

NEWEST = next(iter(PROFILES))


def counted_from(start_ms: float) -> Callable[[float], float]:
    """Return a wall clock that runs with the model's time, and showed `start_ms` when that was 0."""
    return lambda now: start_ms + now * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The brokers' own configuration; times are seconds of the driver's clock."""

    profile: VersionProfile = PROFILES[NEWEST]  # which release of Kafka to look like
    cluster_id: str = "aioproducer-fake-cluster"  # the cluster id in Metadata
    racks: Mapping[int, str] = field(default_factory=dict)  # `broker.rack` by node id
    replication_factor: int = 1  # copies of a partition if a request does not say, `default.replication.factor`
    min_insync_replicas: int = 1  # copies that must be in sync for `acks=all`, unless the topic says otherwise
    num_partitions: int = 4  # partitions of a topic created on first use, `num.partitions`
    auto_create_topics: bool = True  # whether Metadata creates the topics it is asked for
    auto_create_delay_s: float = 0.01  # from the first Metadata that asks for a topic until it exists
    replication_delay_s: float = 0.0  # how long a follower needs to copy what was appended; 0: it has it at once

    replica_lag_time_max_s: float = 30.0
    """A follower that is behind for longer leaves the ISR, `replica.lag.time.max.ms`."""

    failover_delay_s: float = 0.0  # from a broker's death until its partitions have new leaders

    producer_ids_load_s: float = 0.0
    """From the first InitProducerId until ids are given; 14 COORDINATOR_LOAD_IN_PROGRESS until then."""

    transaction_version: int | None = None
    """The finalized feature `transaction.version`, 0 to 2; None for the highest of the release."""

    transaction_max_timeout_s: float = 900.0
    """The longest time-out a transactional id may have, `transaction.max.timeout.ms`."""

    transactional_id_expiration_s: float = 604_800.0
    """How long an unused transactional id is kept, `transactional.id.expiration.ms`; then its producer gets 49
    INVALID_PRODUCER_ID_MAPPING, and InitProducerId starts over. An id in a transaction is kept. Real brokers look for
    expired ids once an hour (`transaction.remove.expired.transaction.cleanup.interval.ms`), these at each request."""

    transaction_partition_verification: bool = True
    """Whether leaders ask the coordinator about transactional batches, `transaction.partition.verification.enable`;
    without it, as before Kafka 3.6, records can be left in a transaction that never ends."""

    offsets_topic_partitions: int = 50
    """Partitions of the topic of groups' offsets, `offsets.topic.num.partitions`; there are no records in it here."""

    coordinator_load_s: float = 0.0
    """How long the new coordinator of a key reads before it serves; 14 COORDINATOR_LOAD_IN_PROGRESS until then."""

    marker_delay_s: float = 0.0
    """From the end of a transaction until its markers are written; 51 CONCURRENT_TRANSACTIONS meanwhile."""

    group_min_session_timeout_s: float = 6.0
    """The shortest session time-out of a group's member, `group.min.session.timeout.ms`; shorter ones get 26.
    Lower it for a test that waits until a consumer's session expires."""

    group_max_session_timeout_s: float = 1800.0  # the longest one, `group.max.session.timeout.ms`
    metrics_subscription: MetricsSubscription | None = None
    """The metrics that clients shall push (KIP-714); None if no broker has a plug-in that takes them."""

    max_request_bytes: int = 100 * 1024 * 1024  # a larger frame closes the connection, `socket.request.max.bytes`
    security: ClusterSecurity | None = None  # of the listeners beside the plaintext one
    wall_clock: Callable[[float], float] = field(default_factory=partial(counted_from, 0.0))
    """Returns the wall-clock time in ms since 1970 at a time of the model, which may have passed."""

    def topic_defaults(self) -> dict[str, str]:
        replicas = {"min.insync.replicas": str(self.min_insync_replicas)}
        return {**TOPIC_CONFIG_DEFAULTS, **self.profile.topic_defaults, **replicas}

    def wall_clock_ms(self, now: float) -> int:
        return round(self.wall_clock(now))


_CLUSTERS_DEFAULT = -1


class FakeClusterOptions(TypedDict, total=False):
    """Further options of a cluster; `ClusterSettings` explains each."""

    cluster_id: str
    racks: Mapping[int, str]
    replication_factor: int
    """Default: 3, or as many as there are nodes."""

    min_insync_replicas: int
    num_partitions: int
    auto_create_topics: bool
    auto_create_delay_s: float
    replication_delay_s: float
    replica_lag_time_max_s: float
    failover_delay_s: float
    producer_ids_load_s: float
    transaction_version: int
    transaction_max_timeout_s: float
    transactional_id_expiration_s: float
    transaction_partition_verification: bool
    offsets_topic_partitions: int
    coordinator_load_s: float
    marker_delay_s: float
    group_min_session_timeout_s: float
    group_max_session_timeout_s: float
    metrics_subscription: MetricsSubscription
    max_request_bytes: int


def check_options(options: Iterable[str]) -> None:
    """Refuse an option that does not exist.

    Raises:
        TypeError: names the option, and the one that is spelled most like it.
    """
    known = FakeClusterOptions.__annotations__
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        nearest = get_close_matches(unknown, known, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(known)}"
        raise TypeError(f"FakeCluster has no option {unknown!r}; {hint}")


_LEAST_AND_MOST: Mapping[str, tuple[int, int]] = {
    "replication_factor": (1, 2**15 - 1),
    "min_insync_replicas": (1, 2**31 - 1),
    "num_partitions": (1, MOST_PARTITIONS),
    "offsets_topic_partitions": (1, MOST_PARTITIONS),
    "max_request_bytes": (1, 2**31 - 1),
}
_TYPES: Mapping[str, type] = {
    "cluster_id": str,
    "auto_create_topics": bool,
    "transaction_partition_verification": bool,
    "metrics_subscription": MetricsSubscription,
}


def check_values(options: Mapping[str, object], profile: VersionProfile) -> None:
    """Refuse a value that no broker could have.

    Raises:
        TypeError: of another type; names the option and what is allowed.
        ValueError: too small or too large; a `transaction_version` that the release does not have.
    """
    for name, given in options.items():
        if name.endswith("_s"):
            check_seconds(name, given)
        elif name in _LEAST_AND_MOST:
            least, most = _LEAST_AND_MOST[name]
            check_whole_number(name, given, least=least, most=most)
        elif name in _TYPES:
            wanted = _TYPES[name]
            if not isinstance(given, wanted):
                raise TypeError(f"{name} must be a {wanted.__name__}, not {type(given).__name__}")
    version = options.get("transaction_version")
    if version is not None:
        check_whole_number("transaction_version", version, least=0, kind="an int or None")
        assert isinstance(version, int)
        Features(profile, version)


def checked_racks(racks: object, nodes: int) -> dict[int, str]:
    """Return a copy of the brokers' racks, by node id.

    Raises:
        TypeError: not a mapping of node ids to names.
        ValueError: no such node.
    """
    if not isinstance(racks, Mapping):
        raise TypeError(f"racks must be a mapping of node ids to names, not {type(racks).__name__}")
    for node_id, rack in racks.items():
        if node_id not in range(1, nodes + 1):
            raise ValueError(f"racks names the node {node_id!r}; the nodes are 1 to {nodes}")
        if not isinstance(rack, str):
            raise TypeError(f"racks[{node_id}] must be a str, not {type(rack).__name__}")
    return dict(racks)


def checked_topics(topics: object) -> dict[str, int]:
    """Return a copy of the topics to make at the start, partitions by name.

    Raises:
        TypeError: not a mapping of names to numbers.
        ValueError: a name or a number that is not valid.
    """
    if not isinstance(topics, Mapping | None):
        raise TypeError(f"topics must be a mapping of names to numbers of partitions, not {type(topics).__name__}")
    checked = dict(topics or {})
    for name, partitions in checked.items():
        check_topic_name(name)
        if not isinstance(partitions, int) or isinstance(partitions, bool):
            raise TypeError(f"topics[{name!r}] must be an int, its partitions, not {type(partitions).__name__}")
        if partitions != _CLUSTERS_DEFAULT and not 1 <= partitions <= MOST_PARTITIONS:
            allowed = f"1 to {MOST_PARTITIONS}, or -1 for num_partitions"
            raise ValueError(f"topics[{name!r}] must be {allowed}, not {partitions}")
    return checked
