"""The reasons why a batch or a record waits: decided only here, for errors, logs and `Producer.explain()`.

Records that wait for their serializers say so themselves: see `_producer/awaited_serializers.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer._accumulator.partition import Batch, BatchState, Partition
from aioproducer.errors import BrokerError
from aioproducer.explanation import ANSWERED, Waiting, WaitReason, Why

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer._accumulator.partition import Node
    from aioproducer._accumulator.producer_identity import ProducerIdentity
    from aioproducer._accumulator.record_accumulator import RecordAccumulator
    from aioproducer._accumulator.wait_queues import WaitQueues
    from aioproducer._accumulator.waiting_record import WaitingRecord
    from aioproducer._network.metadata_refresher import MetadataRefresher

# Looked up once: these are asked for each of ten thousand batches, and an enum's members are slow to find.
_OPEN, _QUEUED, _ON_WIRE = BatchState.OPEN, BatchState.QUEUED, BatchState.ON_WIRE
_WAITS_FOR_LINGER, _WAITS_FOR_RESPONSE = WaitReason.LINGER, WaitReason.RESPONSE
_tuple: Final = tuple.__new__

_LINGER: Final = Why(WaitReason.LINGER)  # its end follows from the batch
_COMPRESSION: Final = Why(WaitReason.COMPRESSION)
_READY: Final = Why(WaitReason.READY)
_HELD_FOR_ORDER: Final = Why(WaitReason.HELD_FOR_ORDER)
_TRANSACTION: Final = Why(WaitReason.TRANSACTION)


class WaitReasons:
    """The reasons of one moment; what concerns a node or the whole producer is looked at once."""

    def __init__(  # noqa: PLR0917  # each knows another reason
        self, accumulator: RecordAccumulator, identity: ProducerIdentity, metadata: MetadataRefresher, now: float
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._now = now
        self._blocks: dict[Node, Why | None] = {}
        self._no_id: Why | None = None
        if identity.is_missing:
            self._no_id = Why(WaitReason.PRODUCER_ID, detail=str(identity.last_error or "none has answered"))

    def of(self, batch: Batch) -> Why:
        partition, state = batch.partition, batch.state
        if state is _ON_WIRE:
            return Why(_WAITS_FOR_RESPONSE, batch.sent_at)
        if partition.leader is None:
            return self._no_leader()
        if self._no_id is not None and not batch.is_stamped:
            return self._no_id
        if state is not _QUEUED or batch.not_before > self._now:
            own = self._of_own(batch)
            if own is not None:
                return own
        return self._of_place(partition, batch, partition.leader)

    def in_words(self, batch: Batch) -> str:
        return self.of(batch).words(_id_of(batch.node if batch.state is BatchState.ON_WIRE else batch.partition.leader))

    def _of_own(self, batch: Batch) -> Why | None:
        """Return what the batch itself waits for, apart from its node and partition."""
        if batch.state is BatchState.SEALING:
            return _COMPRESSION
        if batch.not_before > self._now:
            return Why(WaitReason.BACK_OFF, batch.sent_at or None, batch.not_before, _last_attempt(batch))
        if batch.state is _OPEN and not batch.is_ready:
            return _LINGER
        return None

    def _of_place(self, partition: Partition, batch: Batch, leader: Node) -> Why:
        if leader not in self._blocks:
            self._blocks[leader] = leader.connection.blocked
        block = self._blocks[leader]
        if block is not None and block.reason is not WaitReason.IN_FLIGHT_FULL:
            return block
        why = block or _READY
        # Not `first_sendable`: it may look at all batches of the partition, and is asked for each of them.
        if (
            partition.identity.is_changing
            or (partition.queued[0] if partition.queued else partition.open_batch) is not batch
        ):
            why = _HELD_FOR_ORDER
        elif not partition.identity.is_send_allowed:
            why = _TRANSACTION
        # A window above 1 has as many batches as its node has requests: then it is the node that is waited for.
        elif partition.on_wire and partition.window(partition.on_wire[-1].connection_number, self._now) == 1:
            why = _HELD_FOR_ORDER
        return why if batch.last_error is None else why._replace(detail=_last_attempt(batch))

    def _no_leader(self) -> Why:
        return Why(WaitReason.NO_LEADER, detail=str(self._metadata.last_error or "as far as metadata says"))

    # All that waits

    def batches(self, topic: str | None) -> Iterator[Waiting]:
        """Yield the batches of one topic or all, in one pass."""
        for partition in self._accumulator.partitions.in_use():
            if topic is not None and partition.topic_partition.topic != topic:
                continue
            for batch in partition.on_wire:
                if not batch.is_abandoned:  # else its callers were given its error
                    yield self._waiting(partition, batch)
            for batch in partition.queued:
                yield self._waiting(partition, batch)
            if partition.open_batch is not None:
                yield self._waiting(partition, partition.open_batch)

    def _waiting(self, partition: Partition, batch: Batch) -> Waiting:
        now, (reason, since, until, detail) = self._now, self.of(batch)
        if reason is _WAITS_FOR_LINGER:
            until = batch.called_at + batch.options.ready_age_s
        topic, number = partition.topic_partition
        age_s = now - batch.called_at
        return _tuple(  # as Waiting(...), whose call takes as long as all of the above
            Waiting,
            (
                topic,
                number,
                _id_of(batch.node if reason is _WAITS_FOR_RESPONSE else partition.leader),
                batch.callers,
                batch.size,
                batch.attempts_before + batch.attempts,
                reason,
                detail,
                age_s,
                age_s if since is None else now - since,
                None if until is None else until - now,
                min(batch.options.delivery_timeout_s - age_s, batch.first_deadline - now),
            ),
        )

    def records(self, wait_queues: WaitQueues, topic: str | None) -> Iterator[Waiting]:
        """Yield the records of one topic or all that are in no batch yet."""
        for record, reason, detail in wait_queues.waiting():
            if topic in {None, record.topic}:
                yield self._waiting_record(record, reason, detail, wait_queues.timeout_of(record)[0])

    def _waiting_record(  # noqa: PLR0917  # what its queue knows
        self, record: WaitingRecord, reason: WaitReason, detail: str, max_block_s: float
    ) -> Waiting:
        age_s, partition = self._now - record.called_at, record.partition
        until = record.called_at + max_block_s
        if record.deadline is not None:
            until = min(until, record.deadline.at)
        return Waiting(
            record.topic,
            partition,
            None,
            1,
            record.size,
            0,
            reason,
            detail,
            age_s,
            self._now - record.since,
            None,
            until - self._now,
        )


def _id_of(node: Node | None) -> int | None:
    return None if node is None else node.id


def _last_attempt(batch: Batch) -> str:
    error = batch.last_error
    if error is None:
        return ""
    return f"{ANSWERED}{error}" if isinstance(error, BrokerError) else f"the last attempt failed: {error}"
