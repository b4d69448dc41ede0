"""A producer over TLS, to real brokers."""

import asyncio
from pathlib import Path

import pytest
import uvloop

from aioproducer import Producer
from aioproducer.errors import KafkaError, TlsRefusedError, TlsVerificationError
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.kafka import KafkaCluster
from tests.secured.ways import WAYS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def deliver(options: dict[str, object], topic: str) -> list[int]:
    async with Producer(**options) as producer:  # type: ignore[arg-type]
        results = await asyncio.gather(*(producer.send(topic, b"x" * 1000) for _ in range(1000)))
        return [result.offset for result in results]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", [("TLSv1.2",), ("TLSv1.3",)], ids=["1.2", "1.3"])
@pytest.mark.parametrize("way", ["tls", "mtls"])
def test_records_are_delivered_over_tls(
    secured_kafka: KafkaCluster, way: str, *, version: tuple[str, ...], loop: str
) -> None:
    options = {**secured_kafka.client_options(*WAYS[way]), "ssl_enabled_protocols": version}
    topic = f"tls-{way}-{version[0]}-{loop}"
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert sorted(runner.run(deliver(options, topic))) == list(range(1000))


async def failure(options: dict[str, object]) -> KafkaError:
    producer = Producer(**options)  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as caught:
        await producer.start()
    return caught.value


async def test_wrong_port_is_an_error_at_once_that_names_the_option(secured_kafka: KafkaCluster) -> None:
    tls = secured_kafka.client_options("SSL", "")
    plain = str(secured_kafka.bootstrap_servers)
    to_plain = await failure({**tls, "bootstrap_servers": plain})
    assert isinstance(to_plain, TlsRefusedError)
    assert "security_protocol='PLAINTEXT'" in str(to_plain) or "a listener without TLS" in str(to_plain)
    to_tls = await failure({"bootstrap_servers": tls["bootstrap_servers"]})
    assert isinstance(to_tls, TlsRefusedError)
    assert "set security_protocol to 'SSL'" in str(to_tls)


async def test_certificates_that_are_not_accepted_are_errors_at_once(
    secured_kafka: KafkaCluster, tmp_path: Path
) -> None:
    mutual = secured_kafka.client_options("MTLS", "")
    stranger = CertificateAuthority("stranger").issue("client")
    missing = await failure({name: value for name, value in mutual.items() if "keystore" not in name})
    assert isinstance(missing, TlsRefusedError)
    assert "give ssl_keystore_location" in str(missing)
    (tmp_path / "client.pem").write_text(stranger.pem, encoding="utf-8")
    refused = await failure({**mutual, "ssl_keystore_location": tmp_path / "client.pem"})
    assert isinstance(refused, TlsRefusedError)
    assert "it does not accept our certificate" in str(refused)
    (tmp_path / "ca.pem").write_text(CertificateAuthority("stranger").certificate, encoding="utf-8")
    unknown = await failure({**mutual, "ssl_truststore_location": tmp_path / "ca.pem"})
    assert isinstance(unknown, TlsVerificationError)
    async with Producer(**mutual) as producer:  # type: ignore[arg-type]  # a right configuration works right after
        assert await producer.send("tls-after", b"x")
