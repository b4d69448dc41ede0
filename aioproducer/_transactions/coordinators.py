"""Asks coordinators what `TransactionManager` wants asked, one request at a time, and tells it what came of each.

Source: Sender.maybeSendAndPollTransactionalRequest in Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.transaction_messages import ADD_PARTITIONS_TO_TXN
from aioproducer._sender.produce_request import ProduceTransaction
from aioproducer._transactions.states import FIRST_V2, TransactionState
from aioproducer.errors import KafkaError, UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer._logs import EventLog
    from aioproducer._network.metadata_refresher import MetadataRefresher
    from aioproducer._network.network_client import NetworkClient
    from aioproducer._transactions.manager import TransactionManager
    from aioproducer._transactions.requests import TransactionRequest, TransactionResponse


class _CalledOffError(KafkaError):
    """By the time a request could go out, something else was to be asked: nobody has failed to answer."""


class Coordinators:
    """The way to them.

    Args:
        client: sends.
        metadata: knows the nodes; told when one cannot be reached.
        manager: decides.
        clock: monotonic seconds.
        log: of requests that had no answer.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: MetadataRefresher,
        manager: TransactionManager,
        *,
        clock: Callable[[], float],
        log: EventLog,
    ) -> None:
        self.manager = manager
        self._client = client
        self._metadata = metadata
        self._clock = clock
        self._log = log

    @property
    def transaction_version(self) -> int:
        """The level of transactions that the cluster has finalized."""
        return self._client.transaction_version

    def when_nodes_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` with every answer about the cluster."""
        self._metadata.on_update(lambda _: listener())

    def is_idle(self) -> bool:
        """Whether no request is on its way to any node."""
        return not any(self._client.requests_in_flight().values())

    def produce_transaction(self) -> ProduceTransaction:
        """Return what a Produce request must say of the transaction that its batches belong to."""
        self._follow_cluster()
        return ProduceTransaction(self.manager.transactional_id, self.manager.is_v2)

    def _follow_cluster(self) -> None:
        """Have the open transaction go on as V1 if the cluster was downgraded below V2, as far as anybody has said."""
        if self.manager.is_v2 and self._client.transaction_version < FIRST_V2:
            self.manager.downgrade()

    def next_request(self) -> TransactionRequest | None:
        """Return what is to be asked now; nothing while no node is known."""
        self._follow_cluster()
        return self.manager.next_request(self._clock()) if self._metadata.cluster.nodes else None

    async def ask(self, request: TransactionRequest) -> None:
        """Ask, wait for the answer, and have the manager take it."""
        was_sent = False
        asked_in, speaks_v2 = self.manager.state, self.manager.is_v2

        def body(version: int) -> bytes:
            nonlocal was_sent
            self._check_wanted(asked_in, speaks_v2=speaks_v2)
            content = request.body(version)
            self.manager.sent(request)
            was_sent = True
            return content

        try:
            answer = await self._client.request(
                request.api,
                body,
                lambda reply: request.decode(reply.version, reply.payload),
                node_id=self.manager.node_of(request),
                at_most=request.at_most,
            )
        except UnsupportedVersionError as error:
            self.manager.refused(request, error)
        except _CalledOffError as error:
            self._log.debug("transaction_request_called_off", request=request.api.name, reason=str(error))
            self.manager.unanswered(request, None, was_sent=False, now=self._clock())
        except KafkaError as error:
            self._log.debug("transaction_request_failed", request=request.api.name, reason=str(error))
            self._metadata.request_update("coordinator_unreachable")
            self.manager.unanswered(request, error, was_sent=was_sent, now=self._clock())
        else:
            self._take(request, answer)

    def _check_wanted(self, asked_in: TransactionState, *, speaks_v2: bool) -> None:
        """Call a request off that waited for a connection, if it would not be asked now.

        Raises:
            _CalledOffError: it would not.
        """
        # What was decided may be outdated once a connection is there: an EndTxn(commit) would end the abort asked for
        # since.
        self._follow_cluster()  # the connection may be new, and the first to tell
        if self.manager.is_v2 != speaks_v2:
            raise _CalledOffError("the cluster serves another version of transactions now")
        if self.manager.state not in {
            asked_in,
            TransactionState.COMMITTING,
            TransactionState.PREPARING,
        }:  # an abort may be wanted instead
            raise _CalledOffError("the transaction took another turn while this waited for a connection")

    def _take(self, request: TransactionRequest, answer: TransactionResponse) -> None:
        if request.api is ADD_PARTITIONS_TO_TXN:  # nothing is sent to them before, so no leader will say it
            for place in request.places_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, answer):
                self._metadata.request_update("partition_unknown", topic=place.topic)
        self.manager.answered(request, answer, self._clock())

    def __repr__(self) -> str:
        """Show what decides."""
        return f"<Coordinators {self.manager!r}>"
