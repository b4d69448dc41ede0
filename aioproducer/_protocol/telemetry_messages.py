"""Requests with which brokers get a client's metrics.

    GetTelemetrySubscriptions  0   which metrics a broker wants, how often, and the client's instance id
    PushTelemetry              0   the metrics

Both are flexible versions. Only brokers with a plug-in that takes metrics list them.

Source: the JSON descriptions of the messages in Apache Kafka 4.3; KIP-714.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from functools import partial
from typing import Final, NamedTuple

from aioproducer._protocol.messages import Api
from aioproducer._protocol.primitives import NO_TAGGED_FIELDS, ResponseReader, bytes_length, decode

GET_TELEMETRY_SUBSCRIPTIONS: Final = Api(71, "GetTelemetrySubscriptions", 0, 0, 0, since="3.7")
PUSH_TELEMETRY: Final = Api(72, "PushTelemetry", 0, 0, 0, since="3.7")

NO_INSTANCE_ID: Final = bytes(16)  # asks the broker for an id

_PUSH = struct.Struct(">16si?b")  # instance id, subscription id, whether it is the last push, compression


class SubscriptionsResponse(NamedTuple):
    """The metrics that a broker wants of this client."""

    from_node: int  # broker that sent it
    throttle_time_ms: int
    error_code: int
    instance_id: bytes  # 16 bytes
    subscription_id: int
    compression_types: tuple[int, ...]  # that the broker accepts, its favourite first
    push_interval_ms: int
    max_bytes: int  # of the metrics in one push, compressed
    is_delta: bool  # whether counters are since the last push, rather than since the start
    prefixes: tuple[str, ...]  # of the wanted metrics' names

    @property
    def error_codes(self) -> Collection[int]:
        return (self.error_code,)


class PushResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int

    @property
    def error_codes(self) -> Collection[int]:
        return (self.error_code,)


def encode_get_telemetry_subscriptions_request(instance_id: bytes) -> bytes:
    """Ask for the subscriptions of a client; `NO_INSTANCE_ID` before the broker has given it an id."""
    return instance_id + NO_TAGGED_FIELDS


def decode_get_telemetry_subscriptions_response(
    payload: bytes | memoryview, *, from_node: int
) -> SubscriptionsResponse:
    read = partial(_subscriptions, from_node=from_node)
    return decode("GetTelemetrySubscriptions v0", payload, flexible=True, read=read)


def encode_push_telemetry_request(
    *, instance_id: bytes, subscription_id: int, is_last: bool, compression_type: int, metrics: bytes
) -> bytes:
    """Push metrics.

    Args:
        is_last: the client ends after this push; the broker takes it at once.
        metrics: `MetricsData` of OpenTelemetry's protocol, compressed.
    """
    fields = _PUSH.pack(instance_id, subscription_id, is_last, compression_type)
    return b"".join((fields, bytes_length(len(metrics), flexible=True), metrics, NO_TAGGED_FIELDS))


def decode_push_telemetry_response(payload: bytes | memoryview) -> PushResponse:
    return decode("PushTelemetry v0", payload, flexible=True, read=_pushed)


def _subscriptions(reader: ResponseReader, from_node: int) -> SubscriptionsResponse:
    response = SubscriptionsResponse(
        from_node,
        throttle_time_ms=reader.int32(),
        error_code=reader.int16(),
        instance_id=reader.take(16),
        subscription_id=reader.int32(),
        compression_types=tuple(reader.take(reader.array_length())),
        push_interval_ms=reader.int32(),
        max_bytes=reader.int32(),
        is_delta=reader.boolean(),
        prefixes=tuple(reader.string() or "" for _ in range(reader.array_length())),
    )
    reader.skip_tagged_fields()
    return response


def _pushed(reader: ResponseReader) -> PushResponse:
    response = PushResponse(reader.int32(), reader.int16())
    reader.skip_tagged_fields()
    return response
