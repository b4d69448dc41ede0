"""A blocking socket that sends prepared record batches: the highest rate of the broker on this machine.

It encodes nothing during the measurement, tracks no records and resends nothing.
"""

import socket
import struct
import time
from contextlib import closing
from itertools import count
from time import perf_counter

from aioproducer._accumulator.producer_identity import BatchIdentity
from aioproducer._native.append import HEADER_SIZE
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import (
    INIT_PRODUCER_ID,
    PRODUCE,
    Api,
    decode_init_producer_id_response,
    encode_init_producer_id_request,
)
from aioproducer._protocol.produce import decode_produce_response, encode_produce_request
from aioproducer._protocol.transaction_messages import (
    END_TXN,
    FIND_COORDINATOR,
    CoordinatorType,
    TransactionIdentity,
    decode_end_txn_response,
    encode_end_txn_request,
    encode_find_coordinator_request,
)
from aioproducer.records import TopicPartition
from tests.benchmarks.job import WARMUP_TRANSACTIONS, Job, Outcome, Stopwatch, as_text, figures_of_each
from tests.native.prepared_batches import prepared_batch

VERSION = 9
"""The first version with compact lengths."""

IN_FLIGHT = 5
"""Requests without a response, as many as a producer may have."""

DEFAULT_BATCH_SIZE = 262_144
"""The same as ours."""

REQUEST_TIMEOUT_MS = 30_000

TRANSACTIONAL_VERSION = 12
"""The first version of Produce that adds its partitions to the transaction."""

END_TXN_VERSION = 5
"""The first that returns the identity of the next transaction."""

INIT_PRODUCER_ID_VERSION = 4
FIND_COORDINATOR_VERSION = 4
START_PAUSE_S = 0.1

_FRAME = struct.Struct(">ihhih")  # size, API key, version, correlation id, length of the client id: -1, none
_SIZE_BYTES = 4
_NO_TAGGED_FIELDS = b"\0"
_RESPONSE_HEADER_SIZE = 5  # correlation id, no tagged fields


