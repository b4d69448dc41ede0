"""TLS whose encryption is done by a thread: positions, order, memory, and ends meanwhile."""

import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer._network import tls
from aioproducer._threads.own_threads import OwnThreads
from aioproducer.errors import TlsError
from tests.fakes.tls_peer import Scene, ThreadsInTest, TlsPeer, server_context

CIPHERS = ["", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-RSA-AES256-SHA384"]
MUCH = 2_500_000  # more than a thread encrypts at a time


def scene(threads: OwnThreads, ciphers: str = "") -> Scene:
    made = Scene(TlsPeer(server_context(ciphers=ciphers)), threads=threads)
    made.shake_hands()
    return made


@pytest.mark.parametrize("ciphers", CIPHERS, ids=["1.3", "chacha", "cbc"])
@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.sampled_from([1, 300, 70_000, 250_000, MUCH]), max_size=3), st.integers(0, MUCH), st.booleans()
        ),
        max_size=8,
    )
)
async def test_positions_hold_while_a_thread_encrypts(ciphers: str, steps: list[tuple[list[int], int, bool]]) -> None:
    threads = ThreadsInTest()
    made, handed = scene(threads, ciphers), 0
    for sizes, leave, finishes in steps:
        made.transport.writelines([b"x" * size for size in sizes])
        handed += sum(sizes)
        if finishes:
            await threads.finish()
        made.peer.feed(made.raw.take(leave))
        assert handed - made.transport.get_write_buffer_size() == len(made.peer.received)
    while await threads.finish() or made.raw.held:
        made.peer.feed(made.raw.take())
    assert made.transport.get_write_buffer_size() == 0
    assert len(made.peer.received) == handed


async def test_what_arrives_while_a_thread_encrypts_is_read_behind_it() -> None:
    threads = ThreadsInTest()
    made = scene(threads)
    inner = made.protocol.done.result()
    made.transport.write(b"x" * tls.THREAD_BYTES)
    made.answer(made.peer.write(b"first "))
    made.answer(made.peer.write(b"second") + made.peer.close_notify())
    assert made.protocol.eof_received() is False
    made.protocol.connection_lost(None)
    assert (bytes(inner.received), inner.calls) == (b"", ["made", "pause"])

    await threads.finish()
    assert (bytes(inner.received), inner.calls) == (b"first second", ["made", "pause", "eof", "lost"])
    assert made.protocol.closed.done()
    assert not await threads.finish()


async def test_memory_is_let_go_of_in_the_loop_when_a_thread_is_done() -> None:
    threads = ThreadsInTest()
    made = scene(threads)
    memory = bytearray(b"x" * tls.THREAD_BYTES)
    made.transport.write(memoryview(memory))
    with pytest.raises(BufferError):
        memory.extend(b"y")
    await threads.finish()
    memory.extend(b"y")
    made.peer.feed(made.raw.take())
    assert len(made.peer.received) == tls.THREAD_BYTES


async def test_close_while_a_thread_encrypts_sends_everything() -> None:
    threads = ThreadsInTest()
    made = scene(threads)
    made.transport.write(b"x" * MUCH)
    made.transport.close()
    while await threads.finish() or made.raw.held:
        made.peer.feed(made.raw.take(100_000))
    assert len(made.peer.received) == MUCH
    assert made.peer.got_close_notify
    assert made.raw.is_closing()
    assert not made.raw.is_aborted


async def test_abort_while_a_thread_encrypts_sends_nothing() -> None:
    threads = ThreadsInTest()
    made = scene(threads)
    made.transport.write(b"x" * MUCH)
    made.transport.abort()
    made.protocol.connection_lost(None)
    await threads.finish()
    assert not made.raw.held
    assert made.transport.get_write_buffer_size() == 0
    assert made.protocol.done.result().calls[-1] == "lost"


async def test_failure_in_a_thread_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> list[bytes]:
        raise ssl.SSLError("no more")

    monkeypatch.setattr(tls, "_encrypted", fails)
    threads = ThreadsInTest()
    made = scene(threads)
    made.transport.write(b"x" * MUCH)
    await threads.finish()
    assert made.raw.is_aborted
    made.protocol.connection_lost(None)
    assert isinstance(made.protocol.done.result().lost, TlsError)


async def test_without_a_thread_the_loop_encrypts() -> None:
    threads = OwnThreads(1, "test")
    threads.close()
    made = scene(threads)
    made.transport.write(b"x" * MUCH)
    while made.raw.held:
        made.peer.feed(made.raw.take(100_000))
    assert len(made.peer.received) == MUCH
