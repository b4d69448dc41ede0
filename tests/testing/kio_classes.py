"""The classes of `kio`, which is generated from Kafka's own schemas, and ours of what it does not have yet."""

import io
from importlib import import_module
from typing import Any

from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.wire.messages import message_class


def module_of(message: str, version: int, kind: str) -> Any:
    """Module of a request or a response, with the classes of its structures."""
    return import_module(f"kio.schema.{message}.v{version}.{kind}")


def schema(api: ApiKey, version: int, kind: str):  # noqa: ANN201 - one of kio's classes
    return message_class(api, version, kind)


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    import_module("kio.serial").entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def read(kind: Any, data: bytes) -> Any:
    """Decode a message, which must take every byte."""
    entity, size = import_module("kio.serial").entity_reader(kind)(data, 0)
    assert size == len(data)
    return entity
