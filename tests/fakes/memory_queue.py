"""Wait queues for memory on a core whose memory is taken."""

from aioproducer._accumulator.memory_wait_queues import BufferWaiters
from aioproducer._accumulator.wait_queue import WaitingRecord
from aioproducer._native.delivery import BatchResult, Delivery
from aioproducer.errors import KafkaError
from tests.fakes.core_parts import CoreParts

CHUNK = b"x" * 900


class Queue:
    """Wait queues of their own on a core, with nothing around them."""

    def __init__(self, core: CoreParts) -> None:
        self.core = core
        self.appended: list[WaitingRecord] = []
        self.refused: list[tuple[WaitingRecord, KafkaError]] = []
        self.waiters = BufferWaiters(
            core.appender, core.open_batches, on_appended=self._note_appended, on_refused=self._note_refused
        )

    def _note_appended(self, record: WaitingRecord, _: Delivery) -> None:
        self.appended.append(record)
        self._leave(record)

    def _note_refused(self, record: WaitingRecord, error: KafkaError) -> None:
        self.refused.append((record, error))
        self._leave(record)

    def _leave(self, record: WaitingRecord) -> None:
        assert record.queue is not None
        assert record.queue_owner is not None
        record.queue.leave(record)
        record.queue_owner.waiting_count -= 1

    def record(self, *, partition: int | None = 0, key: bytes | None = None, value: bytes = CHUNK) -> WaitingRecord:
        _, _, timestamp, size = self.core.appender.measure("t", value, key, partition, None, None)
        result = BatchResult(None, None)  # type: ignore[arg-type]  # it is never awaited
        made = WaitingRecord("t", result, timestamp=timestamp, size=size, called_at=self.core.now)
        made.value, made.key, made.partition = value, key, partition
        return made

    def join(self, *, partition: int | None = 0, value: bytes = CHUNK) -> WaitingRecord:
        made = self.record(partition=partition, value=value)
        made.call_order = len(self.appended) + sum(1 for _ in self.waiters)
        self.waiters.join(made, self.waiters.owner_of(made))
        return made

    def free(self, chunks: int = 1) -> None:
        """Have the oldest batches of node 1 acknowledged, and serve."""
        for _ in range(chunks):
            self.core.acknowledge(self.core.drain()[0])
        self.waiters.serve()


def full(leaders: tuple[int, ...] = (1,), *, chunks: int = 8) -> Queue:
    """Wait queues on a core whose memory is taken by partition 0."""
    core = CoreParts(leaders=leaders, memory=chunks * 1024, batch_size=1024, max_record_size=6 * 1024)
    while core.appender.append("t", CHUNK, None, 0, None, None, None) is not None:
        pass
    return Queue(core)
