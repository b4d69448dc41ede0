"""A client's certificate is replaced while a producer runs: the next connection has the new one."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from aioproducer import Producer
from aioproducer.errors import DeliveryTimeoutError
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.kafka import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "tls-rotation"
REPLACED = 5


async def test_replaced_client_certificate_is_used_without_a_restart(
    secured_kafka: KafkaCluster, tmp_path: Path
) -> None:
    """T21: half-written files change nothing; one that the broker refuses shows that new files are used."""
    options = secured_kafka.client_options("MTLS")
    given, key = Path(str(options["ssl_keystore_location"])), tmp_path / "client.pem"
    good = given.read_text("utf-8")  # noqa: ASYNC240  # local and tiny
    key.write_text(good, encoding="utf-8")
    options |= {"ssl_keystore_location": key, "connections_max_idle_ms": 100, "delivery_timeout_ms": 3_000}
    options |= {"request_timeout_ms": 1_500, "linger_ms": 0}
    async with Producer(**options) as producer:  # type: ignore[arg-type]
        offsets = []
        for number in range(REPLACED):
            offsets.append((await producer.send(TOPIC, b"x", partition=0)).offset)
            key.write_text(good[: 200 * number] if number % 2 else good + "\n" * number, encoding="utf-8")
            await asyncio.sleep(0.3)  # the connection closes as unused
        assert offsets == list(range(offsets[0], offsets[0] + REPLACED))
        key.write_text(CertificateAuthority("stranger").issue("client").pem, encoding="utf-8")
        await asyncio.sleep(0.3)
        with pytest.raises(DeliveryTimeoutError, match="it does not accept our certificate"):
            await producer.send(TOPIC, b"x", partition=0)
        key.write_text(good, encoding="utf-8")
        assert await offset_once_mended(producer) >= offsets[-1] + 1


async def offset_once_mended(producer: Producer) -> int:
    """Send until a record is delivered: a refused client connects every six seconds, and a record lives for three."""
    for _ in range(REPLACED):
        with contextlib.suppress(DeliveryTimeoutError):
            return (await producer.send(TOPIC, b"x", partition=0)).offset
    raise AssertionError("no record was delivered")
