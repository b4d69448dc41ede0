"""Secured real brokers, one per version and session, and options of clients for each of their listeners."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer.testing import FakeCluster
from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.kafka import KafkaCluster, Kdc
from tests.kafka_releases import releases_of_each_run
from tests.secured.kerberos import LISTENERS, missing_kerberos
from tests.secured.ways import PLACES, SECURITY, SHORT_SESSIONS, VERSIONS, WAYS, Place


def running_secured(version: str, thread: ThreadPoolExecutor, security: ClusterSecurity) -> Iterator[KafkaCluster]:
    kafka = KafkaCluster(version, security=security)
    thread.submit(lambda: asyncio.run(kafka.start())).result()
    yield kafka
    thread.submit(lambda: asyncio.run(kafka.stop())).result()


@pytest.fixture(scope="session")
def secured_391(kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """Kafka 3.9.1 with every listener of `LISTENERS` and no end of sessions; change nothing that others use."""
    yield from running_secured("3.9.1", kafka_thread, SECURITY)


@pytest.fixture(scope="session")
def secured_440(kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """Kafka 4.4.0, likewise."""
    yield from running_secured("4.4.0", kafka_thread, SECURITY)


@pytest.fixture(scope="session")
def sessions_391(kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """Kafka 3.9.1, secured, with sessions of three seconds."""
    yield from running_secured("3.9.1", kafka_thread, SHORT_SESSIONS)


@pytest.fixture(scope="session")
def sessions_440(kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """Kafka 4.4.0, likewise."""
    yield from running_secured("4.4.0", kafka_thread, SHORT_SESSIONS)


@pytest.fixture(params=releases_of_each_run("4.4.0", among=VERSIONS))
def kafka_with_sessions(request: pytest.FixtureRequest) -> KafkaCluster:
    """A broker with sessions of three seconds, at night each of them in turn; mark the test `kafka`."""
    kafka: KafkaCluster = request.getfixturevalue(f"sessions_{request.param.replace('.', '')}")
    return kafka


@pytest.fixture(params=VERSIONS)
def secured_kafka(request: pytest.FixtureRequest) -> KafkaCluster:
    """Each of the secured real brokers in turn; mark the test `kafka`."""
    kafka: KafkaCluster = request.getfixturevalue(f"secured_{request.param.replace('.', '')}")
    return kafka


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A secured cluster with sessions that never end, of each kind and version."""
    kind, version = request.param
    if kind == "real":
        yield request.getfixturevalue(f"secured_{version.replace('.', '')}")
        return
    async with FakeCluster(1, profile=version, security=SECURITY) as fake:
        yield fake


@pytest.fixture
def options(secured_kafka: KafkaCluster) -> dict[str, dict[str, object]]:
    """Options of a `Producer` for each of `WAYS`, by its name; those of OAUTHBEARER lack the token provider."""
    return {way: secured_kafka.client_options(*where) for way, where in WAYS.items()}


@pytest.fixture
def properties(secured_kafka: KafkaCluster) -> dict[str, dict[str, str]]:
    """Properties of a Java client for each of `WAYS`, by its name."""
    return {way: secured_kafka.client_properties(*where) for way, where in WAYS.items()}


@pytest.fixture(scope="session")
def realm(kafka_thread: ThreadPoolExecutor) -> Iterator[Kdc]:
    """A Kerberos realm with the brokers' principal and alice, shared by the whole run: add users of your own."""
    if missing_kerberos():
        pytest.skip(missing_kerberos())
    kdc = Kdc()
    kafka_thread.submit(kdc.start).result()
    kdc.add("alice")
    yield kdc
    kdc.stop()


@pytest.fixture
def kdc(realm: Kdc, monkeypatch: pytest.MonkeyPatch) -> Kdc:
    """The realm, which is also that of this process during the test; with an empty ticket cache."""
    for name, value in realm.environment.items():
        monkeypatch.setenv(name, value)
    return realm


@pytest.fixture(scope="session")
def kerberos_391(kafka_thread: ThreadPoolExecutor, realm: Kdc) -> Iterator[KafkaCluster]:
    """Kafka 3.9.1 that takes tickets, with sessions of three seconds."""
    security = ClusterSecurity(mechanisms=("GSSAPI",), listeners=LISTENERS, session_lifetime_ms=3000, kdc=realm)
    yield from running_secured("3.9.1", kafka_thread, security)


@pytest.fixture(scope="session")
def kerberos_440(kafka_thread: ThreadPoolExecutor, realm: Kdc) -> Iterator[KafkaCluster]:
    """Kafka 4.4.0, likewise."""
    security = ClusterSecurity(mechanisms=("GSSAPI",), listeners=LISTENERS, session_lifetime_ms=3000, kdc=realm)
    yield from running_secured("4.4.0", kafka_thread, security)


@pytest.fixture(params=releases_of_each_run("4.4.0", among=VERSIONS))
def kerberos_kafka(request: pytest.FixtureRequest, kdc: Kdc) -> KafkaCluster:
    """A broker that takes tickets, at night each of them in turn; mark the test `kafka`."""
    assert kdc is not None
    kafka: KafkaCluster = request.getfixturevalue(f"kerberos_{request.param.replace('.', '')}")
    return kafka
