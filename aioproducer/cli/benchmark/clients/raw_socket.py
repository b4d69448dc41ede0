"""A blocking socket that sends record batches prepared beforehand: what the broker can take on this machine.

It encodes nothing while it is measured, keeps no account of records and resends nothing; a producer can come near it.
"""

import socket
import struct
import time
from contextlib import closing
from itertools import count
from time import perf_counter

from aioproducer._accumulator.record_batch_header import HEADER_SIZE, NO_IDENTITY, BatchTimes, encode_header
from aioproducer._protocol.messages import PRODUCE, Api
from aioproducer._protocol.primitives import NO_TOPIC_ID
from aioproducer._protocol.produce import (
    BatchToSend,
    ProduceResponse,
    decode_produce_response,
    encode_produce_request,
)
from aioproducer.cli.benchmark.job import Job, Outcome, Stopwatch, as_text
from aioproducer.cli.benchmark.latencies import latency_figures

VERSION = 9
"""The first with compact lengths; every broker that is measured knows it."""

IN_FLIGHT = 5
"""Requests that are not answered yet, as many as a producer may have."""

DEFAULT_BATCH_SIZE = 262_144
"""As ours, whose limit the raw socket shows."""

REQUEST_TIMEOUT_MS = 30_000

_FRAME = struct.Struct(">ihhih")  # size, API key, version, correlation id, length of the client id: -1, none
_SIZE_BYTES = 4
_NO_TAGGED_FIELDS = b"\0"
_RESPONSE_HEADER_SIZE = 5  # correlation id, no tagged fields


def enqueue(job: Job) -> Outcome:
    """Requests of one full batch for each partition, five in flight, until at least `job.records` are acknowledged."""
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
    """One record after another to one partition, each answered before the next: how long each takes."""
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
    """A socket to the leader, the only broker of the cluster that is measured."""

    def __init__(self, job: Job) -> None:
        host, _, port = job.bootstrap_servers.partition(",")[0].rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        self._correlation_ids = count()

    def close(self) -> None:
        """Let go of the socket."""
        self._answers.close()
        self._socket.close()

    def send_many(self, request: bytes, times: int) -> int:
        """Send the same request over and over, `IN_FLIGHT` at a time; returns how often, once all are answered."""
        for number in range(times):
            if number >= IN_FLIGHT:
                self.receive()
            self.send(request)
        for _ in range(min(times, IN_FLIGHT)):
            self.receive()
        return times

    def ask(self, api: Api, version: int, request: bytes) -> bytes:
        """Send one request and take its answer; of versions with compact lengths in both headers."""
        self.send(request, api, version)
        return self._read_answer()

    def send(self, request: bytes, api: Api = PRODUCE, version: int = VERSION) -> None:
        """Send one request after its header; blocks while the socket's buffer is full."""
        size = _FRAME.size - _SIZE_BYTES + len(_NO_TAGGED_FIELDS) + len(request)
        header = _FRAME.pack(size, api.key, version, next(self._correlation_ids), -1) + _NO_TAGGED_FIELDS
        sent = self._socket.sendmsg([header, request])
        if sent < len(header) + len(request):
            self._socket.sendall(memoryview(request)[sent - len(header) :])

    def receive(self) -> None:
        """Take one answer to Produce.

        Raises:
            RuntimeError: the broker refused a batch.
        """
        refuse_errors(decode_produce_response(VERSION, self._read_answer()))

    def _read_answer(self) -> bytes:
        size = int.from_bytes(self._answers.read(_SIZE_BYTES), "big")
        return self._answers.read(size)[_RESPONSE_HEADER_SIZE:]


def refuse_errors(answer: ProduceResponse) -> None:
    """Go on only if every batch was appended.

    Raises:
        RuntimeError: the broker refused a batch.
    """
    refused = [partition for partition in answer.partitions if partition.error_code != 0]
    if refused or not answer.partitions:
        raise RuntimeError(f"the broker refused a prepared batch: {refused}")


def prepared_request(job: Job, batch_size: int, *, partitions: int | None = None) -> tuple[bytes, int]:
    """The body of a produce request with one batch for each partition, and how many records it has.

    Args:
        job: topic, value and partitions.
        batch_size: bytes of a batch, filled with as many records as fit; 0: one record.
        partitions: other than the job's.
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
    """The records section of a batch, as many records as fit in `size` bytes but at least one; and their number."""
    records, number = bytearray(_record(value, 0)), 1
    while len(records) + len(record := _record(value, number)) <= size:
        records += record
        number += 1
    return bytes(records), number


def _record(value: bytes, offset_delta: int) -> bytes:
    """One record without key and headers: attributes, timestamp and offset delta, key length -1, value, no headers."""
    fields = b"\0\0" + _varint(offset_delta) + _varint(-1) + _varint(len(value)) + value + b"\0"
    return _varint(len(fields)) + fields


def _varint(number: int) -> bytes:
    """A signed number, zigzag, seven bits a byte, the lowest first."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest >= 0x80:  # noqa: PLR2004 - seven bits
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
