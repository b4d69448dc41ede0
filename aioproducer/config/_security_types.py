"""Types of options of secured connections."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from aioproducer._shown_values import shown
from aioproducer.config._option_types import ExactTextOption, TextOption, refuse_value
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.security import Secret
from aioproducer.security._secret import NOT_UNICODE, check_variable, is_unicode, secret_of

Password: TypeAlias = Secret | Callable[[], str | Secret | Awaitable[str | Secret]]
"""A password in effect: text that was given is a `Secret` already."""

PasswordArgument: TypeAlias = str | Password

TlsContextArgument: TypeAlias = ssl.SSLContext | Callable[[], ssl.SSLContext]
"""A context, or a function called for each connection."""

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_OLD_VERSIONS: Final = frozenset({"SSL", "SSLv2", "SSLv3", "TLSv1", "TLSv1.0", "TLSv1.1"})


class _OptionalText:
    """Base class of options whose text is their value, and none at all None."""

    def parse(self, name: str, text: str) -> str | None:  # noqa: ARG002  # OptionKind
        return text.strip() or None


class SecurityProtocol(TextOption):
    """Kafka's four security protocols, in any case."""

    allowed: Final = ", ".join(PROTOCOLS)

    def accept(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            raise ConfigurationTypeError(f"{name} must be a str, not {type(value).__name__}", option=name)
        protocol = value.strip().upper()
        if protocol not in PROTOCOLS:
            hint = " (Kafka calls TLS SSL)" if "TLS" in protocol else ""
            refuse_value(name, value, f"one of {self.allowed}{hint}")
        return protocol


class PasswordOption:
    """A password that no repr shows: text, a `Secret`, or a function that returns one, also `async`."""

    is_secret: Final = True  # `ProducerConfig.given` keeps the accepted value, not the text

    allowed: Final = "text, a Secret, a function that returns one (also async), or None"

    def accept(self, name: str, value: object) -> Password | None:
        if isinstance(value, str):
            return secret_of(name, value)
        if isinstance(value, Secret):
            check_variable(name, value)
        if value is None or isinstance(value, Secret) or callable(value):
            return cast("Password | None", value)
        # No value is shown: it may be a secret of the wrong type.
        raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)

    def parse(self, name: str, text: str) -> Secret:
        return secret_of(name, text)


class FileName(_OptionalText):
    """The name of a file, or None; it is opened at start."""

    allowed: Final = "a path, or None"

    def accept(self, name: str, value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str | os.PathLike):
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        path = os.fspath(value)
        if isinstance(path, bytes) or not path:
            refuse_value(name, value, "a path in text, not empty")
        if "-----BEGIN" in path:  # not shown: it may be a key
            inline = "ssl_truststore_certificates" if "truststore" in name else "ssl_keystore_key"
            raise ConfigurationError(f"{name} takes the name of a file; PEM text is given as {inline}", option=name)
        return path


class PemText:
    """Certificates as PEM text, or None."""

    allowed: Final = "PEM text (-----BEGIN CERTIFICATE-----), or None"

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


class StoreType(_OptionalText):
    """The type of a store, or None; the bytes of the store decide."""

    allowed: Final = f"{', '.join(STORE_TYPES)}, or None"

    def accept(self, name: str, value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        if value.upper() not in STORE_TYPES:
            refuse_value(name, value, self.allowed)
        return value.upper()


@dataclass(frozen=True, slots=True)
class Words(ExactTextOption):
    """A sequence of words, or one text with commas between them; `check` returns what is wrong with them."""

    allowed: str
    check: Callable[[tuple[str, ...]], str | None]

    def accept(self, name: str, value: object) -> tuple[str, ...]:
        given = value.split(",") if isinstance(value, str) else value
        if isinstance(given, bytes) or not isinstance(given, Sequence) or not all(isinstance(w, str) for w in given):
            text = f"{name} must be a sequence of str, or a str with commas, not {type(value).__name__}"
            raise ConfigurationTypeError(text, option=name)
        words = tuple(word.strip() for word in given if word.strip())
        wrong = self.check(words) or _not_printable(words)
        if wrong is not None:
            raise ConfigurationError(f"{name}: {wrong}", option=name)
        return words


def _not_printable(words: tuple[str, ...]) -> str | None:
    strange = next((word for word in words if not (word.isascii() and word.isprintable())), None)
    return None if strange is None else f"{shown(strange)} has characters other than printable ASCII"


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


class NameCheck(TextOption):
    """Whether the names of brokers are checked: `https`, or empty for no check."""

    allowed: Final = '"https", or "" for no check of names'

    def accept(self, name: str, value: object) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        if value.lower() not in {"https", ""}:
            refuse_value(name, value, self.allowed)
        return value.lower()


class TlsContextOption:
    """An `ssl.SSLContext`, or a function that returns one."""

    allowed: Final = "an ssl.SSLContext, a function that returns one, or None"

    def accept(self, name: str, value: object) -> object:
        if value is not None and not isinstance(value, ssl.SSLContext) and not callable(value):
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        return value

    def parse(self, name: str, text: str) -> object:  # noqa: ARG002  # OptionKind
        raise ConfigurationError(f"{name} cannot be given as text; pass {self.allowed} in Python", option=name)


MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


class SaslMechanism(TextOption):
    """The name of a mechanism, as brokers spell it."""

    allowed: Final = f"{', '.join(MECHANISMS)}, or None"

    def accept(self, name: str, value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise ConfigurationTypeError(f"{name} must be a str or None, not {type(value).__name__}", option=name)
        if value not in MECHANISMS:
            self._refuse(name, value)
        return value

    def _refuse(self, name: str, value: str) -> None:
        plain = value.strip().upper().replace("_", "-")
        if plain in MECHANISMS:
            raise ConfigurationError(f"{name} is spelled {plain!r}, not {value!r}", option=name)
        if plain == "AWS-MSK-IAM":
            text = (
                f"{name}={value!r} is that of a Java library; use OAUTHBEARER with sasl_token_provider=MskIam(region)"
            )
            raise ConfigurationError(text, option=name)
        refuse_value(name, value, f"one of {', '.join(MECHANISMS)}")


class Username(ExactTextOption):
    """Text, or none."""

    allowed: Final = "text, or None"

    def accept(self, name: str, value: object) -> str | None:
        if isinstance(value, str) and not is_unicode(value):
            raise ConfigurationError(f"{name} {NOT_UNICODE}", option=name)
        if value is None or isinstance(value, str):
            return value
        raise ConfigurationTypeError(f"{name} must be a str or None, not {type(value).__name__}", option=name)


class SecretText:
    """Text that no repr shows, or a `Secret`."""

    is_secret: Final = True

    allowed: Final = "text, a Secret, or None"

    def accept(self, name: str, value: object) -> Secret | None:
        if isinstance(value, Secret):
            check_variable(name, value)
        if value is None or isinstance(value, Secret):
            return value
        if isinstance(value, str):
            return secret_of(name, value)
        raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)

    def parse(self, name: str, text: str) -> Secret:
        return secret_of(name, text)
