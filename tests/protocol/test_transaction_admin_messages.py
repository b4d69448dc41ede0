"""Messages that describe transactions and committed offsets, compared with Kafka's own descriptions."""

import datetime as dt
from functools import partial
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from aioproducer._protocol.transaction_admin_messages import (
    ActiveProducer,
    ListedTransaction,
    PartitionProducers,
    TransactionDescription,
    TransactionMarker,
    TransactionsResponse,
    decode_all_descriptions,
    decode_describe_producers_response,
    decode_describe_transactions_response,
    decode_list_transactions_response,
    decode_write_txn_markers_response,
    encode_describe_producers_request,
    encode_describe_transactions_request,
    encode_list_transactions_request,
    encode_write_txn_markers_request,
)
from aioproducer._protocol.transaction_messages import (
    FetchedOffset,
    OffsetsResponse,
    decode_offset_fetch_response,
    encode_offset_fetch_request,
)
from aioproducer.errors import ProtocolError
from tests.testing.kio_classes import module_of, read, written

PARTITIONS = [("a", 0), ("b", 7), ("a", 2)]
NO_TIME = dt.timedelta(0)


def test_offset_fetch_request() -> None:
    data = encode_offset_fetch_request("g", PARTITIONS, require_stable=True)

    entity = read(module_of("offset_fetch", 7, "request").OffsetFetchRequest, data)

    assert (entity.group_id, entity.require_stable) == ("g", True)
    assert [(topic.name, topic.partition_indexes) for topic in entity.topics] == [("a", (0, 2)), ("b", (7,))]


def test_offset_fetch_answer() -> None:
    made = module_of("offset_fetch", 7, "response")
    partition = made.OffsetFetchResponsePartition
    topics = (
        made.OffsetFetchResponseTopic(
            name="a",
            partitions=(
                partition(partition_index=0, committed_offset=5, metadata="m", error_code=ErrorCode.none),
                partition(partition_index=2, committed_offset=-1, metadata=None, error_code=ErrorCode.none),
            ),
        ),
        made.OffsetFetchResponseTopic(
            name="b",
            partitions=(
                partition(
                    partition_index=7, committed_offset=-1, metadata="", error_code=ErrorCode.unstable_offset_commit
                ),
            ),
        ),
    )
    data = written(made.OffsetFetchResponse(throttle_time=NO_TIME, topics=topics, error_code=ErrorCode.none))

    answer = decode_offset_fetch_response(data)

    offsets = [FetchedOffset("a", 0, 5, "m", 0), FetchedOffset("a", 2, -1, "", 0), FetchedOffset("b", 7, -1, "", 88)]
    assert answer == OffsetsResponse(0, 0, offsets)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("pattern", [None, "sink.*"])
def test_list_transactions_request(version: int, pattern: str | None) -> None:
    data = encode_list_transactions_request(version, states=["Ongoing"], producer_ids=[4000], pattern=pattern)

    entity = read(module_of("list_transactions", version, "request").ListTransactionsRequest, data)

    assert (entity.state_filters, entity.producer_id_filters) == (("Ongoing",), (4000,))
    if version >= 1:
        assert entity.duration_filter in {-1, dt.timedelta(milliseconds=-1)}
    if version >= 2:
        assert entity.transactional_id_pattern == pattern


@pytest.mark.parametrize("version", [0, 1, 2])
def test_list_transactions_answer(version: int) -> None:
    made = module_of("list_transactions", version, "response")
    state = made.TransactionState(transactional_id="t-1", producer_id=4000, transaction_state="Ongoing")
    data = written(
        made.ListTransactionsResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            unknown_state_filters=("Odd",),
            transaction_states=(state,),
        )
    )

    answer = decode_list_transactions_response(version, data)

    assert answer == TransactionsResponse(0, ["Odd"], [ListedTransaction("t-1", 4000, "Ongoing")])


def described_state(transactional_id: str, *topics: object) -> object:
    return module_of("describe_transactions", 0, "response").TransactionState(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state="Ongoing",
        transaction_timeout=dt.timedelta(seconds=60),
        transaction_start_time=dt.datetime.fromtimestamp(1_700_000_000, dt.UTC),
        producer_id=4000,
        producer_epoch=3,
        topics=topics,
    )


def test_describe_transactions_request() -> None:
    data = encode_describe_transactions_request(["t-1", "t-2"])

    entity = read(module_of("describe_transactions", 0, "request").DescribeTransactionsRequest, data)

    assert entity.transactional_ids == ("t-1", "t-2")


