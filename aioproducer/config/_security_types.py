"""Types of options of secured connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, cast

from aioproducer.config._option_types import refuse_value
from aioproducer.errors import ConfigurationTypeError
from aioproducer.security import Secret

Password: TypeAlias = Secret | Callable[[], str | Secret | Awaitable[str | Secret]]
"""A password in effect: text that was given is a `Secret` already."""

PasswordArgument: TypeAlias = str | Password

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class SecurityProtocol:
    """Kafka's four security protocols, in any case."""

    @property
    def allowed(self) -> str:
        return ", ".join(_PROTOCOLS)

    def accept(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            raise ConfigurationTypeError(f"{name} must be a str, not {type(value).__name__}", option=name)
        protocol = value.strip().upper()
        if protocol not in _PROTOCOLS:
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
        # The value is not shown, whatever it is.
        raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)

    def parse(self, name: str, text: str) -> Secret:  # noqa: ARG002  # OptionKind
        return Secret(text)
