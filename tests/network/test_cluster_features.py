"""Finalized features of a cluster, as brokers report them at different times."""

from aioproducer._network.context import ClusterFeatures
from aioproducer._protocol.api_versions import FinalizedFeatures


def agreed(epoch: int, transaction_version: int) -> FinalizedFeatures:
    return FinalizedFeatures(epoch, {"transaction.version": transaction_version})


def test_broker_that_is_behind_takes_nothing_back() -> None:
    """Transactions would go back to the older protocol, and forth again with the next answer."""
    features = ClusterFeatures()
    features.take(agreed(7, 2))

    features.take(agreed(5, 0))
    assert features.transaction_version == 2
    features.take(agreed(8, 1))
    assert features.transaction_version == 1


def test_another_cluster_has_its_own_feature_epochs() -> None:
    """The new node's features replace those of the one before."""
    features = ClusterFeatures()
    features.take(agreed(7, 2))

    features.replace(agreed(1, 0))

    assert (features.newest.epoch, features.transaction_version) == (1, 0)
