"""What users of aiokafka complain about on secured clusters, as tests that this producer passes; in virtual time."""

import asyncio
import datetime as dt
import random
import ssl
from typing import cast

import pytest

from aioproducer import CredentialsError, Producer
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.testing import CertificateAuthority, ClusterSecurity, FakeCluster, unsecured_token
from tests.fakes.virtual_cluster import in_virtual_time
from tests.fakes.virtual_loop import virtual_loop

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
