"""Hooks that run at the end of the process, and the report of records that were not delivered by then."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from time import monotonic
from typing import TYPE_CHECKING, Final, NoReturn

from aioproducer.errors import ProducerClosedError, UndeliveredError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer._logs import EventLog
    from aioproducer._producer.runtime import ProducerRuntime
    from aioproducer.errors import KafkaError

_AFTER_OTHERS: Final = -100
"""Priority among `multiprocessing`'s finalizers: the application's run first, and may close producers."""

_ATTEMPTS: Final = 100  # attempts to read a producer whose loop runs on another thread
_hooks: Final[list[Callable[[], None]]] = []
_begun: Final[list[float]] = []  # when the hooks began, once they have
_children: Final[set[int]] = set()


def at_process_end(hook: Callable[[], None]) -> None:
    """Call a function when the process ends; the last one registered is called first."""
    _hooks.append(hook)


def watch_process() -> None:
    """Call the hooks also in a child process of `multiprocessing`; called when a producer starts.

    Such a child ends by `os._exit`, so it runs no `atexit` hooks unless it was spawned. It runs finalizers that were
    registered after the fork.
    """
    util = sys.modules.get("multiprocessing.util")  # a child has imported it
    process = sys.modules.get("multiprocessing.process")
    if util is None or process is None or process.parent_process() is None or os.getpid() in _children:
        return
    _children.add(os.getpid())
    util.Finalize(None, _run_hooks, exitpriority=_AFTER_OTHERS)


def end_began_at() -> float | None:
    """Return when the hooks began, in monotonic seconds; None before.

    No hook looks at what is accepted afterwards, by hooks of the application or threads that still run: each such call
    must wait for its record by itself.
    """
    return _begun[0] if _begun else None


@atexit.register
def _run_hooks() -> None:
    _begun.append(monotonic())  # before any hook looks
    for hook in reversed(_hooks):
        hook()


def refuse_at_the_end() -> NoReturn:
    """Refuse a record that nothing would deliver or report any more.

    Raises:
        ProducerClosedError: always.
    """
    raise ProducerClosedError(
        "the process ends, and exit_flush_timeout_ms is over: the producer takes no more records. Close it in a hook "
        "that runs after the last record"
    )


def report_loss(text: str, log: EventLog, *, records: int, made_at: str, was_closed: bool) -> None:
    """Log an event at WARNING, and write a line to standard error, in case logging is not configured."""
    with contextlib.suppress(Exception):  # closed or replaced by the application
        sys.stderr.write(f"aioproducer: {text}\n")
        sys.stderr.flush()
    with contextlib.suppress(Exception):  # of the application's handlers: other producers follow
        if was_closed:
            log.warning("undelivered_at_end", records_undelivered=records, made_at=made_at)
        else:
            log.warning("producer_not_closed", records_undelivered=records, made_at=made_at)


def note_undelivered(error: BaseException, failed: KafkaError, tell: Callable[[int, str], None]) -> None:
    """Note on the exception that leaves a `with` block what its close has failed to deliver.

    One that ends a task or the program is often dropped without being shown, by `asyncio.run`, the caller of `cancel()`
    or `except KeyboardInterrupt`: then the loss is reported as well.

    Args:
        tell: reports the number of records, and how the producer was closed.
    """
    error.add_note(f"aioproducer: {failed}")
    if isinstance(failed, UndeliveredError) and not isinstance(error, Exception):
        tell(failed.count, f"was closed because of {type(error).__name__}: {failed.exceptions[0]}")


def in_words(records: int) -> str:
    return "1 record was" if records == 1 else f"{records:,} records were"


def count_undelivered(running: ProducerRuntime) -> int:
    """Count accepted records that are not delivered, including those of an open transaction.

    Of failed records, only those count that the next flush would raise. May be called on any thread.
    """
    for _ in range(_ATTEMPTS):
        try:
            return _undelivered(running)
        except RuntimeError:  # the loop's thread has changed a dict meanwhile
            continue
    return _undelivered(running)


def _undelivered(running: ProducerRuntime) -> int:
    counts, accepted = running.completion.counts, running.open_batches.records
    pending = max(accepted - counts.records_acknowledged - counts.batch_records_failed, 0)
    waiting = running.wait_queues.records + len(running.record_hooks.unfinished_records)
    count = pending + waiting + running.completion.unseen.records
    return count if running.transactions is None else max(count, running.transactions.records_at_risk)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begun.clear)  # the child's own end comes later
