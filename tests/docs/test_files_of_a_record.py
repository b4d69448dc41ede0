"""The files that a delivered record passes are those that the page on its life lists."""

import asyncio
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import get_ident
from types import CodeType, FrameType, FunctionType

import pytest

from aioproducer import Producer
from aioproducer._accumulator.partition import Batch, Partition
from aioproducer.testing import FakeCluster
from tests.import_graph import PACKAGE, layers, names_imported

PAGE = PACKAGE.parent / "docs" / "explanation" / "life_of_a_record.md"
MOST_FILES = 21
MOST_CLIMBS = 3
MOST_TYPES = 18

AWAITED = "_native/delivery.pyx"
"""`await delivery` is no call: what starts while the test's own frame runs is started by this file."""

TRACES = 60  # the shortest counts: timers of earlier records may fire in one
LINGER_IS_OVER_S = 0.03  # by then the timers of the record before have fired
TOOL = 4  # a number of `sys.monitoring` that neither debuggers, profilers nor coverage use


class Trace:
    """Files of the package that run in this thread, and calls to a higher layer than the caller's.

    A native function is seen when Python code calls it, and Python code when a native function calls it.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.climbs: list[tuple[str, str]] = []
        # Below all, the test's own frame; above it, that of `start`, whose end is the first event.
        self._running: list[str | None] = [None, AWAITED, None]
        self._is_called_by_test = False
        self._thread = get_ident()
        self._floors = {name: floor for floor, names in enumerate(reversed(layers())) for name in names}

    def start(self) -> None:
        monitoring, events = sys.monitoring, sys.monitoring.events
        handlers = {
            events.PY_START: self._started,
            events.PY_RESUME: self._resumed,
            events.PY_THROW: self._resumed,
            events.PY_RETURN: self._ended,
            events.PY_YIELD: self._ended,
            events.PY_UNWIND: self._ended,
            events.CALL: self._called,
            events.C_RETURN: self._ended,
            events.C_RAISE: self._ended,
        }
        monitoring.use_tool_id(TOOL, "files of a record")
        for event, handler in handlers.items():
            monitoring.register_callback(TOOL, event, partial(self._here, handler))
        monitoring.set_events(TOOL, sum(handlers) & ~(events.C_RETURN | events.C_RAISE))  # those come with CALL

    def stop(self) -> None:
        sys.monitoring.set_events(TOOL, 0)
        sys.monitoring.free_tool_id(TOOL)

    def _here(self, handler: Callable[..., None], *event: object) -> None:
        if get_ident() == self._thread:
            handler(*event)

    def _started(self, code: CodeType, _offset: int) -> None:
        self._enter(_relative(code.co_filename))

    def _resumed(self, code: CodeType, *_: object) -> None:
        """Note a coroutine that goes on: neither the event loop nor another coroutine calls it."""
        self._running.append(AWAITED if code is trace_of_a_record.__code__ else _relative(code.co_filename))

    def _called(self, code: CodeType, _offset: int, function: object, _first: object) -> None:
        if isinstance(getattr(function, "__func__", function), FunctionType):
            self._is_called_by_test = code is trace_of_a_record.__code__
            return  # its start is an event of its own
        module = str(getattr(getattr(function, "__objclass__", function), "__module__", None))
        if module.startswith("aioproducer._native."):
            self._enter(f"_native/{module.rpartition('.')[2]}.pyx")
        else:
            self._running.append(self._running[-1])  # of Python or a library: what it calls, its caller calls

    def _enter(self, file: str | None) -> None:
        caller = None if self._is_called_by_test else self._running[-1]
        self._is_called_by_test = False
        self._running.append(file)
        if file is None:
            return
        self.files.add(file)
        if caller is not None and self._floor(caller) < self._floor(file):
            self.climbs.append((caller, file))

    def _ended(self, *_: object) -> None:
        if len(self._running) > 1:  # else it was under way when the trace began
            self._running.pop()

    def _floor(self, file: str) -> int:
        return self._floors[Path(file).parts[0].removesuffix(".py")]


def _relative(filename: str) -> str | None:
    path = Path(filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None


async def trace_of_a_record(servers: str) -> Trace:
    async with Producer(servers) as producer:
        await producer.send("orders", b"before")
        await asyncio.sleep(LINGER_IS_OVER_S)
        trace = Trace()
        trace.start()
        await producer.send("orders", b"value")
        trace.stop()
    return trace


def shortest_trace() -> Trace:
    with FakeCluster.in_thread(1, topics={"orders": 1}) as cluster:
        traces = [asyncio.run(trace_of_a_record(cluster.bootstrap_servers)) for _ in range(TRACES)]
    return min(traces, key=lambda trace: (len(trace.climbs), len(trace.files)))


async def types_met(servers: str) -> set[type]:
    """Return the types of the package whose methods in Python run between a call of `send` and its result."""
    met: set[type] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and _relative(frame.f_code.co_filename) is not None and "self" in frame.f_locals:
            met.add(type(frame.f_locals["self"]))

    async with Producer(servers) as producer:
        await producer.send("orders", b"before")
        await asyncio.sleep(LINGER_IS_OVER_S)
        sys.setprofile(note)
        try:
            await producer.send("orders", b"value")
        finally:
            sys.setprofile(None)
    return met


def listed_files() -> list[str]:
    section = PAGE.read_text("utf-8").partition("## The files it passes")[2].partition("\n## ")[0]
    return re.findall(r"^\| \d+ \| `([\w/.]+)`", section, re.MULTILINE)


def reached_natively(files: set[str]) -> set[str]:
    """Native files that these use, and those that they use, as their `cimport` lines say."""
    found = {file for file in files if file.startswith("_native/")}
    new = found
    while new:
        names = {name for file in new for name in names_imported(PACKAGE / file, with_types=False)}
        used = {f"_native/{name.rpartition('.')[2]}.pyx" for name in names if name.startswith("aioproducer._native.")}
        new = {file for file in used if (PACKAGE / file).exists()} - found
        found |= new
    return found


def test_page_lists_few_files() -> None:
    files = listed_files()

    assert len(set(files)) == len(files) <= MOST_FILES
    assert all((PACKAGE / file).exists() for file in files)


@pytest.mark.timing  # on a busy machine the linger may end first, in every trace
@pytest.mark.skipif(sys.version_info < (3, 12), reason="calls are seen through sys.monitoring")
def test_record_passes_the_files_that_the_page_lists() -> None:
    """Native files that only native code calls cannot be traced: the page has them by reading."""
    trace = shortest_trace()
    listed = set(listed_files())

    assert trace.files - listed == set()
    assert listed - trace.files <= reached_natively(trace.files)
    assert len(trace.climbs) <= MOST_CLIMBS, trace.climbs


@pytest.mark.timing  # as above
def test_record_meets_few_types_of_objects() -> None:
    """A thing that is two objects is two types here: each one more is one more to know."""
    with FakeCluster.in_thread(1, topics={"orders": 1}) as cluster:
        met = min((asyncio.run(types_met(cluster.bootstrap_servers)) for _ in range(TRACES)), key=len)

    assert {Partition, Batch} <= met
    assert len(met) <= MOST_TYPES, sorted(each.__qualname__ for each in met)
