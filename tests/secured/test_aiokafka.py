"""Security beside aiokafka: options for its consumer, its arguments for us, and its defects that we do not have."""

import asyncio
import datetime as dt
import random
import ssl
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError

from aioproducer import CredentialsError, Producer
from aioproducer.compat import AIOKafkaProducer
from aioproducer.config import ProducerConfig
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.errors import ConfigurationError
from aioproducer.integrations._aiokafka_security import aiokafka_security, check_readable
from aioproducer.testing import CertificateAuthority, ClusterSecurity, FakeCluster, unsecured_token
from aioproducer.testing.kafka import KafkaCluster
from tests.fakes.virtual_loop import in_virtual_time, virtual_loop


@pytest.mark.kafka
@pytest.mark.parametrize("way", ["mtls", "plain", "tls-scram-512"])
async def test_consumer_connects_with_the_options_of_a_producer(
    options: dict[str, dict[str, object]], secured_kafka: KafkaCluster, way: str
) -> None:
    config = ProducerConfig(**cast("Any", options[way]))
    check_readable(config)
    servers = list(config.bootstrap_servers)
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, **await aiokafka_security(config))
    await consumer.start()
    topics = await consumer.topics()
    await consumer.stop()

    assert isinstance(topics, set)
    assert secured_kafka is not None


@pytest.mark.parametrize(
    "given, option",
    [
        ({"proxy_url": "http://p:1"}, "proxy_url"),
        ({"address_map": {"a:1": "b:1"}}, "address_map"),
        ({"allowed_brokers": ["a"]}, "allowed_brokers"),
    ],
)
def test_option_that_aiokafka_does_not_have_is_refused(given: dict[str, object], option: str) -> None:
    config = ProducerConfig(bootstrap_servers="h:1", **cast("Any", given))
    with pytest.raises(ConfigurationError, match=f"^{option} cannot be used here"):
        check_readable(config)


async def test_plaintext_needs_no_arguments() -> None:
    assert await aiokafka_security(ProducerConfig(bootstrap_servers="h:1")) == {}


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka is not typed
    """A provider as aiokafka's users write it."""

    async def token(self) -> str:
        return unsecured_token("alice", lifetime_s=60.0)


