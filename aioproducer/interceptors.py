"""Interceptors: the user's own code around every record, and the chain that calls it.

An interceptor gets each record before it is serialized, and its outcome. It can change or drop a record. Its exceptions
are logged once and do not affect the record.

Source: org.apache.kafka.clients.producer.internals.ProducerInterceptors.
"""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Self

from aioproducer._native.record_pipeline import InterceptorLoop
from aioproducer.errors import KafkaError, Outcome, RecordFilteredError
from aioproducer.records import Headers, ProducerRecord, RecordMetadata, TopicPartition, WatchedRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aioproducer._logs import EventLog
    from aioproducer._native.append_many import Row
    from aioproducer._native.delivery import Delivery
    from aioproducer.cluster import Cluster

    Watchers = Sequence[tuple[int, Callable[[TopicPartition, RecordMetadata | None, Exception | None], object]]] | None

_METHODS = ("on_send", "on_acknowledgement", "on_error", "close")


class ProducerInterceptor:
    """Base class: every method does nothing. Override the ones you need.

    The methods run on the event loop, in the order of the records: they must be quick and must not be `async`. They run
    in the context (`contextvars`) of the call that sent the record.
    """

    def for_producer(self) -> ProducerInterceptor:
        """Return the interceptor that a producer calls, when it starts: this one, or one with a state of its own."""
        return self

    def on_send(self, record: ProducerRecord) -> ProducerRecord | WatchedRecord | None:
        """Return the record to send: this one, a changed copy, or `None` to drop it.

        With something to remember of the record until its end, return it as a `WatchedRecord`.

        Called once per record, before serializers and partitioner. If a record is dropped, its caller and the previous
        interceptors get `RecordFilteredError`; later interceptors do not see the record.

        Args:
            record: as the caller gave it; make a changed copy with `dataclasses.replace`. Returning this very object
                costs least.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        """Called when a record is delivered.

        Args:
            metadata: the place of the record.
            headers: of the record, as sent.
        """

    def on_error(self, topic_partition: TopicPartition, error: Exception, headers: Headers) -> None:
        """Called when a record failed, in its call or later.

        Args:
            topic_partition: of the record; partition -1 if none was chosen yet.
            error: the caller's error; a `KafkaError` from the broker's side has `outcome`.
            headers: of the record, after all interceptors.
        """

    def on_start(self, client_id: str, cluster: Callable[[], Cluster]) -> None:
        """Called once, when the producer has started.

        Args:
            client_id: the producer's name.
            cluster: returns the current view of the cluster: its id, nodes and leaders.
        """

    def around_many(self, topic: str) -> AbstractContextManager[object]:  # noqa: ARG002  # of subclasses
        """Return a context manager that encloses the `on_send` of all records of one `send_many` or `send_arrow`.

        The iterables of the call are read inside too: `on_send` also gets the records that these send themselves.

        Args:
            topic: of all records.
        """
        return nullcontext()

    def close(self) -> None:
        """Release resources; called once, when the producer has closed."""


class ManyRecords:
    """The records of one `send_many` or `send_arrow`, told from those that its iterables send while they are read.

    Args:
        topic: of all of them, unless an interceptor changes it.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.entered: dict[int, object] = {}
        """`id` of an interceptor -> what its `around_many` has entered, except None."""
        self.enqueued: EnqueuedRow | None = None
        """The row that is being enqueued; None while the iterables are read."""

    def enqueue(self, enqueue: Callable[[*Row], Awaitable[Delivery]], *row: *Row) -> Awaitable[Delivery]:
        """Enqueue a row, whose record is then one of these."""
        enqueued = self.enqueued = EnqueuedRow(self, row)
        try:
            accepting = enqueue(*row)
        finally:
            self.enqueued = None  # no task runs before, so no variable of the context is set for each row
        return enqueued.until_accepted(accepting) if enqueued.is_expected else accepting


