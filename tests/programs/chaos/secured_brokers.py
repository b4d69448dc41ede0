"""SASL over TLS between producers and brokers: the listener behind the proxies, with sessions that end soon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aioproducer.testing.cluster_security import CA_FILE, LOGIN_MODULES, ClusterSecurity, write_client_files
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.secured_listeners import KEYSTORE_FILE, write_broker_files

USER, PASSWORD = "alice", "alice-secret"
MECHANISM: Final = "SCRAM-SHA-512"
SESSION_MS: Final = 10_000
_LISTENER: Final = "listener.name.proxied."


def broker_settings(folder: Path) -> Mapping[str, str]:
    """Write what brokers and clients read, and return the settings of the listener that proxies connect to."""
    security = ClusterSecurity()
    write_broker_files(security, folder)
    write_client_files(security, folder)
    return {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:SASL_SSL",
        "ssl.keystore.type": "PEM",
        f"{_LISTENER}ssl.keystore.location": str(folder / KEYSTORE_FILE),
        f"{_LISTENER}sasl.enabled.mechanisms": MECHANISM,
        f"{_LISTENER}{MECHANISM.lower()}.sasl.jaas.config": f"{LOGIN_MODULES[MECHANISM]} required;",
        f"{_LISTENER}connections.max.reauth.ms": str(SESSION_MS),
    }


async def make_user(cluster: KafkaCluster) -> None:
    await cluster.change_password(USER, PASSWORD)


def files_with_the_password(folder: Path) -> list[str]:
    """Return what is wrong with the files that processes wrote: each that shows the password of the producers."""
    found = [
        path.name for path in sorted(folder.iterdir()) if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]
    return [f"{name} shows the password" for name in found]


def client_options(folder: Path) -> dict[str, str]:
    return {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": str(folder / CA_FILE),
        "sasl_mechanism": MECHANISM,
        "sasl_username": USER,
        "sasl_password": PASSWORD,
    }
