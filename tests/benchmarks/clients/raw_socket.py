"""A blocking socket that sends prepared record batches: the highest rate of the broker on this machine.

It encodes nothing during the measurement, tracks no records and resends nothing.
"""

import socket
import struct
import time
from contextlib import closing
from itertools import count
from time import perf_counter

from aioproducer._accumulator.record_batch_header import HEADER_SIZE, NO_IDENTITY, BatchTimes, encode_header
from aioproducer._protocol.messages import PRODUCE
from aioproducer._protocol.primitives import NO_TOPIC_ID
from aioproducer._protocol.produce import (
    BatchToSend,
    decode_produce_response,
    encode_produce_request,
)
from tests.benchmarks.job import Job, Outcome, Stopwatch, as_text, latency_figures

VERSION = 9
"""The first version with compact lengths."""

IN_FLIGHT = 5
"""Requests without a response, as many as a producer may have."""

DEFAULT_BATCH_SIZE = 262_144
"""The same as ours."""

REQUEST_TIMEOUT_MS = 30_000

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
        for _ in range(job.records):
            start = perf_counter()
            connection.send(request)
            connection.receive()
            latencies_s.append(perf_counter() - start)
    return Outcome(job.warmup_records + job.records, latency_figures(latencies_s), {"acks": "-1"})


class RawConnection:
    """A socket to the leader, the only broker of the measured cluster."""

    def __init__(self, job: Job) -> None:
        host, _, port = job.bootstrap_servers.partition(",")[0].rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        self._correlation_ids = count()

    def close(self) -> None:
        """Close the socket."""
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

    def send(self, request: bytes) -> None:
        """Send one request after its header; blocks while the socket's buffer is full."""
        size = _FRAME.size - _SIZE_BYTES + len(_NO_TAGGED_FIELDS) + len(request)
        header = _FRAME.pack(size, PRODUCE.key, VERSION, next(self._correlation_ids), -1) + _NO_TAGGED_FIELDS
        sent = self._socket.sendmsg([header, request])
        if sent < len(header) + len(request):
            self._socket.sendall(memoryview(request)[sent - len(header) :])

    def receive(self) -> None:
        """Read one response to Produce.

        Raises:
            RuntimeError: the broker refused a batch.
        """
        size = int.from_bytes(self._answers.read(_SIZE_BYTES), "big")
        answer = decode_produce_response(VERSION, self._answers.read(size)[_RESPONSE_HEADER_SIZE:])
        refused = [partition for partition in answer.partitions if partition.error_code != 0]
        if refused or not answer.partitions:
            raise RuntimeError(f"the broker refused a prepared batch: {refused}")


def prepared_request(job: Job, batch_size: int, *, partitions: int | None = None) -> tuple[bytes, int]:
    """Return the body of a produce request with one batch per partition, and its number of records.

    Args:
        job: topic, value and partitions.
        batch_size: in bytes, filled with as many records as fit; 0 for one record.
        partitions: their number, if not the job's.
    """
    body, records = section_of_records(job.value, batch_size - HEADER_SIZE)
    now_ms = time.time_ns() // 1_000_000
    header = encode_header(body, records, times=BatchTimes(now_ms, now_ms), identity=NO_IDENTITY, compression=0)
    numbers = range(partitions or job.partitions)
    batches = [BatchToSend(job.topic, NO_TOPIC_ID, number, header, body) for number in numbers]
    pieces = encode_produce_request(
        VERSION, acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, transactional_id=None, batches=batches
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
    """Return a zigzag-encoded varint."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