class EnqueuedRow:
    """A row that is being enqueued; its record is the first that may be the row's."""

    __slots__ = ("_key", "_left", "_topic", "_value")

    def __init__(self, many: ManyRecords, row: Row) -> None:
        self._topic = many.topic
        self._value, self._key = row[:2]
        self._left = many.entered.copy()  # of the interceptors that have not seen the record yet

    @property
    def is_expected(self) -> bool:
        """Whether an interceptor has not seen the record yet."""
        return bool(self._left)

    def take(self, record: ProducerRecord, interceptor: ProducerInterceptor) -> object:
        """Return what the interceptor's `around_many` has entered, if the record is the row's, the first time."""
        return self._left.pop(id(interceptor), None) if self._left and self._is_of(record) else None

    def _is_of(self, record: ProducerRecord) -> bool:
        """Whether this may be the row's record: an interceptor or `enqueue` of the user's may send others before it."""
        if record.topic == self._topic:
            return True
        has_parts = self._value is not None or self._key is not None
        return has_parts and record.value is self._value and record.key is self._key  # another topic was set

    async def until_accepted(self, accepting: Awaitable[Delivery]) -> Delivery:
        """Expect the record while an `enqueue` of the user's is awaited, and in its context alone."""
        alone = ManyRecords(self._topic)
        alone.enqueued = self
        token = _MANY.set(alone)
        try:
            return await accepting
        finally:
            _MANY.reset(token)
            self._left.clear()  # a task that was started meanwhile has the variable still


_MANY: Final[ContextVar[ManyRecords | None]] = ContextVar("aioproducer_many", default=None)


def entered_for(record: ProducerRecord, interceptor: ProducerInterceptor) -> object:
    """Return what an interceptor's `around_many` has entered for the call that a record in its `on_send` belongs to.

    Returns:
        None for a record that was sent alone, also by an iterable that a `send_many` reads.
    """
    many = _MANY.get()
    return None if many is None or many.enqueued is None else many.enqueued.take(record, interceptor)


