"""Looks at what goes out early: LINGER, a batch that nothing hurries waits out its linger, for the sake of others.

What hurries a batch: it is full, somebody awaits it, a flush or a close runs, records wait for memory or find none, or
it holds records that waited and are so much older than what would come next; or the linger of another one is over that
was opened for the same leader: then it must go along.
FULL: one that counts as full is nearly that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from aioproducer._accumulator.producer_batch import ProducerBatch

if TYPE_CHECKING:
    from aioproducer._accumulator.open_batches import OpenBatches
    from aioproducer._accumulator.partition_queue import PartitionQueue

TICK_S: Final = 0.001
OVERHEAD: Final = 1_000
"""Bytes that a record has beside its value, and its batch before it, at most."""

CLOSING_AGES: Final = 10
"""In the delivery time-out: a batch takes no records that are so much younger than its oldest."""


class LingerWatch:
    """Stands before what opens and closes the batches of a producer.

    Args:
        open_batches: whose they are.
        violated: is told of an invariant that was broken, and how.
        longest_value: bytes, of any record.
    """

    def __init__(self, open_batches: OpenBatches, violated: Callable[[str, str], None], *, longest_value: int) -> None:
        self._open_batches = open_batches
        self._violated = violated
        settings = open_batches._settings  # noqa: SLF001  # invariants are about what is inside
        self._linger_s = min(settings.linger_s, settings.delivery_timeout_s / CLOSING_AGES)
        self._hurried: set[ProducerBatch] = set()
        self._opened_for: dict[PartitionQueue, int | None] = {}  # leaders; of open batches
        self._batch_size = settings.batch_size
        self._longest_record = longest_value + OVERHEAD
        steps = (
            "_begin",
            "take_over_waiting_record",
            "_close_full",
            "close_all",
            "make_all_ready",
            "close_if_apart",
            "make_room",
        )
        for name in (*steps, "_make_ready_with_others"):
            setattr(open_batches, name, self._around(getattr(open_batches, name), name))
        open_batches._look = self._around_look(open_batches._look)  # type: ignore[method-assign]  # noqa: SLF001  # as above

    def drained(self, batches: Sequence[ProducerBatch], now: float) -> None:
        """Look at batches as they are put into a request."""
        for batch in batches:
            is_hurried = batch in self._hurried or batch.result.wanted or batch.is_part or batch.attempts > 1
            self._hurried.discard(batch)
            if not is_hurried and now < batch.called_at + self._linger_s - TICK_S:
                text = f"goes after {now - batch.called_at:.6f} s, and its linger is {self._linger_s:.3f} s"
                self._violated("LINGER", f"{batch!r} {text}")

    def _around(self, step: Callable[..., Any], name: str) -> Callable[..., Any]:
        """What may hurry batches, noting which."""

        def stepped(*arguments: Any) -> Any:
            self._note(name, arguments)
            done = step(*arguments)
            if self._open_batches.memory_is_short:
                self._hurried.update(self._all())
            if name == "_begin":
                self._opened_for[done.queue] = done.queue.leader_id
            if name == "make_room" and not done:
                self._note_patience(arguments[0].queue)
            return done

        return stepped

    def _around_look(self, look: Callable[[PartitionQueue, float], None]) -> Callable[[PartitionQueue, float], None]:
        """What ends a linger, noting who goes along, and that nobody is left who should."""

        def looked(queue: PartitionQueue, now: float) -> None:
            company = self._company(queue, now)
            look(queue, now)
            if not all(each.is_ready for each in company):
                self._violated("LINGER", f"one of {company} stays, although the linger in {queue!r} was over")

        return looked

    def _company(self, queue: PartitionQueue, now: float) -> list[ProducerBatch]:
        """The open batches that go with that of a partition, if its linger is over."""
        batch = queue.open_batch
        if batch is None or batch.is_ready or now < batch.called_at + self._linger_s:
            return []
        leader = self._opened_for.get(queue)
        return [each for each in self._all() if self._opened_for.get(each.queue) == leader]

    def _note(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name in {"close_all", "make_all_ready", "take_over_waiting_record"}:
            self._hurried.update(self._all())
        elif name == "_make_ready_with_others":  # by whatever timer: some are older than this watch
            self._hurried.update(self._company(arguments[0], self._open_batches._clock()))  # noqa: SLF001  # as above
        elif name in {"_close_full", "close_if_apart"}:
            target = arguments[0]
            queue: PartitionQueue = target if name == "_close_full" else target.queue
            if queue.open_batch is not None:
                self._hurried.add(queue.open_batch)
            if queue.open_batch is not None and name == "_close_full":
                self._look_at_size(queue)

    def _note_patience(self, queue: PartitionQueue) -> None:
        """A record found no room: the open batch goes, so that there is some for the next one soon."""
        if queue.open_batch is not None and queue.open_batch.is_ready:
            self._hurried.add(queue.open_batch)

    def _look_at_size(self, queue: PartitionQueue) -> None:
        """FULL: where there is memory and no other limit, only the next record's size keeps it from `batch_size`."""
        open_batches, pool = self._open_batches, self._open_batches._pool  # noqa: SLF001  # as above
        has_room = pool.lent_bytes + self._batch_size <= pool.total_bytes * 3 // 4 and not open_batches.memory_is_short
        is_limited = bool(open_batches.limits.by_topic)
        size = queue.slot.builder.size if queue.slot.builder is not None else self._batch_size
        if has_room and not is_limited and size + self._longest_record < self._batch_size:
            self._violated("FULL", f"{queue!r}: closed at {size} of {self._batch_size} bytes: {pool!r}")

    def _all(self) -> list[ProducerBatch]:
        return [queue.open_batch for queue in self._open_batches._open if queue.open_batch is not None]  # noqa: SLF001  # as above