def arguments(kafka: KafkaCluster, listener: str, mechanism: str) -> dict[str, Any]:
    context = None
    if listener.endswith("SSL"):
        context = ssl.create_default_context(cafile=str(kafka.security_folder / "ca.pem"))
    given: dict[str, Any] = {
        "bootstrap_servers": kafka.secured_servers(listener),
        "security_protocol": listener,
        "ssl_context": context,
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return given | {"sasl_oauth_token_provider": Tokens()}
    return given | {"sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}


@pytest.mark.kafka
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_record_is_delivered(secured_kafka: KafkaCluster, listener: str, mechanism: str) -> None:
    async with AIOKafkaProducer(**arguments(secured_kafka, listener, mechanism)) as producer:
        metadata = await producer.send_and_wait("sasl", b"value")

    assert metadata.offset >= 0


@pytest.mark.kafka
@pytest.mark.parametrize("listener", ["SSL", "MTLS"])
async def test_record_is_delivered_over_tls(secured_kafka: KafkaCluster, listener: str) -> None:
    folder = secured_kafka.security_folder
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if listener == "MTLS":
        context.load_cert_chain(folder / "client.pem")
    servers = secured_kafka.secured_servers(listener)
    async with AIOKafkaProducer(bootstrap_servers=servers, security_protocol="SSL", ssl_context=context) as producer:
        metadata = await producer.send_and_wait("tls", b"value")

    assert metadata.offset >= 0


@pytest.mark.kafka
async def test_wrong_password_is_the_error_of_start(secured_kafka: KafkaCluster) -> None:
    producer = AIOKafkaProducer(
        **arguments(secured_kafka, "SASL_PLAINTEXT", "PLAIN") | {"sasl_plain_password": "canary-wrong"}
    )
    with pytest.raises(AuthenticationFailedError, match="sasl_password"):
        await producer.start()


@pytest.mark.kafka
async def test_sessions_that_end_close_no_connection(kafka_with_sessions: KafkaCluster) -> None:
    """Aiokafka itself loses its connection at the end of every session."""
    async with AIOKafkaProducer(**arguments(kafka_with_sessions, "SASL_PLAINTEXT", "SCRAM-SHA-256")) as producer:
        await producer.send_and_wait("sasl", b"first")
        before = producer._producer.statistics()  # noqa: SLF001  # aiokafka has none
        for _ in range(80):
            await producer.send_and_wait("sasl", b"value")
            await asyncio.sleep(0.1)
        after = producer._producer.statistics()  # noqa: SLF001  # as above

    assert after.connections_created == before.connections_created
    assert after.reauthentications >= 2


HOUR_S = 3600.0


def producer_of(cluster: FakeCluster, way: tuple[str, str], **more: object) -> Producer:
    options = cluster.client_options(*way)
    if options.pop("ssl_truststore_location", None):  # files are read in threads, which virtual time does not await
        options["ssl_context"] = ssl.create_default_context(cadata=cluster.security.authority.certificate)
    options |= more
    return Producer(cast("str", options.pop("bootstrap_servers")), **cast("ProducerOptions", options))


@pytest.mark.slow
@pytest.mark.parametrize("way", [("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512")], ids="-".join)
@in_virtual_time
async def test_hourly_sessions_close_no_connection_in_a_working_day(way: tuple[str, str]) -> None:
    """Its connection is lost at the end of every session."""
    security = ClusterSecurity(session_lifetime_ms=round(HOUR_S * 1000))
    async with FakeCluster(1, topics={"orders": 1}, security=security) as cluster:
        async with producer_of(cluster, way) as producer:
            await producer.send_and_wait("orders", b"first")
            before = producer.statistics()
            for _ in range(8 * 12):
                await asyncio.sleep(300)
                await producer.send_and_wait("orders", b"x")
            after = producer.statistics()

        assert after.connections_created == before.connections_created
        assert after.records_retried == 0
        assert 8 <= len([seen for seen in cluster.authentications if seen.is_again]) <= 10
        assert len(cluster.records("orders", 0)) == 8 * 12 + 1


def wall_clock_s() -> float:
    return 1_800_000_000.0 + asyncio.get_running_loop().time()


class ShortTokens:
    """Tokens that end after ten seconds of the loop."""

    asked = 0

    async def token(self) -> str:
        self.asked += 1
        return unsecured_token(
            "alice", lifetime_s=10.0, issued_ago_s=dt.datetime.now(dt.UTC).timestamp() - wall_clock_s()
        )


@in_virtual_time
async def test_token_is_replaced_before_it_ends() -> None:
    """A token is fetched once, and the connection lost when it ends."""
    tokens = ShortTokens()
    security = ClusterSecurity()
    async with FakeCluster(1, topics={"orders": 1}, security=security, clock=lambda: wall_clock_s() * 1000) as cluster:
        producer = producer_of(cluster, ("SASL_SSL", "OAUTHBEARER"), sasl_token_provider=tokens)
        producer._use_sources(random=random.Random(1), wall_clock=lambda: int(wall_clock_s() * 1000))
        async with producer:
            await producer.send_and_wait("orders", b"x")
            before = producer.statistics()
            for _ in range(100):
                await producer.send_and_wait("orders", b"x")
                await asyncio.sleep(1)
            after = producer.statistics()

    assert after.connections_created == before.connections_created
    assert after.reauthentications >= 9
    assert tokens.asked >= 10


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@in_virtual_time
async def test_wrong_password_is_the_error_and_not_a_time_out(mechanism: str) -> None:
    """The reason is logged, and the call ends with a time-out of the connection."""
    async with FakeCluster(1, security=ClusterSecurity()) as cluster:
        loop = asyncio.get_running_loop()
        began = loop.time()
        producer = producer_of(cluster, ("SASL_SSL", mechanism), sasl_password="canary-wrong", max_block_ms=600_000)
        with pytest.raises(CredentialsError, match="sasl_password"):
            await producer.start()

        assert loop.time() - began < 1


@in_virtual_time
async def test_metadata_is_never_asked_for_during_an_exchange() -> None:
    """METADATA slips between SaslHandshake and the last token, on which brokers close."""
    security = ClusterSecurity(session_lifetime_ms=1_200)
    async with FakeCluster(1, topics={"orders": 1}, security=security) as cluster:
        way = ("SASL_SSL", "SCRAM-SHA-512")
        async with producer_of(cluster, way, metadata_max_age_ms=20) as producer:
            await producer.send_and_wait("orders", b"first")
            before = producer.statistics()
            for _ in range(200):
                await producer.send_and_wait("orders", b"x")
                await asyncio.sleep(0.1)
            after = producer.statistics()

        assert cluster.model.intruders == []
        assert after.connections_created == before.connections_created
        assert after.reauthentications >= 15


@in_virtual_time
async def test_broker_with_ipv6_alone_is_connected_to_by_its_name() -> None:
    """A name with IPv6 addresses only is not connected to."""
    authority = CertificateAuthority()
    security = ClusterSecurity(authority=authority, broker_certificate=authority.issue("kafka-v6", "localhost"))
    async with FakeCluster(1, topics={"orders": 1}, security=security) as cluster:
        port = int(cluster.secured_servers("SASL_SSL").rpartition(":")[2])
        loop = virtual_loop()
        loop.names["kafka-v6"] = loop.names["localhost"] = ["::1"]
        loop.servers["::1", port] = loop.servers.pop(("127.0.0.1", port))
        options = {"bootstrap_servers": f"kafka-v6:{port}"}
        async with producer_of(cluster, ("SASL_SSL", "SCRAM-SHA-256"), **options) as producer:
            await producer.send_and_wait("orders", b"x")

        assert {host for _, host, _ in loop.connects} == {"::1"}
