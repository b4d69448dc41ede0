"""A sender with the whole core behind it, and nodes that answer what a test says: no loop, no sockets."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVarTuple, cast

from aioproducer._native.measures import LatencyHistogram
from aioproducer._network.metadata_refresher import MetadataRefresher
from aioproducer._network.node_connection import NodeConnection
from aioproducer._network.requests import Answered, Lost, OutgoingRequest
from aioproducer._protocol.error_codes import RENEGOTIATE
from aioproducer._protocol.messages import Api
from aioproducer._protocol.primitives import Response
from aioproducer._protocol.produce import NodeEndpoint
from aioproducer._sender.completion import Completion
from aioproducer._sender.compressor import BatchCompressor
from aioproducer._sender.produce_outcome import Policy
from aioproducer._sender.sender import Sender
from aioproducer._sender.settlement import Settlement
from aioproducer._timing.retry_backoff import ExponentialBackoff
from aioproducer._timing.wakeup import Wakeup
from aioproducer.cluster import Cluster, PartitionView
from aioproducer.errors import BrokerConnectionError, KafkaError
from aioproducer.explanation import WaitReason, Why
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts, cluster_of
from tests.fakes.logs import EventList

VERSION = 8  # Produce version: the last without tagged fields, so that responses are easy to write by hand

MAX_IN_FLIGHT = 5

Said = tuple[int, int] | int | list[int]
"""A node's answer for a partition: error code, or error code and base offset, or the refused records."""

INVALID_RECORD = 87


ArgumentsT = TypeVarTuple("ArgumentsT")


