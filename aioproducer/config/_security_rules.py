"""Rules between the options of secured connections: those that cannot go together, and those that need others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from aioproducer.errors import ConfigurationError

TLS_PROTOCOLS: Final = frozenset({"SSL", "SASL_SSL"})
SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})


class _Options(Protocol):
    """The options of a `ProducerConfig` that these rules read."""

    @property
    def given(self) -> Mapping[str, object]: ...

    @property
    def security_protocol(self) -> str: ...

    @property
    def ssl_context(self) -> object: ...

    @property
    def ssl_enabled_protocols(self) -> tuple[str, ...]: ...

    @property
    def ssl_keystore_certificate_chain(self) -> str | None: ...

    @property
    def ssl_keystore_key(self) -> object: ...

    @property
    def ssl_keystore_location(self) -> str | None: ...

    @property
    def ssl_protocol(self) -> str: ...

    @property
    def ssl_truststore_certificates(self) -> str | None: ...

    @property
    def ssl_truststore_location(self) -> str | None: ...


def check_security(config: _Options, defaults: Mapping[str, object]) -> None:
    """Refuse options that cannot go together.

    Args:
        defaults: of all options.
    """
    tls = [
        name
        for name in config.given
        if name.startswith("ssl_") and getattr(config, name) != defaults[name]  # a default asks for nothing
    ]
    if tls and config.security_protocol not in TLS_PROTOCOLS:
        _refuse_without_tls(config, tls[0])
    if config.ssl_context is not None and len(tls) > 1:
        other = next(name for name in tls if name != "ssl_context")
        _refuse(other, f"ssl_context takes the place of all other ssl_ options; leave out {other}, or ssl_context")
    if config.security_protocol in TLS_PROTOCOLS:
        _check_stores(config)
        _check_versions(config)


def _refuse_without_tls(config: _Options, name: str) -> None:
    wanted = "SASL_SSL" if config.security_protocol in SASL_PROTOCOLS else "SSL"
    found = (
        config.security_protocol if "security_protocol" in config.given else f"{config.security_protocol}, the default"
    )
    _refuse(name, f"{name} is for TLS, and security_protocol is {found}: set security_protocol={wanted!r}")


def _check_stores(config: _Options) -> None:
    key, chain = config.ssl_keystore_key, config.ssl_keystore_certificate_chain
    if key is not None and chain is None:
        _refuse("ssl_keystore_certificate_chain", "ssl_keystore_key needs ssl_keystore_certificate_chain, as PEM text")
    if chain is not None and key is None:
        _refuse("ssl_keystore_key", "ssl_keystore_certificate_chain needs ssl_keystore_key, as PEM text")
    if key is not None and config.ssl_keystore_location is not None:
        _refuse("ssl_keystore_location", "ssl_keystore_location and ssl_keystore_key both give a key; leave out one")
    if config.ssl_truststore_location is not None and config.ssl_truststore_certificates is not None:
        text = "ssl_truststore_location and ssl_truststore_certificates both say whom to trust; leave out one"
        _refuse("ssl_truststore_location", text)


def _check_versions(config: _Options) -> None:
    if config.ssl_protocol == "TLSv1.2" and "TLSv1.2" not in config.ssl_enabled_protocols:
        text = f"ssl_protocol='TLSv1.2' leaves no version of ssl_enabled_protocols={config.ssl_enabled_protocols!r}"
        _refuse("ssl_protocol", text)


def _refuse(option: str, text: str) -> None:
    raise ConfigurationError(text, option=option)
