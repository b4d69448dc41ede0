"""Records that wait for their serializers' awaitables, in the order of their calls.

Source: Serializer in Apache Kafka, which may block its caller instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from typing import TYPE_CHECKING

from aioproducer.errors import KafkaError, Outcome, SerializationError
from aioproducer.records import normalize_headers
from aioproducer.serializers import PendingAwaitable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer._native.delivery import Delivery
    from aioproducer._native.record_pipeline import RecordArguments, RecordPipeline

    Refused = Callable[[str, int | None, object, Exception], None]


class UnfinishedRecord:
    """A record whose serializers, or those of an earlier record of its topic, are awaited.

    Args:
        pipeline: appends it.
        arguments: those of `append_bytes`.
        refused: notifies the interceptors of its failure.
    """

    def __init__(self, pipeline: RecordPipeline, arguments: tuple[object, ...], refused: Refused) -> None:
        self.topic = str(arguments[0])
        self._pipeline = pipeline
        self._arguments = arguments
        self._refused = refused
        self._context = contextvars.copy_context()
        self._before = pipeline.serializing.get(self.topic)
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pipeline.serializing[self.topic] = self._end

    async def finish(self, timeout_s: float, bound: str, check: Callable[[], object]) -> Delivery | RecordArguments:
        """Wait for the serializers and the records before it, and append it.

        Args:
            timeout_s: limit of the wait.
            bound: the option or argument that it comes from, with its value.
            check: raises if no records are taken any more.

        Raises:
            SerializationError: a serializer failed, or the time is over.
        """
        try:
            await self._serialize(timeout_s, bound)
            check()
            return self._context.run(self._pipeline.append_bytes, *self._arguments)  # type: ignore[arg-type]
        finally:
            self._leave()

    async def _serialize(self, timeout_s: float, bound: str) -> None:
        topic, value, key, partition, timestamp, headers, on_delivery, key_bytes, value_bytes = self._arguments
        pending = [part for part in (key_bytes, value_bytes) if isinstance(part, PendingAwaitable)]
        try:
            async with asyncio.timeout(timeout_s):
                key_bytes, value_bytes = await _finished(key_bytes), await _finished(value_bytes)
                if isinstance(self._before, asyncio.Future):
                    await asyncio.wait([self._before])  # unlike an await of it, does not cancel it
            if isinstance(headers, list):
                headers = normalize_headers(headers)
        except TimeoutError as error:
            late = self._late(bound)
            self._notify(late)
            raise late from error
        except asyncio.CancelledError:
            text = f"the record for topic {topic!r} was withdrawn: its caller was cancelled while it was serialized"
            self._notify(KafkaError(text, topic=self.topic, outcome=Outcome.NOT_WRITTEN))
            raise
        except Exception as error:
            self._notify(error)
            raise
        finally:
            for part in pending:
                part.close()
        self._arguments = (topic, value, key, partition, timestamp, headers, on_delivery, key_bytes, value_bytes)

    def _late(self, bound: str) -> SerializationError:
        text = f"the record for topic {self.topic!r} was not serialized within {bound}"
        return SerializationError(text, topic=self.topic, outcome=Outcome.NOT_WRITTEN)

    def _notify(self, error: Exception) -> None:
        partition, headers = self._arguments[3], self._arguments[5]
        self._context.run(self._refused, self.topic, partition, headers, error)  # type: ignore[arg-type]

    def _leave(self, _: object = None) -> None:
        """Let the next record of the topic go on, once those before this one have ended."""
        if self._end.done():
            return
        before = self._before
        if isinstance(before, asyncio.Future) and not before.done():
            before.add_done_callback(_Leaving(self._pipeline, self.topic, self._end))
            return
        _Leaving(self._pipeline, self.topic, self._end)()

    def __del__(self) -> None:
        """Do not hold up others, if the coroutine of the call was never awaited."""
        with contextlib.suppress(RuntimeError):  # its event loop is closed
            self._leave()


class _Leaving:
    """Ends the turn of a record, which may be gone by then."""

    def __init__(self, pipeline: RecordPipeline, topic: str, end: asyncio.Future[None]) -> None:
        self._pipeline = pipeline
        self._topic = topic
        self._end = end

    def __call__(self, _: object = None) -> None:
        if self._pipeline.serializing.get(self._topic) is self._end:
            del self._pipeline.serializing[self._topic]
        if not self._end.done():
            self._end.set_result(None)


async def _finished(part: object) -> object:
    return await part.finish() if isinstance(part, PendingAwaitable) else part
