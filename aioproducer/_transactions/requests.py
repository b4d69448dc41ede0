"""Requests of a transactional producer to its coordinators, ready to be sent.

A request is repeated with the same content until its response is not one to retry; `TransactionManager` decides when
and how often. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import (
    INIT_PRODUCER_ID,
    Api,
    ProducerIdResponse,
    decode_init_producer_id_response,
    encode_init_producer_id_request,
)
from aioproducer._protocol.transaction_admin_messages import (
    DESCRIBE_TRANSACTIONS,
    TransactionDescription,
    decode_describe_transactions_response,
    encode_describe_transactions_request,
)
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    TXN_OFFSET_COMMIT,
    CodeResponse,
    CoordinatorResponse,
    CoordinatorType,
    EndTxnResponse,
    PartitionsResponse,
    TransactionIdentity,
    decode_add_offsets_response,
    decode_add_partitions_response,
    decode_end_txn_response,
    decode_find_coordinator_response,
    decode_txn_offset_commit_response,
    encode_add_offsets_request,
    encode_add_partitions_request,
    encode_end_txn_request,
    encode_find_coordinator_request,
    encode_txn_offset_commit_request,
)
from aioproducer.errors import UnsupportedVersionError
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aioproducer._accumulator.partition import Partition
    from aioproducer._transactions.identity import TransactionalIdentity


TransactionResponse: TypeAlias = (
    CoordinatorResponse
    | ProducerIdResponse
    | PartitionsResponse
    | CodeResponse
    | EndTxnResponse
    | TransactionDescription
)

END_TXN_V1: Final = 4
TXN_OFFSET_COMMIT_V1: Final = 4  # last versions with the semantics of transactions V1
_FIRST_INIT_WITH_IDENTITY: Final = 3
_FIRST_COMMIT_WITH_MEMBER: Final = 3  # Kafka 2.5 (KIP-360, KIP-447)


_FIRST_USED_UP_EPOCH: Final = 2**15 - 2
"""From this epoch on, a coordinator that knows the identity gives another producer id, too."""


class Coordinator(NamedTuple):
    """Coordinator of a transactional id or of a group."""

    kind: CoordinatorType
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRequest:
    api: Api
    coordinator: Coordinator  # recipient; FindCoordinator: the coordinator looked for, sent to any broker
    body: Callable[[int], bytes]
    """Encodes the body in a version; raises UnsupportedVersionError if the version lacks a field it needs."""
    decode: Callable[[int, memoryview], TransactionResponse]
    at_most: int | None = None  # last version with the wanted semantics
    subject: object = None  # partitions, offsets, identity or `is_commit`, by `api`

    def partitions_with(self, code: int, response: TransactionResponse) -> list[TopicPartition]:
        """Return the partitions that were answered with a code; empty if the response has one code for all."""
        if not isinstance(response, PartitionsResponse):
            return []
        return [
            topic_partition
            for topic_partition, each in zip(_partitions_of(self), codes_of(self, response), strict=True)
            if each == code
        ]


def find_coordinator(coordinator: Coordinator) -> TransactionRequest:
    return TransactionRequest(
        api=FIND_COORDINATOR,
        coordinator=coordinator,
        body=lambda version: encode_find_coordinator_request(version, coordinator.key, coordinator.kind),
        decode=partial(decode_find_coordinator_response, key=coordinator.key),
    )


class OffsetsToSend:
    """Offsets of one call of `send_offsets`, and their progress."""

    __slots__ = ("group", "is_added", "is_done", "offsets")

    def __init__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata) -> None:
        self.offsets = offsets
        self.group = group
        self.is_added = False  # the transaction's coordinator knows the group (V1)
        self.is_done = False

    @property
    def coordinator(self) -> Coordinator:
        return Coordinator(CoordinatorType.GROUP, self.group.group_id)


def codes_of(request: TransactionRequest, response: TransactionResponse) -> list[int]:
    """Return the codes of a response: one, or one per partition; -1 for a partition that was left out.

    A coordinator that does not know an identity answers InitProducerId with a new producer id and no error, also to a
    producer that was fenced (TransactionCoordinator.isValidProducerId). That counts as INVALID_PRODUCER_ID_MAPPING.
    """
    if isinstance(response, ProducerIdResponse) and _is_new_identity(request, response):
        return [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    if not isinstance(response, PartitionsResponse):
        return [response.error_code]
    found = {(result.topic, result.partition): result.error_code for result in response.results}
    return [found.get(topic_partition, -1) for topic_partition in _partitions_of(request)]


def _is_new_identity(request: TransactionRequest, response: ProducerIdResponse) -> bool:
    """Whether another identity was given instead of the next epoch."""
    asked = request.subject
    if response.error_code or not isinstance(asked, TransactionIdentity):
        return False
    return response.producer_id != asked.producer_id and asked.producer_epoch < _FIRST_USED_UP_EPOCH


def _partitions_of(request: TransactionRequest) -> Collection[TopicPartition]:
    partitions = request.subject.offsets if isinstance(request.subject, OffsetsToSend) else request.subject
    assert isinstance(partitions, Collection)
    return partitions


def _init_body(
    version: int, *, key: str, timeout_ms: int, identity: TransactionIdentity | None, is_guarded: bool
) -> bytes:
    # Encoded without the identity this would ask for a fresh one, and fence a successor.
    if is_guarded and version < _FIRST_INIT_WITH_IDENTITY:
        text = "the coordinator is older than Kafka 2.5: it cannot say whether an identity is still this producer's"
        raise UnsupportedVersionError(text)
    return encode_init_producer_id_request(
        version,
        transactional_id=key,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1 if identity is None else identity.producer_id,
        producer_epoch=-1 if identity is None else identity.producer_epoch,
    )


def _offsets_body(version: int, *, identity: TransactionIdentity, offsets: OffsetsToSend) -> bytes:
    group = offsets.group
    # Encoded without the member this would commit offsets of partitions that the consumer has lost.
    if group != ConsumerGroupMetadata(group.group_id) and version < _FIRST_COMMIT_WITH_MEMBER:
        text = (
            f"the coordinator of group {group.group_id!r} is older than Kafka 2.5: it cannot tell whether a member "
            "still has its partitions; give the group's id alone only where no other consumer can have them"
        )
        raise UnsupportedVersionError(text)
    return encode_txn_offset_commit_request(version, identity=identity, member=group, offsets=offsets.offsets)


class TransactionRequests:
    """Makes the requests of one transactional id, with its current identity."""

    __slots__ = ("_identity", "_timeout_ms", "coordinator")

    def __init__(self, transactional_id: str, *, timeout_ms: int, identity: TransactionalIdentity) -> None:
        self.coordinator = Coordinator(CoordinatorType.TRANSACTION, transactional_id)
        self._timeout_ms = timeout_ms
        self._identity = identity

    @property
    def identity(self) -> TransactionIdentity:
        assert self._identity.producer_id is not None
        return TransactionIdentity(self.coordinator.key, self._identity.producer_id, self._identity.first_epoch)

    def describe(self) -> TransactionRequest:
        key = self.coordinator.key
        return TransactionRequest(
            api=DESCRIBE_TRANSACTIONS,
            coordinator=self.coordinator,
            body=lambda _: encode_describe_transactions_request([key]),
            decode=lambda _, payload: decode_describe_transactions_response(payload, transactional_id=key),
        )

    def init(self, *, is_guarded: bool) -> TransactionRequest:
        """Ask for the first identity, or the next epoch of the current one; only for that one if `is_guarded`."""
        identity = None if self._identity.producer_id is None else self.identity
        key, timeout_ms = self.coordinator.key, self._timeout_ms
        return TransactionRequest(
            api=INIT_PRODUCER_ID,
            coordinator=self.coordinator,
            body=partial(_init_body, key=key, timeout_ms=timeout_ms, identity=identity, is_guarded=is_guarded),
            decode=decode_init_producer_id_response,
            subject=identity,
        )

    def add(self, partitions: Iterable[Partition]) -> TransactionRequest:
        added = dict.fromkeys(partition.topic_partition for partition in partitions).keys()
        return TransactionRequest(
            api=ADD_PARTITIONS_TO_TXN,
            coordinator=self.coordinator,
            body=partial(encode_add_partitions_request, identity=self.identity, partitions=added),
            decode=decode_add_partitions_response,
            subject=added,
        )

    def send_offsets(self, offsets: OffsetsToSend, *, is_v2: bool) -> TransactionRequest:
        # Decided now, not when the offsets were taken: V1 must still add a group that V2 left out.
        return self.commit_offsets(offsets, is_v2=is_v2) if is_v2 or offsets.is_added else self.add_offsets(offsets)

    def add_offsets(self, offsets: OffsetsToSend) -> TransactionRequest:
        return TransactionRequest(
            api=ADD_OFFSETS_TO_TXN,
            coordinator=self.coordinator,
            body=partial(encode_add_offsets_request, identity=self.identity, group_id=offsets.group.group_id),
            decode=decode_add_offsets_response,
            subject=offsets,
        )

    def commit_offsets(self, offsets: OffsetsToSend, *, is_v2: bool) -> TransactionRequest:
        """Send offsets to the coordinator of their group; they become valid with the transaction."""
        return TransactionRequest(
            api=TXN_OFFSET_COMMIT,
            coordinator=offsets.coordinator,
            body=partial(_offsets_body, identity=self.identity, offsets=offsets),
            decode=decode_txn_offset_commit_response,
            at_most=None if is_v2 else TXN_OFFSET_COMMIT_V1,
            subject=offsets,
        )

    def end(self, *, is_commit: bool, is_v2: bool) -> TransactionRequest:
        return TransactionRequest(
            api=END_TXN,
            coordinator=self.coordinator,
            body=partial(encode_end_txn_request, identity=self.identity, is_commit=is_commit),
            decode=decode_end_txn_response,
            at_most=None if is_v2 else END_TXN_V1,
            subject=is_commit,
        )
