"""Versions of requests to use with a broker."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from aioproducer._protocol.messages import Api


class FinalizedFeatures(NamedTuple):
    """Features that the cluster has finalized, as one broker knew them (KIP-584)."""

    epoch: int = -1  # a larger one is newer; -1 if the broker reports no features
    levels: Mapping[str, int] = MappingProxyType({})

    @property
    def transaction_version(self) -> int:
        """Level of transactions: from 2 on, Produce itself adds partitions (KIP-890)."""
        return self.levels.get("transaction.version", 0)


NO_FEATURES: Final = FinalizedFeatures()


class ApiVersions:
    """Versions that one broker supports, from the start of its connection.

    Args:
        ranges: lowest and highest version by api key. Invalid ranges (negative, or upside down) are dropped: the broker
            then counts as not supporting that request.
        features: of the cluster.
    """

    __slots__ = ("_ranges", "features")

    def __init__(self, ranges: Mapping[int, tuple[int, int]], features: FinalizedFeatures = NO_FEATURES) -> None:
        self.features = features
        self._ranges = MappingProxyType({key: pair for key, pair in ranges.items() if 0 <= pair[0] <= pair[1]})

    def highest_common(self, api: Api, *, at_most: int | None = None) -> int:
        """Return the highest version of a request that both sides support.

        Never the lowest: Kafka 4 lists Produce versions from 0 on that it refuses (KAFKA-18659).

        Args:
            at_most: a bound below this client's highest version.
        """
        ours = api.max_version if at_most is None else min(at_most, api.max_version)
        lowest, highest = self._ranges.get(api.key, (0, -1))
        version = min(highest, ours)
        if version < max(lowest, api.min_version):
            raise UnsupportedVersionError(self._complaint(api, ours))
        return version

    def __repr__(self) -> str:
        return f"ApiVersions({len(self._ranges)} requests)"

    def _complaint(self, api: Api, ours: int) -> str:
        needed = f"Kafka {api.since} or newer is needed"
        if api.key not in self._ranges:
            return f"the broker does not speak {api.name} at all; {needed}"
        lowest, highest = self._ranges[api.key]
        spoken = f"it speaks {api.name} {lowest} to {highest}, this client {api.min_version} to {ours}"
        if highest < api.min_version:
            return f"the broker is too old: {spoken}; {needed}"
        return f"the broker is too new for this client: {spoken}"