def test_describe_transactions_answer() -> None:
    made = module_of("describe_transactions", 0, "response")
    topics = (made.TopicData(topic="a", partitions=(0, 2)), made.TopicData(topic="b", partitions=(7,)))
    states = (described_state("t-1"), described_state("t-2", *topics))
    answer = written(
        made.DescribeTransactionsResponse(throttle_time=dt.timedelta(milliseconds=70), transaction_states=states)
    )

    described = decode_describe_transactions_response(answer, transactional_id="t-2")

    assert described == TransactionDescription(
        0, "t-2", "Ongoing", 60_000, 1_700_000_000_000, 4000, 3, [("a", 0), ("a", 2), ("b", 7)], throttle_time_ms=70
    )
    everything = decode_all_descriptions(answer)
    assert [each.transactional_id for each in everything.transactions] == ["t-1", "t-2"]
    assert (everything.throttle_time_ms, everything.error_codes) == (70, [0, 0])
    with pytest.raises(ProtocolError, match="says nothing of 't-3'"):
        decode_describe_transactions_response(answer, transactional_id="t-3")


def test_describe_producers() -> None:
    data = encode_describe_producers_request(PARTITIONS)
    made = module_of("describe_producers", 0, "response")
    of_producer = {"producer_id": 4000, "producer_epoch": 3, "last_sequence": 9, "last_timestamp": 1_700_000_000_000}
    producer = made.ProducerState(**of_producer, coordinator_epoch=2, current_txn_start_offset=17)
    partition = made.PartitionResponse
    partitions = (
        partition(partition_index=0, error_code=ErrorCode.none, error_message=None, active_producers=(producer,)),
        partition(
            partition_index=2, error_code=ErrorCode.not_leader_or_follower, error_message="no", active_producers=()
        ),
    )
    topics = (made.TopicResponse(name="a", partitions=partitions),)

    found = decode_describe_producers_response(
        written(made.DescribeProducersResponse(throttle_time=NO_TIME, topics=topics))
    )

    entity = read(module_of("describe_producers", 0, "request").DescribeProducersRequest, data)
    assert [(topic.name, topic.partition_indexes) for topic in entity.topics] == [("a", (0, 2)), ("b", (7,))]
    assert found.partitions == [
        PartitionProducers("a", 0, 0, [ActiveProducer(4000, 3, 9, 1_700_000_000_000, 2, 17)]),
        PartitionProducers("a", 2, 6, []),
    ]


def test_write_txn_markers() -> None:
    data = encode_write_txn_markers_request(TransactionMarker(4000, 3, 2, "a", 5))
    made = module_of("write_txn_markers", 1, "response")
    partition = made.WritableTxnMarkerPartitionResult(partition_index=5, error_code=ErrorCode.invalid_producer_epoch)
    topic = made.WritableTxnMarkerTopicResult(name="a", partitions=(partition,))
    answer = made.WriteTxnMarkersResponse(markers=(made.WritableTxnMarkerResult(producer_id=4000, topics=(topic,)),))

    markers = decode_write_txn_markers_response(written(answer))

    (marker,) = read(module_of("write_txn_markers", 1, "request").WriteTxnMarkersRequest, data).markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (4000, 3, False)
    assert (marker.coordinator_epoch, marker.topics[0].name, marker.topics[0].partition_indexes) == (2, "a", (5,))
    assert markers.error_codes == [47]


def test_marker_that_no_partition_has_answered_is_not_written() -> None:
    made = module_of("write_txn_markers", 1, "response")

    with pytest.raises(ProtocolError, match="nothing of any partition"):
        decode_write_txn_markers_response(written(made.WriteTxnMarkersResponse(markers=())))


@pytest.mark.parametrize(
    "decode",
    [
        decode_offset_fetch_response,
        lambda data: decode_list_transactions_response(1, data),
        partial(decode_describe_transactions_response, transactional_id="t-1"),
        decode_all_descriptions,
        decode_describe_producers_response,
        decode_write_txn_markers_response,
    ],
)
@pytest.mark.parametrize("data", [b"", b"\x05", b"\x00" * 4 + b"\xff\xff\xff\x7f", b"\x05" * 60])
def test_invalid_admin_answer_is_refused(decode: Any, data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"cannot be read|too many"):
        decode(data)
