"""What one option may be: its type and range, in one place for checks, property files and docs.

Every field of `ProducerConfig` is annotated with one of these. `accept` checks a Python value,
`parse` reads the text of a property file, `allowed` says the range to people.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol

from aioproducer._shown_values import shown
from aioproducer.errors import ConfigurationError, ConfigurationTypeError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_SECURED = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})
_MAX_STRING_BYTES = 32767  # a string's length is an int16 on the wire

_MAX_DIGITS = 19  # of INT64_MAX
_NO_CLASSES: Final[Mapping[str, Callable[[], object]]] = {}


class OptionKind(Protocol):
    """The type and range of one option."""

    @property
    def allowed(self) -> str:
        """The range, for messages and docs: `0 to 2147483647`."""
        ...

    def accept(self, name: str, value: object) -> object:
        """Return the value as the configuration keeps it.

        Raises:
            ConfigurationTypeError: wrong type.
            ConfigurationError: out of range.
        """
        ...

    def parse(self, name: str, text: str) -> object:
        """Return what the text of a property file means, not yet checked.

        Raises:
            ConfigurationError: it means nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class IntOption:
    """A whole number between two bounds, both included."""

    minimum: int
    maximum: int = INT32_MAX

    @property
    def allowed(self) -> str:
        """The range."""
        return f"{self.minimum} to {self.maximum}"

    def accept(self, name: str, value: object) -> int:
        """Return the number; a `bool`, a float and a text are none."""
        if not isinstance(value, int) or isinstance(value, bool):
            _refuse_type(name, value, "an int")
        if not self.minimum <= value <= self.maximum:
            refuse_value(name, value, f"between {self.minimum} and {self.maximum}")
        return value

    def parse(self, name: str, text: str) -> int:
        """Read decimal digits."""
        return _parse_whole(name, text, f"between {self.minimum} and {self.maximum}")


class OptionalWhole(IntOption):
    """A whole number, or `None` for a value that follows from other options."""

    def accept(self, name: str, value: object) -> int:
        """Return the number, -1 for `None` until the configuration has worked it out."""
        return -1 if value is None else IntOption.accept(self, name, value)


class GzipLevel:
    """gzip's levels: -1, or 1 to 9."""

    @property
    def allowed(self) -> str:
        """The range."""
        return "-1, or 1 to 9"

    def accept(self, name: str, value: object) -> int:
        """Return the level; 0 (no compression) is none, as in Kafka."""
        level = IntOption(-1, 9).accept(name, value)
        if level == 0:
            refuse_value(name, level, self.allowed)
        return level

    def parse(self, name: str, text: str) -> int:
        """Read decimal digits."""
        return _parse_whole(name, text, self.allowed)


class BoolOption:
    """True or false."""

    @property
    def allowed(self) -> str:
        """The range."""
        return "True, False"

    def accept(self, name: str, value: object) -> bool:
        """Return the flag; 0 and 1 are none."""
        if not isinstance(value, bool):
            _refuse_type(name, value, "True or False")
        return value

    def parse(self, name: str, text: str) -> bool:
        """Read `true` or `false`, in any case."""
        flag = {"true": True, "false": False}.get(text.strip().lower())
        if flag is None:
            refuse_value(name, text, "true or false")
        return flag


@dataclass(frozen=True, slots=True)
class EnumOption:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """The words."""
        return ", ".join(self.words)

    def accept(self, name: str, value: object) -> str:
        """Return the word."""
        if not isinstance(value, str):
            _refuse_type(name, value, "a str")
        if value not in self.words:
            refuse_value(name, value, f"one of {self.allowed}")
        return value

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        """Take the text as it is."""
        return text.strip()


class Acks:
    """How many brokers must have a record: `all` (-1), 1 or 0, as a number or as Kafka's text."""

    @property
    def allowed(self) -> str:
        """The range."""
        return '"all" (-1), 1, 0'

    def accept(self, name: str, value: object) -> int:
        """Return -1, 0 or 1."""
        if isinstance(value, bool) or not isinstance(value, int | str):
            _refuse_type(name, value, 'an int or "all"')
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1, -1: -1, 0: 0, 1: 1}.get(value)
        if acks is None:
            refuse_value(name, value, '"all", -1, 1 or 0')
        return acks

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        """Take the text as it is."""
        return text.strip()


