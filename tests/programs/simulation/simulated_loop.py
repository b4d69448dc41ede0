"""The event loop of a simulation: virtual time, names and connections from a simulated network, threads as events."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from random import Random
from typing import TypeVar, TypeVarTuple

from aioproducer._threads import off_loop
from tests.programs.simulation.lean_loop import LeanHandle, LeanLoop
from tests.programs.simulation.simulated_network import SimulatedNetwork
from tests.programs.simulation.simulated_transport import SimulatedTransport

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")

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
    names = vars(off_loop)
    real = names["start_thread"]
    names["start_thread"] = loop.start_thread
    try:
        yield
    finally:
        names["start_thread"] = real
