"""Our producer authenticates on real brokers, with each mechanism."""

import asyncio
from typing import cast

import pytest

from aioproducer import Producer
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.security import Token
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.tokens import unsecured_token
from tests.secured.ways import SECURITY

pytestmark = pytest.mark.kafka

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class Tokens:
    """Provider of unsecured tokens."""

    def __init__(self, lifetime_s: float = 3600.0) -> None:
        self.asked = 0
        self._lifetime_s = lifetime_s

    async def token(self) -> str | Token:
        self.asked += 1
        return unsecured_token("alice", lifetime_s=self._lifetime_s)


def options_for(kafka: KafkaCluster, mechanism: str, listener: str = "SASL_PLAINTEXT") -> ProducerOptions:
    options = kafka.client_options(listener, mechanism)
    if mechanism == "OAUTHBEARER":
        options["sasl_token_provider"] = Tokens()
    return cast("ProducerOptions", options)


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_record_is_delivered_with_each_mechanism(
    secured_kafka: KafkaCluster, mechanism: str, listener: str
) -> None:
    async with Producer(**options_for(secured_kafka, mechanism, listener)) as producer:
        result = await producer.send("sasl", b"value")

    assert result.offset >= 0
    assert producer.statistics().authentications >= 1


class SignedTokens:
    """Provider of tokens that the listener SIGNED checks with a local file of keys (JWKS)."""

    async def token(self) -> str:
        return SECURITY.signer.token("alice")


async def test_signed_token_is_accepted(secured_kafka: KafkaCluster) -> None:
    options = secured_kafka.client_options("SIGNED", "OAUTHBEARER") | {"sasl_token_provider": SignedTokens()}
    async with Producer(**cast("ProducerOptions", options)) as producer:
        result = await producer.send("sasl", b"value")

    assert result.offset >= 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_sessions_are_renewed_on_the_same_connection(kafka_with_sessions: KafkaCluster, mechanism: str) -> None:
    async with Producer(**options_for(kafka_with_sessions, mechanism)) as producer:
        await producer.send("sasl", b"first")
        before = producer.statistics()
        end = asyncio.get_running_loop().time() + 8
        while asyncio.get_running_loop().time() < end:
            await producer.send("sasl", b"value")
            await asyncio.sleep(0.005)
        statistics = producer.statistics()

    assert statistics.connections_created == before.connections_created
    assert statistics.reauthentications >= 2
    assert statistics.records_retried == before.records_retried
