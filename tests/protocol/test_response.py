"""What every response reports: how long to pause, and its error codes, at any place in it."""

import pytest

from aioproducer._protocol.messages import MetadataResponse, ProducerIdResponse, TopicView
from aioproducer._protocol.offset_messages import FetchedOffset, OffsetsResponse
from aioproducer._protocol.partition_views import Partitions
from aioproducer._protocol.primitives import Response
from aioproducer._protocol.produce import PartitionResponse, ProduceResponse
from aioproducer._protocol.transaction_admin_messages import (
    MarkersResponse,
    PartitionProducers,
    ProducersResponse,
    TransactionDescription,
    TransactionsResponse,
)
from aioproducer._protocol.transaction_messages import (
    CodeResponse,
    CoordinatorResponse,
    EndTxnResponse,
    PartitionResult,
    PartitionsResponse,
)

NONE = Partitions.undescribed(0)
ODD = 35
PAUSE_MS = 7
ID = bytes(16)


def refused_partition(partition: int, code: int) -> PartitionResponse:
    return PartitionResponse("t", None, partition, code, -1, -1, -1, (), None, -1, -1)


ANSWERS: tuple[Response, ...] = (
    MetadataResponse(1, (), (), error_code=ODD, throttle_time_ms=PAUSE_MS),
    MetadataResponse(
        1, (), (TopicView("a", bytes(16), NONE), TopicView("t", bytes(16), NONE, ODD)), throttle_time_ms=PAUSE_MS
    ),
    ProducerIdResponse(PAUSE_MS, ODD, -1, -1),
    ProduceResponse(PAUSE_MS, [refused_partition(0, 0), refused_partition(1, ODD)], {}),
    CoordinatorResponse(PAUSE_MS, ODD, -1, "", -1),
    PartitionsResponse(PAUSE_MS, [PartitionResult("t", 0, 0), PartitionResult("t", 1, ODD)]),
    CodeResponse(PAUSE_MS, ODD),
    EndTxnResponse(PAUSE_MS, ODD),
    OffsetsResponse(PAUSE_MS, ODD, []),
    OffsetsResponse(PAUSE_MS, 0, [FetchedOffset("t", 0, 5, "", 0), FetchedOffset("t", 1, -1, "", ODD)]),
    TransactionsResponse(ODD, [], [], PAUSE_MS),
    TransactionDescription(ODD, "id", "", 0, -1, -1, -1, [], PAUSE_MS),
    ProducersResponse(PAUSE_MS, [PartitionProducers("t", 0, ODD, [])]),
    MarkersResponse([0, ODD], PAUSE_MS),
)


@pytest.mark.parametrize(
    "answer", ANSWERS, ids=[f"{number}-{type(each).__name__}" for number, each in enumerate(ANSWERS)]
)
def test_answer_reports_its_pause_and_each_of_its_codes(answer: Response) -> None:
    assert answer.throttle_time_ms == PAUSE_MS
    assert ODD in answer.error_codes
