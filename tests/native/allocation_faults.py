"""Runs the native send path with one allocation failing, each in its turn: `python allocation_faults.py native|python`.

A process of its own, because what fails is its allocator. For each step of the path, and for the first, second, third
... allocation of that step: a fresh core, the step with that allocation failing, and then what must hold afterwards.
"native" is what the native modules ask of the C library, the memory of batches and headers: the record was
accepted or the call has raised, never both; the next record goes; all memory comes back. "python" is each small object
that Python makes on the way: MemoryError comes out and nothing else, and the next record goes; a record into an open
batch was accepted or the call has raised, never both.
"""

import asyncio
import collections
import contextlib
import ctypes
import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from aioproducer._native.delivery import BatchResult, Delivery
from aioproducer._native.memory import Chunk
from aioproducer._native.renumber import record_starts, renumber_records
from aioproducer.errors import SerializationError
from aioproducer.interceptors import ProducerInterceptor
from aioproducer.records import ProducerRecord
from tests.fakes.core_parts import CoreParts, pipeline_of

if TYPE_CHECKING:
    from aioproducer._native.append import Headers
    from aioproducer._native.delivery import OnDelivery

MOST_ALLOCATIONS = 400  # of one step; more of them means that the end was not noticed
QUIET_AT_THE_END = 3  # numbers in a row that no allocation had


class Passing(ProducerInterceptor):
    """Returns every record, and listens to what becomes of it."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_error(self, topic_partition: object, error: Exception, headers: object) -> None:
        """Listen."""


class Path:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.parts = CoreParts(leaders=(1, 1), memory=1 << 20, batch_size=16_384)
        # Made before memory fails: CPython 3.12 and 3.13 crash if they cannot allocate the frame of a generator.
        self.pipeline = pipeline_of(self.parts, interceptors=[Passing()], serializer=bytes.upper)
        self.accepted: list[Delivery] = []
        self.send(b"before")

    def send(self, value: bytes, *, headers: "Headers | None" = None, on_delivery: "OnDelivery | None" = None) -> None:
        delivery = self.parts.appender.append("t", value, b"k", 0, None, headers, on_delivery)
        assert delivery is not None, "there is room for all that is sent here"
        self.accepted.append(delivery)

    def drain(self) -> int:
        """Send everything, acknowledge it, give all memory back; how many records there were."""
        self.parts.flush()
        sent = 0
        while batches := self.parts.drain():
            for batch in batches:
                sent += batch.count
                self.parts.acknowledge(batch)
        return sent


def append(path: Path) -> None:
    path.send(b"v" * 100)


def append_with_headers(path: Path) -> None:
    path.send(b"v", headers=[(f"name-{number}", b"x" * 100) for number in range(20)])


def append_with_callback(path: Path) -> None:
    path.send(b"v", on_delivery=print)


def append_through_hooks(path: Path) -> None:
    try:
        delivery = path.pipeline.take("t", b"v" * 100, b"k", 0, None, [("name", b"x")], print)
    except SerializationError as error:
        raise MemoryError from error
    assert isinstance(delivery, Delivery)
    path.accepted.append(delivery)


def append_that_grows_the_batch(path: Path) -> None:
    path.send(b"v" * 6_000)


def append_that_fills_the_batch(path: Path) -> None:
    path.send(b"v" * 9_000)
    path.send(b"w" * 9_000)


def append_of_a_large_record(path: Path) -> None:
    path.send(b"v" * 50_000)


def seal(path: Path) -> None:
    """A batch's memory is exchanged for the smaller block that it is packed into."""
    path.parts.flush()
    (batch,) = path.parts.partition().queued
    batch.chunk = path.parts.pool.replace(batch.chunk, bytes(50)) or batch.chunk


def deliver(path: Path) -> None:
    """A result with a waiter, a callback and requested metadata."""
    result = BatchResult(path.loop, ("t", 0))  # type: ignore[arg-type]  # a pair is enough
    delivery = result.delivery(0, 5)
    next(iter(delivery.__await__()))
    delivery.add_done_callback(print)
    result.add_callback(0, 5, print)
    result.complete(7, -1, 0, 1)
    result.take_callbacks()
    result.note_retrieval_of(print, 0)
    result.wake()
    delivery.result()


