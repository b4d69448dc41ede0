"""Sends a large transaction while a loop of `enqueue` is still writing it, although its batches are not full.

The end of a transaction waits for all of its records. With large batches most of them may be written before one is
full, and before the event loop has had a turn; then the brokers do nothing while the caller works, and the caller
waits while they do. So in a transaction, when the open batches are large enough to be worth a request, the loop gets a
turn now and then, and they go as they are as soon as nothing is on its way.

The first request is worth it most: with it (V2), or just before it (V1), the partitions are added to the transaction.
Brokers on the same machine need the processor before it comes: they may still write the markers of the last
transaction, and if these are late, the leader holds the first Produce back for 20 ms (`core/marker_pause.py`). A loop
that never sleeps can keep the processor from them for some milliseconds, so it is offered to them, once.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer._native.append import RecordAppender
    from aioproducer.core.open_batches import OpenBatches

PART_OF_BATCH: Final = 4
"""Open batches are worth a request when they hold `batch_size` / `PART_OF_BATCH` on average, and `LEAST_BYTES`."""

LEAST_BYTES: Final = 16_384
"""Kafka's own `batch.size`."""


class EarlyRequests:
    """Of one transaction.

    Args:
        appender: writes its records.
        open_batches: where to.
        is_idle: whether no request is on its way.
    """

    def __init__(self, appender: RecordAppender, open_batches: OpenBatches, is_idle: Callable[[], bool]) -> None:
        self._appender = appender
        self._open_batches = open_batches
        self._is_idle = is_idle
        self._step = max(appender.batch_size // PART_OF_BATCH, LEAST_BYTES)
        self._written = 0  # what the open batches have at most
        self._has_begun = False
        appender.call_after(self._step, self._step_written)

    def _step_written(self) -> None:
        self._appender.call_after(self._step, self._step_written)
        self._written += self._step
        if self._is_worth_a_request():
            self._appender.pause_wanted = True  # to see answers, and to send
            if self._is_idle():
                self._go()

    def _is_worth_a_request(self) -> bool:
        enough = self._step * self._open_batches.count
        if self._written < enough:
            return False
        self._written = self._open_batches.size  # some of it may have gone in full batches
        return self._written >= enough > 0

    def _go(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            _offer_processor()
        self._written = 0
        self._open_batches.hurry()

    def __repr__(self) -> str:
        """Show what was written."""
        return f"<EarlyRequests written={self._written} has_begun={self._has_begun}>"


def _offer_processor() -> None:
    if sys.platform != "win32":
        with suppress(OSError):  # a sandbox may forbid it
            os.sched_yield()
