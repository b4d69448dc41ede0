"""A whole producer and a whole `FakeCluster` on one loop in virtual time: minutes pass in milliseconds."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Literal, ParamSpec

from tests.fakes.virtual_loop import ServerFactory, VirtualLoop

ArgumentsT = ParamSpec("ArgumentsT")


class VirtualServer:
    """The part of `asyncio.Server` that `FakeCluster` uses, and its only socket."""

    def __init__(self, loop: "ClusterLoop", address: tuple[str, int], factory: ServerFactory) -> None:
        self.sockets = (self,)
        self._loop = loop
        self._address = address
        self._factory = factory

    def getsockname(self) -> tuple[str, int]:
        return self._address

    async def start_serving(self) -> None:
        self._loop.servers[self._address] = self._factory

    def close(self) -> None:
        self._loop.servers.pop(self._address, None)

    async def wait_closed(self) -> None:
        """Be closed at once."""


class ClusterLoop(VirtualLoop):
    """A virtual loop on which servers can be opened."""

    def __init__(self) -> None:
        super().__init__()
        self._free_ports = count(20_000)

    async def create_server(  # type: ignore[override]  # of what is used
        self,
        factory: ServerFactory,
        host: str,
        port: int,
        *,
        start_serving: Literal[False],  # noqa: ARG002
    ) -> VirtualServer:
        return VirtualServer(self, (host, port or next(self._free_ports)), factory)


def in_virtual_time(story: Callable[ArgumentsT, Coroutine[object, object, None]]) -> Callable[ArgumentsT, None]:
    """Run an async test on a loop of its own whose clock jumps."""

    @functools.wraps(story)
    def test(*args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> None:
        with asyncio.Runner(loop_factory=ClusterLoop) as runner:
            runner.run(story(*args, **kwargs))

    return test
