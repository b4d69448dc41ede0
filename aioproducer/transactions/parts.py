"""Wires what a producer with a transactional id has besides the others' parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.core.transaction_identity import TransactionalIdentity
from aioproducer.core.transaction_manager import TransactionManager
from aioproducer.transactions.coordinators import Coordinators
from aioproducer.transactions.fine_time import FineTime
from aioproducer.transactions.records import TransactionRecords
from aioproducer.transactions.runner import TransactionRunner

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.core.producer_identity import ProducerIdentity
    from aioproducer.core.retry_backoff import ExponentialBackoff
    from aioproducer.errors import KafkaError
    from aioproducer.logs import EventLog
    from aioproducer.network.metadata_refresher import MetadataRefresher
    from aioproducer.network.network_client import NetworkClient


__all__ = ["TransactionParts", "TransactionRecords"]


class TransactionParts:
    """What transactions are made of, apart from the records.

    Args:
        config: checked.
        backoff: between attempts.
        client: asks brokers.
        metadata: knows them.
        loop: for the time.
        log: bound to the client id.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        backoff: ExponentialBackoff,
        client: NetworkClient,
        metadata: MetadataRefresher,
        loop: asyncio.AbstractEventLoop,
        log: EventLog,
    ) -> None:
        self._config = config
        self._backoff = backoff
        self._client = client
        self._metadata = metadata
        self._loop = loop
        self._log = log

    def runner(
        self, identity: ProducerIdentity, records: TransactionRecords, *, on_fatal: Callable[[KafkaError], None]
    ) -> TransactionRunner | None:
        """Return what carries transactions out; None without a transactional id."""
        config = self._config
        if not isinstance(identity, TransactionalIdentity) or config.transactional_id is None:
            return None
        time = FineTime(self._loop)
        manager = TransactionManager(
            config.transactional_id,
            timeout_ms=config.transaction_timeout_ms,
            identity=identity,
            backoff=self._backoff,
            stray_delay_s=config.request_timeout_ms / 1000,
            grain_s=time.grain_s,
        )
        coordinators = Coordinators(self._client, self._metadata, manager, clock=time.now, log=self._log)
        max_block_s = config.max_block_ms / 1000
        return TransactionRunner(
            coordinators, records, time=time, max_block_s=max_block_s, on_fatal=on_fatal, log=self._log
        )
