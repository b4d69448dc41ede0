"""GetTelemetrySubscriptions 0 and PushTelemetry 0: what a client shall push, and what it has pushed.

Source: ClientMetricsManager in Apache Kafka.
"""

from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.client_metrics import ClientInstance, PushedMetrics
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.wire import codes

if TYPE_CHECKING:
    from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
    from kio.schema.push_telemetry.v0.request import PushTelemetryRequest

_NEWEST_CODEC = 4


def answer_get_telemetry_subscriptions(exchange: Exchange) -> None:
    request = cast("GetTelemetrySubscriptionsRequest", exchange.request())
    known = exchange.cluster.client_metrics
    instance_id = request.client_instance_id or known.new_id()
    instance = known.instance(exchange.broker.node_id, instance_id)
    error = exchange.injected_error()
    if not error and not instance.may_ask(exchange.now):
        error = codes.THROTTLING_QUOTA_EXCEEDED
    if error:
        exchange.reply_tree({"error_code": error}, exchange.now)
        return
    wanted = instance.subscription
    exchange.reply_tree(
        {
            "error_code": 0,
            "client_instance_id": instance_id,
            "subscription_id": wanted.id_for(instance_id),
            "accepted_compression_types": wanted.compression_types,
            "push_interval": round(wanted.interval_s * 1000),
            "telemetry_max_bytes": wanted.max_bytes,
            "delta_temporality": wanted.is_delta,
            "requested_metrics": wanted.prefixes,
        },
        exchange.now,
    )


def answer_push_telemetry(exchange: Exchange) -> None:
    request = cast("PushTelemetryRequest", exchange.request())
    instance_id, known = request.client_instance_id, exchange.cluster.client_metrics
    if instance_id is None:
        exchange.reply_tree({"error_code": codes.INVALID_REQUEST}, exchange.now)
        return
    instance = known.instance(exchange.broker.node_id, instance_id)
    error = exchange.injected_error() or _error(instance, request, exchange.now)
    instance.has_ended = request.terminating
    if not error and request.metrics:
        known.pushes.append(
            PushedMetrics(
                instance_id,
                exchange.header.client_id,
                exchange.broker.node_id,
                exchange.now,
                request.terminating,
                request.compression_type,
                bytes(request.metrics),
            )
        )
    exchange.reply_tree({"error_code": error}, exchange.now)


def _error(instance: ClientInstance, request: "PushTelemetryRequest", now: float) -> int:
    instance_id = request.client_instance_id
    assert instance_id is not None, "it was checked"
    if instance.has_ended:
        return codes.INVALID_REQUEST
    if not instance.may_push(now) and not request.terminating:
        return codes.THROTTLING_QUOTA_EXCEEDED
    if request.subscription_id != instance.subscription.id_for(instance_id):
        return codes.UNKNOWN_SUBSCRIPTION_ID
    if not 0 <= request.compression_type <= _NEWEST_CODEC:
        return codes.UNSUPPORTED_COMPRESSION_TYPE
    return codes.TELEMETRY_TOO_LARGE if len(request.metrics) > instance.subscription.max_bytes else 0
