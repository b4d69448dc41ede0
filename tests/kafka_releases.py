"""The releases that contract tests run on, real and as profiles of the model: one broker line each."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from aioproducer.testing.fake_broker.version_profiles import VersionProfile, profile_named
from aioproducer.testing.kafka import KafkaCluster

RELEASES: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {"3.9.1": {}, "4.4.0": {}, "4.4.0-tv0": {"transaction.version": 0}}
)
"""Features to format with, by release. With transaction.version 0 Kafka 4 has transactions as 3.9 has them."""

FAKE, REAL = "fake", "real"

PROPERTIES: Mapping[str, str] = MappingProxyType({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"})
"""Brokers abort a transaction that is open for too long within a test's patience, not every 10 s."""


def version_of_release(release: str) -> str:
    """The release of Apache Kafka."""
    return release.partition("-")[0]


def profile_of(release: str) -> VersionProfile:
    profile = profile_named(version_of_release(release))
    finalized = {**profile.finalized_features, **RELEASES[release]}
    return replace(profile, finalized_features=finalized)


def real_cluster(release: str, *, nodes: int = 1, properties: Mapping[str, str] | None = None) -> KafkaCluster:
    """A real cluster, not started yet; `properties` of its nodes come on top of `PROPERTIES`; several have racks."""
    return KafkaCluster(
        version_of_release(release),
        nodes=nodes,
        properties={**PROPERTIES, **(properties or {})},
        features=RELEASES[release],
        racks={node_id: f"rack-{node_id}" for node_id in range(1, nodes + 1) if nodes > 1},
    )


def fixture_of_release(release: str) -> str:
    """The fixture that is its one running real node, shared by all tests."""
    return "kafka_" + release.replace(".", "").replace("-", "_")


def fake_and_real(releases: Iterable[str] = RELEASES, *, nightly: Collection[str] = ()) -> list[object]:
    """Parameters of `broker_of_release`: the embedded cluster as each of the releases, and real Kafka.

    Args:
        releases: of both kinds.
        nightly: those of real Kafka that are left to the nightly run.
    """
    named = list(releases)
    fake = [pytest.param((FAKE, release), id=f"{FAKE}-{release}") for release in named]
    return [
        *fake,
        *(
            pytest.param(
                (REAL, release), id=f"{REAL}-{release}", marks=[pytest.mark.kafka, *marks_of(release, nightly)]
            )
            for release in named
        ),
    ]


def marks_of(release: str, nightly: Collection[str]) -> list[pytest.MarkDecorator]:
    return [pytest.mark.nightly] if release in nightly else []


def releases_of_each_run(*usual: str, among: Iterable[str] = RELEASES) -> list[object]:
    """All releases as parameters, of which those not named are left to the nightly run."""
    return [pytest.param(release, marks=() if release in usual else pytest.mark.nightly) for release in among]
