"""Certificates and versions of brokers that a producer does not accept, and certificates of clients, revoked."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable
from inspect import isawaitable

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


def security() -> ClusterSecurity:
    """Return brokers that begin with the first of the bad certificates, and speak an old version alone."""
    return ClusterSecurity(
        authority=AUTHORITY, broker_certificate=BAD["expired"][0](), tls_versions=("TLSv1.2",), listeners=("SSL",)
    )


@pytest.fixture(params=["fake", *(pytest.param(each, marks=pytest.mark.kafka) for each in ("3.9.1", "4.3.1"))])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A cluster of its own: its certificates are changed."""
    if request.param == "fake":
        async with FakeCluster(1, security=security()) as fake:
            yield fake
        return
    async with KafkaCluster(request.param, security=security()) as kafka:
        yield kafka


async def present(place: Place, certificate: Certificate) -> None:
    changing = place.change_certificate(certificate)
    if isawaitable(changing):
        await changing


async def failure_at_start(options: Options) -> KafkaError:
    producer = producer_of(options, max_block_ms=30_000)
    with pytest.raises(KafkaError) as caught:
        await producer.start()
    await producer.close()
    return caught.value


@pytest.mark.slow
async def test_bad_certificate_is_named_and_a_right_one_works(place: Place) -> None:
    options = place.client_options("SSL")
    errors = {}
    for name, (make, _) in BAD.items():
        if name != "expired":  # the cluster began with it
            await present(place, make())
        errors[name] = await failure_at_start(options)
    await present(place, AUTHORITY.issue())
    no_version = await failure_at_start(options | {"ssl_enabled_protocols": "TLSv1.3"})
    await deliver(options)

    assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(BAD, TlsVerificationError)
    assert [name for name, error in errors.items() if BAD[name][1] not in str(error)] == [], errors
    assert isinstance(no_version, TlsRefusedError)
    assert "see ssl_enabled_protocols" in str(no_version)


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