def split(_path: Path) -> None:
    section = bytes.fromhex("0e 00 00 00 01 02 76 00")
    chunk = Chunk(len(section))
    chunk.fill(section)
    record_starts(section, 1)
    renumber_records(chunk, 0, 0, 1)


STEPS: list[Callable[[Path], None]] = [
    append,
    append_with_headers,
    append_with_callback,
    append_through_hooks,
    append_that_grows_the_batch,
    append_that_fills_the_batch,
    append_of_a_large_record,
    seal,
    deliver,
    split,
]


INTO_AN_OPEN_BATCH = (append, append_with_headers, append_with_callback, append_through_hooks)
"""Steps that are one native call; their accounts hold when any small object cannot be made."""


class NativeFaults:
    """malloc and realloc of the native modules, through the preloaded library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    @contextlib.contextmanager
    def failing_at(self, number: int) -> Iterator[None]:
        self._library.allocation_faults_fail_at(ctypes.c_long(number))
        try:
            yield
        finally:
            self._library.allocation_faults_fail_at(ctypes.c_long(-1))

    def alive(self) -> int:
        """Blocks that the native modules have not given back."""
        return int(self._library.allocation_faults_alive())


class PythonFaults:
    def __init__(self) -> None:
        import _testcapi  # noqa: PLC0415  # where the interpreter brings it

        self._hooks = _testcapi

    @contextlib.contextmanager
    def failing_at(self, number: int) -> Iterator[None]:
        self._hooks.set_nomemory(number + 1, number + 2)
        try:
            yield
        finally:
            self._hooks.remove_mem_hooks()

    def alive(self) -> int:
        """Nothing that could be counted: the test looks at the references instead."""
        return 0


def attempt(step: Callable[[Path], None], path: Path, failing: AbstractContextManager[None]) -> bool:
    """Do the step while an allocation fails; whether it was refused for that."""
    try:
        with failing:
            step(path)
    except MemoryError:
        return True
    return False


def check(step: Callable[[Path], None], path: Path, failing: AbstractContextManager[None]) -> dict[str, int]:
    """One step, one failing allocation; the next record is taken in any case, or this raises."""
    was_refused = attempt(step, path, failing)
    path.send(b"after")
    return {"refused": int(was_refused)}


def check_accounts(step: Callable[[Path], None], path: Path, failing: AbstractContextManager[None]) -> dict[str, int]:
    """Check the core, that accepted records are the sent ones, and that all memory is returned."""
    found = check(step, path, failing)
    sent = path.drain()
    found["sent_and_refused"] = max(sent - len(path.accepted), 0)
    found["lost"] = max(len(path.accepted) - sent, 0)
    found["bytes_missing"] = path.parts.pool.total_bytes - path.parts.pool.available_bytes
    return found


def sweep(step: Callable[[Path], None], faults: NativeFaults | PythonFaults) -> dict[str, int]:
    look = check_accounts if isinstance(faults, NativeFaults) or step in INTO_AN_OPEN_BATCH else check
    loop = asyncio.new_event_loop()
    sums: collections.Counter[str] = collections.Counter()
    quiet = 0
    for number in range(MOST_ALLOCATIONS):
        found = look(step, Path(loop), faults.failing_at(number))
        sums.update(found)
        quiet = 0 if any(found.values()) else quiet + 1
        if quiet > QUIET_AT_THE_END:
            break
    loop.close()
    return dict(sums)


def main(kind: str) -> None:
    """Sweep over all steps; print what came of each, as JSON."""
    faults = NativeFaults() if kind == "native" else PythonFaults()
    sweep(append, faults)  # what is made once, is made
    gc.collect()
    before = faults.alive()
    report = {step.__name__: sweep(step, faults) for step in STEPS}
    gc.collect()
    print(json.dumps({"steps": report, "left": faults.alive() - before}))


if __name__ == "__main__":
    main(sys.argv[1])
