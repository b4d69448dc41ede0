"""The messages of KIP-714, compared with Kafka's own descriptions."""

import datetime as dt
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from aioproducer._protocol.telemetry_messages import (
    NO_INSTANCE_ID,
    PushResponse,
    SubscriptionsResponse,
    decode_get_telemetry_subscriptions_response,
    decode_push_telemetry_response,
    encode_get_telemetry_subscriptions_request,
    encode_push_telemetry_request,
)
from aioproducer.errors import ProtocolError
from tests.testing.kio_classes import module_of, read, written

INSTANCE_ID = uuid.UUID(int=2**127 + 7)


def subscriptions(**changed: object) -> bytes:
    fields: dict[str, object] = {
        "throttle_time": dt.timedelta(milliseconds=9),
        "error_code": ErrorCode.none,
        "client_instance_id": INSTANCE_ID,
        "subscription_id": -5,
        "accepted_compression_types": (4, 3, 1, 2),
        "push_interval": dt.timedelta(milliseconds=2**31 - 1),
        "telemetry_max_bytes": 1_048_576,
        "delta_temporality": True,
        "requested_metrics": ("org.apache.kafka.producer.", ""),
    }
    return written(
        module_of("get_telemetry_subscriptions", 0, "response").GetTelemetrySubscriptionsResponse(**fields | changed)
    )


@pytest.mark.parametrize("instance_id, read_as", [(NO_INSTANCE_ID, None), (INSTANCE_ID.bytes, INSTANCE_ID)])
def test_question_has_the_instance_id(instance_id: bytes, read_as: uuid.UUID | None) -> None:
    kind = module_of("get_telemetry_subscriptions", 0, "request").GetTelemetrySubscriptionsRequest
    entity = read(kind, encode_get_telemetry_subscriptions_request(instance_id))

    assert entity.client_instance_id == read_as


def test_subscriptions() -> None:
    found = decode_get_telemetry_subscriptions_response(subscriptions(), from_node=3)

    assert found == SubscriptionsResponse(
        3,
        9,
        0,
        INSTANCE_ID.bytes,
        -5,
        (4, 3, 1, 2),
        2**31 - 1,
        1_048_576,
        True,
        ("org.apache.kafka.producer.", ""),
    )


def test_subscriptions_to_nothing() -> None:
    data = subscriptions(requested_metrics=(), accepted_compression_types=(), client_instance_id=None)
    found = decode_get_telemetry_subscriptions_response(data, from_node=3)

    assert (found.prefixes, found.compression_types, found.instance_id) == ((), (), NO_INSTANCE_ID)
    assert list(found.error_codes) == [found.error_code]


@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_push(size: int) -> None:
    data = encode_push_telemetry_request(
        instance_id=INSTANCE_ID.bytes, subscription_id=-5, is_last=True, compression_type=4, metrics=bytes(size)
    )
    entity = read(module_of("push_telemetry", 0, "request").PushTelemetryRequest, data)

    assert (entity.client_instance_id, entity.subscription_id) == (INSTANCE_ID, -5)
    assert (entity.terminating, entity.compression_type, entity.metrics) == (True, 4, bytes(size))


def test_answer_to_a_push() -> None:
    kind = module_of("push_telemetry", 0, "response").PushTelemetryResponse
    data = written(kind(throttle_time=dt.timedelta(milliseconds=9), error_code=ErrorCode.telemetry_too_large))

    assert decode_push_telemetry_response(data) == PushResponse(9, 118)
    assert list(decode_push_telemetry_response(data).error_codes) == [118]


@given(st.integers(0, 60), st.integers(0, 255))
def test_damaged_subscriptions_are_protocol_errors_or_read(place: int, value: int) -> None:
    data = bytearray(subscriptions())
    data[place % len(data)] = value
    for damaged in (bytes(data), bytes(data[:place])):
        try:
            found = decode_get_telemetry_subscriptions_response(damaged, from_node=1)
        except ProtocolError:
            continue
        assert len(found.prefixes) <= len(damaged)


@pytest.mark.parametrize("size", range(7))
def test_answer_to_a_push_that_is_cut_short_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="PushTelemetry v0"):
        decode_push_telemetry_response(bytes(size))
