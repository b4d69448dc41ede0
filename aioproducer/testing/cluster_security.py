"""Security of a test cluster, embedded or real: who may log in, for how long, and the certificates of its listeners."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from aioproducer.testing.certificates import Certificate, CertificateAuthority
from aioproducer.testing.tokens import TokenSigner, unsecured_token

LISTENERS: Mapping[str, str] = MappingProxyType(
    {
        "SSL": "SSL",
        "MTLS": "SSL",
        "SASL_PLAINTEXT": "SASL_PLAINTEXT",
        "SASL_SSL": "SASL_SSL",
        "SASL_MTLS": "SASL_SSL",
        "SIGNED": "SASL_SSL",
    }
)
"""Name of each secured listener, and its `security.protocol`. MTLS and SASL_MTLS require a client's certificate;
SIGNED takes OAUTHBEARER with tokens of `ClusterSecurity.signer`, the others unsecured tokens."""

CLIENT_CERTIFICATE = ("MTLS", "SASL_MTLS")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LOGIN_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
        "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
        "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
        "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
    }
)
SERVICE_NAME = "kafka"  # first part of the brokers' Kerberos principals
CA_FILE, CLIENT_FILE = "ca.pem", "client.pem"
_ONLY_IN_JAAS = {
    *("sasl_username", "sasl_password", "allow_plaintext_credentials"),
    *("sasl_kerberos_keytab", "sasl_kerberos_principal"),
}


class KerberosRealm(Protocol):
    """A running realm, such as `aioproducer.testing.kafka.Kdc`."""

    realm: str

    @property
    def config(self) -> Path:
        """The `krb5.conf` of its clients and brokers."""

    def keytab(self, principal: str) -> Path:
        """The keytab of a principal."""


@dataclass(frozen=True, kw_only=True)
class ClusterSecurity:
    """Settings of the secured listeners of a cluster. They stand beside a plaintext one."""

    users: Mapping[str, str] = field(default_factory=lambda: {"alice": "alice-secret", "bob": "bob-secret"})
    """Passwords by user name, for PLAIN and SCRAM."""

    mechanisms: tuple[str, ...] = SASL_MECHANISMS
    """SASL mechanisms of every SASL listener but SIGNED, which has OAUTHBEARER alone. GSSAPI needs `kdc`."""

    scram_iterations: int = 4096
    """Rounds that a password of SCRAM is hashed; clients refuse fewer."""

    listeners: tuple[str, ...] = tuple(LISTENERS)
    """Names of the listeners beside the plaintext one."""

    ports: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By listener, its port on each node; free ones are found for the others."""

    client_auth: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(CLIENT_CERTIFICATE, "required"))
    """Whether a TLS listener asks for a client's certificate: "required", "requested" or, if not given, "none"."""

    tls_versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    """Versions of TLS that brokers speak."""

    session_lifetime_ms: int = 0
    """Kafka's `connections.max.reauth.ms`: after how long a client must authenticate again; 0 is never."""

    failed_authentication_delay_ms: int = 100
    """How long a refused client waits for its response, Kafka's `connection.failed.authentication.delay.ms`."""

    authority: CertificateAuthority = field(default_factory=CertificateAuthority)
    """Issues the brokers' certificates and the client's, and is the one that both sides trust."""

    signer: TokenSigner = field(default_factory=TokenSigner)
    """Signs the tokens that the listener SIGNED takes."""

    check_token: Callable[[str, Mapping[str, str]], str | None] | None = None
    """Of the embedded cluster: says whose a token of OAUTHBEARER with these SASL extensions is, or None to refuse it,
    as the broker of a cloud does that has tokens of its own kind. Takes the place of both kinds above."""

    broker_certificate: Certificate | None = None
    """The brokers' certificate at the start; one of `authority` for the names of this machine if there is none."""

    kdc: KerberosRealm | None = None
    """A running Kerberos realm, for GSSAPI on real brokers; the embedded ones have no Kerberos."""

    def __post_init__(self) -> None:
        if "GSSAPI" in self.mechanisms and self.kdc is None:
            raise ValueError("GSSAPI needs ClusterSecurity(kdc=...), a running Kdc")

    def token(self, listener: str, user: str, *, lifetime_s: float = 3600.0) -> str:
        """Make a token of OAUTHBEARER that this listener takes."""
        if listener == "SIGNED":
            return self.signer.token(user, lifetime_s=lifetime_s)
        return unsecured_token(user, lifetime_s=lifetime_s)