def enqueue(job: Job) -> Outcome:
    """Send one full batch per partition and request, five requests in flight, for at least `job.records`."""
    batch_size = job.batch_size or DEFAULT_BATCH_SIZE
    request, per_request = prepared_request(job, batch_size)
    with closing(RawConnection(job)) as connection:
        warmed_up = connection.send_many(request, -(-job.warmup_records // per_request)) * per_request
        stopwatch = Stopwatch()
        sent = connection.send_many(request, -(-job.records // per_request)) * per_request
        figures = stopwatch.figures(sent)
    shown = {"acks": -1, "batch size": batch_size, "in flight": IN_FLIGHT, "idempotent": False}
    return Outcome(warmed_up + sent, figures, as_text(dict(shown)))


def latency(job: Job) -> Outcome:
    """Send one record after another to one partition, each after the response to the one before."""
    request, _ = prepared_request(job, 0, partitions=1)
    latencies_s = []
    with closing(RawConnection(job)) as connection:
        connection.send_many(request, job.warmup_records)
        stopwatch = Stopwatch()
        for _ in range(job.records):
            start = perf_counter()
            connection.send(request)
            connection.receive()
            latencies_s.append(perf_counter() - start)
        figures = figures_of_each(latencies_s, stopwatch)
    return Outcome(job.warmup_records + job.records, figures, {"acks": "-1"})


def transact(job: Job) -> Outcome:
    """Send the records of a transaction in one batch, then commit; needs transactions of version 2 and one broker."""
    records = b"".join([_record(job.value, number) for number in range(job.per_transaction)])
    with closing(RawConnection(job)) as connection:
        identity = _first_identity(connection, job.topic)
        for _ in range(WARMUP_TRANSACTIONS):
            identity = _transact_once(connection, job, records, identity)
        stopwatch = Stopwatch()
        for _ in range(job.transactions):
            identity = _transact_once(connection, job, records, identity)
        figures = stopwatch.figures(job.records)
    marked = job.per_transaction + 1  # with the marker of its only partition
    return Outcome((WARMUP_TRANSACTIONS + job.transactions) * marked, figures, {"transactional_id": job.topic})


def _first_identity(connection: "RawConnection", transactional_id: str) -> TransactionIdentity:
    """Have the coordinator made, which takes a moment on a new broker, and ask it for a producer id."""
    look_up = encode_find_coordinator_request(FIND_COORDINATOR_VERSION, transactional_id, CoordinatorType.TRANSACTION)
    request = encode_init_producer_id_request(
        INIT_PRODUCER_ID_VERSION, transactional_id=transactional_id, transaction_timeout_ms=REQUEST_TIMEOUT_MS
    )
    while True:
        connection.ask(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, look_up)
        answer = connection.ask(INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, request)
        given = decode_init_producer_id_response(INIT_PRODUCER_ID_VERSION, answer)
        if not given.error_code:
            return TransactionIdentity(transactional_id, given.producer_id, given.producer_epoch)
        time.sleep(START_PAUSE_S)


def _transact_once(
    connection: "RawConnection", job: Job, records: bytes, identity: TransactionIdentity
) -> TransactionIdentity:
    """Run one transaction; returns the identity of the next one."""
    now_ms = time.time_ns() // 1_000_000
    stamp = BatchIdentity(identity.producer_id, identity.producer_epoch, 0, is_transactional=True)
    batch = prepared_batch(
        records,
        job.per_transaction,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        identity=stamp,
        topic_partition=TopicPartition(job.topic, 0),
    )
    pieces = encode_produce_request(
        TRANSACTIONAL_VERSION,
        acks=-1,
        timeout_ms=REQUEST_TIMEOUT_MS,
        transactional_id=identity.transactional_id,
        batches={job.topic: [batch]},
        topic_ids={},
    )
    request, code = b"".join(pieces), int(ErrorCode.CONCURRENT_TRANSACTIONS)
    while code == ErrorCode.CONCURRENT_TRANSACTIONS:  # the markers of the last transaction are not written yet
        answer = connection.ask(PRODUCE, TRANSACTIONAL_VERSION, request)
        code = decode_produce_response(TRANSACTIONAL_VERSION, answer).partitions[0].error_code
    commit = encode_end_txn_request(END_TXN_VERSION, identity, is_commit=True)
    ended = decode_end_txn_response(END_TXN_VERSION, connection.ask(END_TXN, END_TXN_VERSION, commit))
    if code or ended.error_code:
        raise RuntimeError(f"the broker refused a transaction: {code}, {ended.error_code}")
    return identity._replace(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch)


class RawConnection:
    """A socket to the leader, the only broker of the measured cluster."""

    def __init__(self, job: Job) -> None:
        host, _, port = job.bootstrap_servers.partition(",")[0].rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        self._correlation_ids = count()

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def send_many(self, request: bytes, times: int) -> int:
        """Send the same request `times` times, `IN_FLIGHT` at a time; returns `times` after the last response."""
        for number in range(times):
            if number >= IN_FLIGHT:
                self.receive()
            self.send(request)
        for _ in range(min(times, IN_FLIGHT)):
            self.receive()
        return times

    def ask(self, api: Api, version: int, request: bytes) -> bytes:
        """Send one request, and return the response behind its header."""
        self.send(request, api, version)
        return self._receive()

    def send(self, request: bytes, api: Api = PRODUCE, version: int = VERSION) -> None:
        """Send one request after its header; blocks while the socket's buffer is full."""
        size = _FRAME.size - _SIZE_BYTES + len(_NO_TAGGED_FIELDS) + len(request)
        header = _FRAME.pack(size, api.key, version, next(self._correlation_ids), -1) + _NO_TAGGED_FIELDS
        sent = self._socket.sendmsg([header, request])
        if sent < len(header) + len(request):
            self._socket.sendall(memoryview(request)[sent - len(header) :])

    def receive(self) -> None:
        """Read one response to Produce."""
        answer = decode_produce_response(VERSION, self._receive())
        refused = [partition for partition in answer.partitions if partition.error_code != 0]
        if refused or not answer.partitions:
            raise RuntimeError(f"the broker refused a prepared batch: {refused}")

    def _receive(self) -> bytes:
        size = int.from_bytes(self._answers.read(_SIZE_BYTES), "big")
        return self._answers.read(size)[_RESPONSE_HEADER_SIZE:]


def prepared_request(job: Job, batch_size: int, *, partitions: int | None = None) -> tuple[bytes, int]:
    """Return the body of a produce request with one batch per partition, and its number of records.

    `batch_size` bytes are filled with as many records as fit; 0 for one record.
    """
    body, records = section_of_records(job.value, batch_size - HEADER_SIZE)
    now_ms = time.time_ns() // 1_000_000
    batches = [
        prepared_batch(
            body,
            records,
            base_timestamp=now_ms,
            max_timestamp=now_ms,
            topic_partition=TopicPartition(job.topic, number),
        )
        for number in range(partitions or job.partitions)
    ]
    pieces = encode_produce_request(
        VERSION,
        acks=-1,
        timeout_ms=REQUEST_TIMEOUT_MS,
        transactional_id=None,
        batches={job.topic: batches},
        topic_ids={},
    )
    return b"".join(pieces), records * len(batches)


def section_of_records(value: bytes, size: int) -> tuple[bytes, int]:
    """Return the records section of a batch with as many records as fit in `size` bytes, and their number."""
    records, number = bytearray(_record(value, 0)), 1
    while len(records) + len(record := _record(value, number)) <= size:
        records += record
        number += 1
    return bytes(records), number


def _record(value: bytes, offset_delta: int) -> bytes:
    """Return one record without key and headers: attributes, timestamp and offset delta, key length -1, value."""
    fields = b"\0\0" + _varint(offset_delta) + _varint(-1) + _varint(len(value)) + value + b"\0"
    return _varint(len(fields)) + fields


def _varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
