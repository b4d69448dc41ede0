"""What contract tests ask any broker with: single requests, odd batches, transactions, and a consumer not ours."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from typing import NamedTuple

import confluent_kafka
from crc32c import crc32c

from aioproducer._protocol.compression import CompressionType, compress
from aioproducer.testing import ApiKey
from tests.reference.record_batch import encode_varint
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

    async def group_coordinator(self, group: str) -> None:
        """Wait until the coordinator of a group is there and has loaded."""
        found, loaded = -1, -1
        while (found, loaded) != (0, 0):
            found = int((await self.ask(ApiKey.FIND_COORDINATOR, 2, key=group, key_type=0)).error_code)
            loaded = int((await self.ask(ApiKey.OFFSET_FETCH, 5, group_id=group, topics=())).error_code)
            await asyncio.sleep(0.01 if found == loaded == 0 else 0.05)

    async def new_producer_id(self) -> int:
        """A producer id of one's own; a fresh broker needs a moment."""
        while True:
            answer = await self.ask(ApiKey.INIT_PRODUCER_ID, 1, transactional_id=None)
            if int(answer.error_code) == 0:
                return int(answer.producer_id)
            await asyncio.sleep(0.1)

    async def offset(self, topic: str, timestamp: int, *, isolation: int = 0) -> tuple[int, int]:
        """Return offset and timestamp from ListOffsets; -1 is the end, -2 the start."""
        message = import_module("kio.schema.list_offsets.v4.request")
        part = message.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        asked = (message.ListOffsetsTopic(name=topic, partitions=(part,)),)
        answer = await self.ask(ApiKey.LIST_OFFSETS, 4, replica_id=-1, isolation_level=isolation, topics=asked)
        (found,) = answer.topics[0].partitions
        time = found.timestamp
        return found.offset, time if isinstance(time, int) else -1


# Record batches that are wrong in one way each


NOW_MS = time.time_ns() // 1_000_000
HOUR_MS = 3_600_000
SECTION = struct.Struct(">hiqqqhii")


def record(
    delta: int,
    *,
    key: bytes | None = b"k",
    value: bytes = b"v",
    time_delta: int = 0,
    trailing: bytes = b"",
    claims: int = 0,
) -> bytes:
    key_bytes = encode_varint(-1) if key is None else encode_varint(len(key)) + key
    times = encode_varint(time_delta) + encode_varint(delta)
    body = b"\0" + times + key_bytes + encode_varint(len(value)) + value + encode_varint(0) + trailing
    return encode_varint(len(body) + claims) + body


def odd_batch(records: Sequence[bytes] = (record(0), record(1)), **wrong: int) -> bytes:
    """A batch of these records, right but for what `wrong` names.

    Args:
        records: encoded; what stands at the end need not be one.
        wrong: base_offset, magic, crc, attributes, count, last_delta, timestamp, max_timestamp, producer_id, epoch,
            sequence, codec.
    """
    codec = wrong.get("codec", 0)
    body = b"".join(records)
    if codec:
        body = compress(CompressionType(codec), None, body)
    count = wrong.get("count", len(records))
    first_time = wrong.get("timestamp", NOW_MS)
    section = body_of(wrong, codec=codec, count=count, first_time=first_time) + body
    front = struct.pack(">qiib", wrong.get("base_offset", 0), 9 + len(section), -1, wrong.get("magic", 2))
    return front + struct.pack(">I", wrong.get("crc", crc32c(section))) + section


def body_of(wrong: dict[str, int], *, codec: int, count: int, first_time: int) -> bytes:
    return SECTION.pack(
        wrong.get("attributes", 0) | codec,
        wrong.get("last_delta", count - 1),
        first_time,
        wrong.get("max_timestamp", first_time),
        wrong.get("producer_id", -1),
        wrong.get("epoch", -1),
        wrong.get("sequence", -1),
        count,
    )


# A transactional producer made of single requests


TRANSACTIONAL = 0x10
CONCURRENT_TRANSACTIONS = 51
_STILL_STARTING = frozenset({14, 15, 16})
_PATIENCE_S = 15.0


class Identity(NamedTuple):
    """The error, and what the producer has by now."""

    error: int
    producer_id: int
    epoch: int


