"""Serializers for Avro, JSON Schema and Protobuf with a schema registry, as Java's write them; extra `registry`.

The id of a schema is asked for once for each topic, without blocking the event loop; after that, records are encoded
without a coroutine.

Source: io.confluent.kafka.serializers in Confluent's Schema Registry.
"""

from aioproducer.integrations.schema_registry._avro import AvroSerializer
from aioproducer.integrations.schema_registry._json_schema import JsonSchemaSerializer
from aioproducer.integrations.schema_registry._protobuf import ProtobufSerializer
from aioproducer.integrations.schema_registry._registry import (
    ConfluentRegistry,
    Schema,
    SchemaId,
    SchemaOptions,
    SchemaReference,
    SchemaRegistry,
    SchemaRegistryError,
)

__all__ = [
    "AvroSerializer",
    "ConfluentRegistry",
    "JsonSchemaSerializer",
    "ProtobufSerializer",
    "Schema",
    "SchemaId",
    "SchemaOptions",
    "SchemaReference",
    "SchemaRegistry",
    "SchemaRegistryError",
]