def write_client_files(security: ClusterSecurity, folder: Path) -> None:
    """Write what a client needs: the authority's certificate, and a client's certificate with its key."""
    (folder / CA_FILE).write_text(security.authority.certificate, "utf-8")
    client = security.authority.issue(common_name="client", usage=("client",))
    (folder / CLIENT_FILE).write_text(client.pem, "utf-8")


def client_options(
    security: ClusterSecurity, folder: Path, listener: str, *, mechanism: str = "", user: str = ""
) -> dict[str, object]:
    """Options of a `Producer` for one listener, without its address and, for OAUTHBEARER, the token provider.

    Args:
        security: the cluster's.
        folder: the one `write_client_files` wrote to.
        listener: a name of `LISTENERS`, or PLAINTEXT.
        mechanism: the SASL mechanism, for a SASL listener.
        user: one of the users; the first if there is none.
    """
    protocol = LISTENERS.get(listener, listener)
    options: dict[str, object] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        options["ssl_truststore_location"] = str(folder / CA_FILE)
    if listener in CLIENT_CERTIFICATE:
        options["ssl_keystore_location"] = str(folder / CLIENT_FILE)
    if not protocol.startswith("SASL"):
        return options
    options["sasl_mechanism"] = mechanism
    name = user or next(iter(security.users))
    if mechanism == "GSSAPI" and security.kdc is not None:
        options |= {
            "sasl_kerberos_service_name": SERVICE_NAME,
            "sasl_kerberos_keytab": str(security.kdc.keytab(name)),
            "sasl_kerberos_principal": f"{name}@{security.kdc.realm}",
        }
    elif mechanism != "OAUTHBEARER":
        options |= {"sasl_username": name, "sasl_password": security.users.get(name, "")}
    if protocol == "SASL_PLAINTEXT" and mechanism in {"PLAIN", "OAUTHBEARER"}:
        options["allow_plaintext_credentials"] = True
    return options


def client_properties(options: Mapping[str, object]) -> dict[str, str]:
    """The same as a Java client's properties; for OAUTHBEARER with unsecured tokens of a user "alice"."""
    properties: dict[str, str] = {}
    for name, value in options.items():
        if name not in _ONLY_IN_JAAS:
            properties[name.replace("_", ".")] = str(value)
    for store in ("truststore", "keystore"):
        if f"ssl.{store}.location" in properties:
            properties[f"ssl.{store}.type"] = "PEM"
    mechanism = properties.get("sasl.mechanism")
    if mechanism == "OAUTHBEARER":
        properties["sasl.jaas.config"] = f'{LOGIN_MODULES[mechanism]} required unsecuredLoginStringClaim_sub="alice";'
    elif mechanism == "GSSAPI":
        login = f'keyTab="{options["sasl_kerberos_keytab"]}" principal="{options["sasl_kerberos_principal"]}"'
        properties["sasl.jaas.config"] = f"{LOGIN_MODULES[mechanism]} required useKeyTab=true storeKey=true {login};"
    elif mechanism is not None:
        login = f'username="{options["sasl_username"]}" password="{options["sasl_password"]}"'
        properties["sasl.jaas.config"] = f"{LOGIN_MODULES[mechanism]} required {login};"
    return properties


BROKER_PRINCIPAL = "kafka/localhost"
