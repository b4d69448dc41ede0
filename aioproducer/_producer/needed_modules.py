"""Imports the modules that a producer needs, when it is made.

On first use they would be imported on the event loop, in one step of some 100 ms; and a fork meanwhile, by another
thread, would leave the child with modules that are never imported to their end.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.config import ProducerConfig

_ALWAYS: Final = (
    "aioproducer._producer.producer_metrics",
    "aioproducer._producer.runtime",
    "aioproducer._producer.wiring",
    "crc32c",  # by the first batch
    "encodings.idna",  # by the first look-up of a name
)
_STORE_SUFFIXES: Final = (".p12", ".pfx", ".pkcs12", ".jks")


def load_parts(config: ProducerConfig) -> None:
    """Import what a producer of this configuration uses; `import aioproducer` stays small."""
    for name in _needed(config):
        import_module(name)
    for name in _of_extras(config):
        with contextlib.suppress(Exception):  # what needs it says what is missing
            import_module(name)


def _needed(config: ProducerConfig) -> Iterator[str]:
    yield from _ALWAYS
    if config.transactional_id is not None:
        yield "aioproducer._transactions.runner"
        yield "aioproducer._transactions.committed_offsets"
    if config.security_protocol.endswith("SSL"):
        yield "aioproducer._network.tls_reloader"
        yield "_strptime"  # by `ssl`, for the validity of certificates
    if config.enable_metrics_push:
        yield "aioproducer._producer.metrics_push"


def _of_extras(config: ProducerConfig) -> Iterator[str]:
    if config.enable_metrics_push:
        yield "aioproducer._producer.otlp"
    if config.sasl_mechanism == "GSSAPI":
        yield "gssapi"
    if config.security_protocol.endswith("SSL") and _has_stores(config):
        yield "cryptography.x509"
        yield "cryptography.hazmat.primitives.serialization.pkcs12"


def _has_stores(config: ProducerConfig) -> bool:
    """Whether a key or certificate is not in plain PEM, which Python reads by itself."""
    places = (config.ssl_truststore_location, config.ssl_keystore_location)
    is_store = any(place is not None and place.lower().endswith(_STORE_SUFFIXES) for place in places)
    return is_store or config.ssl_key_password is not None or config.ssl_keystore_password is not None
