"""What a transactional producer asks its coordinators, ready to be sent.

A request is asked until it has an answer that is no retry, always with the same content; who asks, and how often, is
the business of `TransactionManager` and of the shell.

What a transactional producer asks in the name of the identity that it has at the moment. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
from aioproducer._protocol.offset_messages import (
    TXN_OFFSET_COMMIT,
    decode_txn_offset_commit_response,
    encode_txn_offset_commit_request,
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
    encode_add_offsets_request,
    encode_add_partitions_request,
    encode_end_txn_request,
    encode_find_coordinator_request,
)
from aioproducer.errors import UnsupportedVersionError
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer._accumulator.partition_queue import PartitionQueue
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
TXN_OFFSET_COMMIT_V1: Final = 4
"""The last versions with the semantics of transactions V1."""

_FIRST_INIT_WITH_IDENTITY: Final = 3
_FIRST_COMMIT_WITH_MEMBER: Final = 3
"""Kafka 2.5 (KIP-360, KIP-447)."""


_FIRST_USED_UP_EPOCH: Final = 2**15 - 2
"""From this epoch on a coordinator that knows the identity answers another producer id, too."""


class Coordinator(NamedTuple):
    """Whose word counts: of the transactional id, or of a group."""

    kind: CoordinatorType
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRequest:
    """One request on its way."""

    api: Api
    coordinator: Coordinator
    """To whom it goes; FindCoordinator: who is asked for, by any broker."""
    body: Callable[[int], bytes]
    """Makes the body in the version agreed on; UnsupportedVersionError: it could not say there what it must."""
    decode: Callable[[int, memoryview], TransactionResponse]
    """Reads the answer, by version."""
    at_most: int | None = None
    """The last version that means what is meant."""
    subject: object = None
    """What it is about, for whoever made it."""

    def places_with(self, code: int, answer: TransactionResponse) -> list[TopicPartition]:
        """Return the partitions that were answered with a code; empty where a response has one code for all."""
        if not isinstance(answer, PartitionsResponse):
            return []
        return [place for place, each in zip(_places(self), codes_of(self, answer), strict=True) if each == code]


def find_coordinator(coordinator: Coordinator) -> TransactionRequest:
    """Ask any broker who the coordinator is."""
    return TransactionRequest(
        api=FIND_COORDINATOR,
        coordinator=coordinator,
        body=partial(_find_body, coordinator),
        decode=partial(decode_find_coordinator_response, key=coordinator.key),
    )


def init_producer_id(
    coordinator: Coordinator, *, timeout_ms: int, identity: TransactionIdentity | None, is_guarded: bool = False
) -> TransactionRequest:
    """Ask for an identity: a fresh one, which fences all before it, or the next epoch of `identity` (KIP-360).

    Args:
        coordinator: of the transactional id.
        timeout_ms: of transactions.
        identity: the present one; brokers before 2.5 are not told, and give a fresh one.
        is_guarded: they must not: the present one may be a successor's, who would be fenced.
    """
    return TransactionRequest(
        api=INIT_PRODUCER_ID,
        coordinator=coordinator,
        body=partial(_init_body, key=coordinator.key, timeout_ms=timeout_ms, identity=identity, is_guarded=is_guarded),
        decode=decode_init_producer_id_response,
        subject=identity,
    )


def describe_transaction(coordinator: Coordinator) -> TransactionRequest:
    """Ask what it knows of its transactional id; changes nothing there."""
    return TransactionRequest(
        api=DESCRIBE_TRANSACTIONS,
        coordinator=coordinator,
        body=lambda _: encode_describe_transactions_request([coordinator.key]),
        decode=lambda _, payload: decode_describe_transactions_response(payload, transactional_id=coordinator.key),
    )


def add_partitions(
    coordinator: Coordinator, identity: TransactionIdentity, partitions: Collection[TopicPartition]
) -> TransactionRequest:
    """Say which partitions the transaction writes to, before it does."""
    return TransactionRequest(
        api=ADD_PARTITIONS_TO_TXN,
        coordinator=coordinator,
        body=partial(encode_add_partitions_request, identity=identity, partitions=partitions),
        decode=decode_add_partitions_response,
        subject=partitions,
    )


def add_offsets(coordinator: Coordinator, identity: TransactionIdentity, offsets: OffsetsToSend) -> TransactionRequest:
    """Say that offsets of a group belong to the transaction."""
    return TransactionRequest(
        api=ADD_OFFSETS_TO_TXN,
        coordinator=coordinator,
        body=partial(encode_add_offsets_request, identity=identity, group_id=offsets.group.group_id),
        decode=decode_add_offsets_response,
        subject=offsets,
    )


def commit_offsets(identity: TransactionIdentity, offsets: OffsetsToSend, *, is_v2: bool) -> TransactionRequest:
    """Give offsets to the coordinator of their group, to become valid with the transaction."""
    return TransactionRequest(
        api=TXN_OFFSET_COMMIT,
        coordinator=offsets.coordinator,
        body=partial(_offsets_body, identity=identity, offsets=offsets),
        decode=decode_txn_offset_commit_response,
        at_most=None if is_v2 else TXN_OFFSET_COMMIT_V1,
        subject=offsets,
    )


def end_transaction(
    coordinator: Coordinator, identity: TransactionIdentity, *, is_commit: bool, is_v2: bool
) -> TransactionRequest:
    """Commit or abort."""
    return TransactionRequest(
        api=END_TXN,
        coordinator=coordinator,
        body=partial(encode_end_txn_request, identity=identity, is_commit=is_commit),
        decode=decode_end_txn_response,
        at_most=None if is_v2 else END_TXN_V1,
        subject=is_commit,
    )


class OffsetsToSend:
    """Offsets of one call of `send_offsets`, and how far they have come."""

    __slots__ = ("group", "is_added", "is_done", "offsets")

    def __init__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata) -> None:
        self.offsets = offsets
        self.group = group
        self.is_added = False
        """The coordinator knows that the transaction commits offsets of the group; V1 alone tells it before."""
        self.is_done = False

    @property
    def coordinator(self) -> Coordinator:
        """Of the group."""
        return Coordinator(CoordinatorType.GROUP, self.group.group_id)


def codes_of(request: TransactionRequest, answer: TransactionResponse) -> list[int]:
    """Return the codes of an answer: one, or one per partition; a partition that was left out counts as -1.

    A coordinator that does not know an identity answers InitProducerId with a new producer id and no error, also to a
    producer that was fenced (TransactionCoordinator.isValidProducerId). That counts as INVALID_PRODUCER_ID_MAPPING.
    """
    if isinstance(answer, ProducerIdResponse) and _is_new_identity(request, answer):
        return [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    if not isinstance(answer, PartitionsResponse):
        return [answer.error_code]
    found = {(result.topic, result.partition): result.error_code for result in answer.results}
    return [found.get(place, -1) for place in _places(request)]


def _is_new_identity(request: TransactionRequest, answer: ProducerIdResponse) -> bool:
    """Tell whether an identity was asked to be renewed, and another one was given."""
    asked = request.subject
    if answer.error_code or not isinstance(asked, TransactionIdentity):
        return False
    return answer.producer_id != asked.producer_id and asked.producer_epoch < _FIRST_USED_UP_EPOCH


def _places(request: TransactionRequest) -> Collection[TopicPartition]:
    places = request.subject.offsets if isinstance(request.subject, OffsetsToSend) else request.subject
    assert isinstance(places, Collection)
    return places


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


def _find_body(coordinator: Coordinator, version: int) -> bytes:
    return encode_find_coordinator_request(version, coordinator.key, coordinator.kind)


class TransactionRequests:
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
        # Decided now, not when the offsets were taken: V1 must still add a group that V2 left out.
        if is_v2 or offsets.is_added:
            return commit_offsets(self.identity, offsets, is_v2=is_v2)
        return add_offsets(self.coordinator, self.identity, offsets)

    def end(self, *, is_commit: bool, is_v2: bool) -> TransactionRequest:
        """Commit or abort."""
        return end_transaction(self.coordinator, self.identity, is_commit=is_commit, is_v2=is_v2)

    def __repr__(self) -> str:
        """Show whose they are."""
        return f"<SignedRequests {self.coordinator.key!r}>"
