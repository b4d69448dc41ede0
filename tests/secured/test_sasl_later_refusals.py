"""Credentials that are refused while a producer runs, on real brokers with sessions of three seconds."""

import asyncio
from typing import cast

import pytest

from aioproducer import CredentialsError, DeliveryTimeoutError, Outcome, Producer
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.testing.kafka import KafkaCluster
from tests.secured.ways import deliver, producer_of

pytestmark = pytest.mark.kafka


class Vault:
    """Holds the password, which somebody changes."""

    password = "alice-secret"

    async def __call__(self) -> str:
        return self.password


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512"])
async def test_refused_producer_fails_records_at_their_deadline(
    kafka_with_sessions: KafkaCluster, mechanism: str
) -> None:
    vault = Vault()
    options = kafka_with_sessions.client_options("SASL_PLAINTEXT", mechanism) | {
        "sasl_password": vault,
        "request_timeout_ms": 1_000,
        "delivery_timeout_ms": 3_000,
    }
    async with Producer(**cast("ProducerOptions", options)) as producer:
        await producer.send("sasl", b"first")
        vault.password = "canary-wrong"
        await asyncio.sleep(4)  # past the end of the session
        with pytest.raises(DeliveryTimeoutError) as late:
            await producer.send("sasl", b"late")
        with pytest.raises(CredentialsError):
            await producer.partitions_for("unknown")
        vault.password = "alice-secret"
        end = asyncio.get_running_loop().time() + 15
        while asyncio.get_running_loop().time() < end:
            try:
                result = await producer.send("sasl", b"mended")
                break
            except DeliveryTimeoutError:
                continue

    assert isinstance(late.value.last_broker_error, CredentialsError)
    assert late.value.outcome is Outcome.NOT_WRITTEN
    assert result.offset >= 0


async def test_records_of_a_deleted_user_end_with_the_refusal(kafka_with_sessions: KafkaCluster) -> None:
    await kafka_with_sessions.change_password("leaver", "canary-leaver")
    right = kafka_with_sessions.client_options("SASL_SSL", "SCRAM-SHA-512")
    leaver = {"sasl_username": "leaver", "sasl_password": "canary-leaver"}
    async with producer_of(right | leaver, request_timeout_ms=1_000, delivery_timeout_ms=3_000) as producer:
        await producer.send_and_wait("sasl", b"first")
        await kafka_with_sessions.delete_user("leaver")
        await asyncio.sleep(4)  # past the end of the session
        with pytest.raises(DeliveryTimeoutError) as late:
            await producer.send_and_wait("sasl", b"late")

    assert isinstance(late.value.last_broker_error, CredentialsError)
    assert late.value.outcome is Outcome.NOT_WRITTEN
    await deliver(right)
