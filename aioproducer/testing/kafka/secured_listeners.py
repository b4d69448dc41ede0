"""The settings of a node's secured listeners, and the files they name."""

from pathlib import Path

from aioproducer.testing.cluster_security import LISTENERS, LOGIN_MODULES, SERVICE_NAME, ClusterSecurity
from aioproducer.testing.kafka.kdc import BROKER_PRINCIPAL
from aioproducer.testing.kafka.server_properties import NodePorts
from aioproducer.testing.tokens import DEFAULT_AUDIENCE, DEFAULT_ISSUER

KEYSTORE_FILE, TRUSTSTORE_FILE, JWKS_FILE = "broker-keystore.pem", "broker-truststore.pem", "jwks.json"
TOKEN_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"  # noqa: S105 - a class


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
