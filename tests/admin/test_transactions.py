"""What coordinators say of transactional ids is believed of the id that was asked about."""

import struct
from typing import TypeVar, cast

import pytest

from aioproducer._admin.cluster_requests import AdminRequest, ClusterRequests
from aioproducer._admin.transactions import Transactions
from aioproducer._network.response_future import RawResponse
from aioproducer._protocol.primitives import NO_TAGGED_FIELDS, array_length, string
from aioproducer.errors import ProtocolError

AnswerT = TypeVar("AnswerT")

NO_PAUSE = struct.pack(">i", 0)


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
