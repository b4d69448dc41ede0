"""Conversations that come before the first request, as decoders: one for each state that a hostile peer can answer in.

Everything before that state is right. An answer of TLS depends on the client's random numbers, so what is damaged there
is a mask: zeros, which a step of damage changes, laid over what a real server says.
"""

import asyncio
import functools
import ssl
from collections.abc import Callable, Iterator
from typing import NamedTuple

from aioproducer._network.proxy import Proxy, ProxyError, ask
from aioproducer._protocol.api_versions import ApiVersions
from aioproducer._protocol.sasl.exchange import RefusedError, exchange
from aioproducer._protocol.sasl.oauthbearer import OAuthBearer
from aioproducer._protocol.sasl.plain import Plain
from aioproducer._protocol.sasl.scram import Scram
from aioproducer._protocol.sasl.steps import (
    Bearer,
    BearerWanted,
    Mechanism,
    Message,
    PasswordWanted,
    SaltedPasswordWanted,
)
from aioproducer.errors import AuthenticationError, ProtocolError, TlsError
from tests.fakes.sasl_broker import verdict
from tests.fakes.tls_peer import Scene, TlsPeer, server_context
from tests.reference.scram_server import ScramServer

VERSIONS = ApiVersions({17: (0, 1), 36: (0, 2)})
PASSWORD = "canary-pencil"
NONCE = "own-nonce"
HELLO = b"\x00\x00\x00\x00\x00\x01\x00\x05PLAIN"
ITERATIONS = 4096
REFUSES = (RefusedError, AuthenticationError, ProtocolError)
OF_TLS_1_2 = "ECDHE-RSA-AES128-GCM-SHA256"
FLIGHT_BYTES = 1200


class State(NamedTuple):
    name: str
    whole: bytes
    decode: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...]


def states() -> Iterator[State]:
    yield from _sasl_states("PLAIN", lambda: Plain("alice"), [HELLO, verdict(0, None, lifetime_ms=10_000)])
    for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        make = functools.partial(Scram, name, "alice", nonce=NONCE)
        yield from _sasl_states(name, make, [HELLO, *_scram_answers(name)])
    refusal = verdict(0, None, b'{"status":"invalid_token"}')
    yield from _sasl_states("OAUTHBEARER", OAuthBearer, [HELLO, refusal])
    yield from _proxy_states()
    yield from _tls_states()


def _sasl_states(name: str, make: Callable[[], Mechanism], answers: list[bytes]) -> Iterator[State]:
    for position, whole in enumerate(answers):
        decode = functools.partial(_authenticate, make, answers[:position])
        yield State(f"{name}, answer {position}", whole, decode, REFUSES)


def _authenticate(make: Callable[[], Mechanism], before: list[bytes], payload: bytes) -> None:
    run, answers = exchange(make(), VERSIONS), [*before, payload]
    result: object = None
    while True:
        try:
            step = run.send(result)
        except StopIteration:
            return
        result = _result_of(step)
        if result is None:
            if not answers:
                return
            result = answers.pop(0)


def _result_of(step: object) -> object:
    """Return what a step wants, or None if it waits for an answer of the broker."""
    match step:
        case PasswordWanted():
            return PASSWORD
        case BearerWanted():
            return Bearer("token", {}, 0.0)
        case SaltedPasswordWanted():
            return _salted(step)
        case _:
            return None


@functools.cache
def _salted(wish: SaltedPasswordWanted) -> bytes:
    """Compute what a right challenge asks for; for invalid ones, which are refused, the result does not matter."""
    if wish.iterations != ITERATIONS:
        return bytes(32)
    return wish.compute(wish.hash_name, wish.password.encode(), wish.salt, wish.iterations)


def _scram_answers(name: str) -> list[bytes]:
    server, run = ScramServer(name, PASSWORD), Scram(name, "alice", nonce=NONCE).converse()
    tokens: list[bytes] = []
    result: object = None
    while len(tokens) < 2:
        step = run.send(result)
        result = _result_of(step)
        if isinstance(step, Message):
            tokens.append(server.verdict(step.token) if tokens else server.challenge(step.token))
            result = tokens[-1]
    return [verdict(0, None, token) for token in tokens]


def _proxy_states() -> Iterator[State]:
    refuses = (ProxyError, AuthenticationError)
    socks = [b"\x05\x00", b"\x05\x00\x00\x01", b"\x7f\x00\x00\x01\x1f\x90"]
    for position, whole in enumerate(socks):
        decode = functools.partial(_ask_proxy, "socks5h", socks[:position])
        yield State(f"SOCKS5, answer {position}", whole, decode, refuses)
    whole = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n"
    yield State("CONNECT", whole, functools.partial(_ask_proxy, "http", []), refuses)


def _ask_proxy(scheme: str, before: list[bytes], payload: bytes) -> None:
    run = ask(Proxy(scheme, "proxy", 1080), "kafka-1", 9092)
    step = next(run)
    try:
        for answer in before:
            step = run.send(answer)
        size = len(payload) if step.size is None else step.size
        run.send(payload[:size].ljust(size, b"\x00"))
    except StopIteration:
        return


# TLS


def _tls_states() -> Iterator[State]:
    mask = bytes(FLIGHT_BYTES)
    for version, ciphers in (("1.3", ""), ("1.2", OF_TLS_1_2)):
        context = functools.cache(functools.partial(server_context, ciphers=ciphers))
        for state, reach in (("first flight", _first_flight), ("end of the handshake", _end), ("open", _open)):
            yield State(f"TLS {version}, {state}", mask, functools.partial(_meet, context, reach), (TlsError,))


def _first_flight(made: Scene) -> bytes:
    return made.peer.feed(made.raw.take())


def _end(made: Scene) -> bytes:
    made.answer(made.peer.feed(made.raw.take()))
    return made.peer.feed(made.raw.take())


def _open(made: Scene) -> bytes:
    made.shake_hands()
    return made.peer.write(b"x" * 300)


def _meet(context: Callable[[], ssl.SSLContext], reach: Callable[[Scene], bytes], mask: bytes) -> None:
    asyncio.run(_met(context(), reach, mask))


async def _met(context: ssl.SSLContext, reach: Callable[[Scene], bytes], mask: bytes) -> None:
    made = Scene(TlsPeer(context))
    right = reach(made)
    flight = _spoiled(right, mask)
    made.answer(flight)
    if flight == right:
        assert not made.raw.is_closing()
        return
    if not made.raw.is_closing():
        made.protocol.eof_received()
    failure = made.end()
    if failure is not None:
        raise failure


def _spoiled(flight: bytes, mask: bytes) -> bytes:
    """Lay a mask over a flight; a shorter or longer mask takes or adds bytes at the end."""
    more = len(mask) - FLIGHT_BYTES
    changed = bytes(byte ^ over for byte, over in zip(flight, mask, strict=False)) + flight[len(mask) :]
    return changed[:more] if more < 0 else changed + mask[:more]
