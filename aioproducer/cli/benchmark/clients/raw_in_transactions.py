"""A blocking socket that sends the requests of small transactions and nothing else: what the broker's answers take.

Transactions of version 2 (KIP-890): Produce, which brings its partition into the transaction, then EndTxn, whose
answer has the identity of the next one. A Produce that meets the markers of the last transaction waits 20 ms in the
broker, so there is the same learnt pause before it as in the producer. No client can be faster than this one with
these requests, one transaction after another.
"""

import time
from contextlib import closing
from time import monotonic

from aioproducer._accumulator.record_batch_header import BatchIdentity, BatchTimes, encode_header
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import (
    INIT_PRODUCER_ID,
    PRODUCE,
    decode_init_producer_id_response,
    encode_init_producer_id_request,
)
from aioproducer._protocol.produce import NO_TOPIC_ID, BatchToSend, decode_produce_response, encode_produce_request
from aioproducer._protocol.transaction_messages import (
    END_TXN,
    FIND_COORDINATOR,
    CoordinatorType,
    TransactionIdentity,
    decode_end_txn_response,
    decode_find_coordinator_response,
    encode_end_txn_request,
    encode_find_coordinator_request,
)
from aioproducer._transactions.begin_delays import MarkerBackoff
from aioproducer.cli.benchmark.clients.raw_socket import (
    REQUEST_TIMEOUT_MS,
    RawConnection,
    refuse_errors,
    section_of_records,
)
from aioproducer.cli.benchmark.job import Job, Outcome, Stopwatch, as_text

PRODUCE_VERSION, END_TXN_VERSION, INIT_VERSION, FIND_VERSION = 12, 5, 4, 4
WARM_UP = 3
"""Transactions before the measuring starts."""

TRANSACTION_TIMEOUT_MS = 60_000
NOT_YET_S = 0.05
"""Before a broker that is still starting its coordinator is asked again."""


def transact(job: Job) -> Outcome:
    """`job.transactions` transactions of one record each, to the first partition."""
    with closing(RawConnection(job)) as connection:
        raw = RawTransactions(connection, job)
        for _ in range(WARM_UP):
            raw.transact()
        stopwatch = Stopwatch()
        for _ in range(job.transactions):
            raw.transact()
        figures = stopwatch.figures(job.records)
    return Outcome(job.end_offsets(WARM_UP + job.transactions), figures, as_text({"transactional id": job.topic}))


class RawTransactions:
    """A transactional id on a socket."""

    def __init__(self, connection: RawConnection, job: Job) -> None:
        self._connection = connection
        self._topic = self._id = job.topic
        self._records, _ = section_of_records(job.value, 0)
        self._pause = MarkerBackoff()
        self._find_coordinator()
        self._identity = self._init()

    def transact(self) -> None:
        """Write one record and commit it.

        Raises:
            RuntimeError: the broker refused either.
        """
        time.sleep(max(0.0, self._pause.until - monotonic()))
        asked_at = monotonic()
        answer = self._connection.ask(PRODUCE, PRODUCE_VERSION, self._produce_request())
        answered_at = monotonic()
        refuse_errors(decode_produce_response(PRODUCE_VERSION, answer))
        request = encode_end_txn_request(END_TXN_VERSION, self._identity, is_commit=True)
        ended = decode_end_txn_response(END_TXN_VERSION, self._connection.ask(END_TXN, END_TXN_VERSION, request))
        if ended.error_code:
            raise RuntimeError(f"the broker refused to commit: error {ended.error_code}")
        self._identity = TransactionIdentity(self._id, ended.producer_id, ended.producer_epoch)
        self._pause.begin(answered_at - asked_at, monotonic())

    def _produce_request(self) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        identity = BatchIdentity(self._identity.producer_id, self._identity.producer_epoch, 0, is_transactional=True)
        header = encode_header(self._records, 1, times=BatchTimes(now_ms, now_ms), identity=identity, compression=0)
        pieces = encode_produce_request(
            PRODUCE_VERSION,
            acks=-1,
            timeout_ms=REQUEST_TIMEOUT_MS,
            transactional_id=self._id,
            batches=[BatchToSend(self._topic, NO_TOPIC_ID, 0, header, self._records)],
        )
        return b"".join(pieces)

    def _find_coordinator(self) -> None:
        """Let the broker make the topic of transactions; it is the only one, and so the coordinator."""
        request = encode_find_coordinator_request(FIND_VERSION, self._id, CoordinatorType.TRANSACTION)
        while True:
            answer = self._connection.ask(FIND_COORDINATOR, FIND_VERSION, request)
            if not decode_find_coordinator_response(FIND_VERSION, answer, key=self._id).error_code:
                return
            time.sleep(NOT_YET_S)

    def _init(self) -> TransactionIdentity:
        request = encode_init_producer_id_request(
            INIT_VERSION, transactional_id=self._id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        while True:
            payload = self._connection.ask(INIT_PRODUCER_ID, INIT_VERSION, request)
            answer = decode_init_producer_id_response(INIT_VERSION, payload)
            row = ErrorCode.of(answer.error_code)
            if not answer.error_code:
                return TransactionIdentity(self._id, answer.producer_id, answer.producer_epoch)
            if row is None or not row.retriable:
                raise RuntimeError(f"the broker gave no producer id: error {answer.error_code}")
            time.sleep(NOT_YET_S)
