"""`enqueue` for a task that passes records on for many callers, as that of `BlockingProducer` does.

A record that must wait for its topic or for memory is left in its wait queue, within the limits of `send`, so that it
does not hold up the next caller's. No call raises its failure: `on_delivery` gets it, or the next flush raises it, and
its transaction must be aborted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._native.record_pipeline import RecordArguments
from aioproducer._producer.admission import Admission
from aioproducer._producer.send_methods import SendMethods

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer._accumulator.partition_queue import RecordDeadline
    from aioproducer._native.delivery import Delivery
    from aioproducer._producer.runtime import ProducerRuntime


class NonBlockingEnqueue(SendMethods):
    """Send methods whose `enqueue` does not wait for a single record; usable before the start.

    Args:
        open_running: returns the parts of a running producer; raises otherwise.
        partitions_of: looks a topic up.
    """

    def __init__(
        self, open_running: Callable[[], ProducerRuntime], *, partitions_of: Callable[[str], Awaitable[list[int]]]
    ) -> None:
        self._look_up = open_running
        self._partitions_of = partitions_of
        self._admission: _NonBlockingAdmission | None = None
        self._disable_sending()

    async def partitions_for(self, topic: str) -> list[int]:
        """As `Producer.partitions_for`."""
        return await self._partitions_of(topic)

    def _open_running(self) -> ProducerRuntime:
        return self._look_up()

    def _open_admission(self) -> Admission:
        if self._admission is None:
            running = self._look_up()
            self._admission = _NonBlockingAdmission(running)
            self._enable_sending(running)
        return self._admission


class _NonBlockingAdmission(Admission):
    """Leaves records in their wait queues; waits for one only while too many wait."""

    async def _wait(self, record: RecordArguments, deadline: RecordDeadline | None) -> Delivery:
        waiting = self._waiting(record, deadline)
        has_room = self._running.wait_queues.has_room(waiting.size)
        self._running.queue_record(waiting, is_counted=has_room)
        if not has_room:
            await self._wait_until_left(waiting)
        return waiting.delivery