class TransactionalClient:
    """One transactional id on one connection; remembers producer id and epoch."""

    def __init__(self, client: RawClient, transactional_id: str) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1

    async def init(self, *, timeout_s: float = 60.0, expected: tuple[int, int] = (-1, -1)) -> Identity:
        """Send InitProducerId 4, repeated while an earlier transaction is completing; keeps the identity."""
        while True:
            identity = await self.init_once(timeout_s=timeout_s, expected=expected)
            if identity.error not in {CONCURRENT_TRANSACTIONS, *_STILL_STARTING}:
                return identity
            await self.find_coordinator()
            await asyncio.sleep(0.02)

    async def init_once(self, *, timeout_s: float = 60.0, expected: tuple[int, int] = (-1, -1)) -> Identity:
        """Send InitProducerId 4."""
        answer = await self.client.ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id=self.transactional_id,
            transaction_timeout=timedelta(seconds=timeout_s),
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        if int(answer.error_code) == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return Identity(int(answer.error_code), answer.producer_id, answer.producer_epoch)

    async def find_coordinator(self) -> int:
        """Send FindCoordinator 2; returns the error. A fresh real broker creates its transaction topic at the first."""
        answer = await self.client.ask(ApiKey.FIND_COORDINATOR, 2, key=self.transactional_id, key_type=1)
        return int(answer.error_code)

    async def add_partitions(self, topic: str, partition: int = 0, *, version: int = 3) -> int:
        """Send AddPartitionsToTxn; returns the error."""
        topics = import_module(f"kio.schema.add_partitions_to_txn.v{version}.request").AddPartitionsToTxnTopic
        fields = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": (topics(name=topic, partitions=(partition,)),),
        }
        answer = await self._until_settled(ApiKey.ADD_PARTITIONS_TO_TXN, version, fields)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    async def produce(self, topic: str, sequence: int = 0, *, version: int, value: bytes = b"v") -> int:
        """Produce one record of the transaction to partition 0; returns the error."""
        message = import_module(f"kio.schema.produce.v{version}.request")
        batch = odd_batch(
            [record(0, value=value)],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
        )
        part = message.PartitionProduceData(index=0, records=batch)
        data = message.TopicProduceData(name=topic, partition_data=(part,))
        fields = {"transactional_id": self.transactional_id, "acks": -1, "topic_data": (data,)}
        answer = await self.client.ask(ApiKey.PRODUCE, version, **fields)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def end(self, *, commit: bool, version: int, epoch: int | None = None) -> Identity:
        """Send EndTxn; keeps the identity that version 5 returns."""
        fields = {**self._identity(), "committed": commit}
        if epoch is not None:
            fields["producer_epoch"] = epoch
        answer = await self._until_settled(ApiKey.END_TXN, version, fields)
        identity = Identity(
            int(answer.error_code), getattr(answer, "producer_id", -1), getattr(answer, "producer_epoch", -1)
        )
        if identity.error == 0 and identity.producer_id >= 0:
            self.producer_id, self.epoch = identity.producer_id, identity.epoch
        return identity

    async def add_offsets(self, group: str, *, version: int = 3) -> int:
        """Send AddOffsetsToTxn; returns the error."""
        fields = {**self._identity(), "group_id": group}
        return int((await self._until_settled(ApiKey.ADD_OFFSETS_TO_TXN, version, fields)).error_code)

    async def commit_offset(
        self, group: str, topic: str, offset: int, *, version: int, metadata: str = "note", **member: object
    ) -> int:
        """Send TxnOffsetCommit of partition 0; returns the error."""
        message = import_module(f"kio.schema.txn_offset_commit.v{version}.request")
        part = message.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        topics = (message.TxnOffsetCommitRequestTopic(name=topic, partitions=(part,)),)
        answer = await self.client.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            **self._identity(),
            group_id=group,
            topics=topics,
            **member,
        )
        return int(answer.topics[0].partitions[0].error_code)

    async def committed_offset(self, group: str, topic: str, *, stable: bool = True) -> tuple[int, int]:
        """Return error and offset from OffsetFetch 7 for partition 0."""
        message = import_module("kio.schema.offset_fetch.v7.request")
        topics = (message.OffsetFetchRequestTopic(name=topic, partition_indexes=(0,)),)
        answer = await self.client.ask(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=topics, require_stable=stable)
        found = answer.topics[0].partitions[0]
        return int(found.error_code), found.committed_offset

    async def state(self) -> str:
        """Return the state of the id in DescribeTransactions, once it is not completing."""
        for _ in range(500):
            answer = await self.client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=(self.transactional_id,))
            found = str(answer.transaction_states[0].transaction_state)
            if not found.startswith("Prepare"):
                break
            await asyncio.sleep(0.01)
        return found

    def _identity(self) -> dict[str, object]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def _until_settled(self, api: ApiKey, version: int, fields: dict[str, object]):  # noqa: ANN202 - kio's
        """Send, and repeat while an earlier end is completing."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = await self.client.ask(api, version, **fields)
            is_pending = "<ErrorCode.concurrent_transactions" in repr(answer)
            if not is_pending or time.monotonic() > deadline:
                return answer
            await asyncio.sleep(0.01)


# The consumer of confluent-kafka


PATIENCE_S = 20.0
END_OF_PARTITION = -191  # librdkafka's own code


def read(servers: str, topic: str, isolation: str) -> list[bytes]:
    """Every record of partition 0, as `isolation` lets it see; blocks."""
    settings = {"bootstrap.servers": servers, "group.id": "unused", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**settings, "isolation.level": isolation, "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = list[bytes]()
    while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
        found.append(message.value())
    assert message is not None
    assert message.error().code() == END_OF_PARTITION
    consumer.close()
    return found
