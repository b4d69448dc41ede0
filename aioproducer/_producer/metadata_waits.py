"""Waits for metadata, and the reason why a topic is still unknown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.errors import BrokerError, KafkaError, Outcome

if TYPE_CHECKING:
    from aioproducer._network.metadata_refresher import MetadataRefresher


class MetadataWaits:
    """Tasks that wait for the next metadata response."""

    def __init__(self, metadata: MetadataRefresher, loop: asyncio.AbstractEventLoop) -> None:
        self._metadata = metadata
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], None] = {}

    def ask_for_partitions(self, topic: str) -> None:
        self._metadata.add_topic(topic, self._loop.time())
        self._metadata.request_update("partition_unknown")

    async def next_response(self, deadline: float) -> bool:
        """Wait for the next metadata response; return False if `deadline` (monotonic seconds) comes first.

        Raises:
            AuthenticationError: every broker refuses this client.
        """
        answered = self._loop.create_future()
        self._waiting[answered] = None
        try:
            async with asyncio.timeout_at(deadline):
                await answered
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(answered, None)  # a cancelled waiter: the next response may take long
        return True

    def wake_all(self) -> None:
        """Wake all waiters: a response has come, or none ever will."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def fail_all(self, error: KafkaError) -> None:
        """Raise an error in all waiters: every broker refuses this client."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_exception(error.fresh())

    def topic_refusal(self, topic: str) -> BrokerError | None:
        """Return the error of a topic that brokers refuse to describe for good."""
        code = self._metadata.topic_refusal(topic)
        if code is None:
            return None
        text = f"topic {topic!r}: {ErrorCode.in_words(code)}"
        return BrokerError.of(int(code), text, topic=topic, outcome=Outcome.NOT_WRITTEN)

    def topic_trouble(self, topic: str) -> KafkaError | None:
        """Return the reason why a topic is still unknown; None if no broker has answered about it yet."""
        trouble, throttle_s = self._last_trouble(topic), self._metadata.throttle_left_s()
        if not throttle_s:
            return trouble
        text = f"brokers throttle this client, and are not asked for another {throttle_s:.1f} s"
        return KafkaError(text if trouble is None else f"{trouble}; {text}", topic=topic, last_broker_error=trouble)

    def _last_trouble(self, topic: str) -> KafkaError | None:
        if self._metadata.last_error is not None:
            return self._metadata.last_error
        code = self._metadata.topic_error(topic)
        if code == ErrorCode.NONE:
            missing = self._metadata.missing()
            return KafkaError(missing, topic=topic) if missing else None
        return BrokerError.of(code, f"brokers answer {ErrorCode.in_words(code)}", retriable=True, topic=topic)

    def __repr__(self) -> str:
        return f"<MetadataWaits {len(self._waiting)}>"
