"""Certificates and versions of brokers that a producer does not accept, and certificates of clients, revoked."""

import asyncio
import datetime as dt
from collections.abc import Callable

import pytest

from aioproducer import DeliveryTimeoutError, KafkaError, TlsRefusedError, TlsVerificationError
from aioproducer.testing import Certificate, CertificateAuthority, ClusterSecurity, FakeCluster
from aioproducer.testing.kafka import KafkaCluster
from tests.secured.ways import Options, Place, deliver, producer_of

HOUR = dt.timedelta(hours=1)
AUTHORITY = CertificateAuthority("of bad certificates")
BAD: dict[str, tuple[Callable[[], Certificate], str]] = {
    "expired": (lambda: AUTHORITY.issue(begins=-2 * HOUR, ends=-HOUR), "has expired: the cluster needs a new one"),
    "not valid yet": (lambda: AUTHORITY.issue(begins=HOUR, ends=2 * HOUR), "is not valid yet: look at its notBefore"),
    "for clients": (lambda: AUTHORITY.issue(usage=("client",)), "the cluster needs one with serverAuth"),
}
"""What is wrong with a broker's certificate, how it is made, and what the error says."""
KINDS = ["fake", *(pytest.param(version, marks=pytest.mark.kafka) for version in ("3.9.1", "4.3.1"))]


def cluster_of(kind: str, certificate: Certificate) -> Place:
    """Return a cluster with a certificate of its own, which speaks an old version of TLS alone."""
    asked = ClusterSecurity(
        authority=AUTHORITY, broker_certificate=certificate, tls_versions=("TLSv1.2",), listeners=("SSL",)
    )
    return FakeCluster(1, security=asked) if kind == "fake" else KafkaCluster(kind, security=asked)


async def failure_at_start(options: Options) -> KafkaError:
    producer = producer_of(options, max_block_ms=30_000)
    with pytest.raises(KafkaError) as caught:
        await producer.start()
    await producer.close()
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", KINDS)
async def test_bad_certificate_is_named_and_a_right_one_works(kind: str, name: str) -> None:
    make, words = BAD[name]
    async with cluster_of(kind, make()) as place:
        error = await failure_at_start(place.client_options("SSL"))
        if isinstance(place, FakeCluster):  # running brokers of Kafka refuse a certificate after such a one
            place.change_certificate(AUTHORITY.issue())
            await deliver(place.client_options("SSL"))
        await deliver({"bootstrap_servers": place.bootstrap_servers})

    assert isinstance(error, TlsVerificationError)
    assert words in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_version_that_brokers_do_not_speak_names_the_option(kind: str) -> None:
    """That of TLS 1.1, which Java does not speak any more, has the same alert."""
    async with cluster_of(kind, AUTHORITY.issue()) as place:
        options = place.client_options("SSL")
        error = await failure_at_start(options | {"ssl_enabled_protocols": "TLSv1.3"})
        await deliver(options)

    assert isinstance(error, TlsRefusedError)
    assert "see ssl_enabled_protocols" in str(error)


@pytest.mark.slow
async def test_records_end_with_the_refusal_of_a_revoked_certificate() -> None:
    async with FakeCluster(1, topics={"orders": 1}, security=ClusterSecurity()) as cluster:
        options = cluster.client_options("MTLS")
        times = {"request_timeout_ms": 500, "delivery_timeout_ms": 1_000, "connections_max_idle_ms": 100}
        async with producer_of(options, **times) as producer:
            await producer.send_and_wait("orders", b"first")
            cluster.change_certificate(trusted=AUTHORITY.certificate)
            await asyncio.sleep(0.5)  # until the connection is closed as idle
            with pytest.raises(DeliveryTimeoutError) as late:
                await producer.send_and_wait("orders", b"late")
            cluster.change_certificate(trusted=cluster.security.authority.certificate)
            await asyncio.sleep(3)  # the pause after refusals
            await producer.send_and_wait("orders", b"accepted")

    assert isinstance(late.value.last_broker_error, TlsRefusedError)
    assert "ssl_keystore_location" in str(late.value.last_broker_error)
