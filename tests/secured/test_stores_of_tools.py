"""Stores made by `openssl` and `keytool`, as administrators make them, with which real brokers are connected to."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.secured.ways import Options, deliver

pytestmark = pytest.mark.kafka

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


@pytest.mark.slow
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
