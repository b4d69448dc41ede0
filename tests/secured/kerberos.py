"""A realm and secured real brokers that ask for its tickets, and options of clients."""

import functools
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from aioproducer import Producer, ProducerConfig
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.testing.kafka import KafkaCluster, missing_for_kerberos

LISTENERS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
WITHOUT_KEYTAB: Final[Mapping[str, object]] = MappingProxyType(
    {"sasl_kerberos_keytab": None, "sasl_kerberos_principal": None}
)


@functools.cache
def missing_kerberos() -> str:
    """Return what this machine lacks for tickets, with what to install, or an empty text."""
    missing = missing_for_kerberos()
    if not missing and find_spec("gssapi") is None:
        missing = ["gssapi is missing: pip install 'aioproducer[kerberos]'"]
    return "; ".join(missing)


def kerberos_options(
    kafka: KafkaCluster, changes: Mapping[str, object] = MappingProxyType({}), *, listener: str = "SASL_PLAINTEXT"
) -> dict[str, object]:
    """Options of a `Producer` with the keytab of alice, or with what is changed; None leaves an option out."""
    options = {**kafka.client_options(listener, "GSSAPI"), **changes}
    return {name: value for name, value in options.items() if value is not None}


def config_of(options: dict[str, object]) -> ProducerConfig:
    rest = {name: value for name, value in options.items() if name != "bootstrap_servers"}
    return ProducerConfig(bootstrap_servers=options["bootstrap_servers"], **cast("ProducerOptions", rest))


def kerberos_producer(options: dict[str, object], **more: object) -> Producer:
    return Producer(config_of(options | more))


async def deliver(options: dict[str, object]) -> None:
    async with kerberos_producer(options) as producer:
        await producer.send_and_wait("kerberos", b"value")


def java_text(*, keytab: Path | None = None, **options: str) -> str:
    """A `sasl.jaas.config` as Java's clients have it."""
    given = {"useKeyTab": "true", "keyTab": str(keytab), **options} if keytab is not None else options
    quoted = " ".join(f'{name}="{value}"' for name, value in given.items())
    return f"com.sun.security.auth.module.Krb5LoginModule required {quoted};"
