"""Records that one task passes on for many callers, none of whom may be held up by another's.

As `Producer.enqueue`, but a record that must wait for its topic or for memory is left standing in line, as that of a
`send` is, within the same bounds. So the next can be given. The failure of one that stood in line is raised by nobody's
call: it is told to `on_delivery`, to the next flush, and to the transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._native.record_pipeline import PreparedRecord
from aioproducer._producer.admission import Admission
from aioproducer._producer.send_methods import SendMethods

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer._native.delivery import Delivery
    from aioproducer._producer.runtime import ProducerRuntime


class NonBlockingEnqueue(SendMethods):
    """The verbs for whoever hands records over; may be made before the start.

    Args:
        open_running: the parts of a producer that runs; raises otherwise.
        partitions_of: looks a topic up.
    """

    def __init__(
        self,
        open_running: Callable[[], ProducerRuntime],
        *,
        partitions_of: Callable[[str], Awaitable[list[int]]],
    ) -> None:
        self._look_up = open_running
        self._partitions_of = partitions_of
        self._admission: _HandedAdmission | None = None
        self._disable_sending()

    async def partitions_for(self, topic: str) -> list[int]:
        """As `Producer.partitions_for`."""
        return await self._partitions_of(topic)

    def _open_running(self) -> ProducerRuntime:
        return self._look_up()

    def _open_admission(self) -> Admission:
        if self._admission is None:
            running = self._look_up()
            self._admission = _HandedAdmission(running)
            self._enable_sending(running)
        return self._admission


class _HandedAdmission(Admission):
    """The way in that leaves a record standing in line."""

    async def _wait_in_line(self, record: PreparedRecord) -> Delivery:
        """Let a record stand in line; waits for it only while too many stand there."""
        waiting = self._waiting(record)
        has_room = self._running.lines.has_room(waiting.size)
        self._running.stand_in_line(waiting, is_counted=has_room)
        if not has_room:
            await self._leaving(waiting)
        return waiting.delivery
