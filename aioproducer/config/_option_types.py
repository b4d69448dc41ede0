"""Types and ranges of options, for checks, property files and docs; and Kafka's classes that property files name.

Each field of `ProducerConfig` is annotated with one. `accept` checks a Python value, `parse` reads the text of a
property file, `allowed` describes the range.

Source: org.apache.kafka.common.serialization, org.apache.kafka.clients.producer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol

from aioproducer._shown_values import shown
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.java_serializers import (
    BooleanSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntegerSerializer,
    LongSerializer,
    ShortSerializer,
    UUIDSerializer,
    VoidSerializer,
)
from aioproducer.partitioners import RoundRobinPartitioner
from aioproducer.serializers import BytesSerializer, StringSerializer, check_serializer

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_OF_SCHEMAS = re.compile(r"(Avro|Protobuf|Json\w*|Schema\w*)Serializer\s*\Z")
_MAX_STRING_BYTES = 32767  # a string's length is an int16 on the wire

_MAX_DIGITS = 19  # of INT64_MAX
_NO_CLASSES: Final[Mapping[str, Callable[[], object]]] = {}


_SERIALIZATION: Final = "org.apache.kafka.common.serialization."
_PRODUCER: Final = "org.apache.kafka.clients.producer."
_STICKY: Final = f"{_PRODUCER}UniformStickyPartitioner"

SERIALIZERS: Final[Mapping[str, Callable[[], object]]] = {
    f"{_SERIALIZATION}BooleanSerializer": BooleanSerializer,
    f"{_SERIALIZATION}ByteArraySerializer": BytesSerializer,
    f"{_SERIALIZATION}ByteBufferSerializer": BytesSerializer,
    f"{_SERIALIZATION}BytesSerializer": BytesSerializer,
    f"{_SERIALIZATION}DoubleSerializer": DoubleSerializer,
    f"{_SERIALIZATION}FloatSerializer": FloatSerializer,
    f"{_SERIALIZATION}IntegerSerializer": IntegerSerializer,
    f"{_SERIALIZATION}LongSerializer": LongSerializer,
    f"{_SERIALIZATION}ShortSerializer": ShortSerializer,
    f"{_SERIALIZATION}StringSerializer": StringSerializer,
    f"{_SERIALIZATION}UUIDSerializer": UUIDSerializer,
    f"{_SERIALIZATION}VoidSerializer": VoidSerializer,
}

PARTITIONERS: Final[Mapping[str, Callable[[], object]]] = {
    "": lambda: None,
    f"{_PRODUCER}RoundRobinPartitioner": RoundRobinPartitioner,
    f"{_PRODUCER}internals.DefaultPartitioner": lambda: None,
    _STICKY: lambda: None,
}
"""Partitioners by Java class; None is the built-in one, into which Kafka 4.0 merged the last two (KIP-794)."""

INTERCEPTORS: Final[Mapping[str, Callable[[], object]]] = {"": lambda: None}
"""An empty list is the only one: interceptors are written by users."""


class OptionKind(Protocol):
    """The type and range of one option."""

    @property
    def allowed(self) -> str: ...

    def accept(self, name: str, value: object) -> object:
        """Return the value as the configuration keeps it."""
        ...

    def parse(self, name: str, text: str) -> object:
        """Return the value that the text of a property file stands for, not yet checked."""
        ...


class TextOption:
    """Base class of options whose text is their value, without blanks around it."""

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        return text.strip()


class ExactTextOption:
    """Base class of options whose text is their value, blanks included."""

    def parse(self, name: str, text: str) -> str:  # noqa: ARG002  # OptionKind
        return text


@dataclass(frozen=True, slots=True)
class IntOption:
    """A whole number between two bounds, both included."""

    minimum: int
    maximum: int = INT32_MAX

    @property
    def allowed(self) -> str:
        return f"{self.minimum} to {self.maximum}"

    def accept(self, name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            _refuse_type(name, value, "an int")
        if not self.minimum <= value <= self.maximum:
            refuse_value(name, value, f"between {self.minimum} and {self.maximum}")
        return value

    def parse(self, name: str, text: str) -> int:
        return _parse_whole(name, text, f"between {self.minimum} and {self.maximum}")


class OptionalWhole(IntOption):
    """A whole number, or `None` for a value that follows from other options."""

    def accept(self, name: str, value: object) -> int:
        # -1 until the configuration computes the value.
        return -1 if value is None else IntOption.accept(self, name, value)


class OptionalTimeout(IntOption):
    """Milliseconds, or `None` for no limit of its own."""

    def accept(self, name: str, value: object) -> int | None:  # type: ignore[override]
        return None if value is None else IntOption.accept(self, name, value)


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


class GzipLevel:
    """gzip's levels: -1, or 1 to 9."""

    allowed: Final = "-1, or 1 to 9"

    def accept(self, name: str, value: object) -> int:
        level = IntOption(-1, 9).accept(name, value)
        if level == 0:  # no compression, which Kafka refuses too
            refuse_value(name, level, self.allowed)
        return level

    def parse(self, name: str, text: str) -> int:
        return _parse_whole(name, text, self.allowed)


