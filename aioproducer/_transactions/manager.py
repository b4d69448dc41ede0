"""Decides what a transactional producer asks its coordinators, and what their responses mean for it. No I/O.

The caller (`_transactions/runner.py`) reports each event, calls `next_request` after it, and reports how each request
ended; one at a time. First comes an identity, then partitions and offsets, and the end after every batch has ended.

Transactions V1 (KIP-98) add each partition, and each group, at the coordinator before it is used. V2 (KIP-890) adds
them by Produce and TxnOffsetCommit themselves, and its EndTxn response has a new epoch, so that no late request can
become part of the next transaction. Under V1 that can happen: a delayed copy of a Produce or EndTxn was committed with
the next transaction on real brokers. So after a V1 transaction with a gap or an unanswered request, InitProducerId
with the current identity takes a new epoch before the next one begins.

Source: TransactionManager in Apache Kafka (KIP-98, KIP-360, KIP-447, KIP-890, KIP-1050).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import Node, ProducerIdResponse
from aioproducer._protocol.transaction_admin_messages import DESCRIBE_TRANSACTIONS, TransactionDescription
from aioproducer._protocol.transaction_messages import END_TXN, FIND_COORDINATOR, CoordinatorResponse, EndTxnResponse
from aioproducer._timing.retry_backoff import ExponentialBackoff, RequestPacing
from aioproducer._transactions.begin_delays import MarkerBackoff, StrayRequests
from aioproducer._transactions.identity import TransactionalIdentity, TransactionalPartitionIdentity
from aioproducer._transactions.open_transaction import OpenTransaction, PendingOffsets
from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer._transactions.requests import (
    Coordinator,
    OffsetsToSend,
    TransactionRequest,
    TransactionRequests,
    TransactionResponse,
    codes_of,
    find_coordinator,
)
from aioproducer._transactions.states import FIRST_V2, MAY_STILL_COMMIT, TRANSITIONS, TransactionState
from aioproducer._transactions.verdicts import (
    FENCED_CODES,
    ErrorAction,
    TransactionEffect,
    abortable_error,
    consequence_of,
    error_in_response,
    fatal_error,
    has_successor,
    has_timed_out,
    is_refused_unseen,
    late_error,
    worst_of,
)
from aioproducer.errors import BrokerError, IllegalStateError, KafkaError

if TYPE_CHECKING:
    from aioproducer._accumulator.partition import Partition

_STATE: Final = TransactionState
_MAY_ABORT: Final = frozenset((_STATE.IN_TRANSACTION, _STATE.PREPARING, _STATE.PREPARED, _STATE.ABORTABLE_ERROR))
_ENDING: Final = frozenset((_STATE.COMMITTING, _STATE.ABORTING))


class TransactionManager:  # noqa: PLR0904  # all events and questions of a transaction
    """State of one transactional id.

    Args:
        timeout_ms: `transaction.timeout.ms`, sent to the coordinator.
        identity: shared with the partitions.
        stray_delay_s: how long a copy of an unanswered request may still arrive.
    """

    def __init__(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        identity: TransactionalIdentity,
        backoff: ExponentialBackoff,
        stray_delay_s: float,
        on_joined: Callable[[list[Partition]], None],
    ) -> None:
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        """Error of ABORTABLE_ERROR and FATAL_ERROR."""
        self.last_prepared: PreparedTransaction | None = None
        """The last transaction, if it was prepared."""
        self.is_v2 = False
        """The open transaction is of version 2."""
        self.transactional_id = transactional_id
        self.pacing = RequestPacing(backoff)
        self.late = StrayRequests(stray_delay_s)
        self._requests = TransactionRequests(transactional_id, timeout_ms=timeout_ms, identity=identity)
        self._nodes: dict[Coordinator, Node] = {}
        self._identity = identity
        self._marker_backoff = MarkerBackoff()
        self._is_asking = False
        self._joining: dict[Partition, None] = {}
        self._offsets = PendingOffsets()
        self._open = OpenTransaction()
        self._is_renewing = False  # InitProducerId decides whether the identity is still ours
        self._is_doubted = False  # the identity may have expired, or be a successor's
        self._has_looked = False  # DescribeTransactions has just shown no successor's transaction
        self._on_joined = on_joined

    # Calls of the user

    def initialize(self) -> None:
        """Ask for an identity, which fences all older producers of the transactional id."""
        self._move_to(TransactionState.INITIALIZING)

    def begin(self, transaction_version: int) -> bool:
        """Begin a transaction, if READY, of the version that the cluster has finalized.

        Returns:
            False if an epoch must be fetched first, because the protocol or the cluster has changed.
        """
        was_v1 = not self.is_v2 and self._identity.transaction > 0
        self.is_v2 = is_v2 = transaction_version >= FIRST_V2
        if self._identity.needs_epoch or (is_v2 and was_v1):
            self._is_doubted = True
            self._move_to(TransactionState.INITIALIZING)
            return False
        self._move_to(TransactionState.IN_TRANSACTION)
        self._identity.begin_transaction(pipelines_at_once=is_v2)
        self.late.transaction_began()
        self._open = OpenTransaction()
        self.last_prepared = None
        return True

    def downgrade(self) -> None:
        """Continue the open transaction as V1, since the cluster no longer serves V2; the next has a new epoch."""
        self.is_v2 = self._identity.pipelines_at_once = False
        self._open.downgraded()

    def commit(self) -> None:
        """Accept no more records; EndTxn follows `flushed`."""
        self._move_to(TransactionState.COMMITTING)

    def prepare(self, *, is_empty: bool) -> None:
        """Accept nothing more; the transaction is prepared when what was accepted has ended (`flushed`).

        Raises:
            IllegalStateError: it has no records (`is_empty`) and no offsets, so the coordinator does not know it.
        """
        if is_empty and not (self._open.asked or self._offsets):
            raise IllegalStateError("there is nothing to prepare: the transaction has no records and no offsets")
        self._move_to(TransactionState.PREPARING)

    @property
    def prepared(self) -> PreparedTransaction | None:
        """The prepared transaction; None if the open one is not prepared."""
        return self.last_prepared if self.state is TransactionState.PREPARED else None

    def has_identity_of(self, prepared: PreparedTransaction) -> bool:
        """Whether the open or last transaction has the identity of a prepared one."""
        return self._identity.producer_id is not None and self._requests.identity == prepared[:3]

    @property
    def may_abort(self) -> bool:
        """Whether an abort is still possible: once EndTxn was sent to commit, the brokers may have committed."""
        is_committing = self.state is TransactionState.COMMITTING and not self._open.is_commit_sent
        return is_committing or self.state in _MAY_ABORT

    @property
    def is_commit_in_doubt(self) -> bool:
        """Whether EndTxn was sent to commit, and no response excludes that it was done."""
        return self._open.commits_in_doubt > 0

    def abort(self) -> None:
        """Drop requests that were not sent yet; EndTxn follows `flushed`."""
        self._move_to(TransactionState.ABORTING)
        self.error = None
        self._joining.clear()
        self._offsets.clear()
        self._open.is_flushed = False

    def send_offsets(self, offsets: OffsetsToSend) -> OffsetsToSend:
        """Commit offsets with the transaction; `is_done` of the returned request says when."""
        return self._offsets.put(offsets)

    # Records

    def use(self, partition: Partition, now: float) -> bool:
        """Note that a partition has a record of the transaction; return whether it may be sent at once."""
        if self.state not in MAY_STILL_COMMIT or partition.identity.is_send_allowed or partition in self._joining:
            return False
        if self.is_v2 and self._marker_backoff.is_over(now):
            self._join([partition])
            return True
        self._joining[partition] = None
        return False

    @property
    def number(self) -> int:
        """Number of the open transaction, or else of the last."""
        return self._identity.transaction

    @property
    def has_ended(self) -> bool:
        """Whether the last transaction has ended on the brokers, or never will; InitProducerId may end it, too."""
        if self.state is TransactionState.PREPARING:
            return False
        return self.state not in _ENDING and not (self.state is TransactionState.INITIALIZING and self._is_renewing)

    @property
    def awaits_records(self) -> bool:
        """Whether the end of the transaction waits for `flushed`."""
        return (self.state in _ENDING or self.state is TransactionState.PREPARING) and not self._open.is_flushed

    def flushed(self) -> None:
        """Note that every batch of the transaction has ended (not required to abort under V2)."""
        self._open.is_flushed = True

    def fail_transaction(self, error: KafkaError) -> None:
        """Note a failed record: the transaction cannot be committed, unless EndTxn was already sent."""
        if not self._open.is_commit_sent:
            self._fail_transaction(error)

    def _fail_transaction(self, error: KafkaError) -> None:
        if self.state in MAY_STILL_COMMIT:
            self._open.is_outdated = isinstance(error, BrokerError) and error.code in FENCED_CODES
            self.error = abortable_error(error)
            self._move_to(TransactionState.ABORTABLE_ERROR)

    def fail(self, error: KafkaError) -> None:
        if self.state is TransactionState.FATAL_ERROR:
            return
        self.error = fatal_error(error, self.transactional_id)
        self._move_to(TransactionState.FATAL_ERROR)

    # Requests

    def next_request(self, now: float) -> TransactionRequest | None:
        """Return the request to send now; None before `next_at`. Report its end to this object."""
        self._end_unknown()
        self._end_prepare()
        if self._is_asking or now < self.next_at(now):
            return None
        if self.is_v2 and self.state in MAY_STILL_COMMIT and self._joining:
            self._on_joined(self._join([*self._joining]))
        request = self._wanted()
        if request is None:
            return None
        if request.coordinator not in self._nodes:
            request = find_coordinator(request.coordinator)
        self._is_asking, self._has_looked = True, False  # a description is valid for one attempt
        return request

    def next_at(self, now: float) -> float:
        """Return when to call `next_request` again, if not now; monotonic seconds."""
        pause = self._marker_backoff
        if (
            self.is_v2
            and self.state in MAY_STILL_COMMIT
            and (self._joining or self._offsets)
            and not pause.is_over(now)
        ):
            return pause.until
        return self.pacing.next_at

    def node_of(self, request: TransactionRequest) -> Node | None:
        """Return the node to send a request to; None for any broker."""
        return None if request.api is FIND_COORDINATOR else self._nodes[request.coordinator]

    def _wanted(self) -> TransactionRequest | None:
        if self.state is TransactionState.INITIALIZING:
            return self._wanted_for_identity()
        if self.state in MAY_STILL_COMMIT and self._joining:
            return self._requests.add(self._joining)
        if self.state in MAY_STILL_COMMIT and self._offsets:
            return self._requests.send_offsets(self._offsets.first, is_v2=self.is_v2)
        if self.state in _ENDING and self._open.is_flushed and not self._is_renewing:
            requests, is_commit = self._requests, self.state is TransactionState.COMMITTING
            return requests.describe() if self._is_doubted else requests.end(is_commit=is_commit, is_v2=self.is_v2)
        return None

    def _wanted_for_identity(self) -> TransactionRequest:
        # InitProducerId aborts any transaction that is open under the producer id before it compares epochs. So look
        # first whether a successor has one open, or a late copy of a request began one.
        if (self._is_doubted or self._open.has_stray) and not self._has_looked:
            return self._requests.describe()
        if self._open.is_open_again:
            return self._requests.end(is_commit=False, is_v2=self.is_v2)
        return self._requests.init(is_guarded=self._is_doubted)

    def _end_unknown(self) -> None:
        """End a transaction that the coordinator does not know, or does not let this producer end."""
        if self.state not in _ENDING or not self._open.is_flushed or self._is_asking:
            return
        # A coordinator that never heard of the transaction is not asked to end it: while it shuts down, it may answer
        # PRODUCER_FENCED to an EndTxn that looks like a copy of the last one (seen on 4.3.1).
        may_be_known = self._open.asked or self._identity.has_stamped
        if self._is_renewing or not (may_be_known or self._joining or self._offsets):
            self._end(None)

    def _end_prepare(self) -> None:
        if self.state is not TransactionState.PREPARING:
            return
        if self._open.is_flushed and not (self._joining or self._offsets or self._is_asking):
            self._move_to(TransactionState.PREPARED)
            self.last_prepared = PreparedTransaction(*self._requests.identity, FIRST_V2 if self.is_v2 else 1)

    # Responses

    def sent(self, request: TransactionRequest) -> None:
        """Note that a request is being sent: it may take effect without a response."""
        self._open.sent(request)

    def unanswered(self, request: TransactionRequest, error: KafkaError | None, *, was_sent: bool, now: float) -> None:
        """Note that a request had no response, or was called off (no `error`); once sent, a copy may arrive late."""
        self._is_asking = False
        # Called off: the coordinator did not fail, so it is not looked up again and no backoff begins.
        if error is None:
            return
        if was_sent:
            self._open.may_be_done(request)
            node = self._nodes.get(request.coordinator)
            self.late.unanswered(request, None if node is None else node.id, now, is_v2=self.is_v2)
        self._nodes.pop(request.coordinator, None)
        self.pacing.again(f"{request.api.name}: {error}", now, error=error)

    def unsupported(self, request: TransactionRequest, error: KafkaError) -> None:
        """Note that a coordinator is too old for a request."""
        self._is_asking = False
        if request.api is DESCRIBE_TRANSACTIONS:
            self._look_at(None)
            return
        self.fail(late_error(self.transactional_id) if self._is_doubted else error)

    def answered(self, request: TransactionRequest, response: TransactionResponse, now: float) -> None:
        self._is_asking = False
        if self.state is TransactionState.FATAL_ERROR:
            return
        codes = codes_of(request, response)
        verdict, code = worst_of(request.api.key, codes)
        if ErrorCode.UNKNOWN_SERVER_ERROR in codes:  # it may be done all the same
            self._open.may_be_done(request)
        else:
            self._open.was_answered(request)
        if verdict is ErrorAction.DONE:
            self._done(request, response, now)
            return
        error = error_in_response(request, response, code=code, transactional_id=self.transactional_id)
        if verdict in {ErrorAction.RETRY, ErrorAction.RETRY_SOON, ErrorAction.REFIND}:
            if verdict is ErrorAction.REFIND:
                self._nodes.pop(request.coordinator, None)
            self.pacing.again(str(error), now, error=error, is_soon=verdict is ErrorAction.RETRY_SOON)
        else:
            self._fail_request(request, verdict, code, error=error)

    def _fail_request(self, request: TransactionRequest, verdict: ErrorAction, code: int, *, error: KafkaError) -> None:
        self.pacing.passed()
        if is_refused_unseen(request, code):
            self._open.went_unseen()
        match consequence_of(request, verdict, code, state=self.state, transaction=self._open, is_v2=self.is_v2):
            case TransactionEffect.GO_ON:
                self._open.ended_again()
                return
            case TransactionEffect.LOOK:
                self._is_doubted = True
                return
            case TransactionEffect.FAIL:
                self.fail(error)
                return
            case TransactionEffect.RENEW:
                self._is_renewing = self._is_doubted = True
        if self.state is TransactionState.ABORTING:
            self._is_renewing = self._is_renewing or request.api is END_TXN
        else:
            self._fail_transaction(error)

    def _done(self, request: TransactionRequest, response: TransactionResponse, now: float) -> None:
        if isinstance(response, CoordinatorResponse):
            self._nodes[request.coordinator] = response.node
            return  # keeps the count of attempts, which belongs to the request that needs the coordinator
        if isinstance(response, TransactionDescription):
            self._look_at(response)
            return
        self.pacing.passed()
        self.late.answered(request, self._nodes[request.coordinator].id)
        if isinstance(response, ProducerIdResponse):
            self._use_identity(response)
        elif isinstance(response, EndTxnResponse):
            self._end(response)
            if self.is_v2 and self._identity.first_response_s is not None:
                self._marker_backoff.begin(self._identity.first_response_s, now)
        elif isinstance(request.subject, OffsetsToSend):
            self._open.is_known = True
            self._offsets.forward(request)
        else:
            assert isinstance(request.subject, Collection)
            self._on_joined(
                self._join([partition for partition in self._joining if partition.topic_partition in request.subject])
            )

    def _look_at(self, description: TransactionDescription | None) -> None:
        """React to the coordinator's description of an identity in doubt; None if it cannot give one."""
        self._has_looked = True
        is_commit, error = self.state is TransactionState.COMMITTING, late_error(self.transactional_id)
        own = self._requests.identity if self._is_renewing or self._open.has_stray else None
        # A commit answered PRODUCER_FENCED may be late (KAFKA-20785) or replaced; only the description tells.
        if is_commit and has_timed_out(description, self._requests.identity):
            self._is_doubted = False
            self._fail_transaction(error)
        elif is_commit or has_successor(description, own=own):
            self.fail(error)
        else:
            self._open.found(description)

    def _join(self, partitions: list[Partition]) -> list[Partition]:
        self._open.is_known = True
        for partition in partitions:
            self._joining.pop(partition, None)
            assert isinstance(partition.identity, TransactionalPartitionIdentity)
            partition.identity.join_transaction()
        return partitions

    def _use_identity(self, response: ProducerIdResponse) -> None:
        self._identity.assign(response.producer_id, response.producer_epoch)
        self._is_renewing = self._is_doubted = self._open.has_stray = False
        self._move_to(TransactionState.READY)

    def _end(self, response: EndTxnResponse | None) -> None:
        """Note that the transaction has ended; `response` is of EndTxn, if that was sent."""
        if response is not None and self.is_v2 and response.producer_id >= 0:
            self._identity.assign(response.producer_id, response.producer_epoch)
            self._open.has_stray = False
        if self.state is TransactionState.INITIALIZING:
            self._open.ended_again()
            return
        needs_epoch = self._identity.needs_epoch or self._open.has_stray or self._is_renewing
        self._move_to(TransactionState.INITIALIZING if needs_epoch else TransactionState.READY)

    def _move_to(self, state: TransactionState) -> None:
        if state not in TRANSITIONS[self.state]:  # no assert: it must also raise under `python -O`
            text = f"a transactional producer cannot go from {self.state.value} to {state.value}"
            raise IllegalStateError(text)
        self.state = state

    def __repr__(self) -> str:
        return f"<TransactionManager {self.transactional_id!r} {self.state.value} v2={self.is_v2}>"
