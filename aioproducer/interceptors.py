"""Interceptors: the user's own code around every record, and the chain that calls it.

An interceptor sees a record before it is serialized, and learns what became of it. It can change
or drop a record; it can never break one: what it raises is logged once and skipped.

Source: org.apache.kafka.clients.producer.internals.ProducerInterceptors.
"""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from typing import Protocol

from aioproducer.errors import Outcome, RecordFilteredError
from aioproducer.records import Headers, ProducerRecord, RecordMetadata, TopicPartition

_METHODS = ("on_send", "on_acknowledgement", "on_error", "close")


class ProducerInterceptor:
    """Base class: every method does nothing. Override what is of interest.

    The methods run on the event loop, in the order of the records: they must be quick and must
    not be `async`.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Return the record to send: this one, a changed copy, or `None` to drop it.

        Called once a record, before serializers and partitioner. A dropped record's caller gets
        `RecordFilteredError`, and so do the interceptors before this one; later ones do not see it.

        Args:
            record: as the caller gave it; make a changed copy with `dataclasses.replace`.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        """Take note that a record is delivered.

        Args:
            metadata: where it is.
            headers: as they were sent.
        """

    def on_error(self, topic_partition: TopicPartition, error: Exception, headers: Headers) -> None:
        """Take note that a record failed, at the call or later.

        Args:
            topic_partition: where it was going; partition -1 when none was chosen yet.
            error: what the caller gets; a `KafkaError` from the broker's side has `outcome`.
            headers: as they were, or would have been, sent.
        """

    def close(self) -> None:
        """Release what the interceptor holds; called once, when the producer has closed."""


class WarningLog(Protocol):
    """The one method of a structlog logger that the chain uses."""

    def warning(self, event: str, **fields: object) -> object:
        """Write one event with its fields."""
        ...


class InterceptorChain:
    """Calls interceptors in order, and keeps their failures from everybody else.

    Args:
        interceptors: in the order in which they see a record.
        log: gets one event for the first failure of each method of each interceptor.
    """

    def __init__(self, interceptors: Sequence[ProducerInterceptor], log: WarningLog) -> None:
        self._interceptors = tuple(interceptors)
        self._log = log
        self._logged: set[tuple[int, str]] = set()  # (place in the chain, method)
        self._failures = 0

    def __len__(self) -> int:
        return len(self._interceptors)

    def __repr__(self) -> str:
        names = ", ".join(type(each).__name__ for each in self._interceptors)
        return f"InterceptorChain([{names}], failures={self._failures})"

    @property
    def failures(self) -> int:
        """How often an interceptor raised, or returned what is no record."""
        return self._failures

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Pass the record through the chain.

        Returns:
            The record to send, or `None` if an interceptor dropped it. A failing interceptor
            counts as if it had returned the record it was given.
        """
        current = record
        for place, interceptor in enumerate(self._interceptors):
            try:
                answer = _checked_record(interceptor.on_send(current))
            except (Exception, CancelledError) as error:  # noqa: BLE001  # the user's own code, whatever it raises
                self._note_failure(place, "on_send", error)
                continue
            if answer is None:
                self._tell_of_drop(place, current)
                return None
            current = answer
        return current

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers = ()) -> None:
        """Tell every interceptor that a record is delivered."""
        self._tell("on_acknowledgement", lambda each: each.on_acknowledgement(metadata, headers))

    def on_error(self, topic_partition: TopicPartition, error: Exception, headers: Headers = ()) -> None:
        """Tell every interceptor that a record failed."""
        self._tell("on_error", lambda each: each.on_error(topic_partition, error, headers))

    def close(self) -> None:
        """Close every interceptor."""
        self._tell("close", lambda each: each.close())

    def _tell_of_drop(self, place: int, record: ProducerRecord) -> None:
        """Tell those who let a record pass that the one at `place` did not; those behind it never saw it."""
        text = f"an interceptor dropped the record for topic {record.topic!r}"
        error = RecordFilteredError(text, topic=record.topic, outcome=Outcome.NOT_WRITTEN)
        topic_partition = TopicPartition(record.topic, -1 if record.partition is None else record.partition)
        self._tell("on_error", lambda each: each.on_error(topic_partition, error, record.headers), upto=place)

    def _tell(self, method: str, call: Callable[[ProducerInterceptor], None], *, upto: int | None = None) -> None:
        for place, interceptor in enumerate(self._interceptors[:upto]):
            try:
                call(interceptor)
            except (Exception, CancelledError) as error:  # noqa: BLE001  # as in on_send
                self._note_failure(place, method, error)

    def _note_failure(self, place: int, method: str, error: BaseException) -> None:
        self._failures += 1
        if (place, method) in self._logged:
            return
        self._logged.add((place, method))
        self._log.warning(
            "interceptor_failed",
            interceptor=type(self._interceptors[place]).__name__,
            method=method,
            error=f"{type(error).__name__}: {error}",
            note="its later failures are counted, not logged",
        )


def check_interceptors(interceptors: object) -> None:
    """Refuse what cannot be a list of interceptors.

    Raises:
        TypeError: not a sequence, or an item without an interceptor's methods, a class instead of
            an instance, or with an async method.
    """
    if isinstance(interceptors, str | bytes) or not isinstance(interceptors, Sequence):
        raise TypeError(f"interceptors must be a list of ProducerInterceptor, not {type(interceptors).__name__}")
    for index, interceptor in enumerate(interceptors):
        _check_interceptor(f"interceptors[{index}]", interceptor)


def _check_interceptor(name: str, interceptor: object) -> None:
    if isinstance(interceptor, type):
        raise TypeError(f"{name} must be an instance: {interceptor.__name__}(), not the class itself")
    for method in _METHODS:
        function = getattr(interceptor, method, None)
        if not callable(function):
            raise TypeError(
                f"{name} must be a ProducerInterceptor, not {type(interceptor).__name__}: it has no method {method}"
            )
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{name}.{method} must not be async: nobody would await it")


def _checked_record(answer: object) -> ProducerRecord | None:
    if answer is None or isinstance(answer, ProducerRecord):
        return answer
    raise TypeError(f"on_send must return a ProducerRecord or None, not {type(answer).__name__}")
