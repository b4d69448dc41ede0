"""Types of options of secured connections."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from aioproducer.config._option_types import refuse_value
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.security import Secret

Password: TypeAlias = Secret | Callable[[], str | Secret | Awaitable[str | Secret]]
"""A password in effect: text that was given is a `Secret` already."""

PasswordArgument: TypeAlias = str | Password

TlsContextArgument: TypeAlias = ssl.SSLContext | Callable[[], ssl.SSLContext]
"""A context, or a function called for each connection."""

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_OLD_VERSIONS: Final = frozenset({"SSL", "SSLv2", "SSLv3", "TLSv1", "TLSv1.0", "TLSv1.1"})


class SecurityProtocol:
    """Kafka's four security protocols, in any case."""

    @property
    def allowed(self) -> str:
        return ", ".join(PROTOCOLS)

    def accept(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            raise ConfigurationTypeError(f"{name} must be a str, not {type(value).__name__}", option=name)
        protocol = value.strip().upper()
        if protocol not in PROTOCOLS:
            hint = " (Kafka calls TLS SSL)" if "TLS" in protocol else ""
            refuse_value(name, value, f"one of {self.allowed}{hint}")
        return protocol

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        return text.strip()


class PasswordOption:
    """A password that no repr shows: text, a `Secret`, or a function that returns one, also `async`."""

    is_secret: Final = True  # `ProducerConfig.given` keeps the accepted value, not the text

    @property
    def allowed(self) -> str:
        return "text, a Secret, a function that returns one (also async), or None"

    def accept(self, name: str, value: object) -> Password | None:
        if isinstance(value, str):
            return Secret(value)
        if value is None or isinstance(value, Secret) or callable(value):
            return cast("Password | None", value)
        # No value is shown: it may be a secret of the wrong type.
        raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)

    def parse(self, name: str, text: str) -> Secret:  # noqa: ARG002  # OptionKind
        return Secret(text)


class FileName:
    """The name of a file, or None; it is opened at start."""

    @property
    def allowed(self) -> str:
        return "a path, or None"

    def accept(self, name: str, value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str | os.PathLike):
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        path = os.fspath(value)
        if isinstance(path, bytes) or not path:
            refuse_value(name, value, "a path in text, not empty")
        if "-----BEGIN" in path:  # not shown: it may be a key
            inline = "ssl_keystore_key" if "keystore" in name else "ssl_truststore_certificates"
            raise ConfigurationError(f"{name} takes the name of a file; PEM text is given as {inline}", option=name)
        return path

    def parse(self, name: str, text: str) -> str | None:  # noqa: ARG002  # OptionKind
        return text.strip() or None


class PemText:
    """Certificates as PEM text, or None."""

    @property
    def allowed(self) -> str:
        return "PEM text (-----BEGIN CERTIFICATE-----), or None"

    def accept(self, name: str, value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        if "-----BEGIN" not in value:
            store = "ssl_truststore_location" if "truststore" in name else "ssl_keystore_location"
            raise ConfigurationError(f"{name} must be {self.allowed}; a file is given as {store}", option=name)
        return value

    def parse(self, name: str, text: str) -> str | None:  # noqa: ARG002  # OptionKind
        return text or None


class StoreType:
    """The type of a store, or None; the bytes of the store decide."""

    @property
    def allowed(self) -> str:
        return f"{', '.join(STORE_TYPES)}, or None"

    def accept(self, name: str, value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        if value.upper() not in STORE_TYPES:
            refuse_value(name, value, self.allowed)
        return value.upper()

    def parse(self, name: str, text: str) -> str | None:  # noqa: ARG002  # OptionKind
        return text.strip() or None


@dataclass(frozen=True, slots=True)
class Words:
    """A sequence of words, or one text with commas between them.

    Args:
        allowed: describes them.
        check: returns what is wrong with the words; None if nothing is.
    """

    allowed: str
    check: Callable[[tuple[str, ...]], str | None]

    def accept(self, name: str, value: object) -> tuple[str, ...]:
        given = value.split(",") if isinstance(value, str) else value
        if isinstance(given, bytes) or not isinstance(given, Sequence) or not all(isinstance(w, str) for w in given):
            text = f"{name} must be a sequence of str, or a str with commas, not {type(value).__name__}"
            raise ConfigurationTypeError(text, option=name)
        words = tuple(word.strip() for word in given if word.strip())
        wrong = self.check(words)
        if wrong is not None:
            raise ConfigurationError(f"{name}: {wrong}", option=name)
        return words

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        return text


def check_versions(words: tuple[str, ...]) -> str | None:
    """Return what is wrong with a list of TLS versions; None if nothing is."""
    if not words:
        return f"give at least one of {', '.join(_TLS_VERSIONS)}"
    for word in words:
        if word in _OLD_VERSIONS:
            return f"{word} is not safe and not spoken here; use {' and '.join(_TLS_VERSIONS)}"
        if word not in _TLS_VERSIONS:
            return f"{word!r} is not one of {', '.join(_TLS_VERSIONS)}"
    return None


class NameCheck:
    """Whether the names of brokers are checked: `https`, or empty for no check."""

    @property
    def allowed(self) -> str:
        return '"https", or "" for no check of names'

    def accept(self, name: str, value: object) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        if value.lower() not in {"https", ""}:
            refuse_value(name, value, self.allowed)
        return value.lower()

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        return text.strip()


class TlsContextOption:
    """An `ssl.SSLContext`, or a function that returns one."""

    @property
    def allowed(self) -> str:
        return "an ssl.SSLContext, a function that returns one, or None"

    def accept(self, name: str, value: object) -> object:
        if value is not None and not isinstance(value, ssl.SSLContext) and not callable(value):
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        return value

    def parse(self, name: str, text: str) -> object:  # noqa: ARG002  # OptionKind
        raise ConfigurationError(f"{name} cannot be given as text; pass {self.allowed} in Python", option=name)
