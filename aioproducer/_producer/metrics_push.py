"""Pushes metrics to a broker, as the subscriptions of the cluster's operators say.

subscribe -> wait 0.5 to 1.5 intervals -> push -> wait an interval -> push ...
a refused push, or a lost connection -> subscribe again

One broker gets all pushes while it can be reached. Nothing that happens here affects records: every error ends in a
pause, or in no further push.

Source: ClientTelemetryReporter in Apache Kafka (KIP-714). Where it differs: Kafka's client pushes nothing more once a
connection was lost during a request, and loses the differences of a push that a broker refused.
"""

from __future__ import annotations

import asyncio
import base64
import math
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._protocol.compression import CompressionType, compress
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.telemetry_messages import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    NO_INSTANCE_ID,
    PUSH_TELEMETRY,
    SubscriptionsResponse,
    decode_get_telemetry_subscriptions_response,
    decode_push_telemetry_response,
    encode_get_telemetry_subscriptions_request,
    encode_push_telemetry_request,
)
from aioproducer._threads.calls import run_in_thread
from aioproducer.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproducer._logs import EventLog
    from aioproducer._network.metadata_refresher import MetadataRefresher
    from aioproducer._network.network_client import NetworkClient
    from aioproducer._network.requests import PendingCalls
    from aioproducer._producer.otlp import Encoded, Readings
    from aioproducer._timing.retry_backoff import RandomSource
    from aioproducer.metrics import Metric

DEFAULT_INTERVAL_S: Final = 300.0
SHORTEST_PAUSE_S: Final = 0.1  # brokers accept no shorter interval, and none may make this client ask without end
LAST_PUSH_S: Final = 1.0  # how long a close waits for the response to the last push

_NS_PER_MS: Final = 1_000_000
_AT_ONCE: Final = frozenset((ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))
_NEXT_TIME: Final = frozenset((ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED))


def pause_after(code: int, interval_s: float) -> float:
    """Return the seconds after a refusal until the next question for subscriptions; infinite if it would not help."""
    if code in _AT_ONCE:
        return SHORTEST_PAUSE_S
    return interval_s if code in _NEXT_TIME else math.inf


class Subscription(NamedTuple):
    """The metrics that a broker wants, and how often."""

    node_id: int
    id: int
    compression: CompressionType
    interval_s: float
    max_bytes: int
    is_delta: bool
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, response: SubscriptionsResponse) -> Subscription:
        known = [CompressionType(each) for each in response.compression_types if each in set(CompressionType)]
        interval_s = response.push_interval_ms / 1000 if response.push_interval_ms > 0 else DEFAULT_INTERVAL_S
        return cls(
            response.from_node,
            response.subscription_id,
            known[0] if known else CompressionType.NONE,
            max(interval_s, SHORTEST_PAUSE_S),
            response.max_bytes,
            response.is_delta,
            response.prefixes,
        )


