"""What a transactional producer asks in the name of the identity that it has at the moment. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.core.transaction_requests import (
    Coordinator,
    OffsetsToSend,
    TransactionRequest,
    add_offsets,
    add_partitions,
    commit_offsets,
    describe_transaction,
    end_transaction,
    init_producer_id,
)
from aioproducer.protocol.transaction_messages import CoordinatorType, TransactionIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.core.partition_queue import PartitionQueue
    from aioproducer.core.transaction_identity import TransactionalIdentity


class SignedRequests:
    """The requests of one transactional id; each is made anew whenever it is to be asked.

    Args:
        transactional_id: its name.
        timeout_ms: of transactions.
        identity: the present one, whichever that is.
    """

    __slots__ = ("_identity", "_timeout_ms", "coordinator")

    def __init__(self, transactional_id: str, *, timeout_ms: int, identity: TransactionalIdentity) -> None:
        self.coordinator = Coordinator(CoordinatorType.TRANSACTION, transactional_id)
        """Of the transactional id."""
        self._timeout_ms = timeout_ms
        self._identity = identity

    @property
    def identity(self) -> TransactionIdentity:
        """Who asks."""
        assert self._identity.producer_id is not None
        return TransactionIdentity(self.coordinator.key, self._identity.producer_id, self._identity.first_epoch)

    def describe(self) -> TransactionRequest:
        """What the coordinator knows of the transactional id, whoever has it."""
        return describe_transaction(self.coordinator)

    def init(self, *, is_guarded: bool) -> TransactionRequest:
        """The first identity, or the next epoch of the present one; `is_guarded`: as `init_producer_id` has it."""
        identity = None if self._identity.producer_id is None else self.identity
        return init_producer_id(self.coordinator, timeout_ms=self._timeout_ms, identity=identity, is_guarded=is_guarded)

    def add(self, queues: Iterable[PartitionQueue]) -> TransactionRequest:
        """That the transaction writes to these partitions."""
        places = {queue.topic_partition: queue for queue in queues}
        return add_partitions(self.coordinator, self.identity, places.keys())

    def send_offsets(self, offsets: OffsetsToSend, *, is_v2: bool) -> TransactionRequest:
        """The next step of committing offsets with the transaction."""
        if is_v2 or offsets.is_added:
            return commit_offsets(self.identity, offsets, is_v2=is_v2)
        return add_offsets(self.coordinator, self.identity, offsets)

    def end(self, *, is_commit: bool, is_v2: bool) -> TransactionRequest:
        """Commit or abort."""
        return end_transaction(self.coordinator, self.identity, is_commit=is_commit, is_v2=is_v2)

    def __repr__(self) -> str:
        """Show whose they are."""
        return f"<SignedRequests {self.coordinator.key!r}>"
