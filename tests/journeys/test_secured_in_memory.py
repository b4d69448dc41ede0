"""A producer and a secured cluster over the memory transport, in virtual time: hours of sessions in a second."""

import asyncio
import ssl
from typing import cast

import pytest

from aioproducer import Producer
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.testing import ClusterSecurity, FakeCluster
from aioproducer.testing.tokens import unsecured_token
from tests.fakes.virtual_cluster import in_virtual_time

LIFETIME_S = 10.0
SESSIONS = 100
SECURITY = ClusterSecurity(session_lifetime_ms=round(LIFETIME_S * 1000))
WAYS = [("SASL_PLAINTEXT", "PLAIN"), ("SASL_PLAINTEXT", "SCRAM-SHA-512"), ("SASL_SSL", "SCRAM-SHA-256"), ("SSL", "")]


def producer_of(cluster: FakeCluster, way: tuple[str, str]) -> Producer:
    options = cluster.client_options(*way)
    if options.pop("ssl_truststore_location", None):  # files are read in threads, which virtual time does not await
        options["ssl_context"] = ssl.create_default_context(cadata=SECURITY.authority.certificate)
    servers = cast("str", options.pop("bootstrap_servers"))
    return Producer(servers, **cast("ProducerOptions", options))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids="-".join)
@in_virtual_time
async def test_records_outlive_a_hundred_sessions_on_one_connection(way: tuple[str, str]) -> None:
    async with FakeCluster(1, topics={"orders": 1}, security=SECURITY) as cluster:
        async with producer_of(cluster, way) as producer:
            for number in range(3 * SESSIONS):
                await producer.send_and_wait("orders", str(number).encode())
                await asyncio.sleep(LIFETIME_S / 3)
            connections = {seen.connection_id for seen in cluster.requests}

        assert [record.value for record in cluster.records("orders", 0)] == [
            str(number).encode() for number in range(3 * SESSIONS)
        ]
        first = [seen for seen in cluster.authentications if not seen.is_again]
        again = [seen for seen in cluster.authentications if seen.is_again]
        assert [seen for seen in cluster.authentications if seen.error_code] == []
        assert len(first) == (len(connections) if way[1] else 0)
        assert len(again) >= (SESSIONS - 10 if way[1] else 0)
        assert cluster.model.intruders == []


class CountedTokens:
    """Tokens for an hour, and how many were asked for."""

    asked = 0

    async def token(self) -> str:
        self.asked += 1
        return unsecured_token("alice", lifetime_s=3600)


@in_virtual_time
async def test_one_token_serves_all_connections_and_sessions() -> None:
    tokens = CountedTokens()
    async with FakeCluster(3, topics={"orders": 3}, security=SECURITY) as cluster:
        options = cluster.client_options("SASL_PLAINTEXT", "OAUTHBEARER") | {"sasl_token_provider": tokens}
        servers = cast("str", options.pop("bootstrap_servers"))
        async with Producer(servers, **cast("ProducerOptions", options)) as producer:
            for partition in (0, 1, 2) * 10:
                await producer.send_and_wait("orders", b"v", partition=partition)
                await asyncio.sleep(LIFETIME_S / 3)

        assert len({seen.connection_id for seen in cluster.authentications}) >= 3
        assert any(seen.is_again for seen in cluster.authentications)
    assert tokens.asked == 1
