"""Other clients, and OpenSSL, agree that the secured test brokers are what they say."""

import asyncio
import datetime as dt
import ssl
from collections.abc import Mapping
from types import MappingProxyType

import confluent_kafka
import pytest

from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.kafka import KafkaCluster
from tests.secured.ways import SECURITY, WAYS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TIMEOUT_S = 20
NOTHING: Mapping[str, object] = MappingProxyType({})


def librdkafka(options: dict[str, object]) -> dict[str, object]:
    """Options of librdkafka for those of a `Producer`."""
    names = {
        "ssl.truststore.location": "ssl.ca.location",
        "ssl.keystore.location": "ssl.certificate.location",
        "sasl.mechanism": "sasl.mechanisms",
    }
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    dotted.pop("allow.plaintext.credentials", None)
    translated: dict[str, object] = {names.get(name, name): value for name, value in dotted.items()}
    if "ssl.certificate.location" in translated:
        translated["ssl.key.location"] = translated["ssl.certificate.location"]
    return translated


def brokers_seen(
    kafka: KafkaCluster, way: str, other: Mapping[str, object] = NOTHING, *, timeout_s: float = TIMEOUT_S
) -> list[int]:
    listener, mechanism = WAYS[way]
    options = librdkafka(kafka.client_options(listener, mechanism)) | dict(other)
    if mechanism == "OAUTHBEARER":
        token = SECURITY.token(listener, "alice")
        lifetime = dt.datetime.now(dt.UTC).timestamp() + 3600
        options["oauth_cb"] = lambda _: (token, lifetime)
    admin = confluent_kafka.Producer({**options, "log_level": 0})
    admin.poll(0.1)  # serves the callback that asks for a token
    return list(admin.list_topics(timeout=timeout_s).brokers)


@pytest.mark.parametrize("way", WAYS)
def test_confluent_kafka_connects_in_every_way(secured_kafka: KafkaCluster, way: str) -> None:
    assert brokers_seen(secured_kafka, way) == [1]


async def test_scram_password_changes_while_the_broker_runs(secured_kafka: KafkaCluster) -> None:
    await secured_kafka.change_password("carol", "canary-first")
    await secured_kafka.change_password("carol", "canary-second")

    login = {"sasl.username": "carol", "sasl.password": "canary-second"}
    assert await asyncio.to_thread(brokers_seen, secured_kafka, "scram-256", login) == [1]

    await secured_kafka.delete_user("carol")
    with pytest.raises(confluent_kafka.KafkaException):
        await asyncio.to_thread(brokers_seen, secured_kafka, "scram-256", login, timeout_s=1.0)


async def presented(port: int, trusted: str) -> bytes:
    """The certificate of the TLS server at this port."""
    context = ssl.create_default_context(cadata=trusted)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    assert isinstance(found, bytes)
    return found


async def test_broker_certificate_changes_without_a_restart(secured_kafka: KafkaCluster) -> None:
    port = secured_kafka.node(1).ports.secured["SSL"]
    before = await presented(port, SECURITY.authority.certificate)

    renewed = SECURITY.authority.issue()
    await secured_kafka.change_certificate(renewed)

    expected = ssl.PEM_cert_to_DER_cert(renewed.chain)
    async with asyncio.timeout(TIMEOUT_S):
        while (now := await presented(port, SECURITY.authority.certificate)) != expected:
            assert now == before
            await asyncio.sleep(0.05)


def test_chain_of_a_lower_authority_ends_below_the_root() -> None:
    root = CertificateAuthority("root")
    issued = CertificateAuthority("below", issuer=root).issue("kafka-1")

    assert issued.chain.count("BEGIN CERTIFICATE") == 2
    assert root.certificate not in issued.chain
    assert "BEGIN" not in repr(issued)
