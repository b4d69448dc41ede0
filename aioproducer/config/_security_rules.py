"""Rules between the options of secured connections: those that cannot go together, and those that need others."""

from __future__ import annotations

from typing import Final, Protocol

from aioproducer.errors import ConfigurationError

TLS_PROTOCOLS: Final = frozenset({"SSL", "SASL_SSL"})
SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})


class _Options(Protocol):
    """The options of a `ProducerConfig` that these rules read."""

    @property
    def security_protocol(self) -> str: ...


def check_security(config: _Options) -> None:
    """Refuse options that cannot go together."""
    if config.security_protocol in TLS_PROTOCOLS:
        text = f"security_protocol={config.security_protocol!r}: TLS is not supported in this version"
        raise ConfigurationError(text, option="security_protocol")