class InterceptorChain(InterceptorLoop):
    """Calls interceptors in order, and logs and counts what they raise.

    Args:
        interceptors: in the order in which they see a record.
        log: of one event for the first failure of each method of each interceptor.
    """

    @classmethod
    def of_producer(cls, interceptors: Sequence[ProducerInterceptor], log: EventLog) -> Self:
        """Return the chain of a producer that starts, with what `for_producer` of each interceptor returns."""
        chain = cls(interceptors, log)
        return cls([chain._of_producer(index) for index in range(len(interceptors))], log)

    def __init__(self, interceptors: Sequence[ProducerInterceptor], log: EventLog) -> None:
        self._listeners = [(index, each) for index, each in enumerate(interceptors) if _listens(each)]
        super().__init__(interceptors, listens=bool(self._listeners))
        self._log = log
        self._logged: set[tuple[int, str]] = set()  # (index in the chain, method)
        self._failures = 0

    def __repr__(self) -> str:
        names = ", ".join(type(each).__name__ for each in self.interceptors)
        return f"InterceptorChain([{names}], failures={self._failures})"

    @property
    def failures(self) -> int:
        """Number of times that an interceptor raised, or returned something other than a record."""
        return self._failures

    def note_end(  # noqa: PLR0917  # called natively
        self,
        topic: str,
        headers: Headers,
        watchers: Watchers,
        metadata: RecordMetadata | None,
        error: KafkaError | None,
    ) -> None:
        """Notify the interceptors of the outcome of a record.

        Args:
            topic: of the record.
            headers: as the last interceptor left them.
            watchers: of the record.
            metadata: None if the record failed.
            error: None if the record was delivered.
        """
        if metadata is not None:
            self.on_acknowledgement(metadata, headers)
            self._end_watches(watchers, metadata.topic_partition, metadata, None)
        elif error is not None:
            partition = -1 if error.partition is None else error.partition
            self.note_error(TopicPartition(topic, partition), error, headers, watchers)

    def note_error(  # noqa: PLR0917  # called natively
        self, topic_partition: TopicPartition, error: Exception, headers: Headers, watchers: Watchers
    ) -> None:
        """Notify the interceptors that a record failed, in its call or later."""
        self.on_error(topic_partition, error, headers)
        self._end_watches(watchers, topic_partition, None, error)

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers = ()) -> None:
        """Notify every interceptor that a record is delivered."""
        for index, interceptor in self._listeners:
            try:
                interceptor.on_acknowledgement(metadata, headers)
            except (Exception, CancelledError) as error:  # noqa: BLE001  # as in `on_send`
                self._note_failure(index, "on_acknowledgement", error)

    def on_error(
        self, topic_partition: TopicPartition, error: Exception, headers: Headers = (), *, upto: int | None = None
    ) -> None:
        """Notify every interceptor, or those before the index `upto`, that a record failed."""
        for index, interceptor in self._listeners:
            if upto is not None and index >= upto:
                break
            try:
                interceptor.on_error(topic_partition, error, headers)
            except (Exception, CancelledError) as raised:  # noqa: BLE001  # as in `on_send`
                self._note_failure(index, "on_error", raised)

    def on_start(self, client_id: str, cluster: Callable[[], Cluster]) -> None:
        """Notify every interceptor that has the method that the producer has started."""
        for index, interceptor in enumerate(self.interceptors):
            try:
                if hasattr(interceptor, "on_start"):
                    interceptor.on_start(client_id, cluster)
            except (Exception, CancelledError) as error:  # noqa: BLE001  # as in `on_send`
                self._note_failure(index, "on_start", error)

    @contextmanager
    def around_many(self, topic: str) -> Iterator[ManyRecords]:
        """Enclose the records of one call in the contexts of every interceptor that has the method."""
        many = ManyRecords(topic)
        stack = ExitStack()
        for index, interceptor in enumerate(self.interceptors):
            try:
                if not hasattr(interceptor, "around_many"):
                    continue
                entered = stack.enter_context(interceptor.around_many(topic))
                if entered is not None:
                    many.entered[id(interceptor)] = entered
            except (Exception, CancelledError) as error:  # noqa: BLE001  # as in `on_send`
                self._note_failure(index, "around_many", error)
        token = _MANY.set(many)
        try:
            yield many
        finally:
            _MANY.reset(token)
            try:
                stack.close()
            except (Exception, CancelledError) as error:  # noqa: BLE001  # as in `on_send`
                self._note_failure(len(self.interceptors) - 1, "around_many", error)

    def close(self) -> None:
        """Close every interceptor."""
        for index, interceptor in enumerate(self.interceptors):
            try:
                interceptor.close()
            except (Exception, CancelledError) as error:  # noqa: BLE001  # as in `on_send`
                self._note_failure(index, "close", error)

    def _of_producer(self, index: int) -> ProducerInterceptor:
        interceptor = self.interceptors[index]
        try:
            if not hasattr(interceptor, "for_producer"):
                return interceptor
            own = interceptor.for_producer()
            _check_interceptor("the result", own)
        except (Exception, CancelledError) as error:  # noqa: BLE001  # as in `on_send`
            self._note_failure(index, "for_producer", error)
            return interceptor
        return own

    def _end_watches(  # noqa: PLR0917  # of one record
        self,
        watchers: Watchers,
        topic_partition: TopicPartition,
        metadata: RecordMetadata | None,
        error: Exception | None,
    ) -> None:
        for index, on_end in watchers or ():
            try:
                on_end(topic_partition, metadata, error)
            except (Exception, CancelledError) as raised:  # noqa: BLE001  # as in `on_send`
                self._note_failure(index, "on_end", raised)

    def _note_drop(self, index: int, record: ProducerRecord, watchers: Watchers) -> None:
        """Notify the interceptors before `index` that the one there dropped the record; later ones never saw it."""
        text = f"an interceptor dropped the record for topic {record.topic!r}"
        error = RecordFilteredError(text, topic=record.topic, outcome=Outcome.NOT_WRITTEN)
        topic_partition = TopicPartition(record.topic, -1 if record.partition is None else record.partition)
        self.on_error(topic_partition, error, record.headers, upto=index)
        self._end_watches(watchers, topic_partition, None, error)

    def _note_failure(self, index: int, method: str, error: BaseException) -> None:
        self._failures += 1
        if (index, method) in self._logged:
            return
        self._logged.add((index, method))
        self._log.warning(
            "interceptor_failed",
            interceptor=type(self.interceptors[index]).__name__,
            method=method,
            error=f"{type(error).__name__}: {error}",
            note="its later failures are counted, not logged",
        )


def check_interceptors(interceptors: object) -> None:
    """Refuse an invalid list of interceptors.

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
            raise TypeError(f"{name}.{method} must not be async: it is not awaited")


def _listens(interceptor: ProducerInterceptor) -> bool:
    inherited = {ProducerInterceptor.on_acknowledgement, ProducerInterceptor.on_error}
    methods = (interceptor.on_acknowledgement, interceptor.on_error)
    return not all(getattr(method, "__func__", None) in inherited for method in methods)
