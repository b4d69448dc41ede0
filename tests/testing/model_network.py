"""Clients of a model cluster without a network: frames go in, answers come out, time is what the test says."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from random import Random
from typing import NamedTuple

from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.cluster import ModelCluster
from aioproducer.testing.fake_broker.exchange import Close, PauseReading, ResumeReading, Send
from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.settings import ClusterSettings, counted_from
from aioproducer.testing.fake_broker.topics import Topic, TopicRequest
from tests.reference.record_batch import Batch, Record, encode_batch
from tests.testing.kio_classes import schema, written

WALL_CLOCK_MS = 1_700_000_000_000
UNSAID: dict[str, object] = {"bool": False, "timedelta_i32": timedelta()}


class Answer(NamedTuple):
    """The response for one partition of a Produce."""

    error_code: int
    base_offset: int
    log_append_time: int
    log_start_offset: int
    record_errors: tuple[int, ...]
    leader: tuple[int, int] | None


class ModelClient:
    """One connection to one broker."""

    def __init__(self, network: ModelNetwork, node_id: int, number: int) -> None:
        self.network = network
        self.node_id = node_id
        self.number = number
        self.received = bytearray()
        self.closed_because: str | None = None
        self.is_paused = False
        self._correlation_id = 0

    def send(self, api: ApiKey, version: int, body: bytes) -> int:
        """Send one request; returns its correlation id."""
        self._correlation_id += 1
        tags = b"\0" if api.is_flexible(version) else b""
        header = struct.pack(">hhih", api, version, self._correlation_id, 4) + b"test" + tags
        self.network.deliver(self, header + body)
        return self._correlation_id

    def frames(self) -> list[bytes]:
        """The answers that have arrived, without their length; each is returned once."""
        found = []
        while len(self.received) >= 4:
            (size,) = struct.unpack_from(">i", self.received)
            if size < 0 or len(self.received) < size + 4:
                break
            found.append(bytes(self.received[4 : size + 4]))
            del self.received[: size + 4]
        return found

    def send_message(self, api: ApiKey, version: int, **fields: object) -> int:
        message_class = schema(api, version, "request")
        for field in dataclasses.fields(message_class):
            if field.default is dataclasses.MISSING and field.name not in fields:
                fields[field.name] = UNSAID[field.metadata["kafka_type"]]
        return self.send(api, version, written(message_class(**fields)))

    def answer(self, api: ApiKey, version: int):  # noqa: ANN201 - one of kio's classes
        """The one answer that has arrived, as kio reads it."""
        (frame,) = self.frames()
        has_tags = api.is_flexible(version) and api is not ApiKey.API_VERSIONS
        entity, _ = import_module("kio.serial").entity_reader(schema(api, version, "response"))(
            frame, 5 if has_tags else 4
        )
        return entity

    def ask(self, api: ApiKey, version: int, **fields: object):  # noqa: ANN201 - as above
        self.send_message(api, version, **fields)
        return self.answer(api, version)

    def send_produce(
        self, topic: str, batch: bytes | None, *, acks: int = -1, version: int = 10, timeout_ms: int = 1000
    ) -> int:
        message = import_module(f"kio.schema.produce.v{version}.request")
        partition = message.PartitionProduceData(index=0, records=batch)
        data = message.TopicProduceData(name=topic, partition_data=(partition,))
        timeout = timedelta(milliseconds=timeout_ms)
        return self.send_message(
            ApiKey.PRODUCE, version, transactional_id=None, acks=acks, timeout=timeout, topic_data=(data,)
        )

    def produce_answer(self, version: int = 10) -> Answer:
        response = self.answer(ApiKey.PRODUCE, version)
        (result,) = response.responses[0].partition_responses
        time = result.log_append_time
        leader = getattr(result, "current_leader", None)
        return Answer(
            int(result.error_code),
            result.base_offset,
            -1 if time is None else round(time.timestamp() * 1000),
            result.log_start_offset,
            tuple(error.batch_index for error in result.record_errors),
            None if leader is None or leader.leader_id == -1 else (leader.leader_id, leader.leader_epoch),
        )

    def produce(self, topic: str, batch: bytes | None, *, acks: int = -1, version: int = 10) -> Answer:
        self.send_produce(topic, batch, acks=acks, version=version)
        return self.produce_answer(version)


class ModelNetwork:
    """A model and its clients; `now` moves only by `advance`."""

    def __init__(self, nodes: int = 1, *, topics: dict[str, int] | None = None, **settings: object) -> None:
        settings.setdefault("replication_factor", nodes)
        self.now = 100.0
        epoch = WALL_CLOCK_MS - self.now * 1000
        chosen = ClusterSettings(wall_clock=counted_from(epoch), **settings)  # type: ignore[arg-type]
        self.model = ModelCluster(nodes, chosen, random=Random(1))
        self._clients: dict[int, ModelClient] = {}
        for name, partitions in (topics or {"t": 1}).items():
            self.model.topics.create(TopicRequest(name=name, partitions=partitions))

    def client(self, node_id: int = 1) -> ModelClient:
        client = ModelClient(self, node_id, len(self._clients) + 1)
        self._clients[client.number] = client
        self.model.brokers[node_id].connected(client.number)
        return client

    def deliver(self, client: ModelClient, frame: bytes) -> None:
        self.model.brokers[client.node_id].receive(client.number, memoryview(frame), self.now)
        self.settle()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while (when := self.model.next_wakeup()) is not None and when <= end:
            self.now = max(self.now, when)
            self.model.advance(self.now)
            self.settle()
        self.now = end

    def settle(self) -> None:
        for effect in self.model.take_effects():
            client = self._clients[effect.connection_id]
            match effect:
                case Send():
                    client.received += b"".join(effect.buffers)
                case Close():
                    client.closed_because = effect.reason
                case PauseReading() | ResumeReading():
                    client.is_paused = isinstance(effect, PauseReading)

    def topic(self, name: str = "t") -> Topic:
        found = self.model.topics.named(name)
        assert found is not None
        return found

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.topic(topic).partitions[index]


def batch(
    values: Sequence[bytes | None] = (b"a",),
    *,
    timestamp: int = WALL_CLOCK_MS,
    identity: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    producer_id, epoch, sequence = identity
    records = tuple(Record(b"k", value, timestamp) for value in values)
    return encode_batch(Batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))
