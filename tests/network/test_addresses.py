"""Names and addresses of brokers: how they are looked up, and which part a connection needs."""

import asyncio
import pathlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import uvloop

from aioproducer._network.addresses import connect, look_up

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def scoped_address() -> tuple[str, int] | None:
    table = pathlib.Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else []:
        digits, scope_id, *_ = line.split()
        if digits.startswith("fe80"):
            return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)), int(scope_id, 16)
    return None


@contextmanager
def silent_name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let each lookup hang; the event is set once one does."""
    is_asked, may_answer = threading.Event(), threading.Event()

    def getaddrinfo(*_: object) -> list[object]:
        is_asked.set()
        may_answer.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield is_asked
    may_answer.set()


@LOOPS
def test_lookup_that_hangs_does_not_delay_the_end_of_the_loop(
    new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner waits up to five minutes for the loop's own threads."""

    async def ask() -> None:
        lookup = asyncio.ensure_future(look_up(asyncio.get_running_loop(), "broker", 9092))
        await asyncio.to_thread(is_asked.wait, 60)
        lookup.cancel()
        await asyncio.wait([lookup])

    with silent_name_server(monkeypatch) as is_asked:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(ask())

        assert "aioproducer-lookup" in [thread.name for thread in threading.enumerate()]  # it hangs still


@LOOPS
def test_names_are_found_when_the_executor_is_shut_down(new_loop: NewLoop) -> None:
    """As at the interpreter's exit, or by an application that shuts it down."""

    async def ask() -> list[object]:
        loop = asyncio.get_running_loop()
        await loop.shutdown_default_executor()
        return [address for address, *_ in await look_up(loop, "localhost", 9092)]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert "127.0.0.1" in runner.run(ask())


@LOOPS
def test_error_of_a_lookup_is_raised(new_loop: NewLoop) -> None:
    """`.invalid` is reserved for names that do not exist."""
    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(socket.gaierror):
        runner.run(look_up(runner.get_loop(), "broker.invalid", 9092))


@LOOPS
def test_loop_with_a_resolver_of_its_own_is_asked(new_loop: NewLoop) -> None:
    """Each address once; of those with a scope all that a socket needs."""
    loop = new_loop()
    stream = (socket.AF_INET6, socket.SOCK_STREAM, 6, "")
    found = [(*stream, ("10.0.0.1", 1)), (*stream, ("fe80::1", 1, 7, 3)), (*stream, ("::1", 1, 0, 0))]

    async def getaddrinfo(*_: object, **__: object) -> Sequence[object]:
        return found * 2

    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # as an application would
    try:
        addresses = loop.run_until_complete(look_up(loop, "broker", 9092))
    finally:
        loop.close()

    assert addresses == [("10.0.0.1", 9092), ("fe80::1", 9092, 7, 3), ("::1", 9092)]


class Listener(asyncio.Protocol):
    """Keeps all that is said until the other end closes."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._so_far = b""

    def data_received(self, data: bytes) -> None:
        self._so_far += data

    def connection_lost(self, _: Exception | None) -> None:
        self.heard.set_result(self._so_far)


async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"here")
    writer.close()


@LOOPS
def test_link_local_address_is_connected_to_with_its_scope(new_loop: NewLoop) -> None:
    address, scope_id = scoped_address() or pytest.skip("no interface of this machine has a link-local address")

    async def story() -> bytes:
        loop = asyncio.get_running_loop()
        listening = socket.socket(socket.AF_INET6)
        listening.bind((address, 0, 0, scope_id))
        server = await asyncio.start_server(greet, sock=listening)
        (found,) = await look_up(loop, f"{address}%{scope_id}", listening.getsockname()[1])
        listener = await connect(loop, Listener, found)
        server.close()
        return await listener.heard

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(story()) == b"here"


@LOOPS
def test_link_local_address_on_which_nothing_listens_is_refused(new_loop: NewLoop) -> None:
    """The port is taken, so that nothing else listens there."""
    address, scope_id = scoped_address() or pytest.skip("no interface of this machine has a link-local address")
    with socket.socket(socket.AF_INET6) as taken, asyncio.Runner(loop_factory=new_loop) as runner:
        taken.bind((address, 0, 0, scope_id))
        place = (address, taken.getsockname()[1], 0, scope_id)

        with pytest.raises(ConnectionRefusedError):
            runner.run(connect(runner.get_loop(), asyncio.Protocol, place))
