"""The network of a simulation: nodes with addresses, latencies and bad days, between transports and the brokers.

Each connection keeps the order of its bytes; connections do not keep order among each other. What has left the
producer arrives even when the producer has closed the connection since, seconds later if the way is long.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import ceil
from random import Random
from typing import Final

from aioproducer.testing.fake_broker.broker import PLAINTEXT
from aioproducer.testing.fake_broker.cluster import ModelCluster
from aioproducer.testing.fake_broker.exchange import Close, Effect, PauseReading, ResumeReading, Send
from tests.programs.simulation.invariant_checkers import FrameChecker
from tests.programs.simulation.secured import Secured, forged
from tests.programs.simulation.session_checker import SessionChecker
from tests.programs.simulation.simulated_loop import LeanLoop
from tests.programs.simulation.simulated_tls import BOOTSTRAP_NAME, Sealed, TlsEnd
from tests.programs.simulation.simulated_transport import SimulatedTransport
from tests.programs.simulation.wire_checker import Fate, WireChecker

PORT = 9092
_NEXT = 1e-6
"""Seconds between bytes that follow each other on a connection, where the loop does not keep the order of equals."""

_LENGTH = struct.Struct(">i")
_FRAGMENTS = 12


@dataclass(slots=True, eq=False)
class Passage:
    """Something on its way, called when it arrives: a dark node keeps it waiting."""

    way: Hashable
    node: Node
    act: Callable[[], None]
    held: list[tuple[Node, Callable[[], None]]]

    def __call__(self) -> None:
        if self.node.is_dark:
            self.held.append((self.node, self.act))
        else:
            self.act()


class SimulatedNetwork:  # noqa: PLR0904  # all between producer and brokers
    def __init__(  # noqa: PLR0917  # what it stands between
        self, loop: asyncio.AbstractEventLoop, model: ModelCluster, random: Random, wire_checker: WireChecker
    ) -> None:
        self.loop = loop
        self.model = model
        self.wire_checker = wire_checker
        self.nodes = {number: Node(number) for number in model.brokers}
        self.names = NameServer(lambda: [node.host for node in self.nodes.values()])
        self.connections: dict[int, SimulatedTransport] = {}
        self.frames = FrameChecker(wire_checker.violated)
        self.violated = wire_checker.violated
        self.beat_s = 0.0  # arrivals happen at multiples of it, so that many arrive together; 0.0: at any time
        self._random = random
        self._next = 0.0 if isinstance(loop, LeanLoop) else _NEXT
        self._numbers = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._held: list[tuple[Node, Callable[[], None]]] = []  # what waits for a dark node
        self._lights: list[tuple[Node, asyncio.Future[None]]] = []  # connections that wait for a node
        self._moves = count(1)
        self._repeats: list[asyncio.TimerHandle] = []
        self._secured: Secured | None = None
        self._sessions: SessionChecker | None = None
        for node in self.nodes.values():
            self._place(node)

    def secure(self, secured: Secured, sessions: SessionChecker) -> None:
        """Let all connections be those of a secured listener; call it before there is one."""
        self._secured, self._sessions = secured, sessions

    # Addresses

    def move_all(self) -> None:
        move = next(self._moves)
        for node in self.nodes.values():
            node.host = f"10.0.{move}.{node.number}"
            self._place(node)
        for connection in list(self.connections.values()):
            self.cut(connection, "the node moved away")

    def _place(self, node: Node) -> None:
        broker = self.model.brokers[node.number]
        broker.host, broker.port = node.host, PORT

    # Connections

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[SimulatedTransport, asyncio.Protocol]:
        """Connect to the node at an address; a dark one keeps us waiting."""
        node = next((each for each in self.nodes.values() if each.host == host and port == PORT), None)
        self.wire_checker.connecting(host)
        now = self.loop.time()
        await asyncio.sleep(self._arrival(node) - now if node is not None else 0.001)
        while node is not None and node.is_dark:
            light: asyncio.Future[None] = self.loop.create_future()
            self._lights.append((node, light))
            await light
        if node is None or node.host != host or node.is_refusing or not self.model.brokers[node.number].is_alive:
            raise ConnectionRefusedError(111, "Connection refused")
        protocol = factory()
        transport = SimulatedTransport(self, protocol, node, next(self._numbers))
        self.connections[transport.number] = transport
        if self._secured is not None:
            self._secure(transport, self._secured, began_at=now)
        listener = PLAINTEXT if self._secured is None else self._secured.listener
        self.model.brokers[node.number].connected(transport.number, listener)
        self.wire_checker.connected(transport)
        protocol.connection_made(transport)
        # One that has lost the race of a name's addresses is closed at once.
        if transport.is_closing():
            transport.lost_race = True
        elif transport.tls is None and not transport.sends_at_once:
            self.violated("SOCKET", f"connection {transport.number} delays small frames, or does not keep itself alive")
        return transport, protocol

    def _secure(self, transport: SimulatedTransport, secured: Secured, *, began_at: float) -> None:
        transport.connected_at = began_at
        certificates, node = secured.certificates, transport.node
        if certificates is None:
            return
        trouble = node.handshake_troubles.pop() if node.handshake_troubles else ""
        context = certificates.context(node.host, node.impostor)
        rng = Random(f"tls-{transport.number}")
        transport.tls = TlsEnd(context, impostor=node.impostor, trouble=trouble, rng=rng)
        transport.is_seen_late = node.is_stalled
        transport.trusts_node = certificates.must_trust_brokers(transport.connected_at)
        for what, happens in (("broken handshake", trouble), ("impostor", node.impostor)):
            if happens:
                self.wire_checker.fired(what)

    def closed_by_producer(self, transport: SimulatedTransport) -> None:
        """Let the node see the end, after all that was sent before."""
        self._send_later(transport, lambda: self._end_at_node(transport))

    def cut(self, transport: SimulatedTransport, reason: str) -> None:
        """Break a connection now, for both ends."""
        self._end_at_node(transport)
        transport.reset(reason)

    def cut_all(self, node: Node, reason: str) -> None:
        for connection in list(self.connections.values()):
            if connection.node is node:
                self.cut(connection, reason)

    def forget(self, transport: SimulatedTransport) -> None:
        """The producer has let go of a connection; what is on the way up still arrives."""
        self.connections.pop(transport.number, None)
        self.wire_checker.lost(transport)
        self.frames.lost(transport)
        if self._sessions is not None:
            self._sessions.lost(transport)

    def _end_at_node(self, transport: SimulatedTransport) -> None:
        if transport.is_open_at_node:
            transport.is_open_at_node = False
            self.model.brokers[transport.node.number].disconnected(transport.number)

    # The weather

    def stall(self, node: Node, window: int) -> None:
        """Let a node read no more; `window` bytes of each connection still leave when there are any."""
        node.is_stalled = True
        for connection in self.connections.values():
            connection.is_seen_late |= connection.node is node and connection.tls is not None
        self.loop.call_later(0.01, self._fill_window, node, window)

    def trickle(self, node: Node, size: int, *, every_s: float) -> None:
        """Let a node read only so many bytes of each connection at a time, until its trouble is over."""
        self.stall(node, size)
        self.loop.call_later(every_s, self._trickle_on, node, size, every_s)

    def _trickle_on(self, node: Node, size: int, every_s: float) -> None:
        if node.is_stalled:
            self._fill_window(node, size)
            self.loop.call_later(every_s, self._trickle_on, node, size, every_s)

    def _fill_window(self, node: Node, window: int) -> None:
        for connection in list(self.connections.values()):
            if connection.node is node:
                connection.leave(window)

    def clear_up(self, node: Node) -> None:
        """End all network trouble of a node; what waited goes on, in order."""
        node.clear_up()
        held = [what for where, what in self._held if where is node]
        self._held[:] = [(where, what) for where, what in self._held if where is not node]
        for deliver in held:
            deliver()
        for where, light in self._lights:
            if where is node and not light.done():
                light.set_result(None)
        self._lights = [(where, light) for where, light in self._lights if not light.done()]
        for connection in list(self.connections.values()):
            if connection.node is node:
                connection.leave(2**31)

    # Up: from the producer to a broker

    def note_written(self, transport: SimulatedTransport, data: bytes) -> None:
        """Look at what the producer writes: a frame, or TLS records."""
        if transport.tls is None:
            self._note_frame(transport, data)
            return
        was_ready = transport.tls.is_ready
        try:
            for frame in transport.tls.take(data):
                self._note_frame(transport, frame)
        except ValueError as error:
            self.violated("PEER", f"connection {transport.number} sends what is not encrypted: {error}")
        if transport.tls.is_ready and not was_ready and self._sessions is not None:
            self._sessions.shook_hands(transport)
        if transport.tls.plain_bytes and transport.tls.impostor:
            self.violated("PEER", f"connection {transport.number} talks to who has {transport.tls.impostor}")

    def _note_frame(self, transport: SimulatedTransport, frame: bytes) -> None:
        if self._sessions is not None:
            self._sessions.written(transport, frame)
        is_produce = self.wire_checker.written(transport, frame)
        if is_produce and transport.node.repeat_times > 0:
            transport.node.repeat_times -= 1
            self._plan_repeat(transport, frame, is_last=False)

    def depart(self, transport: SimulatedTransport, data: bytes) -> None:
        if transport.tls is None:
            self.send_up(transport, data)
            return
        for record in transport.tls.left(len(data)):
            if (record.answer or record.is_end) and not transport.is_cut:
                self._send_later(transport, partial(self._answer_in_tls, transport, record))
            if record.plain:
                self.send_up(transport, record.plain)

    def _answer_in_tls(self, transport: SimulatedTransport, record: Sealed) -> None:
        if not transport.is_open_at_node:
            return
        if record.answer:
            self._answer_later(transport, partial(transport.receive_sealed, record.answer))
        if record.is_end:
            self._end_at_node(transport)
            self._answer_later(transport, transport.receive_end)

    def send_up(self, transport: SimulatedTransport, data: bytes) -> None:
        node = transport.node
        if transport.is_cut:
            return
        if node.cut_times > 0:
            node.cut_times -= 1
            transport.is_cut = True
            self.wire_checker.fired("half request")
            part = data[: self._random.randrange(len(data))]
            self._carry_up(transport, part)
            self.loop.call_at(self._up_time(transport), self.cut, transport, "cut in the middle of a request")
        else:
            self._carry_up(transport, data)

    def _carry_up(self, transport: SimulatedTransport, data: bytes) -> None:
        if transport.node.fragment_times <= 0:
            self._send_later(transport, partial(self._arrive, transport, data))
            return
        for piece in self._pieces(transport.node, data):
            self._send_later(transport, partial(self._arrive, transport, piece))

    def _arrive(self, transport: SimulatedTransport, data: bytes) -> None:
        if not transport.is_open_at_node:
            return
        if transport.node.is_strict and self._sessions is not None and self._sessions.was_impatient(transport):
            self.wire_checker.fired("strict proxy")
            self.cut(transport, "something follows a token")
            return
        if transport.is_paused_by_broker:
            transport.waiting.append(data)
            return
        unread = transport.unread
        broker = self.model.brokers[transport.node.number]
        now = self.loop.time()
        if not unread and len(data) >= _LENGTH.size and len(data) == _LENGTH.size + _LENGTH.unpack_from(data)[0]:
            broker.receive(transport.number, memoryview(data)[_LENGTH.size :], now)
            self.settle()
            return
        unread += data
        while len(unread) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(unread)[0]
            if len(unread) < end:
                break
            frame = memoryview(bytes(unread[_LENGTH.size : end]))
            del unread[:end]
            broker.receive(transport.number, frame, now)
        self.settle()

    def _plan_repeat(self, transport: SimulatedTransport, frame: bytes, *, is_last: bool) -> None:
        when = self.loop.time() + transport.node.repeat_delay_s
        repeat = partial(self._repeat, transport, frame, is_last=is_last)
        self._repeats.append(self.loop.call_at(when, Passage("repeated_requests", transport.node, repeat, self._held)))

    def drop_repeats(self) -> None:
        """Let no second copy of earlier requests arrive: later ones are sent as if much later."""
        for repeat in self._repeats:
            repeat.cancel()
        self._repeats.clear()

    def _repeat(self, transport: SimulatedTransport, frame: bytes, *, is_last: bool) -> None:
        """Let a broker get a request a second time, on a connection of its own.

        Only one that was appended or never answered: no network repeats what a broker has refused.
        """
        broker = self.model.brokers[transport.node.number]
        fate = self.wire_checker.fate(transport, frame)
        if fate is Fate.OPEN and not is_last:
            self._plan_repeat(transport, frame, is_last=True)
        if fate is Fate.MAY_REPEAT and broker.is_alive:
            self.wire_checker.fired("repeated requests")
            number = next(self._numbers)
            broker.connected(number)
            broker.receive(number, memoryview(frame)[_LENGTH.size :], self.loop.time())
            self.settle()

    # Down: from a broker to the producer

    def settle(self) -> None:
        """Carry out what the brokers want done, and plan when to look at them again."""
        for effect in self.model.take_effects():
            transport = self.connections.get(effect.connection_id)
            if transport is None:
                continue
            if isinstance(effect, Send):
                self._send_down(transport, b"".join(effect.buffers))
            else:
                self._carry_out(effect, transport)
        self._plan()

    def _carry_out(self, effect: Effect, transport: SimulatedTransport) -> None:
        match effect:
            case Close():
                transport.is_open_at_node = False
                if effect.is_abrupt:
                    self.wire_checker.died(transport.node.number)
                end = (lambda: transport.reset(effect.reason)) if effect.is_abrupt else transport.receive_end
                self._answer_later(transport, end)
            case PauseReading():
                transport.is_paused_by_broker = True
            case ResumeReading():
                transport.is_paused_by_broker = False
                while transport.waiting and not transport.is_paused_by_broker:
                    self._arrive(transport, transport.waiting.popleft())

    def _send_down(self, transport: SimulatedTransport, data: bytes) -> None:
        if transport.node.lie_times > 0:
            transport.node.lie_times -= 1
            self.wire_checker.fired("lies")
            self.wire_checker.answered(transport, data, is_heard=False)
            transport.is_spoilt = True
            data = changed(data, self._random)
        if transport.node.tamper_times > 0 and transport.tls is not None:
            self._tamper(transport, data)
            return
        if transport.node.stranger_times > 0 and not transport.down_at:
            transport.node.stranger_times -= 1
            self.wire_checker.answered(transport, data, is_heard=False)
            self._answer_later(transport, partial(self._speak, transport, self._random.choice(STRANGERS)))
            return
        last = data = self._forged(transport, data)
        if transport.node.fragment_times > 0:
            *fragments, last = self._pieces(transport.node, data)
            if not is_whole(data):
                transport.is_spoilt = True  # its size comes first, and is enough
            for piece in fragments:
                self._answer_later(transport, partial(transport.receive, piece))
        self._answer_later(transport, partial(self._answer, transport, data, last))
        if transport.node.echo_times > 0 and is_whole(data):
            transport.node.echo_times -= 1
            self._answer_later(transport, partial(self._speak, transport, data))

    def _tamper(self, transport: SimulatedTransport, data: bytes) -> None:
        transport.node.tamper_times -= 1
        self.wire_checker.fired("tampered record")
        self.wire_checker.answered(transport, data, is_heard=False)
        transport.is_spoilt = True
        self._answer_later(transport, partial(transport.receive, data, is_tampered=True))

    def _forged(self, transport: SimulatedTransport, data: bytes) -> bytes:
        """Change a proof in an answer, if there is one of the kind that is wanted."""
        wanted = transport.node.forgeries
        changed_proof = forged(data, wanted[0]) if wanted else data
        if changed_proof == data or self._sessions is None:
            return data
        wanted.pop(0)
        self.wire_checker.fired("forged login")
        self._answer_later(transport, partial(self._sessions.forged, transport))
        return changed_proof

    def _speak(self, transport: SimulatedTransport, data: bytes) -> None:
        """Let the producer read what no broker answers; it may take it for the rest of a frame of a wrong size."""
        is_certain = not transport.is_spoilt
        transport.is_spoilt = True
        transport.receive(data)
        self.frames.taken(transport, is_bad=is_certain)

    def _answer(self, transport: SimulatedTransport, frame: bytes, last: bytes) -> None:
        is_bad = self.frames.is_bad(transport, frame)
        if self._sessions is not None:
            self._sessions.answered(transport, frame)
        self.wire_checker.answered(transport, frame)
        transport.receive(last)
        self.frames.taken(transport, is_bad=is_bad)

    def _plan(self) -> None:
        when = self.model.next_wakeup()
        if self._timer is not None:
            if when is not None and self._timer.when() <= when:
                return
            self._timer.cancel()
            self._timer = None
        if when is not None:
            self._timer = self.loop.call_at(when, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.model.advance(self.loop.time())
        self.settle()

    def wake_soon(self) -> None:
        self.loop.call_soon(self._wake)

    # Time

    def _send_later(self, transport: SimulatedTransport, act: Callable[[], None]) -> None:
        self.loop.call_at(self._up_time(transport), Passage(transport.way_up, transport.node, act, self._held))

    def _answer_later(self, transport: SimulatedTransport, act: Callable[[], None]) -> None:
        transport.down_at = when = max(self._arrival(transport.node), transport.down_at + self._next)
        self.loop.call_at(when, Passage(transport.way_down, transport.node, act, self._held))

    def _up_time(self, transport: SimulatedTransport) -> float:
        transport.up_at = when = max(self._arrival(transport.node), transport.up_at + self._next)
        return when

    def _arrival(self, node: Node) -> float:
        latency_s = node.latency_s + node.extra_s
        if node.jitter_s:
            latency_s += self._random.random() * node.jitter_s
        when = self.loop.time() + latency_s
        return self.on_beat(when) if self.beat_s else when

    def on_beat(self, when: float) -> float:
        beat_s = self.beat_s
        return ceil(when / beat_s) * beat_s if beat_s else when

    def _pieces(self, node: Node, data: bytes) -> list[bytes]:
        if len(data) < 2:
            return [data]
        node.fragment_times -= 1
        self.wire_checker.fired("fragments")
        single = min(self._random.randrange(1, _FRAGMENTS), len(data) - 1)
        return [*(data[i : i + 1] for i in range(single)), data[single:]]


# One node of the simulated network: its address, and what is wrong with the ways to it.


class Node:
    def __init__(self, number: int) -> None:
        self.number = number
        self.host = f"10.0.0.{number}"
        self.latency_s = 0.001
        self.jitter_s = 0.0
        self.clear_up()

    def clear_up(self) -> None:
        self.is_dark = False  # nothing arrives in either direction, and no client connects; what was sent waits
        self.is_refusing = False  # connections are refused
        self.is_stalled = False  # whether it reads nothing: the producer's transports keep what is written
        self.extra_s = 0.0  # added to the latency of both ways
        self.fragment_times = 0  # transfers that still arrive in small pieces
        self.cut_times = 0  # requests of which only a part will arrive before the connection breaks
        self.repeat_times = 0  # Produce requests of which a second copy will arrive later
        self.repeat_delay_s = 0.0
        self.lie_times = 0  # answers that will arrive with bytes changed
        self.stranger_times = 0  # connections on which something that is no broker answers
        self.echo_times = 0  # answers that will arrive a second time
        self.forgeries: list[str] = []  # proofs that will be changed
        self.handshake_troubles: list[str] = []  # what will happen instead of TLS handshakes
        self.impostor = ""  # what is wrong with the certificate of who listens there
        self.tamper_times = 0  # answers of which a bit will be changed
        self.is_strict = False  # whether a proxy cuts connections on which something follows a token


# The name server of a simulation: it knows the bootstrap name, takes every other name for an address, and may fail.


class NameServer:
    def __init__(self, addresses: Callable[[], list[str]]) -> None:
        self.is_failing = False
        self.is_silent = False
        self._addresses = addresses
        self._waiting: list[asyncio.Future[None]] = []

    async def look_up(self, host: str) -> list[str]:
        while self.is_silent:
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(answer)
            await answer
        if self.is_failing:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return self._addresses() if host == BOOTSTRAP_NAME else [host]

    def clear_up(self) -> None:
        self.is_failing = self.is_silent = False
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            if not answer.done():
                answer.set_result(None)


# What comes from a port on which something else listens, and answers that were changed on their way.

STRANGERS: Final = (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x46", b"SSH-2.0-OpenSSH_9.2\r\n")
"""Answers of a web server, a TLS listener and another server to a Kafka request."""

_SIZE: Final = struct.Struct(">i")
_HEADER_END: Final = 8  # behind the size and the correlation id; in flexible versions tagged fields follow

_TAGS: Final = (b"\xff\xff\xff\xff\xff\xff", b"\x01\x05\xff\x7f", b"\x7f\x01\x01")
"""Without end, longer than the answer, and more than there are."""

_WRONG_TAGS: Final = 0.4


def is_whole(frame: bytes) -> bool:
    return len(frame) >= _SIZE.size and len(frame) == _SIZE.size + _SIZE.unpack_from(frame)[0]


def changed(frame: bytes, rng: Random) -> bytes:
    spoilt = bytearray(frame)
    if rng.random() < _WRONG_TAGS and len(frame) > _HEADER_END:
        tags = rng.choice(_TAGS)
        spoilt[_HEADER_END : _HEADER_END + len(tags)] = tags
        return bytes(spoilt)
    for _ in range(rng.randint(1, 3)):
        spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
    return bytes(spoilt)
