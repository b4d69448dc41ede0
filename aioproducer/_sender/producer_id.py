"""Fetches the producer id in the background when idempotent records wait for one.

A new cluster refuses InitProducerId with COORDINATOR_LOAD_IN_PROGRESS for about a second, so the fetcher asks
again, with backoff, until it gets an id or a permanent refusal. If the permission is missing (brokers before 2.8 need
IdempotentWrite on the cluster), the waiting records fail and the fetcher asks again, since permissions may be granted
while the program runs.

Source: TransactionManager.InitProducerIdHandler, Sender.shouldHandleAuthorizationError in Apache Kafka (KIP-98).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import (
    INIT_PRODUCER_ID,
    ProducerIdResponse,
    decode_init_producer_id_response,
    encode_init_producer_id_request,
)
from aioproducer.errors import BrokerError, KafkaError, Outcome, UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer._accumulator.producer_identity import ProducerIdentity
    from aioproducer._logs import EventLog
    from aioproducer._network.network_client import NetworkClient, RawResponse
    from aioproducer._timing.retry_backoff import ExponentialBackoff


class ProducerIdFetcher:
    """Fetches producer ids for the identity.

    `on_assigned` is called when waiting partitions may continue, `on_refused` with the error of the waiting records.
    """

    def __init__(
        self,
        client: NetworkClient,
        identity: ProducerIdentity,
        backoff: ExponentialBackoff,
        *,
        on_assigned: Callable[[], None],
        on_refused: Callable[[KafkaError], None],
        log: EventLog,
    ) -> None:
        self._client = client
        self._identity = identity
        self._backoff = backoff
        self._on_assigned = on_assigned
        self._on_refused = on_refused
        self._log = log
        self._wanted = asyncio.Event()
        self._warned_of: int | None = None  # the code that the last warning has named

    def ask(self) -> None:
        """Fetch an id soon, unless a fetch is under way."""
        self._wanted.set()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            attempts = 0
            while self._identity.is_missing and not await self._fetch():
                await asyncio.sleep(self._backoff.delay_s(attempts))
                attempts += 1
            self._wanted.clear()

    async def _fetch(self) -> bool:
        try:
            response = await self._client.request(INIT_PRODUCER_ID, encode_init_producer_id_request, _read)
        except UnsupportedVersionError:
            raise
        except KafkaError as error:
            self._identity.last_error = error
            self._log.debug("producer_id_not_fetched", reason=str(error))
            return False
        return self._take(response)

    def _take(self, response: ProducerIdResponse) -> bool:
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE and response.producer_id >= 0 and response.producer_epoch >= 0:
            self._identity.assign(response.producer_id, response.producer_epoch)
            self._warned_of = None
            self._log.info("producer_id_assigned", producer_id=response.producer_id, epoch=response.producer_epoch)
            self._on_assigned()
            return True
        if code is not None and code.fatal:
            text = f"no producer id: {ErrorCode.in_words(code)}; grant it, or set enable_idempotence=False"
            error = BrokerError.of(response.error_code, text, outcome=Outcome.NOT_WRITTEN)
            if code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise error
            self._on_refused(error)
        self._note_refusal(response)
        return False

    def _note_refusal(self, response: ProducerIdResponse) -> None:
        """Keep the refusal for the errors of records, and log it.

        The second refusal with the same code is a warning, once: a new cluster refuses the first request or two.
        """
        code, before = response.error_code, self._identity.last_error
        reason = ErrorCode.in_words(code) if code else f"the invalid id {response.producer_id}"
        self._identity.last_error = BrokerError.of(code, f"InitProducerId was answered with {reason}", retriable=True)
        write = self._log.debug
        if isinstance(before, BrokerError) and before.code == code != self._warned_of:
            self._warned_of, write = code, self._log.warning
        write("producer_id_refused", code=code, reason=reason)


def _read(response: RawResponse) -> ProducerIdResponse:
    return decode_init_producer_id_response(response.version, response.payload)
