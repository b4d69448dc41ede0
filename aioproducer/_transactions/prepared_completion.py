"""Completion of a prepared transaction, perhaps of another process: EndTxn in its name, repeated until it is answered.

The identity is always the one that was prepared, so a repeated EndTxn is answered as the first one was (KIP-890).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from aioproducer._network.node_connection import label_of
from aioproducer._network.refusals import is_worth_repeating
from aioproducer._protocol.error_codes import ErrorCode
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
from aioproducer._timing.retry_backoff import SOON_MS, ExponentialBackoff
from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer._transactions.requests import END_TXN_V1
from aioproducer._transactions.states import FIRST_V2
from aioproducer._transactions.verdicts import FENCED_CODES, FORGOTTEN_CODES, ErrorAction, verdict_on
from aioproducer.errors import (
    BrokerError,
    KafkaError,
    Outcome,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionTimeoutError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer._network.metadata_refresher import MetadataRefresher
    from aioproducer._network.network_client import NetworkClient
    from aioproducer._network.requests import PendingCalls
    from aioproducer._protocol.messages import Api

_RETRIES: Final = frozenset((ErrorAction.RETRY_SOON, ErrorAction.RETRY, ErrorAction.REFIND))

_FENCED: Final = (
    ProducerFencedError,
    "a newer producer has taken the transactional id, or the transaction timed out and was aborted",
)
_FORGOTTEN: Final = (
    TransactionError,
    "the brokers do not know its identity any more: the id has expired, or it is another cluster",
)
_ERRORS: Final[Mapping[tuple[int, bool], tuple[type[TransactionError], str]]] = {
    **{(code, is_commit): _FENCED for code in FENCED_CODES for is_commit in (True, False)},
    **{(code, is_commit): _FORGOTTEN for code in FORGOTTEN_CODES for is_commit in (True, False)},
    (ErrorCode.INVALID_TXN_STATE, True): (TransactionAbortedError, "it was aborted before, by a call or its timeout"),
    (ErrorCode.INVALID_TXN_STATE, False): (
        TransactionError,
        "it is not open any more: it was committed, or has timed out",
    ),
    (ErrorCode.TRANSACTION_ABORTABLE, True): (TransactionAbortableError, "the transaction must be aborted"),
}
"""Errors of a refusal to commit (True) or abort."""


def end_txn_api(prepared: PreparedTransaction) -> Api:
    """Return EndTxn in the versions that fit the transaction's: Kafka lists v5 also where it refuses it."""
    return END_TXN if prepared.version >= FIRST_V2 else END_TXN._replace(max_version=END_TXN_V1)


def encode_end_txn(prepared: PreparedTransaction, version: int, *, is_commit: bool) -> bytes:
    """Return the body of EndTxn in the name of the producer that prepared.

    Raises:
        UnsupportedVersionError: the broker does not serve the version that the transaction began under.
    """
    transactional_id, producer_id, epoch, began_under = prepared
    if began_under >= FIRST_V2 and version <= END_TXN_V1:
        raise UnsupportedVersionError(
            f"prepared transaction of {transactional_id!r}: it began under transactions V2, which the broker does not "
            "serve"
        )
    return encode_end_txn_request(
        version, TransactionIdentity(transactional_id, producer_id, epoch), is_commit=is_commit
    )


class PreparedCompletion:
    """Commits or aborts one prepared transaction."""

    def __init__(
        self,
        prepared: PreparedTransaction,
        *,
        is_commit: bool,
        client: NetworkClient,
        metadata: MetadataRefresher,
        backoff: ExponentialBackoff,
    ) -> None:
        self._prepared = prepared
        self._is_commit = is_commit
        self._client = client
        self._metadata = metadata
        self._backoff = backoff
        self._last: KafkaError | None = None
        self._waits_for = ""  # the request that is under way

    async def run(self, calls: PendingCalls, timeout_s: float) -> None:
        """Send EndTxn until it is answered, or `calls` end with the producer.

        Raises:
            TransactionTimeoutError: no response in time; it may be done.
            TransactionError: the transaction has ended otherwise.
            KafkaError: another refusal, or the producer has closed or failed.
        """
        try:
            async with calls.within(timeout_s):
                await self._repeat()
        except TimeoutError:
            text = f"{self._what}: no answer after {timeout_s:g} s: {self._last or self._waits_for}"
            error = TransactionTimeoutError(f"{text}; call it again", last_broker_error=self._last)
            raise error.with_details(outcome=Outcome.UNKNOWN) from None

    @property
    def _what(self) -> str:
        verb = "commit" if self._is_commit else "abort"
        return f"{verb} of the prepared transaction of {self._prepared.transactional_id!r}"

    async def _repeat(self) -> None:
        soon, attempts = self._backoff.within(*SOON_MS), 0
        while True:
            backoff = self._backoff
            try:
                action = await self._attempt()
            except KafkaError as error:
                if not is_worth_repeating(error):
                    raise
                self._last = error
                self._metadata.request_update("coordinator_unreachable")
            else:
                if action is ErrorAction.DONE:
                    return
                if action is ErrorAction.RETRY_SOON:
                    backoff = soon
            await asyncio.sleep(backoff.delay_s(attempts))
            attempts += 1

    async def _attempt(self) -> ErrorAction:
        key = self._prepared.transactional_id
        self._waits_for = "FindCoordinator waits for any broker"
        found = await self._client.request(
            FIND_COORDINATOR,
            lambda version: encode_find_coordinator_request(version, key, CoordinatorType.TRANSACTION),
            lambda reply: decode_find_coordinator_response(reply.version, reply.payload, key=key),
        )
        if (action := self._judge(FIND_COORDINATOR, found.error_code)) is not ErrorAction.DONE:
            return action
        self._waits_for = f"EndTxn waits for {label_of(found.node)}"
        response = await self._client.request(
            end_txn_api(self._prepared),
            partial(encode_end_txn, self._prepared, is_commit=self._is_commit),
            lambda reply: decode_end_txn_response(reply.version, reply.payload),
            coordinator=found.node,
        )
        return self._judge(END_TXN, response.error_code)

    def _judge(self, api: Api, code: int) -> ErrorAction:
        """Return what to do after a response; raises the error of a refusal that ends it."""
        action = ErrorAction.DONE if code == ErrorCode.NONE else verdict_on(api.key, code)
        if action is ErrorAction.DONE:
            return action
        refusal = BrokerError.of(code, f"{self._what}: {api.name}: {ErrorCode.in_words(code)}")
        if action in _RETRIES:
            self._last = refusal
            return action
        raise self._error_of(code, refusal) from refusal

    def _error_of(self, code: int, refusal: BrokerError) -> KafkaError:
        known = _ERRORS.get((code, self._is_commit))
        if known is None:
            return refusal
        error_class, text = known
        return error_class(f"{self._what}: {text}")
