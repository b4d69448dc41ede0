"""The event loop of a simulation: virtual time, names and connections from a simulated network, threads as events.

`LeanLoop` does what asyncio's loop does in virtual time, and nothing else: no selector, no threads, no signals. Half
of what asyncio's spends on a turn is for sockets, other threads and debug mode, and its heap compares timers in Python.
Here handles are lists, which compare natively, and futures and tasks are asyncio's own.
"""

from __future__ import annotations

import asyncio
import heapq
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple
from weakref import ref

from aioproducer._threads import calls

if TYPE_CHECKING:
    from tests.programs.simulation.simulated_network import SimulatedNetwork
    from tests.programs.simulation.simulated_transport import SimulatedTransport

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")

RESOLUTION_S: Final = 1e-9  # resolution of the clock: what is due within it counts as due, as in asyncio

_WHEN, _CALLBACK, _ARGUMENTS, _CONTEXT = 0, 2, 3, 4


class LeanHandle(list[Any]):
    """A callback that will run: when, in which place among equals, the callback, its arguments, its context."""

    __slots__ = ()

    def cancel(self) -> None:
        """Do not run it, and let go of what it would have run with."""
        self[_CALLBACK] = None
        self[_ARGUMENTS] = ()

    def cancelled(self) -> bool:
        return self[_CALLBACK] is None

    def when(self) -> float:
        when: float = self[_WHEN]
        return when

    @property
    def callback(self) -> Callable[..., object] | None:
        callback: Callable[..., object] | None = self[_CALLBACK]
        return callback


class LeanLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0  # the time; jumps to the next timer when there is nothing to do
        self.turns = 0  # turns of the loop: in virtual time that is the whole cost
        self.most_turns = 10**9  # turns of the loop without progress before the loop is reported as busy
        self.soon: deque[LeanHandle] = deque()
        self.later: list[LeanHandle] = []
        self._tasks_made: list[ref[asyncio.Task[Any]]] = []
        self._numbers = count().__next__
        self._is_stopping = False

    @property
    def timers(self) -> int:
        return sum(not handle.cancelled() for handle in self.later)

    def time(self) -> float:
        return self.now

    get_debug = staticmethod(bool)  # type: ignore[assignment]  # False, said natively: every future asks

    # What asyncio asks of a loop

    def call_soon(  # type: ignore[override]  # a handle of another class, which does all that is asked of one
        self, callback: Callable[[*ArgumentsT], object], *args: *ArgumentsT, context: Context | None = None
    ) -> LeanHandle:
        handle = LeanHandle((0.0, 0, callback, args, context))
        self.soon.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[[*ArgumentsT], object], *args: *ArgumentsT, context: Context | None = None
    ) -> LeanHandle:
        handle = LeanHandle((when, self._numbers(), callback, args, context))
        heapq.heappush(self.later, handle)
        return handle

    def call_later(  # type: ignore[override]  # as above
        self,
        delay: float,
        callback: Callable[[*ArgumentsT], object],
        *args: *ArgumentsT,
        context: Context | None = None,
    ) -> LeanHandle:
        handle = LeanHandle((self.now + delay, self._numbers(), callback, args, context))
        heapq.heappush(self.later, handle)
        return handle

    def create_task(
        self,
        coro: Generator[Any, None, ResultT] | Coroutine[Any, Any, ResultT],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[ResultT]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)  # type: ignore[arg-type]  # asyncio takes both
        self._tasks_made.append(ref(task))
        return task

    def unfinished_tasks(self) -> list[asyncio.Task[Any]]:
        """Return this loop's tasks as `asyncio.all_tasks` does, which would also visit those of all other loops."""
        made = (each() for each in self._tasks_made)
        return [task for task in made if task is not None and not task.done()]

    def stop(self) -> None:
        self._is_stopping = True

    def close(self) -> None:
        super().close()
        self.soon.clear()
        self.later.clear()

    # Turns

    def run_forever(self) -> None:
        asyncio.events._set_running_loop(self)  # type: ignore[attr-defined]  # noqa: SLF001  # as every loop does
        try:
            while not self._is_stopping:
                self.turns += 1
                if self.turns > self.most_turns:
                    raise AssertionError(f"the loop went round {self.most_turns} times, and there is no end to it")
                self._collect()
                self._run_soon()
        finally:
            self._is_stopping = False
            asyncio.events._set_running_loop(None)  # type: ignore[attr-defined]  # noqa: SLF001  # as above

    def _collect(self) -> None:
        """Take what is due; when there is nothing to do, let time pass until something is."""
        later, soon = self.later, self.soon
        while later and later[0][_CALLBACK] is None:
            heapq.heappop(later)
        if not later:
            if not soon:
                raise AssertionError("nothing will ever happen again: the test would hang")
            return
        when = later[0][_WHEN]
        if not soon and when > self.now:
            self.now = when
        end = self.now + RESOLUTION_S
        while when < end:
            self.now = max(self.now, when)  # a timer that is found too early is set again, and no time would pass
            soon.append(heapq.heappop(later))
            if not later:
                return
            when = later[0][_WHEN]

    def _run_soon(self) -> None:
        """Run what was there when the turn began."""
        soon = self.soon
        take = soon.popleft
        for _ in range(len(soon)):
            _, _, callback, arguments, context = take()
            if callback is None:
                continue
            try:
                if context is None:
                    callback(*arguments)
                else:
                    context.run(callback, *arguments)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001  # as asyncio does
                text = (
                    f"Exception in callback {getattr(callback, '__qualname__', type(callback).__name__)}"  # no address
                )
                self.call_exception_handler({"message": text, "exception": error})