class MetricsPush:
    """Owns the subscription; `run` is its task.

    Args:
        read: returns the current metrics; called in a thread.
        clock: milliseconds since 1970.
    """

    def __init__(  # noqa: PLR0913  # what is pushed, where to, and when
        self,
        client: NetworkClient,
        metadata: MetadataRefresher,
        read: Callable[[], list[Metric]],
        *,
        resource: Mapping[str, str],
        clock: Callable[[], int],
        random: RandomSource,
        log: EventLog,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._read = read
        self._resource = resource
        self._random = random
        self._log = log
        self._clock = clock
        self._started_ns = clock() * _NS_PER_MS
        self._instance_id = NO_INSTANCE_ID
        self._trouble = "no broker has answered yet"  # why there is no instance id
        self._subscription: Subscription | None = None  # None: to be asked for
        self._readings: Readings = {}  # of the last push
        self._is_settled = asyncio.Event()  # `instance_id` is known, or there will be none
        self._is_ending = False
        self._is_size_logged = False

    @property
    def instance_id(self) -> str:
        """The id that a broker has given to this client, as Kafka's tools show it."""
        return base64.urlsafe_b64encode(self._instance_id).rstrip(b"=").decode()

    async def known_instance_id(self, calls: PendingCalls, timeout_s: float) -> str:
        """Return the instance id once there is one.

        Raises:
            TimeoutError: there is none in time, or there will be none; with the reason.
        """
        try:
            async with calls.within(timeout_s):
                await self._is_settled.wait()
        except TimeoutError:
            text = f"no broker has given this client an instance id within {timeout_s:g} s: {self._trouble}"
            raise TimeoutError(text) from None
        if self._instance_id == NO_INSTANCE_ID:
            raise TimeoutError(f"this client gets no instance id, since its metrics push has ended: {self._trouble}")
        return self.instance_id

    async def run(self) -> None:
        while not self._is_ending:
            pause_s = await self._step()
            if pause_s == math.inf:
                break
            await asyncio.sleep(pause_s)
        await asyncio.Event().wait()  # a task of the producer does not end

    async def finish(self, *, within_s: float) -> None:
        """Push once more, unless nothing is subscribed to; the producer closes."""
        self._is_ending = True
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            async with asyncio.timeout(min(LAST_PUSH_S, within_s)):
                await self._push(subscription, is_last=True)
        except Exception as error:  # noqa: BLE001  # as in `_step`
            self._log.debug("metrics_push_failed", reason=f"{type(error).__name__}: {error}")

    async def _step(self) -> float:
        """Send the next request; returns the seconds until the one after it."""
        try:
            if self._subscription is None:
                return await self._subscribe()
            return await self._push(self._subscription)
        except KafkaError as error:
            # Also of brokers without these requests: another one may have them later.
            self._log.debug("metrics_push_failed", reason=str(error))
            self._trouble = str(error)
            pause_s = DEFAULT_INTERVAL_S if self._subscription is None else self._subscription.interval_s
            self._subscription = None
            return pause_s
        except Exception as error:  # noqa: BLE001  # metrics must not end the producer
            self._subscription = None
            return self._end(f"{type(error).__name__}: {error}")

    async def _subscribe(self) -> float:
        if not self._metadata.refreshes:  # a node must be known by its id, to be asked again
            await self._metadata.first_response(DEFAULT_INTERVAL_S)
        response = await self._client.request(
            GET_TELEMETRY_SUBSCRIPTIONS,
            lambda _version: encode_get_telemetry_subscriptions_request(self._instance_id),
            lambda reply: decode_get_telemetry_subscriptions_response(reply.payload, from_node=reply.node_id),
        )
        if response.error_code:
            return self._refused(response.error_code, DEFAULT_INTERVAL_S)
        if self._instance_id == NO_INSTANCE_ID:
            if response.instance_id == NO_INSTANCE_ID:
                return self._end("the broker gave this client no instance id")
            self._instance_id = response.instance_id
            self._log.info("metrics_push_begun", client_instance_id=self.instance_id)
            self._is_settled.set()
        subscription = Subscription.of(response)
        if not subscription.prefixes:
            return subscription.interval_s
        self._subscription = subscription
        return subscription.interval_s * self._random.uniform(0.5, 1.5)  # producers that start together spread out

    async def _push(self, subscription: Subscription, *, is_last: bool = False) -> float:
        compression, payload, readings = await run_in_thread(
            partial(self._payload, subscription), "aioproducer-metrics-push"
        )
        if self._is_ending and not is_last:
            return math.inf
        # Before the response: if it never comes, the differences may be lost, but none is counted twice.
        before, self._readings = self._readings, readings
        body = encode_push_telemetry_request(
            instance_id=self._instance_id,
            subscription_id=subscription.id,
            is_last=is_last,
            compression_type=compression,
            metrics=payload,
        )
        response = await self._client.request(
            PUSH_TELEMETRY,
            lambda _version: body,
            lambda reply: decode_push_telemetry_response(reply.payload),
            node_id=subscription.node_id,
        )
        if not response.error_code:
            return subscription.interval_s
        self._readings = before
        self._subscription = None
        if response.error_code == ErrorCode.TELEMETRY_TOO_LARGE and not self._is_size_logged:
            self._is_size_logged = True
            self._log.warning("metrics_too_large", size=len(payload), allowed=subscription.max_bytes)
        return self._refused(response.error_code, subscription.interval_s)

    def _payload(self, subscription: Subscription) -> tuple[CompressionType, bytes, Readings]:
        from aioproducer._producer.otlp import MetricsEncoder  # noqa: PLC0415  # of an extra, and slow to import

        encoded: Encoded = MetricsEncoder(self._started_ns, self._resource).encode(
            self._read(),
            self._clock() * _NS_PER_MS,
            prefixes=subscription.prefixes,
            is_delta=subscription.is_delta,
            before=self._readings,
        )
        return subscription.compression, compress(subscription.compression, None, encoded.data), encoded.readings

    def _refused(self, code: int, interval_s: float) -> float:
        reason = ErrorCode.in_words(code)
        pause_s = pause_after(code, interval_s)
        if pause_s == math.inf:
            return self._end(f"a broker refused: {reason}")
        self._trouble = f"a broker refused: {reason}"
        self._log.debug("metrics_push_failed", reason=self._trouble)
        return pause_s

    def _end(self, reason: str) -> float:
        """Push no more."""
        self._trouble = reason
        self._is_settled.set()
        self._log.warning("metrics_push_ended", reason=reason)
        return math.inf
