"""One connection to any broker, and requests by kio's fields: what contract tests ask with."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import struct
import uuid
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from typing import NamedTuple

from aioproducer.testing import ApiKey
from tests.testing.kio_classes import schema

PRODUCE_VERSION = 9
UNSAID: dict[str, object] = {"bool": False, "timedelta_i32": timedelta(seconds=5)}


class Answer(NamedTuple):
    error_code: int
    base_offset: int
    log_start_offset: int
    record_errors: tuple[int, ...]
    log_append_time: int  # in ms; -1 if the log keeps the records' own times


class RawClient:
    """One connection to a broker, for single requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, bootstrap_servers: str) -> RawClient:
        host, port = bootstrap_servers.split(",", maxsplit=1)[0].split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, api: ApiKey, version: int, **fields: object):  # noqa: ANN201 - one of kio's classes
        serial = import_module("kio.serial")
        message_class = schema(api, version, "request")
        for field in dataclasses.fields(message_class):
            if field.default is dataclasses.MISSING and field.name not in fields:
                fields[field.name] = UNSAID[field.metadata["kafka_type"]]
        body = io.BytesIO()
        serial.entity_writer(message_class)(body, message_class(**fields))
        has_tags = api.is_flexible(version)
        request = struct.pack(">hhihs", api, version, 1, 1, b"c") + (b"\0" if has_tags else b"") + body.getvalue()
        self._writer.write(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", await asyncio.wait_for(self._reader.readexactly(4), 10))
        answer = await self._reader.readexactly(size)
        head = 5 if has_tags and api is not ApiKey.API_VERSIONS else 4
        entity, _ = serial.entity_reader(schema(api, version, "response"))(answer, head)
        return entity

    async def create_topic(self, name: str, configs: Mapping[str, str] | None = None) -> None:
        """Make a topic of one partition and wait until its leader answers."""
        message = import_module("kio.schema.create_topics.v5.request")
        settings = tuple(message.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items())
        topic = message.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=settings
        )
        await self.ask(ApiKey.CREATE_TOPICS, 5, topics=(topic,))
        while await self.topic_error(name) != 0 or await self.offset(name, -1) != (0, -1):  # noqa: ASYNC110 - asks a broker
            await asyncio.sleep(0.05)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no broker knows it; else a producer's Metadata would create it again."""
        topic_id = await self.topic_id(name)
        await self.ask(ApiKey.DELETE_TOPICS, 1, topic_names=(name,))
        while await self.topic_id(name) == topic_id:  # noqa: ASYNC110 - asks a broker
            await asyncio.sleep(0.05)

    async def topic_id(self, name: str) -> uuid.UUID | None:
        message = import_module("kio.schema.metadata.v12.request")
        asked = (message.MetadataRequestTopic(topic_id=None, name=name),)
        answer = await self.ask(ApiKey.METADATA, 12, topics=asked, allow_auto_topic_creation=False)
        return answer.topics[0].topic_id

    async def topic_error(self, name: str, *, auto_create: bool = False) -> int:
        message = import_module("kio.schema.metadata.v9.request")
        asked = (message.MetadataRequestTopic(name=name),)
        answer = await self.ask(ApiKey.METADATA, 9, topics=asked, allow_auto_topic_creation=auto_create)
        (topic,) = answer.topics
        return int(topic.error_code) or int(topic.partitions[0].error_code)

    async def produce(
        self, topic: str, records: bytes, *, partition: int = 0, acks: int = -1, version: int = PRODUCE_VERSION
    ) -> Answer:
        """Send these bytes as the records of one partition."""
        message = import_module(f"kio.schema.produce.v{version}.request")
        part = message.PartitionProduceData(index=partition, records=records)
        data = message.TopicProduceData(name=topic, partition_data=(part,))
        answer = await self.ask(ApiKey.PRODUCE, version, transactional_id=None, acks=acks, topic_data=(data,))
        (result,) = answer.responses[0].partition_responses
        return Answer(
            int(result.error_code),
            result.base_offset,
            getattr(result, "log_start_offset", -1),
            tuple(error.batch_index for error in getattr(result, "record_errors", ())),
            -1 if result.log_append_time is None else round(result.log_append_time.timestamp() * 1000),
        )

    async def new_producer_id(self) -> int:
        """A producer id of one's own; a fresh broker needs a moment."""
        while True:
            answer = await self.ask(ApiKey.INIT_PRODUCER_ID, 1, transactional_id=None)
            if int(answer.error_code) == 0:
                return int(answer.producer_id)
            await asyncio.sleep(0.1)

    async def offset(self, topic: str, timestamp: int) -> tuple[int, int]:
        """Return offset and timestamp from ListOffsets; -1 is the end, -2 the start."""
        message = import_module("kio.schema.list_offsets.v4.request")
        part = message.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        asked = (message.ListOffsetsTopic(name=topic, partitions=(part,)),)
        answer = await self.ask(ApiKey.LIST_OFFSETS, 4, replica_id=-1, isolation_level=0, topics=asked)
        (found,) = answer.topics[0].partitions
        time = found.timestamp
        return found.offset, time if isinstance(time, int) else -1
