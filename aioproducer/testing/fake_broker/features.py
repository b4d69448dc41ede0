"""Supported and finalized feature levels of a cluster, as listed in ApiVersions.

Only `transaction.version` has an effect here: 2 is KIP-890, where clients use Produce 12 and EndTxn 5. It may change
while the cluster runs; every change raises the epoch, so that clients know which response is newer.
"""

from aioproducer.testing.fake_broker.version_profiles import VersionProfile
from aioproducer.testing.fake_broker.wire.messages import Tree

TRANSACTION_VERSION = "transaction.version"
TRANSACTIONS_V2 = 2  # the level of KIP-890

_FIRST_WITH_LOWEST_0 = 4
"""ApiVersions before this leaves out supported features whose lowest level is 0: clients mistook them (KIP-1022)."""


class Features:
    """The features of one cluster; `transaction_version` None is the highest there is."""

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

    def tree(self, version: int) -> Tree:
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
