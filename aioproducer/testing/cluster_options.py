"""Options of a fake cluster, and the checks of what its constructor is given."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypedDict

from aioproducer.records import check_topic_name
from aioproducer.testing.fake_broker.client_metrics import MetricsSubscription

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
        if partitions < 1 and partitions != _CLUSTERS_DEFAULT:
            raise ValueError(f"topics[{name!r}] must be at least 1, or -1 for num_partitions, not {partitions}")
    return checked
