"""Records whose serializers are awaited, and the order in which they are appended.

Each waits for its own serializers, and then for the earlier records of its topic: `RecordPipeline.serializing` has the
end of the last one. `_native/record_pipeline.pyx` sends later records of that topic here too, while one waits.

Source: Serializer of Apache Kafka, which may block its caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from typing import TYPE_CHECKING, Final, cast

from aioproducer.errors import KafkaError, Outcome, SerializationError
from aioproducer.explanation import Waiting, WaitReason
from aioproducer.records import normalize_headers
from aioproducer.serializers import PendingAwaitable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer._native.delivery import Delivery
    from aioproducer._native.record_pipeline import RecordArguments, RecordPipeline

    Refused = Callable[[str, int | None, object, Exception], None]


_PARTITION: Final = 3  # places among the arguments of `append_bytes`
_HEADERS: Final = 5
_ON_DELIVERY: Final = 6


class UnfinishedRecord:
    """A record whose serializers, or those of an earlier record of its topic, are awaited.

    Args:
        arguments: those of `append_bytes`.
        refused: notifies the interceptors of its failure.
        waiting: where it is while its call waits, in the order of the waits.
    """

    def __init__(  # noqa: PLR0917  # where it comes from, and where it goes
        self,
        pipeline: RecordPipeline,
        arguments: tuple[object, ...],
        refused: Refused,
        waiting: dict[UnfinishedRecord, None],
    ) -> None:
        self.topic = str(arguments[0])
        self._pipeline = pipeline
        self._arguments = arguments
        self._refused = refused
        self._waiting = waiting
        self._waits_for = ""
        self._error: KafkaError | None = None  # given to `fail`
        self._context = contextvars.copy_context()
        self._before = pipeline.serializing.get(self.topic)
        loop = asyncio.get_running_loop()
        self._called_at = loop.time()
        self._end: asyncio.Future[None] = loop.create_future()
        pipeline.serializing[self.topic] = self._end

    async def finish(self, timeout_s: float, bound: str, check: Callable[[], object]) -> Delivery | RecordArguments:
        """Wait for the serializers and the records before it, and append it.

        Args:
            timeout_s: limit of the wait.
            bound: where the limit comes from, for the error.
            check: raises if no records are taken any more. Called at first only: what begins to end later, such as the
                producer or a transaction, waits for this record, or fails it.

        Raises:
            SerializationError: a serializer failed, or the time is over.
        """
        try:
            await self._serialize(timeout_s, bound, check)
            return self._append()
        finally:
            self._leave()

    async def _serialize(self, timeout_s: float, bound: str, check: Callable[[], object]) -> None:
        pending = [part for part in self._arguments if isinstance(part, PendingAwaitable)]
        try:
            check()
            await self._wait(timeout_s)
            self._normalize_headers()
        except TimeoutError as error:
            text = f"the record for topic {self.topic!r} was not serialized within {bound}"
            late = self._error or SerializationError(text, topic=self.topic, outcome=Outcome.NOT_WRITTEN)
            self._notify(late)
            raise late from (error if self._error is None else None)  # `fail` has ended the wait
        except asyncio.CancelledError:
            text = (
                f"the record for topic {self.topic!r} was withdrawn: its caller was cancelled while it was serialized"
            )
            self._notify(KafkaError(text, topic=self.topic, outcome=Outcome.NOT_WRITTEN))
            raise
        except Exception as error:
            self._notify(error)
            raise
        finally:
            self._waiting.pop(self, None)
            for part in pending:
                part.close()

    async def _wait(self, timeout_s: float) -> None:
        *others, key_bytes, value_bytes = self._arguments
        async with asyncio.timeout(timeout_s) as self._timeout:
            self._waiting[self] = None
            self._arguments = (*others, await self._finished(key_bytes), await self._finished(value_bytes))
            if isinstance(self._before, asyncio.Future):
                self._waits_for = "an earlier record of the topic comes first"
                await asyncio.wait([self._before])  # unlike an await of it, does not cancel it
        if self._error is not None:  # `fail` was called in the turn in which the wait has ended
            raise self._error

    def _append(self) -> Delivery | RecordArguments:
        """Append, also while the producer or the transaction ends: the record was accepted before that began."""
        appender = self._pipeline.appender
        was_closed, appender.closed = appender.closed, False
        try:
            return self._context.run(self._pipeline.append_bytes, *self._arguments)  # type: ignore[arg-type]
        finally:
            appender.closed = appender.closed or was_closed  # the append may have failed the producer

    def _normalize_headers(self) -> None:
        headers = self._arguments[_HEADERS]
        if isinstance(headers, list):  # a serializer has added to them
            before, behind = self._arguments[:_HEADERS], self._arguments[_HEADERS + 1 :]
            self._arguments = (*before, normalize_headers(headers), *behind)

    async def _finished(self, part: object) -> object:
        if not isinstance(part, PendingAwaitable):
            return part
        self._waits_for = f"{part.name} has not finished"
        return await part.finish()

    @property
    def _partition(self) -> int | None:
        return cast("int | None", self._arguments[_PARTITION])

    def explained(self, now: float) -> Waiting:
        """Return why its call waits; for a record in `waiting`."""
        age_s, until = now - self._called_at, self._timeout.when()
        return Waiting(
            self.topic,
            self._partition,
            None,
            1,
            0,
            0,
            WaitReason.SERIALIZER,
            self._waits_for,
            age_s,
            age_s,
            None,
            0.0 if until is None else until - now,
        )

    def fail(self, error: KafkaError) -> None:
        """End the wait with an error; for a record in `waiting`, which it leaves at once."""
        self._waiting.pop(self, None)
        self._error = error.with_details(
            topic=self.topic, partition=self._partition, outcome=Outcome.NOT_WRITTEN, attempts=0
        )
        if not self._timeout.expired():
            self._timeout.reschedule(self._called_at)  # which is over

    def _notify(self, error: Exception) -> None:
        self._context.run(self._refused, self.topic, self._partition, self._arguments[_ON_DELIVERY], error)

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
