"""The classes of `kio`, which is generated from Kafka's own schemas."""

from importlib import import_module

from aioproducer.testing import ApiKey


def schema(api: ApiKey, version: int, kind: str):  # noqa: ANN201 - one of kio's classes
    module = import_module(f"kio.schema.{api.schema_name}.v{version}.{kind}")
    return getattr(module, "".join(part.capitalize() for part in api.schema_name.split("_")) + kind.capitalize())
