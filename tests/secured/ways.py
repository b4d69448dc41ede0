"""Ways to connect to a secured test cluster, and the security that its tests share."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TypeAlias, cast

import pytest

from aioproducer import Producer
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.testing import FakeCluster
from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.kafka import KafkaCluster
from tests.kafka_releases import marks_of

Place: TypeAlias = FakeCluster | KafkaCluster
Options: TypeAlias = dict[str, object]

VERSIONS = ("3.9.1", "4.4.0")
"""Of the real brokers."""


def places(*, nightly: Collection[str] = ()) -> list[object]:
    """Return the parameters of the fixture `place`; `nightly` are releases that are left to the nightly run."""
    return [
        pytest.param((kind, version), id=f"{kind}-{version}", marks=[*marks, *marks_of(version, nightly)])
        for kind, marks in (("fake", []), ("real", [pytest.mark.kafka]))
        for version in VERSIONS
    ]


PLACES = places()

SECURITY = ClusterSecurity()
SHORT_SESSIONS = ClusterSecurity(
    users={"alice": "alice-secret", "bob": "bob-secret", "ligature": "\ufb01rst"}, session_lifetime_ms=3000
)

WAYS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "tls": ("SSL", ""),
        "mtls": ("MTLS", ""),
        "plain": ("SASL_PLAINTEXT", "PLAIN"),
        "scram-256": ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        "scram-512": ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
        "oauth": ("SASL_PLAINTEXT", "OAUTHBEARER"),
        "tls-plain": ("SASL_SSL", "PLAIN"),
        "tls-scram-256": ("SASL_SSL", "SCRAM-SHA-256"),
        "tls-scram-512": ("SASL_SSL", "SCRAM-SHA-512"),
        "tls-oauth": ("SASL_SSL", "OAUTHBEARER"),
        "mtls-scram-512": ("SASL_MTLS", "SCRAM-SHA-512"),
        "signed-oauth": ("SIGNED", "OAUTHBEARER"),
    }
)
"""Listener and mechanism of each way to connect."""


def producer_of(options: Options, **more: object) -> Producer:
    rest = {name: value for name, value in options.items() if name != "bootstrap_servers"}
    return Producer(cast("str", options["bootstrap_servers"]), **cast("ProducerOptions", rest | more))


async def deliver(options: Options) -> None:
    async with producer_of(options) as producer:
        await producer.send_and_wait("right", b"x")
