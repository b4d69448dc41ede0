"""Kafka's classes that property files name, and their equivalents.

Source: org.apache.kafka.common.serialization, org.apache.kafka.clients.producer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from aioproducer.config._option_types import Plugin
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


def serializer_option(name: str) -> Plugin:
    allowed = "an object with serialize(topic, value), or a function of the value; None: bytes only"
    return Plugin(allowed, lambda given: check_serializer(name, given), classes=SERIALIZERS)


def ignores_keys(partitioner_class: object) -> bool:
    """Return whether this class is the built-in partitioner with `partitioner_ignore_keys`."""
    return isinstance(partitioner_class, str) and partitioner_class.strip() == _STICKY
