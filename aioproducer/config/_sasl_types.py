"""Types of the `sasl_*` options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aioproducer.config._option_types import IntOption, refuse_value
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.security import Secret

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


class SaslMechanism:
    """The name of a mechanism, as brokers spell it."""

    @property
    def allowed(self) -> str:
        return f"{', '.join(MECHANISMS)}, or None"

    def accept(self, name: str, value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise ConfigurationTypeError(f"{name} must be a str or None, not {type(value).__name__}", option=name)
        if value not in MECHANISMS:
            self._refuse(name, value)
        return value

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        return text.strip()

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


class Username:
    """Text, or none."""

    @property
    def allowed(self) -> str:
        return "text, or None"

    def accept(self, name: str, value: object) -> str | None:
        if value is None or isinstance(value, str):
            return value
        raise ConfigurationTypeError(f"{name} must be a str or None, not {type(value).__name__}", option=name)

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        return text


class SecretText:
    """Text that no repr shows, or a `Secret`."""

    is_secret: Final = True

    @property
    def allowed(self) -> str:
        return "text, a Secret, or None"

    def accept(self, name: str, value: object) -> Secret | None:
        if value is None or isinstance(value, Secret):
            return value
        if isinstance(value, str):
            return Secret(value)
        raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)

    def parse(self, name: str, text: str) -> Secret:  # noqa: ARG002  # OptionKind
        return Secret(text)


@dataclass(frozen=True, slots=True)
class FloatOption:
    """A number between two bounds, both included."""

    minimum: float
    maximum: float

    @property
    def allowed(self) -> str:
        return f"{self.minimum:g} to {self.maximum:g}"

    def accept(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigurationTypeError(f"{name} must be a number, not {type(value).__name__}", option=name)
        if not self.minimum <= value <= self.maximum:
            refuse_value(name, value, f"between {self.minimum:g} and {self.maximum:g}")
        return float(value)

    def parse(self, name: str, text: str) -> float:
        try:
            return float(text.strip())
        except ValueError:
            refuse_value(name, text, "a number")


class OptionalTimeout(IntOption):
    """Milliseconds, or `None` for no limit of its own."""

    def accept(self, name: str, value: object) -> int | None:  # type: ignore[override]
        return None if value is None else IntOption.accept(self, name, value)
