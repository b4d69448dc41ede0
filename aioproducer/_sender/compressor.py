"""Compresses batches: small ones at once, large ones in a thread, so that they do not block the event loop.

The threads are the producer's own, because those of the loop may be busy with the application's work. At most two
batches are in threads at the same time. Each needs memory for its output beside its input. This reserve of two largest
batches is apart from `buffer_memory`: else a full buffer of uncompressed batches could never be compressed and sent.

Source: the Compressor of MemoryRecordsBuilder in Apache Kafka, which compresses as records are appended.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from aioproducer._protocol.compression import compress

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable
    from concurrent.futures import ThreadPoolExecutor

    from aioproducer._accumulator.partition import Batch, BatchOptions
    from aioproducer._accumulator.record_accumulator import RecordAccumulator
    from aioproducer._logs import EventLog
    from aioproducer._timing.wakeup import Wakeup

IN_LOOP_BYTES: Final = 64 * 1024
AT_ONCE: Final = 2


class BatchCompressor:
    """Compresses closed batches; wakes the sender when a thread has finished one.

    A batch that the codec's library fails on is sent uncompressed, and logged.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        accumulator: RecordAccumulator,
        *,
        wakeup: Wakeup,
        log: EventLog,
    ) -> None:
        self._loop = loop
        self._accumulator = accumulator
        self._wakeup = wakeup
        self._log = log
        self._waiting: deque[Batch] = deque()
        self._running: set[asyncio.Future[bytes]] = set()
        self._threads: ThreadPoolExecutor | None = None

    def seal(self, batches: Iterable[Batch]) -> None:
        """Compress batches, and give each back to the accumulator, now or later."""
        for batch in batches:
            if batch.size <= IN_LOOP_BYTES:
                self._finish(batch, self._compress_here(batch))
            else:
                self._waiting.append(batch)
        self._start()

    def _start(self) -> None:
        while self._waiting and len(self._running) < AT_ONCE:
            batch = self._waiting.popleft()
            job = self._compress_in_thread(batch)
            if job is None:
                self._finish(batch, self._compress_here(batch))
                continue
            self._running.add(job)
            job.add_done_callback(partial(self._done, batch))

    def _compress_in_thread(self, batch: Batch) -> asyncio.Future[bytes] | None:
        """Return None if no thread starts: the interpreter exits, or the system is out of threads."""
        records = batch.records()
        try:
            return self._loop.run_in_executor(self._own_threads(), _compress, batch.options, records)
        except RuntimeError:
            records.release()
            return None

    def _own_threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            from aioproducer._threads.real_threads import thread_pool  # noqa: PLC0415  # only for large batches

            self._threads = thread_pool(AT_ONCE, "aioproducer-compressor")
        return self._threads

    def close(self) -> None:
        """Give waiting batches back uncompressed, and let each thread end with its batch."""
        waiting, self._waiting = self._waiting, deque()
        for batch in waiting:
            self._finish(batch, None)
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    def _done(self, batch: Batch, job: asyncio.Future[bytes]) -> None:
        self._running.discard(job)
        error = None if job.cancelled() else job.exception()
        if error is not None:
            self._note_failure(batch, error)
        self._finish(batch, None if job.cancelled() or error is not None else job.result())
        self._start()
        self._wakeup.set()

    def _compress_here(self, batch: Batch) -> bytes | None:
        try:
            return _compress(batch.options, batch.records())
        except Exception as error:  # noqa: BLE001  # any error of the codec's library: the batch is sent uncompressed
            self._note_failure(batch, error)
            return None

    def _note_failure(self, batch: Batch, error: BaseException) -> None:
        codec = batch.options.codec.name
        self._log.warning("compression_failed", codec=codec, error=f"{type(error).__name__}: {error}")

    def _finish(self, batch: Batch, data: bytes | None) -> None:
        is_smaller = data is not None and len(data) < batch.size
        self._accumulator.sealed(batch, data if is_smaller else None)


def _compress(options: BatchOptions, records: memoryview) -> bytes:
    with records:  # released in this thread: the next owner of the memory must find it free
        return compress(options.codec, options.level, records)
