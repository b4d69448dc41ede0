"""The `server.properties` of each node of a loopback cluster, and the files that those of secured listeners name.

Each node is broker and controller in one process (KRaft). The settings are small and fast, for tests and demos; the
quorum is static (`controller.quorum.voters`), which Kafka 3.9 and 4.x support and which needs no flag to format.

Ports are outside the range that the system gives to outgoing connections: a port that the system picks (port 0) may be
taken by another connection while its broker restarts.
"""

import random
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aioproducer.testing.cluster_security import (
    BROKER_PRINCIPAL,
    LISTENERS,
    LOGIN_MODULES,
    SERVICE_NAME,
    ClusterSecurity,
)
from aioproducer.testing.tokens import DEFAULT_AUDIENCE, DEFAULT_ISSUER

LOOPBACK = "127.0.0.1"
KEYSTORE_FILE, TRUSTSTORE_FILE, JWKS_FILE = "broker-keystore.pem", "broker-truststore.pem", "jwks.json"

TOKEN_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"  # noqa: S105 - a class

SMALL_AND_FAST = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "2",
    # the default of 128 MB per broker does not fit small heaps; must be above 1 MB
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.index.size.max.bytes": "1048576",
    # a killed node is noticed, and may come back, after this; the default is 9 s
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
}
"""Differences from Kafka's defaults, so that a node starts in seconds and stays small."""

FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below Linux's ephemeral range (32768-60999) and macOS's (49152-65535), above the ports of well-known services."""


@dataclass(frozen=True, slots=True)
class ProxiedPorts:
    """A second client listener of a node, for clients that reach it through a proxy."""

    port: int  # where the node listens for the proxy
    advertised_port: int  # where the proxy listens, and the port in Metadata for clients that come through it


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The addresses of one node, on loopback."""

    node_id: int  # from 1
    broker_port: int  # where clients connect
    controller_port: int  # where the other nodes' controllers connect
    proxied: ProxiedPorts | None = None  # where a proxy connects; `None` without one
    secured: Mapping[str, int] = field(default_factory=dict)  # port of each secured listener by its name


def server_properties(node: NodePorts, quorum: Sequence[NodePorts], log_folder: Path) -> dict[str, str]:
    """Settings of one node."""
    replicas = str(min(3, len(quorum)))
    return {
        **_who_and_where(node, quorum),
        "log.dirs": str(log_folder),
        "num.partitions": "4",
        "default.replication.factor": replicas,
        "min.insync.replicas": str(min(2, len(quorum))),
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, len(quorum))),
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": str(min(2, len(quorum))),
        **SMALL_AND_FAST,
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file; values here are paths, numbers and host names, so nothing needs escaping."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _who_and_where(node: NodePorts, quorum: Sequence[NodePorts]) -> dict[str, str]:
    """Identity, listeners and the static quorum."""
    voters = ",".join(f"{voter.node_id}@{LOOPBACK}:{voter.controller_port}" for voter in quorum)
    listeners = {"PLAINTEXT": node.broker_port, **node.secured}
    advertised = dict(listeners)
    if node.proxied is not None:
        listeners["PROXIED"] = node.proxied.port
        advertised["PROXIED"] = node.proxied.advertised_port
    protocols = ",".join(f"{name}:{LISTENERS.get(name, 'PLAINTEXT')}" for name in ("CONTROLLER", *listeners))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": voters,
        "listeners": ",".join(
            f"{name}://{LOOPBACK}:{port}" for name, port in {**listeners, "CONTROLLER": node.controller_port}.items()
        ),
        "advertised.listeners": ",".join(
            # clients of a TLS listener check the name, and a test of names needs one
            f"{name}://{'localhost' if name in node.secured else LOOPBACK}:{port}"
            for name, port in advertised.items()
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": protocols,
    }


