"""The events of a `BlockingProducer`, emitted on a thread of their own.

A caller that waits for the event loop's thread may hold a lock of `logging`: the one of a handler that sends its lines
to Kafka, or the module's while `logging.config.dictConfig` closes such a handler. An event that the loop's thread
emitted would wait for that lock, and the caller for the loop's thread. So events go through a queue, as with
`logging.handlers.QueueHandler`.
"""

from __future__ import annotations

import contextlib
import contextvars
from _queue import SimpleQueue
from functools import partial
from typing import TYPE_CHECKING, Final

from aioproducer._logs import event_log
from aioproducer._native.unraisable import report_unraisable
from aioproducer._threads.real_threads import allocate_lock, start_thread, wait_for_lock

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from aioproducer._logs import EventLog

    Emit = Callable[[EventLog], object]

MAX_EVENTS: Final = 1_000
"""Events that wait for a handler that blocks; further ones are counted and dropped."""

LONGEST_STOP_S: Final = 0.5
"""How long closing waits for events to be emitted."""


class LogThread:
    """Log of events that never blocks its caller; emits in the order of the calls.

    Args:
        client_id: returns the producer's.
    """

    def __init__(self, client_id: Callable[[], str]) -> None:
        self._client_id = client_id
        self._events: SimpleQueue[Emit | None] = SimpleQueue()
        self._dropped = 0  # written by the event loop's thread alone
        self._told_dropped = 0  # written by this log's thread alone
        self._has_ended = allocate_lock()
        self._thread: threading.Thread | None = None
        self._is_running = False

    def start(self) -> None:
        """Start the thread; a second call does nothing.

        Raises:
            RuntimeError: no more threads.
        """
        if self._is_running:
            return
        self._has_ended = allocate_lock()
        self._has_ended.acquire()
        self._thread = start_thread(partial(self._run, self._client_id()), "aioproducer-log")
        self._is_running = True

    def stop(self) -> None:
        """Emit what is queued and end the thread.

        A handler that blocks is waited for no longer than `LONGEST_STOP_S`: the caller may hold its lock. The thread
        ends when the handler goes on.
        """
        self._events.put(None)  # also for a thread that Ctrl-C kept from being noted
        if self._is_running and wait_for_lock(self._has_ended, LONGEST_STOP_S):
            self._has_ended.release()
            if self._thread is not None:
                with contextlib.suppress(RuntimeError):  # the system had no thread for it: it ran on another
                    self._thread.join(LONGEST_STOP_S)
        self._is_running = False

    def drain(self) -> None:
        """Wait until what is queued was emitted, for at most `LONGEST_STOP_S`."""
        if self._is_running:
            drained = allocate_lock()
            drained.acquire()
            self._events.put(lambda _log: drained.release())
            wait_for_lock(drained, LONGEST_STOP_S)

    def debug(self, event: str, **values: object) -> None:
        """Queue an event of level DEBUG."""
        self._put("debug", event, values)

    def info(self, event: str, **values: object) -> None:
        """Queue an event of level INFO."""
        self._put("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        """Queue an event of level WARNING."""
        self._put("warning", event, values)

    def error(self, event: str, **values: object) -> None:
        """Queue an event of level ERROR."""
        self._put("error", event, values)

    def call(self, function: Callable[[], object]) -> None:
        """Queue a function that logs."""
        self._queue(lambda _log: function())

    def _put(self, level: str, event: str, values: dict[str, object]) -> None:
        self._queue(lambda log: getattr(log, level)(event, **values))

    def _queue(self, emit: Emit) -> None:
        if self._events.qsize() >= MAX_EVENTS:
            self._dropped += 1
            return
        context = contextvars.copy_context()  # for structlog's context variables
        self._events.put(lambda log: context.run(emit, log))

    def mark_forked(self) -> None:
        """Forget the thread: this process is a fork, and the thread is the parent's."""
        self._is_running = False

    def _run(self, client_id: str) -> None:
        try:
            # Here and not in `start`: it imports structlog and takes a lock of `logging`. And Ctrl-C, which meets the
            # main thread alone, can leave the interpreter's lock of imports locked.
            log = event_log(client_id)
            while (emit := self._events.get()) is not None:
                self._emit(emit, log)
                self._emit(self._tell_dropped, log)
        finally:
            self._has_ended.release()

    def _emit(self, emit: Emit, log: EventLog) -> None:
        try:
            emit(log)
        except BaseException as error:  # noqa: BLE001  # the application's: the events after this one are emitted too
            report_unraisable(error, self)

    def _tell_dropped(self, log: EventLog) -> None:
        new = self._dropped - self._told_dropped
        if new:
            self._told_dropped += new
            log.warning("events_dropped", count=new)
