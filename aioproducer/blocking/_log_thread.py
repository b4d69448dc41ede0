"""The log of a `BlockingProducer`, which emits events on a thread of its own.

A caller that waits for the event loop's thread may hold a lock of `logging`: that of a handler that sends its lines to
Kafka, or the module's while `logging.config.dictConfig` closes such a handler. A loop's thread that emitted an event
would wait for that lock, and the caller for the loop's thread. So events go through a queue, as with
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

MAX_EVENTS: Final = 1_000  # events queued behind a handler that blocks; further ones are counted and dropped
LONGEST_STOP_S: Final = 0.5  # how long closing waits for events to be emitted
LONGEST_DRAIN_S: Final = 3.0  # the same at the end of the process: on a busy machine the import of structlog takes long


class LogThread:
    """Log of events that never blocks its caller; emits in the order of the calls."""

    def __init__(self, client_id: Callable[[], str]) -> None:
        self._client_id = client_id
        self._events: SimpleQueue[Emit | None] = SimpleQueue()
        self._dropped = 0  # written by the event loop's thread only
        self._reported_dropped = 0  # written by this log's thread only
        self._has_ended = allocate_lock()
        self._thread: threading.Thread | None = None
        self._is_running = False

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._is_running:
            return
        self._has_ended = allocate_lock()
        self._has_ended.acquire()
        self._thread = start_thread(partial(self._run, self._client_id()), "aioproducer-log")
        self._is_running = True

    def stop(self) -> None:
        """Emit queued events and end the thread.

        The wait for a handler that blocks is limited to `LONGEST_STOP_S`, since the caller may hold its lock. The
        thread ends when the handler returns.
        """
        self._events.put(None)  # also if Ctrl-C came between the start of the thread and `_is_running`
        if self._is_running and wait_for_lock(self._has_ended, LONGEST_STOP_S):
            self._has_ended.release()
            if self._thread is not None:
                with contextlib.suppress(RuntimeError):  # never started: its launcher ran the log
                    self._thread.join(LONGEST_STOP_S)
        self._is_running = False

    def drain(self) -> None:
        """Wait until queued events were emitted, for at most `LONGEST_DRAIN_S`."""
        if self._is_running:
            drained = allocate_lock()
            drained.acquire()
            self._events.put(lambda _log: drained.release())
            wait_for_lock(drained, LONGEST_DRAIN_S)

    def debug(self, event: str, **values: object) -> None:
        self._put("debug", event, values)

    def info(self, event: str, **values: object) -> None:
        self._put("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        self._put("warning", event, values)

    def error(self, event: str, **values: object) -> None:
        self._put("error", event, values)

    def call(self, function: Callable[[], object]) -> None:
        self._queue(lambda _log: function())

    def _put(self, level: str, event: str, values: dict[str, object]) -> None:
        self._queue(lambda log: getattr(log, level)(event, **values))

    def _queue(self, emit: Emit) -> None:
        if self._events.qsize() >= MAX_EVENTS:
            self._dropped += 1
            return
        context = contextvars.copy_context()  # structlog's context variables
        self._events.put(lambda log: context.run(emit, log))

    def mark_forked(self) -> None:
        """Forget the thread: this process is a fork, and the thread is the parent's."""
        self._is_running = False

    def _run(self, client_id: str) -> None:
        try:
            # Here and not in `start`: `event_log` imports structlog and takes a lock of `logging`, and Ctrl-C on the
            # main thread can leave the interpreter's import lock locked.
            log = event_log(client_id)
            while (emit := self._events.get()) is not None:
                self._emit(emit, log)
                self._emit(self._report_dropped, log)
        finally:
            self._has_ended.release()

    def _emit(self, emit: Emit, log: EventLog) -> None:
        try:
            emit(log)
        except BaseException as error:  # noqa: BLE001  # of the application's handler: later events are still emitted
            report_unraisable(error, self)

    def _report_dropped(self, log: EventLog) -> None:
        new = self._dropped - self._reported_dropped
        if new:
            self._reported_dropped += new
            log.warning("events_dropped", count=new)