LONGEST_JOB_S = 0.05  # longest time of a job that `run_in_executor` gives to a thread


class SimulatedLoop(LeanLoop):
    """A loop on which nothing happens by chance."""

    network: SimulatedNetwork  # set once it exists: the two need each other

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random

    def close(self) -> None:
        """Forget everything of the run: deliveries keep their loop, and the collector does not see through them."""
        super().close()
        self.set_exception_handler(None)
        self.__dict__.pop("network", None)

    def call_soon_threadsafe(  # type: ignore[override]  # as `call_soon`: there is one thread
        self, callback: Callable[[*ArgumentsT], object], *args: *ArgumentsT, context: Context | None = None
    ) -> LeanHandle:
        return self.call_soon(callback, *args, context=context)

    def start_thread(self, function: Callable[[], object], name: str) -> None:
        """Run what a thread would do as an event of its own, some time later."""
        del name
        self.call_later(self._random.uniform(0, LONGEST_JOB_S), function)

    async def getaddrinfo(  # type: ignore[override]  # as much of it as is used
        self, host: str, port: int, **_: object
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        """Ask the simulated name server; a name that it does not know is an address."""
        found = await self.network.names.look_up(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    async def create_connection(  # type: ignore[override]  # as much of it as is used
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[SimulatedTransport, asyncio.Protocol]:
        return await self.network.connect(factory, host, port)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*ArgumentsT], ResultT], *args: *ArgumentsT
    ) -> asyncio.Future[ResultT]:
        """Run a job that would go to a thread as an event of its own, some time later."""
        del executor
        done: asyncio.Future[ResultT] = self.create_future()
        self.call_later(self._random.uniform(0, LONGEST_JOB_S), finish, done, partial(func, *args))
        return done


def finish(done: asyncio.Future[ResultT], job: Callable[[], ResultT]) -> None:
    """Do a job and let its future know, as an executor does."""
    try:
        result = job()
    except Exception as error:  # noqa: BLE001  # as an executor does
        if not done.cancelled():
            done.set_exception(error)
        return
    if not done.cancelled():
        done.set_result(result)


@contextmanager
def threads_on(loop: SimulatedLoop) -> Iterator[None]:
    """Let the producer's threads be events of the loop."""
    names = vars(calls)
    real = names["start_thread"]
    names["start_thread"] = loop.start_thread
    try:
        yield
    finally:
        names["start_thread"] = real
