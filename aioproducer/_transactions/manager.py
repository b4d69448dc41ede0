"""Decides what a transactional producer asks its coordinators, and what their answers mean for it. No I/O.

The shell (`_transactions/runner.py`) tells it what happens, asks `next_request` whenever something has, and tells it
how each request ended; one at a time. First an identity, then partitions and offsets, the end when every batch has
ended.

Transactions V1 (KIP-98) name each partition, and each group, to the coordinator before it is used. V2 (KIP-890) adds
them by Produce and TxnOffsetCommit themselves, and its EndTxn answers a new epoch, so that nothing late can end up in
the next transaction. Under V1 something late can: a copy of a Produce or EndTxn that was delayed on its way was
committed with the next transaction on real brokers. So after a V1 transaction with a gap or an unanswered request,
InitProducerId with the present identity takes a new epoch before the next one begins.

Source: TransactionManager in Apache Kafka (KIP-98, KIP-360, KIP-447, KIP-890, KIP-1050).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import ProducerIdResponse
from aioproducer._protocol.transaction_admin_messages import DESCRIBE_TRANSACTIONS, TransactionDescription
from aioproducer._protocol.transaction_messages import END_TXN, FIND_COORDINATOR, CoordinatorResponse, EndTxnResponse
from aioproducer._timing.retry_backoff import RequestPacing
from aioproducer._timing.timers import TICK_S
from aioproducer._transactions.begin_delays import MarkerBackoff, StrayRequests
from aioproducer._transactions.errors import FENCED_CODES, abortable_error, answered_error, fatal_error, late_error
from aioproducer._transactions.open_transaction import OpenTransaction, PendingOffsets
from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer._transactions.requests import (
    OffsetsToSend,
    TransactionRequest,
    TransactionRequests,
    codes_of,
    find_coordinator,
)
from aioproducer._transactions.states import FIRST_V2, TRANSITIONS, TransactionState
from aioproducer._transactions.verdicts import (
    ErrorAction,
    TransactionEffect,
    consequence_of,
    has_successor,
    has_timed_out,
    is_refused_unseen,
    worst_of,
)
from aioproducer.errors import BrokerError, IllegalStateError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer._accumulator.partition_queue import PartitionQueue
    from aioproducer._timing.retry_backoff import ExponentialBackoff
    from aioproducer._transactions.identity import TransactionalIdentity
    from aioproducer._transactions.requests import Coordinator, TransactionResponse

_OPEN: Final = frozenset((TransactionState.IN_TRANSACTION, TransactionState.COMMITTING, TransactionState.PREPARING))
_MAY_ABORT: Final = frozenset(
    (
        TransactionState.IN_TRANSACTION,
        TransactionState.PREPARING,
        TransactionState.PREPARED,
        TransactionState.ABORTABLE_ERROR,
    )
)
_ENDING: Final = frozenset((TransactionState.COMMITTING, TransactionState.ABORTING))


class TransactionManager:  # noqa: PLR0904  # what happens to a transaction, and what is asked about it
    """One transactional id.

    Args:
        transactional_id: its name.
        timeout_ms: `transaction.timeout.ms`, told to the coordinator.
        identity: shared with the partitions.
        backoff: between attempts.
        stray_delay_s: how long a copy of a request that went unanswered may still arrive.
        grain_s: of the alarms that `next_at` is for.
        on_joined: called with partitions that may be sent to now.
    """

    def __init__(  # noqa: PLR0913  # what it takes from outside
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        identity: TransactionalIdentity,
        backoff: ExponentialBackoff,
        stray_delay_s: float,
        on_joined: Callable[[list[PartitionQueue]], None],
        grain_s: float = TICK_S,
    ) -> None:
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        """Of ABORTABLE_ERROR and FATAL_ERROR."""
        self.is_v2 = False
        """Which protocol the open transaction speaks."""
        self.transactional_id = transactional_id
        self.pacing = RequestPacing(backoff)
        self.late = StrayRequests(stray_delay_s)
        self._requests = TransactionRequests(transactional_id, timeout_ms=timeout_ms, identity=identity)
        self._nodes: dict[Coordinator, int] = {}
        self._identity = identity
        self._marker_pause = MarkerBackoff(grain_s)
        self._is_asking = False
        self._joining: dict[PartitionQueue, None] = {}
        self._offsets = PendingOffsets()
        self._open = OpenTransaction()
        self._prepared: PreparedTransaction | None = None  # the last one
        self._is_renewing = False  # the identity is to be had again by InitProducerId alone
        self._is_doubted = False  # the identity may be a successor's by now, or nobody's
        self._has_looked = False  # the coordinator has just said that it has no transaction of a successor open
        self._on_joined = on_joined

    # What the user wants

    def initialize(self) -> None:
        """Ask for an identity; whoever has the transactional id is fenced."""
        self._move_to(TransactionState.INITIALIZING)

    def begin(self, transaction_version: int) -> bool:
        """Begin a transaction, if READY; False: the protocol or the cluster is another, and an epoch is fetched first.

        Args:
            transaction_version: the level that the cluster has finalized.
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
        return True

    def downgrade(self) -> None:
        """Go on with the open transaction as V1, the cluster serves V2 no more; the next one has a new epoch."""
        self.is_v2 = self._identity.pipelines_at_once = False
        self._open.downgraded()

    def commit(self) -> None:
        """Take nothing more; EndTxn follows when what was taken has ended (`flushed`)."""
        self._move_to(TransactionState.COMMITTING)

    def prepare(self, *, is_empty: bool) -> None:
        """Accept nothing more; the transaction is prepared when what was accepted has ended (`flushed`).

        Args:
            is_empty: it has no records.

        Raises:
            IllegalStateError: it has no offsets either, so the coordinator does not know it.
        """
        if is_empty and not (self._open.asked or self._offsets):
            raise IllegalStateError("there is nothing to prepare: the transaction has no records and no offsets")
        self._move_to(TransactionState.PREPARING)

    @property
    def prepared(self) -> PreparedTransaction | None:
        """The prepared transaction; None if the open one is not prepared."""
        return self._prepared if self.state is TransactionState.PREPARED else None

    @property
    def may_abort(self) -> bool:
        """Whether an abort can still be asked for: not once EndTxn has gone out to commit."""
        is_committing = self.state is TransactionState.COMMITTING and not self._open.is_commit_sent
        return is_committing or self.state in _MAY_ABORT

    @property
    def is_commit_in_doubt(self) -> bool:
        """Whether EndTxn went out to commit, and no answer excludes that it was done."""
        return self._open.commits_in_doubt > 0

    def abort(self) -> None:
        """Forget what was not asked yet; EndTxn follows when nothing of it is on the wire any more (`flushed`)."""
        self._move_to(TransactionState.ABORTING)
        self.error = None
        self._joining.clear()
        self._offsets.clear()
        self._open.is_flushed = False

    def send_offsets(self, offsets: OffsetsToSend) -> OffsetsToSend:
        """Commit offsets with the transaction; `is_done` of what is returned, these or the same in line, says when."""
        return self._offsets.put(offsets)

    # What happens to records

    def use(self, queue: PartitionQueue, now: float) -> bool:
        """Note that a partition has a record of the transaction; True: it may be sent at once."""
        if self.state not in _OPEN or queue.identity.is_send_allowed or queue in self._joining:
            return False
        if self.is_v2 and self._marker_pause.is_over(now):
            self._join([queue])
            return True
        self._joining[queue] = None
        return False

    @property
    def number(self) -> int:
        """Of the transaction that is open, or was last."""
        return self._identity.transaction

    @property
    def has_ended(self) -> bool:
        """Whether the last transaction is over on the brokers, or never will be; InitProducerId, too, may end it."""
        if self.state is TransactionState.PREPARING:
            return False
        return self.state not in _ENDING and not (self.state is TransactionState.INITIALIZING and self._is_renewing)

    def flushed(self) -> None:
        """Note that every batch of the transaction has ended (abort under V2: or need not)."""
        self._open.is_flushed = True

    def fail_transaction(self, error: KafkaError) -> None:
        """Note that a record failed: the transaction cannot be committed, unless that was asked for already."""
        # Once EndTxn has gone out to commit, only its response decides: the brokers may have committed.
        if not self._open.is_commit_sent:
            self._fail_transaction(error)

    def _fail_transaction(self, error: KafkaError) -> None:
        if self.state in _OPEN:
            self._open.is_outdated = isinstance(error, BrokerError) and error.code in FENCED_CODES
            self.error = abortable_error(error)
            self._move_to(TransactionState.ABORTABLE_ERROR)

    def fail(self, error: KafkaError) -> None:
        """Note that nothing can succeed any more."""
        if self.state is TransactionState.FATAL_ERROR:
            return
        self.error = fatal_error(error, self.transactional_id)
        self._move_to(TransactionState.FATAL_ERROR)

    # What is to be asked

    def next_request(self, now: float) -> TransactionRequest | None:
        """Return the request to send now, None before `next_at`; `answered`, `unanswered` or `refused` must follow."""
        self._end_unknown()
        self._end_prepare()
        if self._is_asking or now < self.next_at(now):
            return None
        if self.is_v2 and self.state in _OPEN and self._joining:
            self._on_joined(self._join([*self._joining]))
        request = self._wanted()
        if request is None:
            return None
        if request.coordinator not in self._nodes:
            request = find_coordinator(request.coordinator)
        self._is_asking, self._has_looked = True, False  # a look holds for one attempt: the next may be seconds later
        return request

    def next_at(self, now: float) -> float:
        """Return when to ask for the next request, if that is not now; monotonic seconds."""
        pause = self._marker_pause
        if self.is_v2 and self.state in _OPEN and (self._joining or self._offsets) and not pause.is_over(now):
            pause.has_held = True
            return pause.until
        return self.pacing.next_at

    def node_of(self, request: TransactionRequest) -> int | None:
        """Whom to ask; None: any broker."""
        return None if request.api is FIND_COORDINATOR else self._nodes[request.coordinator]

    def _wanted(self) -> TransactionRequest | None:
        if self.state is TransactionState.INITIALIZING:
            return self._wanted_for_identity()
        if self.state in _OPEN and self._joining:
            return self._requests.add(self._joining)
        if self.state in _OPEN and self._offsets:
            return self._requests.send_offsets(self._offsets.first, is_v2=self.is_v2)
        if self.state in _ENDING and self._open.is_flushed and not self._is_renewing:
            requests, is_commit = self._requests, self.state is TransactionState.COMMITTING
            return requests.describe() if self._is_doubted else requests.end(is_commit=is_commit, is_v2=self.is_v2)
        return None

    def _wanted_for_identity(self) -> TransactionRequest:
        # InitProducerId aborts whatever transaction is open under the producer id before it compares epochs. So look
        # first whether a successor has one open, or a late copy of a request began one.
        if (self._is_doubted or self._open.has_stray) and not self._has_looked:
            return self._requests.describe()
        if self._open.is_open_again:
            return self._requests.end(is_commit=False, is_v2=self.is_v2)
        return self._requests.init(is_guarded=self._is_doubted)

    def _end_unknown(self) -> None:
        """End a transaction of which the coordinator never heard, or that it does not let us end."""
        if self.state not in _ENDING or not self._open.is_flushed or self._is_asking:
            return
        # A coordinator that never heard of the transaction is not asked to end it: while it shuts down, it may answer
        # PRODUCER_FENCED to an EndTxn that looks like a copy of the last one (seen on 4.3.1).
        may_be_known = self._open.asked or self._identity.has_stamped
        if self._is_renewing or not (may_be_known or self._joining or self._offsets):
            self._end(None)

    def _end_prepare(self) -> None:
        is_acknowledged = self._open.is_flushed and not (self._joining or self._offsets or self._is_asking)
        if self.state is TransactionState.PREPARING and is_acknowledged:
            self._move_to(TransactionState.PREPARED)
            self._prepared = PreparedTransaction(*self._requests.identity, FIRST_V2 if self.is_v2 else 1)

    # How a request ended

    def sent(self, request: TransactionRequest) -> None:
        """Note that a request is handed to a connection now: what it asks may come true without an answer."""
        self._open.sent(request)

    def unanswered(self, request: TransactionRequest, error: KafkaError | None, *, was_sent: bool, now: float) -> None:
        """Note that a request had no answer, and if `was_sent`, that a copy of it may arrive late; None: called off."""
        self._is_asking = False
        # Called off: the coordinator did not fail, so it is not looked up again and no backoff begins.
        if error is None:
            return
        if was_sent:
            self._open.may_be_done(request)
            self.late.unanswered(request, self._nodes.get(request.coordinator), now, is_v2=self.is_v2)
        self._nodes.pop(request.coordinator, None)
        self.pacing.again(f"{request.api.name}: {error}", now)

    def refused(self, request: TransactionRequest, error: KafkaError) -> None:
        """Note that a coordinator is too old for a request."""
        self._is_asking = False
        if request.api is DESCRIBE_TRANSACTIONS:
            self._look_at(None)
            return
        self.fail(late_error(self.transactional_id) if self._is_doubted else error)

    def answered(self, request: TransactionRequest, answer: TransactionResponse, now: float) -> None:
        """Do what an answer means."""
        self._is_asking = False
        if self.state is TransactionState.FATAL_ERROR:
            return
        codes = codes_of(request, answer)
        verdict, code = worst_of(request.api.key, codes)
        if ErrorCode.UNKNOWN_SERVER_ERROR in codes:  # whatever it was that failed
            self._open.may_be_done(request)
        else:
            self._open.was_answered(request)
        if verdict is ErrorAction.DONE:
            self._done(request, answer, now)
            return
        error = answered_error(request, answer, code=code, transactional_id=self.transactional_id)
        if verdict in {ErrorAction.RETRY, ErrorAction.RETRY_SOON, ErrorAction.REFIND}:
            if verdict is ErrorAction.REFIND:
                self._nodes.pop(request.coordinator, None)
            self.pacing.again(str(error), now, is_soon=verdict is ErrorAction.RETRY_SOON)
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

    def _done(self, request: TransactionRequest, answer: TransactionResponse, now: float) -> None:
        if isinstance(answer, CoordinatorResponse):
            self._nodes[request.coordinator] = answer.node_id
            return  # the count of attempts goes on: it belongs to the request that needs the coordinator
        if isinstance(answer, TransactionDescription):
            self._look_at(answer)
            return
        self.pacing.passed()
        self.late.answered(request, self._nodes[request.coordinator])
        if isinstance(answer, ProducerIdResponse):
            self._take_identity(answer)
        elif isinstance(answer, EndTxnResponse):
            self._end(answer)
            if self.is_v2 and self._identity.first_answer_s is not None:
                self._marker_pause.begin(self._identity.first_answer_s, now)
        elif isinstance(request.subject, OffsetsToSend):
            self._open.is_known = True
            self._offsets.forward(request)
        else:
            assert isinstance(request.subject, Collection)
            self._on_joined(self._join([queue for queue in self._joining if queue.topic_partition in request.subject]))

    def _look_at(self, description: TransactionDescription | None) -> None:
        """Do what the coordinator's description means for an identity in doubt; None: it cannot give one."""
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

    def _join(self, queues: list[PartitionQueue]) -> list[PartitionQueue]:
        self._open.is_known = True
        for queue in queues:
            self._joining.pop(queue, None)
            queue.identity.join_transaction()
        return queues

    def _take_identity(self, answer: ProducerIdResponse) -> None:
        self._identity.assign(answer.producer_id, answer.producer_epoch)
        self._is_renewing = self._is_doubted = self._open.has_stray = False
        self._move_to(TransactionState.READY)

    def _end(self, answer: EndTxnResponse | None) -> None:
        """The transaction is over; `answer`: of EndTxn, if it was asked."""
        if answer is not None and self.is_v2 and answer.producer_id >= 0:
            self._identity.assign(answer.producer_id, answer.producer_epoch)
            self._open.has_stray = False
        if self.state is TransactionState.INITIALIZING:
            self._open.ended_again()
            return
        needs_epoch = self._identity.needs_epoch or self._open.has_stray or self._is_renewing
        self._move_to(TransactionState.INITIALIZING if needs_epoch else TransactionState.READY)

    # Inside

    def _move_to(self, state: TransactionState) -> None:
        if state not in TRANSITIONS[self.state]:  # also where asserts are left out: nothing may follow from it
            text = f"a transactional producer cannot go from {self.state.value} to {state.value}"
            raise IllegalStateError(text)
        self.state = state

    def __repr__(self) -> str:
        """Show the state."""
        return f"<TransactionManager {self.transactional_id!r} {self.state.value} v2={self.is_v2}>"
