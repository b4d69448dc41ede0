"""aiokafka's arguments for secured brokers, on real ones."""

import asyncio
import ssl
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError

from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.tokens import unsecured_token

pytestmark = pytest.mark.kafka


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


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_record_is_delivered(secured_kafka: KafkaCluster, listener: str, mechanism: str) -> None:
    async with AIOKafkaProducer(**arguments(secured_kafka, listener, mechanism)) as producer:
        metadata = await producer.send_and_wait("sasl", b"value")

    assert metadata.offset >= 0


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


async def test_wrong_password_is_the_error_of_start(secured_kafka: KafkaCluster) -> None:
    producer = AIOKafkaProducer(
        **arguments(secured_kafka, "SASL_PLAINTEXT", "PLAIN") | {"sasl_plain_password": "canary-wrong"}
    )
    with pytest.raises(AuthenticationFailedError, match="sasl_password"):
        await producer.start()


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
