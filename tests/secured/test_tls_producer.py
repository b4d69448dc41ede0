"""A producer over TLS to real brokers: versions, client certificates that are replaced, and stores of other tools."""

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from aioproducer import Producer
from aioproducer.errors import DeliveryTimeoutError
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.kafka import KafkaCluster
from tests.secured.ways import WAYS, Options, deliver

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def offsets_of_thousand(options: dict[str, object], topic: str) -> list[int]:
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
        assert sorted(runner.run(offsets_of_thousand(options, topic))) == list(range(1000))


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
        assert await offset_once_accepted(producer) >= offsets[-1] + 1


async def offset_once_accepted(producer: Producer) -> int:
    """Send until a record is delivered: a refused client connects every six seconds, and a record lives for three."""
    for _ in range(REPLACED):
        with contextlib.suppress(DeliveryTimeoutError):
            return (await producer.send(TOPIC, b"x", partition=0)).offset
    raise AssertionError("no record was delivered")


PASSWORD = "canary-of-stores"
TO_STORE = ("-deststorepass", PASSWORD, "-srcstorepass", PASSWORD)


def run(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def keytool(*arguments: str | Path) -> None:
    found = shutil.which("keytool")
    assert found is not None, "keytool is in the JDK that the brokers need"
    run(found, *arguments, "-noprompt")


def by_openssl(pem: Path, folder: Path) -> Path:
    store = folder / "client.p12"
    run("openssl", "pkcs12", "-export", "-in", pem, "-out", store, "-name", "client", "-passout", f"pass:{PASSWORD}")
    return store


def by_keytool(kind: str) -> Callable[[Path, Path], Path]:
    def make(pem: Path, folder: Path) -> Path:
        store = folder / f"of-keytool.{kind.lower()}"
        source = ("-srckeystore", by_openssl(pem, folder), "-srcstoretype", "PKCS12")
        keytool("-importkeystore", *source, "-destkeystore", store, "-deststoretype", kind, *TO_STORE)
        return store

    return make


KEYSTORES: dict[str, Callable[[Path, Path], Path]] = {
    "openssl PKCS12": by_openssl,
    "keytool PKCS12": by_keytool("PKCS12"),
    "keytool JKS": by_keytool("JKS"),
}


def truststore(kind: str, authority: Path, folder: Path) -> Path:
    store = folder / f"trust.{kind.lower()}"
    of_store = ("-keystore", store, "-storetype", kind, "-storepass", PASSWORD)
    keytool("-importcert", "-alias", "ca", "-file", authority, *of_store)
    return store


@pytest.mark.parametrize("trust", ["PKCS12", "JKS"])
@pytest.mark.parametrize("name", KEYSTORES)
async def test_broker_is_connected_to_with_stores_of_tools(
    secured_kafka: KafkaCluster, tmp_path: Path, name: str, *, trust: str
) -> None:
    options: Options = secured_kafka.client_options("MTLS")
    own = KEYSTORES[name](Path(str(options["ssl_keystore_location"])), tmp_path)
    trusted = truststore(trust, Path(str(options["ssl_truststore_location"])), tmp_path)
    passwords = {"ssl_keystore_password": PASSWORD, "ssl_truststore_password": PASSWORD}
    await deliver(options | {"ssl_keystore_location": own, "ssl_truststore_location": trusted} | passwords)
