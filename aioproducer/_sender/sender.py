"""Sends ready batches in Produce requests, and applies the responses.

The sender is one task. Each turn (`run_once`) does Kafka's steps: fire timers, end overdue batches, grant returned
memory (theirs too), ask for missing leaders or a producer id, and send every ready node its requests. Then the task
sleeps until it is woken or the next deadline comes; it awaits nothing else. A batch that a caller awaits needs no turn
if it is all that there is to send (`batch_wanted`).

Responses arrive between turns: `decide` (`_sender/produce_outcome.py`) interprets one, `Settlement` applies it.

Source: Sender in Apache Kafka.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._accumulator.open_batches import MOST_PER_STEP
from aioproducer._native.append import OwnLoop
from aioproducer._network.requests import Answered, Lost, OutgoingRequest, RequestEnd
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import PRODUCE
from aioproducer._protocol.primitives import NO_TOPIC_ID
from aioproducer._protocol.produce import (
    PartitionResponse,
    ProduceResponse,
    decode_produce_response,
    encode_produce_request,
    largest_produce_response,
    request_is_flexible,
)
from aioproducer._sender.produce_outcome import Complete, Fail, Policy, decide_lost
from aioproducer._timing.timers import TimerHeap
from aioproducer.cluster import Cluster, PartitionView
from aioproducer.errors import (
    BackgroundTaskDiedError,
    BrokerError,
    KafkaError,
    Outcome,
    ProtocolError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer._accumulator.partition import Batch, Node, Partition
    from aioproducer._accumulator.producer_identity import ProducerIdentity
    from aioproducer._accumulator.record_accumulator import RecordAccumulator
    from aioproducer._accumulator.wait_queues import WaitQueues
    from aioproducer._native.delivery import BatchResult
    from aioproducer._network.connection import BrokerConnection
    from aioproducer._network.metadata_refresher import MetadataRefresher
    from aioproducer._sender.compressor import BatchCompressor
    from aioproducer._sender.settlement import Settlement
    from aioproducer._timing.wakeup import Wakeup
    from aioproducer.records import TopicPartition


_INTERRUPTED: Final = "the producer was interrupted while it sent, and cannot continue: make a new one"

MANY_BATCHES: Final = MOST_PER_STEP // 5
"""As many batches of a request take a fair part of a step; five requests may end in one step of the loop."""


LAST_VERSION_WITHOUT_ADDING: Final = 11
"""From version 12 on a Produce request adds its partitions to the transaction (KIP-890)."""
LAST_VERSION_BY_NAME: Final = 12  # from version 13 on topics are named by their ids (KIP-516)


class Sender:
    """Task that sends ready batches.

    Args:
        ask_producer_id: called in each turn without a producer id.
        transaction: returns the transaction of the batches being sent; None without a transactional id.
    """

    def __init__(  # noqa: PLR0913  # all the parts that it drives
        self,
        policy: Policy,
        loop: asyncio.AbstractEventLoop,
        *,
        accumulator: RecordAccumulator,
        wait_queues: WaitQueues,
        compressor: BatchCompressor,
        settlement: Settlement,
        identity: ProducerIdentity,
        timers: TimerHeap,
        wakeup: Wakeup,
        metadata: MetadataRefresher,
        request_timeout_ms: int,
        ask_producer_id: Callable[[], None],
        transaction: Callable[[], ProduceTransaction] | None = None,
    ) -> None:
        self.turns = 0  # number of turns; an idle producer makes none
        self._policy = policy
        self._accumulator = accumulator
        self._open_batches = accumulator.open_batches
        self._wait_queues = wait_queues
        self._compressor = compressor
        self._settlement = settlement
        self._identity = identity
        self._timers = timers
        self._wakeup = wakeup
        self._metadata = metadata
        self._loop = loop
        self._replica_timeout_ms = request_timeout_ms * 2 // 3  # for replicas, so that the response comes in time
        self._ask_producer_id = ask_producer_id
        self._transaction = transaction
        self._measures = accumulator.measures
        self._defect: Exception | None = None
        self._left = 0  # ready partitions that this turn may still look at
        self._last_was_single = True  # whether the last request had one record
        self._own_loop = OwnLoop()
        self._in_flight = 0  # requests whose ends were not applied
        self._context = copy_context()  # of requests that are sent within a caller's step
        self._last_node: Node | None = None  # to which the last turn sent when it had come to its bound
        self._ends: deque[tuple[ProduceRequest, Callable[[], None]]] = deque()  # to be applied, in order
        self._ends_wait = False

    # The task

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            Exception: a defect of our own, here or while a response was applied; the producer cannot continue.
        """
        try:
            while True:
                if self._defect is not None:
                    raise self._defect
                self.run_once(self._loop.time())
                await self._wakeup.wait(self._timers.next_at)
        finally:
            self._wakeup.stop()
            self._compressor.close()

    def run_once(self, now: float) -> None:
        """Take one turn: the steps of section 7 of docs/explanation/life_of_a_record.md."""
        self.turns += 1
        self._left = MOST_PER_STEP
        self._timers.fire(now, at_most=MOST_PER_STEP)
        if self._accumulator.deadlines.due:
            self._end_overdue(now)
        self._wakeup.clear()  # timers and deadlines may have set it: this turn handles that
        if self._accumulator.deadlines.due:
            self._wakeup.set()
        if self._open_batches.has_more:
            self._open_batches.go_on()
        if self._wait_queues.records:
            self._wait_queues.serve()
        if self._accumulator.ready.leaderless or self._wait_queues.records:
            self._ask_for_topics(now)
        if self._identity.is_missing:
            self._ask_producer_id()
        self._send_to_all(now)
        if self._accumulator.unsealed:
            self._seal(now)

    def _end_overdue(self, now: float) -> None:
        deadlines = self._accumulator.deadlines
        for partition in deadlines.take_due(MOST_PER_STEP):
            self._accumulator.close_overdue(partition, now)
            self._settlement.expire(partition, deadlines.overdue(partition, now), now)
            deadlines.watch_again(partition)

    # Sending

    def batch_wanted(self, partition: Partition, result: BatchResult) -> None:
        """End the linger of a batch that a caller waits for; if it is all that there is to send, send it in this call.

        A turn would cost a lone record a step of the loop. If the last request had several records, several tasks
        probably await, and the first must not leave without the others.
        """
        batch, now = self._open_batches.end_linger(partition, result), self._loop.time()
        if batch is None:
            return
        connection = self._connection_at_once(partition, batch, now)
        if connection is None:
            self._accumulator.offer(partition)
        else:
            self._send_at_once(batch, connection, now)

    def _connection_at_once(self, partition: Partition, batch: Batch, now: float) -> BrokerConnection | None:
        """Return the connection on which to send an awaited batch in this call; None if it must wait for a turn."""
        # By an `await` only: a callback may be added anywhere, by a handler of the log in the middle of a settlement.
        if not (batch.result.awaited and self._last_was_single) or self._in_flight or batch.options.codec:
            return None
        node, next_at = partition.leader, self._timers.next_at()
        if node is None or node.ready or self._wait_queues.records or not self._wakeup.is_waited_for:
            return None
        if (next_at is not None and next_at <= now) or not self._own_loop.is_here():
            return None  # a turn ends first what is overdue
        connection = node.connection.ready_connection
        if connection is None or not self._open_batches.is_only(partition):
            return None
        return connection if partition.next_to_send(connection.number, now) is batch else None

    def _send_at_once(self, batch: Batch, connection: BrokerConnection, now: float) -> None:
        self._in_flight += 1  # what is logged here may make a handler await a record: that one waits for a turn
        try:
            self._open_batches.take_lone(batch, connection.number, now)
            assert batch.node is not None
            # In a context of its own: what the transport schedules must not see the caller's variables.
            self._context.run(self._send, batch.node, [batch], connection, now=now)
        except Exception as defect:  # noqa: BLE001  # a defect of our own ends the sender, as in a turn, not the caller
            self._defect = defect
            self._wakeup.set()
        except BaseException as interrupt:  # Ctrl-C, which is the caller's; what was left undone is not known
            self._defect = BackgroundTaskDiedError(f"{_INTERRUPTED} ({type(interrupt).__name__})")
            self._wakeup.set()
            raise
        finally:
            self._in_flight -= 1

    def _ask_for_topics(self, now: float) -> None:
        self._accumulator.withdraw_idle()
        for topic in self._accumulator.leaderless_topics | self._wait_queues.leaderless_topics:
            self._metadata.add_topic(topic, now)
            self._metadata.request_update("no_leader")
        for topic in self._wait_queues.unknown_topics:
            self._metadata.add_topic(topic, now)

    def _send_to_all(self, now: float) -> None:
        """Send the ready nodes their requests, up to the bound of a turn; the next turn begins with the next node."""
        nodes = self._accumulator.ready.nodes
        if self._last_node in nodes:
            first = nodes.index(self._last_node) + 1
            nodes = nodes[first:] + nodes[:first]
        self._last_node = None
        for node in nodes:
            self._send_to(node, now)
            if not self._left:
                self._last_node = node
                self._wakeup.set()
                return

    def _send_to(self, node: Node, now: float) -> None:
        while (connection := node.connection.ready_connection) is not None:
            at_most = min(len(node.ready), self._left)
            self._left -= at_most
            batches = self._accumulator.drain(node, connection.number, now, at_most=at_most)
            if batches:
                self._send(node, batches, connection, now=now)
            if not node.ready or not self._left:
                return
        self._accumulator.nodes.note_waiting(node, now)
        node.connection.connect()

    def _send(self, node: Node, batches: list[Batch], connection: BrokerConnection, *, now: float) -> None:
        transaction = None if self._transaction is None else self._transaction()
        request = ProduceRequest(node, batches, self._metadata.cluster, self._ended, transaction)
        self._last_was_single = request.records == 1
        try:
            version = connection.produce_version(request.highest_version)
            request.encode(version, acks=self._policy.acks, timeout_ms=self._replica_timeout_ms)
            connection.send(request)
        except UnsupportedVersionError as error:
            self._unprocessed(request, error)
            return
        self._in_flight += 1
        # The rest after sending, while the broker works.
        measures = self._measures
        for batch in batches:
            size = batch.wire_size
            unpacked = batch.uncompressed_wire_size if batch.compression else size
            topic = batch.partition.topic
            measures.batch_sent(topic.topic, batch.count, size, unpacked, now - batch.called_at)
            if now >= topic.noted_until:
                topic.noted_until = self._metadata.add_topic(topic.topic, now)
        measures.records_per_request.record(request.records)

    def _unprocessed(self, request: ProduceRequest, error: KafkaError) -> None:
        """Queue the batches again, or fail them if no attempt can succeed: no broker has processed the request."""
        now = self._loop.time()
        for batch in request.batches:
            batch.last_error = error
            batch.attempts -= 1
            if isinstance(error, UnsupportedVersionError):
                # Not `batch.outcome`: it would count this attempt, which was never made.
                outcome = Outcome.UNKNOWN if batch.maybe_written else Outcome.NOT_WRITTEN
                failure = Fail(outcome, int(ErrorCode.UNSUPPORTED_VERSION), str(error))
                self._settlement.apply(batch, failure, now)
            else:
                self._settlement.take_back(batch, now)
        self._wakeup.set()

    # Sealing: compression, in a thread where it is large

    def _seal(self, now: float) -> None:
        self._compressor.seal(self._accumulator.take_unsealed())
        if self._left:  # else the next turn sends them: it has been asked for
            self._send_to_all(now)

    # Answers

    def _ended(self, request: ProduceRequest, end: RequestEnd) -> None:
        if isinstance(end, Answered):
            # An error of decoding closes the connection, which then ends the request as lost.
            response = decode_produce_response(request.version, end.payload)
            step = partial(self._apply, request, response, end.now)
        elif isinstance(end, Lost):
            step = partial(self._unprocessed if end.is_unprocessed else self._lost, request, end.error)
        else:
            step = partial(self._written, request)
        self._ends.append((request, step))
        if not self._ends_wait:
            self._apply_ends()

    def _apply_ends(self) -> None:
        """Apply the ends of requests; those behind the end of a large request wait for the loop's next step."""
        self._ends_wait = False
        while self._ends and not self._ends_wait:
            request, step = self._ends.popleft()
            if len(request.batches) >= MANY_BATCHES:
                self._ends_wait = True
                self._loop.call_soon(self._apply_ends)
            try:
                step()
                if request.node.ready or self._wait_queues.records or self._identity.is_missing:
                    self._wakeup.set()  # they may have waited for its place on the wire, or for its memory
            except Exception as defect:  # noqa: BLE001  # a defect of our own ends the sender, and the producer with it
                self._defect = defect
                self._settlement.fail_lost_batches(request.batches, defect, self._loop.time())
                self._wakeup.set()
            finally:
                self._in_flight -= 1

    def _apply(self, request: ProduceRequest, response: ProduceResponse, now: float) -> None:
        self._measures.request_latency.record(now - request.batches[0].sent_at)
        self._measures.throttle_time.record(response.throttle_time_ms / 1000)
        partition_responses = request.responses_by_partition(response)
        hints: dict[TopicPartition, PartitionView] = {}
        affects_connection = response.throttle_time_ms > 0  # checked here, because it is nearly always False
        for batch in request.batches:
            partition_response = partition_responses.get(batch.partition.topic_partition)
            if partition_response is None:
                text = f"node {request.node.id} answered Produce without {batch.partition.topic_partition}"
                batch.last_error = ProtocolError(text)
                request.node.connection.disconnect(batch.last_error)
            elif partition_response.error_code:
                batch.last_error = _error_of(batch, partition_response)
                affects_connection = True
                if partition_response.leader_id >= 0:
                    hints[batch.partition.topic_partition] = PartitionView(
                        partition_response.leader_id, partition_response.leader_epoch
                    )
            self._settlement.apply(batch, self._settlement.outcome(batch, partition_response, self._policy), now)
        if affects_connection:
            request.node.connection.apply_throttle_and_versions(response, PRODUCE, now)
        if hints:  # in one call: there may be thousands
            self._metadata.apply_leader_hints(hints, topic_ids=request.topic_ids, endpoints=response.nodes)

    def _written(self, request: ProduceRequest) -> None:
        now = self._loop.time()
        for batch in request.batches:
            self._settlement.apply(batch, Complete(-1), now)

    def _lost(self, request: ProduceRequest, error: KafkaError) -> None:
        now = self._loop.time()
        for batch in request.batches:
            batch.last_error = error
            facts = self._settlement.facts(batch, None)
            self._settlement.apply(batch, decide_lost(facts, self._policy), now)
        self._wakeup.set()

    def __repr__(self) -> str:
        return f"<Sender {self._wakeup!r} {self._accumulator.ready!r}>"