class BoolOption:
    """A truth value: true or false."""

    allowed: Final = "True, False"

    def accept(self, name: str, value: object) -> bool:
        if not isinstance(value, bool):
            _refuse_type(name, value, "True or False")
        return value

    def parse(self, name: str, text: str) -> bool:
        flag = {"true": True, "false": False}.get(text.strip().lower())
        if flag is None:
            refuse_value(name, text, "true or false")
        return flag


@dataclass(frozen=True, slots=True)
class EnumOption(TextOption):
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return ", ".join(self.words)

    def accept(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            _refuse_type(name, value, "a str")
        if value not in self.words:
            refuse_value(name, value, f"one of {self.allowed}")
        return value


class Acks(TextOption):
    """How many brokers must have a record: `all` (-1), 1 or 0, as a number or as Kafka's text."""

    allowed: Final = '"all" (-1), 1, 0'

    def accept(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            _refuse_type(name, value, 'an int or "all"')
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1, -1: -1, 0: 0, 1: 1}.get(value)
        if acks is None:
            refuse_value(name, value, '"all", -1, 1 or 0')
        return acks


class ClientId(TextOption):
    """Text that is safe in a request header, a log and a metric."""

    allowed: Final = "printable text, up to 32767 bytes"

    def accept(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            _refuse_type(name, value, "a str")
        if not value.isprintable():
            refuse_value(name, value, "printable text, without control characters")
        if len(value.encode()) > _MAX_STRING_BYTES:
            refuse_value(name, f"{value[:20]}...", f"at most {_MAX_STRING_BYTES} bytes long")
        return value


class TransactionalId(ExactTextOption):
    """A transactional id, or none."""

    allowed: Final = f"text of 1 to {_MAX_STRING_BYTES} bytes, or None"

    def accept(self, name: str, value: object) -> str | None:
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


@dataclass(frozen=True, slots=True)
class Plugin:
    """An object with the methods of one of our protocols."""

    allowed: str
    check: Callable[[object], None]  # raises TypeError, with a message that names the option
    nothing: object = None  # the value of `None`
    classes: Mapping[str, Callable[[], object]] = field(default_factory=lambda: _NO_CLASSES)
    """Class name in a property file -> function that makes the equivalent object."""

    def accept(self, name: str, value: object) -> object:
        if value is None:
            return self.nothing
        try:
            self.check(value)
        except TypeError as error:
            raise ConfigurationTypeError(str(error), option=name) from error
        return tuple(value) if isinstance(value, list) else value

    def parse(self, name: str, text: str) -> object:
        make = self.classes.get(text.strip())
        if make is None:
            page = "; with a schema registry, see docs/how-to/use_schemas.md" if _OF_SCHEMAS.search(text) else ""
            raise ConfigurationError(
                f"{name}={shown(text)}: a class name cannot be loaded here; pass the object: {self.allowed}{page}",
                option=name,
            )
        return make()


def serializer_option(name: str) -> Plugin:
    allowed = "an object with serialize(topic, value), or a function of the value; None: bytes only"
    return Plugin(allowed, lambda given: check_serializer(name, given), classes=SERIALIZERS)


def ignores_keys(partitioner_class: object) -> bool:
    """Return whether this class is the built-in partitioner with `partitioner_ignore_keys`."""
    return isinstance(partitioner_class, str) and partitioner_class.strip() == _STICKY


def refuse_value(name: str, value: object, allowed: str) -> NoReturn:
    raise ConfigurationError(f"{name} must be {allowed}, not {shown(value)}", option=name)


def _refuse_type(name: str, value: object, wanted: str) -> NoReturn:
    raise ConfigurationTypeError(f"{name} must be {wanted}, not {type(value).__name__} ({shown(value)})", option=name)


def _parse_whole(name: str, text: str, allowed: str) -> int:
    digits = text.strip()
    if not _WHOLE_NUMBER.fullmatch(digits):
        refuse_value(name, text, "a whole number")
    significant = digits.lstrip("+-").lstrip("0") or "0"
    if len(significant) > _MAX_DIGITS:  # int() refuses thousands of digits with its own error
        refuse_value(name, text, allowed)
    return -int(significant) if digits.startswith("-") else int(significant)