class ClientId:
    """Text that is safe in a request header, a log and a metric."""

    @property
    def allowed(self) -> str:
        """The range."""
        return "printable text, up to 32767 bytes"

    def accept(self, name: str, value: object) -> str:
        """Return the text; control characters and newlines would break logs and metrics."""
        if not isinstance(value, str):
            _refuse_type(name, value, "a str")
        if not value.isprintable():
            refuse_value(name, value, "printable text, without control characters")
        if len(value.encode()) > _MAX_STRING_BYTES:
            refuse_value(name, f"{value[:20]}...", f"at most {_MAX_STRING_BYTES} bytes long")
        return value

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        """Take the text as it is."""
        return text.strip()


class TransactionalId:
    """A transactional id, or none."""

    @property
    def allowed(self) -> str:
        """The range."""
        return f"text of 1 to {_MAX_STRING_BYTES} bytes, or None"

    def accept(self, name: str, value: object) -> str | None:
        """Return the id.

        Raises:
            ConfigurationError: empty, longer than the wire can say, or impossible to encode.
            ConfigurationTypeError: neither text nor `None`.
        """
        if value is None:
            return None
        if not isinstance(value, str):
            _refuse_type(name, value, "a str or None")
        if not value:
            refuse_value(name, value, "None, or text that is not empty")
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"{name} cannot be encoded as UTF-8: {error.reason}", option=name) from error
        if size > _MAX_STRING_BYTES:
            refuse_value(name, f"{value[:20]}...", f"at most {_MAX_STRING_BYTES} bytes long ({size} were given)")
        return value

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        """Take the text as it is."""
        return text


class SecurityProtocol:
    """Kafka's four security protocols, of which this version supports one."""

    @property
    def allowed(self) -> str:
        """The range."""
        return "PLAINTEXT (TLS and SASL are not supported in this version)"

    def accept(self, name: str, value: object) -> str:
        """Return `PLAINTEXT`; refuse the other three as not supported, the rest as unknown.

        Raises:
            ConfigurationError: any of the other three, or none of the four.
        """
        if not isinstance(value, str):
            _refuse_type(name, value, "a str")
        if value in _SECURED:
            raise ConfigurationError(
                f"{name}={value!r}: TLS and SASL are not supported in this version of aioproducer; only PLAINTEXT is",
                option=name,
            )
        if value != "PLAINTEXT":
            refuse_value(name, value, self.allowed)
        return value

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        """Take the text as it is; Kafka reads it in any case."""
        return text.strip().upper()


@dataclass(frozen=True, slots=True)
class Plugin:
    """An object with the methods of one of our protocols; a Java class name means nothing here."""

    allowed: str
    check: Callable[[object], None]
    """Raises TypeError, with a message that names the option."""
    nothing: object = None
    """What `None` means."""
    classes: Mapping[str, Callable[[], object]] = field(default_factory=lambda: _NO_CLASSES)
    """Java's class name in a property file -> makes the object that does the same."""

    def accept(self, name: str, value: object) -> object:
        """Return the object.

        Raises:
            ConfigurationTypeError: it has not the methods.
        """
        if value is None:
            return self.nothing
        try:
            self.check(value)
        except TypeError as error:
            raise ConfigurationTypeError(str(error), option=name) from error
        return tuple(value) if isinstance(value, list) else value

    def parse(self, name: str, text: str) -> object:
        """Return the object that does what the Java class of this name does.

        Raises:
            ConfigurationError: no such class is known here.
        """
        make = self.classes.get(text.strip())
        if make is None:
            raise ConfigurationError(
                f"{name}={shown(text)}: a class name cannot be loaded here; pass the object: {self.allowed}",
                option=name,
            )
        return make()


def refuse_value(name: str, value: object, allowed: str) -> NoReturn:
    """Refuse an option's value.

    Args:
        name: the option.
        value: what was given.
        allowed: what is, to go after "must be".

    Raises:
        ConfigurationError: always.
    """
    raise ConfigurationError(f"{name} must be {allowed}, not {shown(value)}", option=name)


def _refuse_type(name: str, value: object, wanted: str) -> NoReturn:
    raise ConfigurationTypeError(f"{name} must be {wanted}, not {type(value).__name__} ({shown(value)})", option=name)


def _parse_whole(name: str, text: str, allowed: str) -> int:
    digits = text.strip()
    if not _WHOLE_NUMBER.fullmatch(digits):
        refuse_value(name, text, "a whole number")
    significant = digits.lstrip("+-").lstrip("0") or "0"
    if len(significant) > _MAX_DIGITS:  # int() would refuse thousands of digits with an error of its own
        refuse_value(name, text, allowed)
    return -int(significant) if digits.startswith("-") else int(significant)