class ProduceTransaction(NamedTuple):
    """The transaction of all batches of a request."""

    transactional_id: str
    is_v2: bool  # brokers add partitions when they are written to


class ProduceRequest(OutgoingRequest):
    """Batches for one node, at most one per partition, and which part of the response belongs to which of them.

    Args:
        on_ended: called once with the request and its end.
    """

    __slots__ = (
        "_by_topic",
        "_names",
        "_on_ended",
        "_transaction",
        "batches",
        "highest_version",
        "node",
        "records",
        "topic_ids",
    )

    def __init__(  # noqa: PLR0917  # keywords would cost each request a dictionary
        self,
        node: Node,
        batches: Sequence[Batch],
        cluster: Cluster,
        on_ended: Callable[[ProduceRequest, RequestEnd], None],
        transaction: ProduceTransaction | None = None,
    ) -> None:
        # The other attributes of a request are known when the connection is: `encode` sets them.
        self.api_key, self.name = PRODUCE.key, PRODUCE.name
        self.sent_at, self.end, self.size = 0.0, 0, 0
        self.node = node
        self.batches = batches
        self._on_ended = on_ended
        self._transaction = transaction
        self.topic_ids: dict[str, bytes] = {}  # by name, from the metadata at the time of the request
        self._names: dict[bytes, str] = {}  # by id
        self._by_topic: dict[str, list[Batch]] = {}
        self.records = 0
        for batch in batches:
            self.records += batch.count
            topic = batch.partition.topic_partition.topic
            if topic in self._by_topic:
                self._by_topic[topic].append(batch)
                continue
            view = cluster.topics.get(topic)
            self.topic_ids[topic] = topic_id = NO_TOPIC_ID if view is None else view.topic_id
            self._names[topic_id] = topic
            self._by_topic[topic] = [batch]
        self.highest_version = PRODUCE.max_version  # that this request can use
        if transaction is not None and not transaction.is_v2:
            self.highest_version = LAST_VERSION_WITHOUT_ADDING
        elif NO_TOPIC_ID in self._names:
            self.highest_version = LAST_VERSION_BY_NAME

    def on_end(self, end: RequestEnd) -> None:
        self._on_ended(self, end)

    def __repr__(self) -> str:
        return f"<ProduceRequest node={self.node.id} batches={len(self.batches)} records={self.records}>"

    def encode(self, version: int, *, acks: int, timeout_ms: int) -> None:
        """Prepare the request for a connection on which Produce has this version."""
        transaction = self._transaction
        if transaction is not None and transaction.is_v2 and version <= LAST_VERSION_WITHOUT_ADDING:
            text = f"node {self.node.id} speaks Produce up to {version}, and transactions of its cluster need 12"
            raise UnsupportedVersionError(text)
        self.version = version
        self.flexible = request_is_flexible(version)
        self.expects_response = acks != 0
        self.largest_response = largest_produce_response(len(self.batches), self.records)
        self.buffers = encode_produce_request(
            version,
            acks=acks,
            timeout_ms=timeout_ms,
            transactional_id=None if transaction is None else transaction.transactional_id,
            batches=self._by_topic,
            topic_ids=self.topic_ids,
        )

    def responses_by_partition(self, response: ProduceResponse) -> dict[tuple[str | None, int], PartitionResponse]:
        """Return the parts of the response by partition; of two for one partition the first counts."""
        found: dict[tuple[str | None, int], PartitionResponse] = {}
        for partition_response in response.partitions:
            topic, topic_id, partition, *_ = partition_response
            if topic is None and topic_id is not None:
                topic = self._names.get(topic_id)
            found.setdefault((topic, partition), partition_response)
        return found


def _error_of(batch: Batch, response: PartitionResponse) -> BrokerError:
    topic_partition, code = batch.partition.topic_partition, ErrorCode.of(response.error_code)
    text = f"{topic_partition.topic}-{topic_partition.partition}: {ErrorCode.in_words(response.error_code)}"
    is_retriable = code is not None and code.retriable
    return BrokerError.of(
        response.error_code,
        text,
        retriable=is_retriable,
        topic=topic_partition.topic,
        partition=topic_partition.partition,
    )
