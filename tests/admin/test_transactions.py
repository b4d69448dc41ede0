"""Answers of coordinators are about the id that was asked for; which open transactions hang is decided without I/O."""

import struct
from typing import TypeVar, cast

import pytest

from aioproducer._admin.cluster_requests import AdminRequest, ClusterRequests
from aioproducer._admin.transactions import Transactions, hanging, idle_transactions
from aioproducer._network.network_client import RawResponse
from aioproducer._protocol.primitives import NO_TAGGED_FIELDS, array_length, string
from aioproducer._protocol.transaction_admin_messages import ActiveProducer, PartitionProducers, TransactionDescription
from aioproducer.errors import ProtocolError

AnswerT = TypeVar("AnswerT")

NO_PAUSE = struct.pack(">i", 0)
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class CoordinatorSaying:
    """Stands for the questions to a cluster whose coordinator answers each with the same bytes."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    async def to_coordinator(self, transactional_id: str, request: AdminRequest[AnswerT]) -> AnswerT:
        del transactional_id
        answer = request.decode(RawResponse(1, 0, memoryview(self._payload)))
        request.check(answer)
        return answer


def description_of(transactional_id: str) -> bytes:
    fields = [
        NO_PAUSE,
        array_length(1, flexible=True),
        struct.pack(">h", 0),
        string(transactional_id, flexible=True),
        string("Ongoing", flexible=True),
        struct.pack(">iqqh", 60_000, 1_700_000_000_000, 4000, 3),
        array_length(0, flexible=True),
        NO_TAGGED_FIELDS,
        NO_TAGGED_FIELDS,
    ]
    return b"".join(fields)


async def test_description_is_of_the_id_that_was_asked_about() -> None:
    """Another's would have its producer and its partitions shown, and an abort take its end for that of this one."""
    transactions = Transactions(cast("ClusterRequests", CoordinatorSaying(description_of("orders"))))

    assert (await transactions.described("orders")).producer_id == 4000
    with pytest.raises(ProtocolError, match="says nothing of 'payments'"):
        await transactions.described("payments")


# Transactions that hang


def producer(producer_id: int, *, first_offset: int = 5, idle_ms: int = HOUR_MS) -> ActiveProducer:
    """One that wrote last some time ago."""
    return ActiveProducer(producer_id, 0, 9, NOW_MS - idle_ms, -1, first_offset)


def description(transactional_id: str, producer_id: int, *places: tuple[str, int]) -> TransactionDescription:
    return TransactionDescription(0, transactional_id, "Ongoing", 60_000, NOW_MS, producer_id, 0, list(places))


def candidates(*producers: ActiveProducer) -> list[object]:
    found = idle_transactions([PartitionProducers("t", 0, 0, list(producers))], now_ms=NOW_MS, for_longer_than_s=900)
    return [each.producer.producer_id for each in found]


def test_candidates_are_open_and_old() -> None:
    """Not those that wrote just now, nor those without a transaction."""
    assert candidates(producer(1), producer(2, idle_ms=1_000), producer(3, first_offset=-1)) == [1]


def test_those_no_coordinator_knows_of_hang() -> None:
    """The id is gone, belongs to a newer producer, or its transaction does not have the partition."""
    partitions = [PartitionProducers("t", 0, 0, [producer(1), producer(2), producer(3), producer(4)])]
    found = list(idle_transactions(partitions, now_ms=NOW_MS, for_longer_than_s=900))

    left = hanging(
        found,
        transactional_ids={2: "known", 3: "elsewhere"},
        descriptions=[description("known", 2, ("t", 0)), description("elsewhere", 3, ("t", 1), ("u", 0))],
    )

    assert [each.producer.producer_id for each in left] == [1, 3, 4]


def test_a_newer_identity_of_the_id_does_not_vouch_for_the_old() -> None:
    """Its transaction has the partition, and is another one."""
    found = list(idle_transactions([PartitionProducers("t", 0, 0, [producer(1)])], now_ms=NOW_MS, for_longer_than_s=1))

    left = hanging(found, transactional_ids={2: "a"}, descriptions=[description("a", 2, ("t", 0))])

    assert [each.producer.producer_id for each in left] == [1]