def free_ports(count: int, *, besides: Collection[int] = ()) -> list[int]:
    """Return ports on which nothing listens now.

    Args:
        besides: ports to leave out, although nothing listens on them yet.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(range(FIRST_PORT, LAST_PORT), LAST_PORT - FIRST_PORT):
        if len(found) == count:
            break
        if port not in besides and is_free(port):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now; a port we may not use counts as taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def write_broker_files(security: ClusterSecurity, folder: Path) -> None:
    """Write what the brokers of a cluster read: their certificate, whom they trust, and the key of tokens."""
    certificate = security.broker_certificate or security.authority.issue()
    (folder / KEYSTORE_FILE).write_text(certificate.pem, "utf-8")
    (folder / TRUSTSTORE_FILE).write_text(security.authority.certificate, "utf-8")
    (folder / JWKS_FILE).write_text(security.signer.jwks(), "utf-8")


def replace_file(path: Path, text: str) -> None:
    """Replace a file at once: a reader gets the whole old file or the whole new one."""
    arriving = path.with_name(f"{path.name}.new")
    arriving.write_text(text, "utf-8")
    arriving.replace(path)


def jvm_options(security: ClusterSecurity, folder: Path) -> tuple[str, ...]:
    """Kafka 4 reads keys of tokens only from where this allows it; Java reads its realm from this file alone."""
    realm = () if security.kdc is None else (f"-Djava.security.krb5.conf={security.kdc.config}",)
    return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{folder / JWKS_FILE}", *realm)


def secured_properties(security: ClusterSecurity, ports: NodePorts, folder: Path) -> dict[str, str]:
    """Settings over those of `server_properties`; the listeners themselves are among those."""
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "sasl.enabled.mechanisms": ",".join(security.mechanisms),
        "connections.max.reauth.ms": str(security.session_lifetime_ms),
        "connection.failed.authentication.delay.ms": str(security.failed_authentication_delay_ms),
        "ssl.enabled.protocols": ",".join(security.tls_versions),
        "sasl.kerberos.service.name": SERVICE_NAME,
        "delegation.token.secret.key": "delegation",  # makes brokers hand out such tokens
    }
    for listener in ports.secured:
        prefix = f"listener.name.{listener.lower()}."
        if LISTENERS[listener].endswith("SSL"):
            # by listener, since only then a running broker may be told to read the file again
            properties[f"{prefix}ssl.keystore.location"] = str(folder / KEYSTORE_FILE)
            properties[f"{prefix}ssl.truststore.location"] = str(folder / TRUSTSTORE_FILE)
            properties[f"{prefix}ssl.client.auth"] = security.client_auth.get(listener, "none")
        if LISTENERS[listener].startswith("SASL"):
            properties |= _sasl_properties(security, listener, folder)
    return properties


def _sasl_properties(security: ClusterSecurity, listener: str, folder: Path) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}."
    if listener == "SIGNED":
        handler = f"{prefix}oauthbearer.sasl."
        return {
            f"{prefix}sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}oauthbearer.sasl.jaas.config": _jaas("OAUTHBEARER", security),
            f"{handler}server.callback.handler.class": TOKEN_VALIDATOR,
            f"{handler}oauthbearer.jwks.endpoint.url": f"file://{folder / JWKS_FILE}",
            f"{handler}oauthbearer.expected.audience": DEFAULT_AUDIENCE,
            f"{handler}oauthbearer.expected.issuer": DEFAULT_ISSUER,
        }
    return {
        f"{prefix}{mechanism.lower()}.sasl.jaas.config": _jaas(mechanism, security) for mechanism in security.mechanisms
    }


def _jaas(mechanism: str, security: ClusterSecurity) -> str:
    """Return the configuration of the broker's side of a mechanism."""
    arguments = ""
    if mechanism == "PLAIN":
        arguments = "".join(f' user_{name}="{password}"' for name, password in security.users.items())
    elif mechanism == "OAUTHBEARER":
        arguments = ' unsecuredLoginStringClaim_sub="broker"'
    elif mechanism == "GSSAPI":
        assert security.kdc is not None  # `ClusterSecurity` says so
        keytab = security.kdc.keytab(BROKER_PRINCIPAL)
        principal = f"{BROKER_PRINCIPAL}@{security.kdc.realm}"
        arguments = f' useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}"'
    return f"{LOGIN_MODULES[mechanism]} required{arguments};"
