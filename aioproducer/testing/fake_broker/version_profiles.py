"""The versions of Kafka that the embedded cluster can look like, and the feature levels of a cluster.

A profile has the versions in ApiVersions and the few responses that differ between releases. The versions were read
from running brokers (3.9.1, 4.3.1, 4.4.0) and, for older releases, from the request schemas of their source. Versions
for message formats 0 and 1, which clients no longer use, are left out, except for Produce of 4.x: those brokers list
versions 0-2 and refuse them (KAFKA-18659), and so does this one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from aioproducer.testing.fake_broker.topic_configs import BEFORE_4_0, SINCE_4_4
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey

_RELEASES = ("4.4.0", "4.3.1", "3.9.1", "2.8", "2.4", "2.1")

_LISTED: dict[ApiKey, str] = {
    #                               4.4.0  4.3.1  3.9.1  2.8    2.4    2.1
    ApiKey.PRODUCE:                 "0-13  0-13   3-11   3-9    3-8    3-7",
    ApiKey.FETCH:                   "4-18  4-18   4-17   4-12   4-11   4-10",
    ApiKey.LIST_OFFSETS:            "1-11  1-11   1-9    1-6    1-5    1-4",
    ApiKey.METADATA:                "0-13  0-13   0-12   0-11   0-9    0-7",
    ApiKey.OFFSET_COMMIT:           "2-10  2-10   2-9    2-8    2-8    2-6",
    ApiKey.OFFSET_FETCH:            "1-10  1-10   1-9    1-7    1-6    1-5",
    ApiKey.FIND_COORDINATOR:        "0-6   0-6    0-6    0-3    0-3    0-2",
    ApiKey.JOIN_GROUP:              "0-9   0-9    0-9    0-7    0-6    0-3",
    ApiKey.HEARTBEAT:               "0-4   0-4    0-4    0-4    0-4    0-2",
    ApiKey.LEAVE_GROUP:             "0-5   0-5    0-5    0-4    0-4    0-2",
    ApiKey.SYNC_GROUP:              "0-5   0-5    0-5    0-5    0-4    0-2",
    ApiKey.DESCRIBE_GROUPS:         "0-6   0-6    0-5    0-5    0-5    0-2",
    ApiKey.LIST_GROUPS:             "0-5   0-5    0-5    0-4    0-3    0-2",
    ApiKey.SASL_HANDSHAKE:          "0-1   0-1    0-1    0-1    0-1    0-1",
    ApiKey.API_VERSIONS:            "0-5   0-4    0-4    0-3    0-3    0-2",
    ApiKey.CREATE_TOPICS:           "2-7   2-7    2-7    2-7    2-5    2-3",
    ApiKey.DELETE_TOPICS:           "1-6   1-6    1-6    1-6    1-4    1-3",
    ApiKey.DELETE_RECORDS:          "0-2   0-2    0-2    0-2    0-1    0-1",
    ApiKey.INIT_PRODUCER_ID:        "0-5   0-5    0-5    0-4    0-2    0-1",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "2-4   2-4    2-4    2-4    2-3    2-2",
    ApiKey.ADD_PARTITIONS_TO_TXN:   "0-5   0-5    0-5    0-3    0-1    0-1",
    ApiKey.ADD_OFFSETS_TO_TXN:      "0-4   0-4    0-4    0-3    0-1    0-1",
    ApiKey.END_TXN:                 "0-5   0-5    0-4    0-3    0-1    0-1",
    ApiKey.WRITE_TXN_MARKERS:       "1-2   1-2    1-1    1-1    -      -",
    ApiKey.TXN_OFFSET_COMMIT:       "0-6   0-5    0-4    0-3    0-2    0-2",
    ApiKey.DESCRIBE_CONFIGS:        "1-4   1-4    1-4    1-4    1-2    1-2",
    ApiKey.ALTER_CONFIGS:           "0-2   0-2    0-2    0-2    0-1    0-1",
    ApiKey.SASL_AUTHENTICATE:       "0-2   0-2    0-2    0-2    0-1    0-0",
    ApiKey.CREATE_PARTITIONS:       "0-3   0-3    0-3    0-3    0-1    0-1",
    ApiKey.DELETE_GROUPS:           "0-3   0-2    0-2    0-2    0-2    0-1",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "0-1 0-1    0-1    0-1    0-1    -",
    ApiKey.DESCRIBE_PRODUCERS:      "0-0   0-0    0-0    0-0    -      -",
    ApiKey.DESCRIBE_TRANSACTIONS:   "0-0   0-0    0-0    -      -      -",
    ApiKey.LIST_TRANSACTIONS:       "0-2   0-2    0-1    -      -      -",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "0-0 0-0    0-0    -      -      -",
    ApiKey.PUSH_TELEMETRY:          "0-0   0-0    0-0    -      -      -",
}  # fmt: skip

_OF_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


@dataclass(frozen=True, slots=True)
class VersionProfile:
    """One release of Kafka, as far as clients can see differences."""

    name: str  # the release, for example `4.4.0`

    versions: Mapping[ApiKey, tuple[int, int]]
    """Lowest and highest version of each request in ApiVersions; requests the release does not have are missing."""

    lowest_produce: int = 3  # Produce below this closes the connection, listed or not

    sequence_must_start_at_zero: bool = False
    """A producer id without state must begin with sequence 0, else 59; Kafka before 2.5 (KIP-360)."""

    auto_create_answer: int = 3  # what Metadata says of a topic that it has just begun to create; 5 before Kafka 2.8
    smallest_segment_bytes: int = 1024 * 1024  # the least `segment.bytes` of a topic

    too_few_brokers: str = "only {} broker(s) are registered."
    """Why there cannot be more copies; {} is how many there can be."""

    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Features that the cluster as a whole may have: lowest and highest level of each."""

    finalized_features: Mapping[str, int] = field(default_factory=dict)  # the levels of a cluster that was just made

    verifies_transactions: bool = True
    """Leaders ask the coordinator about transactional batches; Kafka 3.6 (KIP-890 part 1)."""

    verifies_epochs: bool = True
    """Leaders ask about a batch of another epoch also while a transaction of its producer is open; Kafka 4.0."""

    forgets_offsets: bool = False
    """TxnOffsetCommit that an open transaction refuses for its epoch drops what this one has sent; until Kafka 4.0."""

    coordinates_as_4_0: bool = True
    """A transaction coordinator responds with 51 to any producer while a change is in progress, and forgets the start
    of a transaction when its producer is initialized again; Kafka 4.0."""

    coordinates_groups_as_4_0: bool = True
    """For a generation of an unknown group TxnOffsetCommit gets 22, not 25, and OffsetCommit since version 9 gets 69,
    not 22; and giving back an id that was not used to join starts a rebalance; Kafka 4.0."""

    group_operations: int = 3400
    """Operations that a client may perform on a consumer group where nothing is forbidden, as bits; until Kafka 4.0
    without those on its settings: 328."""

    lists_listeners: bool = True
    """`listeners` and `advertised.listeners` are lists, and the second is for good; until Kafka 3.9 text, for now."""

    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Settings of topics that differ from those of Kafka 4."""

    listed: Sequence[Mapping[str, int]] = field(init=False, repr=False, compare=False)
    """`versions` as rows of an ApiVersions response, made once because each connection begins with that request."""

    def __post_init__(self) -> None:
        rows = self.versions.items()
        listed = tuple({"api_key": api, "min_version": low, "max_version": high} for api, (low, high) in rows)
        object.__setattr__(self, "listed", listed)

    def listed_apis(self, *, accepts_metrics: bool) -> Sequence[Mapping[str, int]]:
        """Return the rows of ApiVersions; those of telemetry only with a plug-in that takes metrics."""
        return self.listed if accepts_metrics else [row for row in self.listed if row["api_key"] not in _OF_TELEMETRY]

    def supports(self, api: ApiKey, version: int) -> bool:
        if api not in self.versions:
            return False
        low, high = self.versions[api]
        if api is ApiKey.PRODUCE:
            low = max(low, self.lowest_produce)
        return low <= version <= high


def _listed(release: str) -> Mapping[ApiKey, tuple[int, int]]:
    column = _RELEASES.index(release)
    bounds = {api: row.split()[column].split("-") for api, row in _LISTED.items()}
    return MappingProxyType({api: (int(low), int(high)) for api, (low, high) in bounds.items() if low})


_SINCE_4_3 = "only {} broker(s) are registered or some brokers have all their log directories cordoned."


def _since_4_3(release: str, metadata_version: int) -> VersionProfile:
    return VersionProfile(
        release,
        _listed(release),
        too_few_brokers=_SINCE_4_3,
        supported_features=MappingProxyType({"metadata.version": (7, metadata_version), "transaction.version": (0, 2)}),
        finalized_features=MappingProxyType({"metadata.version": metadata_version, "transaction.version": 2}),
    )


def _before_4_0(release: str) -> VersionProfile:
    return VersionProfile(
        release,
        _listed(release),
        smallest_segment_bytes=14,
        topic_defaults=BEFORE_4_0,
        verifies_epochs=False,
        forgets_offsets=True,
        coordinates_as_4_0=False,
        coordinates_groups_as_4_0=False,
        group_operations=328,
        lists_listeners=False,
    )


def _before_3_6(release: str) -> VersionProfile:
    return replace(_before_4_0(release), verifies_transactions=False)


def _before_2_5(release: str) -> VersionProfile:
    return replace(_before_3_6(release), sequence_must_start_at_zero=True, auto_create_answer=5)


PROFILES: Mapping[str, VersionProfile] = MappingProxyType(
    {
        "4.4.0": replace(_since_4_3("4.4.0", 33), topic_defaults=SINCE_4_4),
        "4.3.1": _since_4_3("4.3.1", 30),
        "3.9.1": replace(
            _before_4_0("3.9.1"),
            supported_features=MappingProxyType({"metadata.version": (1, 21)}),
            finalized_features=MappingProxyType({"metadata.version": 21}),
        ),
        "2.8": _before_3_6("2.8"),
        "2.4": _before_2_5("2.4"),
        "2.1": _before_2_5("2.1"),
    }
)
"""By release. A newer one comes first."""


def profile_named(name: str) -> VersionProfile:
    """Return the profile of a release; ValueError, listing them, if there is none."""
    if name not in PROFILES:
        raise ValueError(f"no profile of Kafka {name!r}; there are {', '.join(PROFILES)}")
    return PROFILES[name]


TRANSACTION_VERSION = "transaction.version"
TRANSACTIONS_V2 = 2  # the level of KIP-890

_FIRST_WITH_LOWEST_0 = 4
"""ApiVersions before this leaves out supported features whose lowest level is 0: clients mistook them (KIP-1022)."""


class Features:
    """Supported and finalized feature levels of one cluster; `transaction_version` None is the highest there is.

    Only `transaction.version` has an effect: 2 is KIP-890, where clients use Produce 12 and EndTxn 5. It may change
    while the cluster runs; every change raises the epoch, so that clients know which response is newer.
    """

    def __init__(self, profile: VersionProfile, transaction_version: int | None) -> None:
        self._profile = profile
        self._levels = dict(profile.finalized_features)
        self.epoch: int = 1
        if transaction_version is not None:
            self._require(transaction_version)
            self._levels[TRANSACTION_VERSION] = transaction_version

    @property
    def transaction_version(self) -> int:
        """Finalized level; 0 if the release has no such feature."""
        return self._levels.get(TRANSACTION_VERSION, 0)

    def finalize_transaction_version(self, level: int) -> None:
        """Change the level, up or down, as `kafka-features.sh` does."""
        self._require(level)
        self._levels[TRANSACTION_VERSION] = level
        self.epoch += 1

    def _require(self, level: int) -> None:
        _, highest = self._profile.supported_features.get(TRANSACTION_VERSION, (0, 0))
        if not 0 <= level <= highest:
            raise ValueError(f"Kafka {self._profile.name} has transaction.version 0 to {highest}, not {level}")

    def tree(self, version: int) -> Mapping[str, object]:
        """Return the feature fields of an ApiVersions response; a finalized level of 0 is not listed."""
        if not self._profile.supported_features:
            return {}
        return {
            "supported_features": [
                {"name": name, "min_version": low, "max_version": high}
                for name, (low, high) in self._profile.supported_features.items()
                if low > 0 or version >= _FIRST_WITH_LOWEST_0
            ],
            "finalized_features_epoch": self.epoch,
            "finalized_features": [
                {"name": name, "max_version_level": level, "min_version_level": level}
                for name, level in self._levels.items()
                if level > 0
            ],
        }
