"""Sends the requests that `TransactionManager` asks for, one at a time, and reports the results to it.

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
    """A request became obsolete before it could be sent; the broker has not failed."""


class Coordinators:
    """Sends requests to the transaction and group coordinators."""

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
        return self._client.transaction_version

    def when_nodes_change(self, listener: Callable[[], None]) -> None:
        self._metadata.on_update(lambda _: listener())

    def produce_transaction(self) -> ProduceTransaction:
        self._follow_cluster()
        return ProduceTransaction(self.manager.transactional_id, self.manager.is_v2)

    def _follow_cluster(self) -> None:
        """Continue the open transaction as V1 if the cluster is known to be downgraded below V2."""
        if self.manager.is_v2 and self._client.transaction_version < FIRST_V2:
            self.manager.downgrade()

    def next_request(self) -> TransactionRequest | None:
        self._follow_cluster()
        return self.manager.next_request(self._clock()) if self._metadata.cluster.nodes else None

    async def ask(self, request: TransactionRequest) -> None:
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
            response = await self._client.request(
                request.api,
                body,
                lambda reply: request.decode(reply.version, reply.payload),
                node_id=self.manager.node_of(request),
                at_most=request.at_most,
            )
        except UnsupportedVersionError as error:
            self.manager.unsupported(request, error)
        except _CalledOffError as error:
            self._log.debug("transaction_request_called_off", request=request.api.name, reason=str(error))
            self.manager.unanswered(request, None, was_sent=False, now=self._clock())
        except KafkaError as error:
            self._log.debug("transaction_request_failed", request=request.api.name, reason=str(error))
            self._metadata.request_update("coordinator_unreachable")
            self.manager.unanswered(request, error, was_sent=was_sent, now=self._clock())
        else:
            self._take(request, response)

    def _check_wanted(self, asked_in: TransactionState, *, speaks_v2: bool) -> None:
        """Call a request off that waited for a connection, if it has become obsolete."""
        # What was decided may be outdated once a connection is there: an EndTxn(commit) would end the abort asked for
        # since.
        self._follow_cluster()  # a new connection may be the first to show a downgrade
        if self.manager.is_v2 != speaks_v2:
            raise _CalledOffError("the cluster serves another version of transactions now")
        still_wanted = {asked_in, TransactionState.COMMITTING, TransactionState.PREPARING}
        if self.manager.state not in still_wanted:  # it may have to abort now
            raise _CalledOffError("the transaction took another turn while this waited for a connection")

    def _take(self, request: TransactionRequest, response: TransactionResponse) -> None:
        if request.api is ADD_PARTITIONS_TO_TXN:  # no leader reports it, since no record is sent before
            for topic_partition in request.partitions_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, response):
                self._metadata.request_update("partition_unknown", topic=topic_partition.topic)
        self.manager.answered(request, response, self._clock())