class CallbackQueue:
    """The used part of an event loop: the time, and callbacks that run when the test says."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.time = clock
        self._soon: deque[Callable[[], object]] = deque()

    def call_soon(self, callback: Callable[[*ArgumentsT], object], *args: *ArgumentsT) -> None:
        self._soon.append(partial(callback, *args))

    def run(self) -> None:
        while self._soon:
            self._soon.popleft()()


class ScriptedNode:
    """A node and the connection to it: a `NodeConnection` and a `BrokerConnection` in one."""

    def __init__(self, client: ScriptedClient, node_id: int) -> None:
        self._client = client
        self._id = node_id

    @property
    def number(self) -> int:
        return self._client.connections[self._id]

    @property
    def ready_connection(self) -> ScriptedNode | None:
        return self if self.number and self._client.in_flight(self._id) < MAX_IN_FLIGHT else None

    @property
    def trouble(self) -> KafkaError | None:
        return self._client.errors.get(self._id)

    @property
    def blocked(self) -> Why | None:
        if self.trouble is not None:
            return Why(WaitReason.CONNECTING, detail=str(self.trouble))
        return None if self._client.in_flight(self._id) < MAX_IN_FLIGHT else Why(WaitReason.IN_FLIGHT_FULL)

    def connect(self) -> None:
        """Nothing to do."""

    def produce_version(self, at_most: int) -> int:
        if self._client.version_error is not None:
            raise self._client.version_error
        return min(self._client.version, at_most)

    def send(self, request: OutgoingRequest) -> None:
        self._client.requests[self._id].append(request)

    def apply_throttle_and_versions(self, response: Response, api: Api, now: float) -> None:  # noqa: ARG002
        if response.throttle_time_ms:
            self._client.throttled.append((self._id, response.throttle_time_ms))
        if not RENEGOTIATE.isdisjoint(response.error_codes):
            self._client.retired.append(self._id)

    def disconnect(self, error: KafkaError) -> None:  # noqa: ARG002
        self._client.disconnected.append(self._id)


class ScriptedClient:
    """Nodes 0 to 9, connected unless said otherwise."""

    def __init__(self) -> None:
        self.nodes = {node_id: ScriptedNode(self, node_id) for node_id in range(10)}
        self.requests: dict[int, list[OutgoingRequest]] = {node_id: [] for node_id in self.nodes}
        self.connections = {node_id: node_id for node_id in self.nodes}
        """Numbers, which change with each connection; 0: not connected."""
        self.errors: dict[int, KafkaError] = {}
        self.throttled: list[tuple[int, int]] = []
        self.disconnected: list[int] = []
        self.retired: list[int] = []
        self.version = VERSION
        self.version_error: KafkaError | None = None

    def in_flight(self, node_id: int) -> int:
        return len(self.requests[node_id])


class ScriptedMetadata:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.last_error: KafkaError | None = None
        self.added: list[str] = []
        self.suspected: list[str] = []
        self.reasons: list[str] = []
        self.hints: dict[TopicPartition, PartitionView] = {}

    def add_topic(self, topic: str, now: float) -> float:
        self.added.append(topic)
        return now

    def request_update(self, reason: str, *, topic: str | None = None) -> None:
        self.reasons.append(reason)
        self.suspected += [] if topic is None else [topic]

    def apply_leader_hints(
        self,
        hints: dict[TopicPartition, PartitionView],
        *,
        topic_ids: dict[str, bytes],  # noqa: ARG002
        endpoints: Mapping[int, NodeEndpoint],  # noqa: ARG002
    ) -> None:
        self.hints.update(hints)


class ScriptedSender:
    """A sender one turn of which is one call, and everything it works with."""

    def __init__(
        self,
        *,
        leaders: Sequence[int] = (1,),
        acks: int = -1,
        retries: int = 2**31 - 1,
        loop: asyncio.AbstractEventLoop | None = None,
        **settings: float,
    ) -> None:
        """Without a loop, turns are made by `turn` alone; with one, the sender may run on it."""
        settings.setdefault("linger_s", 0.0)
        self.core = CoreParts(leaders=leaders, memory=1024 * 1024, **settings)
        self.loop = CallbackQueue(lambda: self.core.now)
        self.client = ScriptedClient()
        self.core.connections = cast("Mapping[int, NodeConnection]", self.client.nodes)
        self.core.lead(leaders)
        self.metadata = ScriptedMetadata(cluster_of(leaders))
        self.ids_asked = 0
        self.fatal: list[KafkaError] = []
        self.log = EventList()
        loop = loop or cast("asyncio.AbstractEventLoop", self.loop)
        core = self.core
        self.latency = LatencyHistogram()
        self.completion = Completion(
            loop,
            core.pool,
            core.generations,
            latency=self.latency,
            topics=core.accumulator.measures.topics,
            events=core.events,
            log=self.log,
        )
        core.events.on_recreated = lambda queue, exists: self.settlement.topic_recreated(queue, exists=exists)
        self.settlement = Settlement(
            accumulator=core.accumulator,
            splitter=core.splitter,
            identity=core.identity,
            backoff=ExponentialBackoff(100, 1000, 0.0, random=random.Random(1)),
            completion=self.completion,
            clock=lambda: core.now,
            metadata=cast("MetadataRefresher", self.metadata),
            events=core.events,
            on_fatal=self.fatal.append,
        )
        self.wakeup = Wakeup(loop)
        self.sender = self._make_sender(
            loop, Policy(acks=acks, is_idempotent=core.identity.is_enabled, retries=retries)
        )

    def _make_sender(self, loop: asyncio.AbstractEventLoop, policy: Policy) -> Sender:
        core = self.core
        compressor = BatchCompressor(loop, core.accumulator, wakeup=Wakeup(loop), log=self.log)
        return Sender(
            policy,
            loop,
            accumulator=core.accumulator,
            wait_queues=core.wait_queues,
            compressor=compressor,
            settlement=self.settlement,
            identity=core.identity,
            timers=core.timers,
            wakeup=self.wakeup,
            metadata=cast("MetadataRefresher", self.metadata),
            request_timeout_ms=30_000,
            ask_producer_id=self._note_asked,
        )

    def _note_asked(self) -> None:
        self.ids_asked += 1

    # What tests do

    def turn(self, seconds: float = 0.0) -> None:
        self.core.now += seconds
        self.sender.run_once(self.core.now)
        self.loop.run()

    def confirm(self, node_id: int = 1, partitions: Sequence[int] = (0,)) -> None:
        """Have each partition acknowledge a record, so that it may pipeline."""
        for partition in partitions:
            self.core.send(b"first", partition=partition)
        self.turn()
        self.answer(node_id, dict.fromkeys(partitions, (0, 0)))

    def in_flight(self, node_id: int = 1) -> int:
        return self.client.in_flight(node_id)

    def answer(self, node_id: int, said: dict[int, Said], *, throttle_ms: int = 0) -> None:
        request = self.client.requests[node_id].pop(0)
        request.on_end(Answered(memoryview(response(said, throttle_ms=throttle_ms)), self.core.now))
        self.loop.run()
        self.turn()

    def leave_unsent(self, node_id: int) -> None:
        """End the requests to a node as never handed to a transport."""
        unsent, self.client.requests[node_id] = self.client.requests[node_id], []
        for request in unsent:
            request.on_end(Lost(BrokerConnectionError("not connected"), is_unprocessed=True))
        self.loop.run()

    def lose(self, node_id: int) -> None:
        lost, self.client.requests[node_id] = self.client.requests[node_id], []
        self.client.connections[node_id] += 100
        for request in lost:
            request.on_end(Lost(BrokerConnectionError("gone")))
        self.loop.run()


def response(said: dict[int, Said], *, throttle_ms: int = 0) -> bytes:
    body = struct.pack(">ih1si", 1, 1, b"t", len(said))
    for partition, each in said.items():
        refused = each if isinstance(each, list) else []
        code_alone = each if isinstance(each, int) else INVALID_RECORD
        code, base_offset = each if isinstance(each, tuple) else (code_alone, -1)
        body += struct.pack(">ihqqqi", partition, code, base_offset, -1, 0, len(refused))
        body += b"".join(struct.pack(">ih", index, -1) for index in refused) + struct.pack(">h", -1)
    return body + struct.pack(">i", throttle_ms)
