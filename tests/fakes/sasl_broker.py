"""A broker's side of PLAIN and SCRAM for tests of one connection: strict about what may come when, as Kafka is."""

import asyncio
import struct

from aioproducer._network.connection import OnClosed
from aioproducer._network.context import NetworkContext, NetworkSettings
from aioproducer._network.sasl_client import Password, SaslClient, SaslSettings
from aioproducer._network.sasl_connection import SaslConnection
from aioproducer.security import Secret
from tests.fakes.network import network_context, nothing
from tests.fakes.scripted_broker import SPOKEN, Heard, ScriptedBroker
from tests.fakes.virtual_loop import MemoryTransport, connect_in_memory
from tests.reference.scram_server import ScramServer

HELLO, TOKEN = 17, 36
PLACE = ("host", 9092)


class SaslBroker(ScriptedBroker):
    """Authenticates, answers every other request with its last four bytes, and closes as Kafka does.

    Args:
        lifetime_ms: of each session.
        verdict_after_s: how long an authentication takes.
        mechanism: the enabled one.
    """

    def __init__(self, lifetime_ms: int = 0, *, verdict_after_s: float = 0.0, mechanism: str = "PLAIN") -> None:
        super().__init__(spoken=(*SPOKEN, (HELLO, 0, 1), (TOKEN, 0, 2)), on_request=lambda *_: None)
        self.lifetime_ms = lifetime_ms
        self.verdict_after_s = verdict_after_s
        self.mechanism = mechanism
        self.passwords = ["canary-secret"]  # that are accepted
        self.says: tuple[int, str] | None = None  # instead of the verdict
        self.too_soon_s = 1.0
        self.closes_on_what_follows = False
        self.serves_what_follows = False  # before it says so
        self.crimes: list[str] = []
        self.order: list[int] = []  # api keys
        self.served: list[int] = []  # numbers of requests
        self.sessions = 0
        self._queue: asyncio.Queue[Heard] = asyncio.Queue()
        self._expires_at = 0.0
        self._last_at = -10.0
        self._expects: int | None = HELLO
        self._server: ScramServer | None = None
        self._is_authenticating = False
        self._task = asyncio.get_running_loop().create_task(self._work())

    def _handle(self, frame: bytes) -> None:
        before = len(self.requests)
        super()._handle(frame)
        for heard in self.requests[before:]:
            self.order.append(heard.api_key)
            self._queue.put_nowait(heard)
            if self.closes_on_what_follows and heard.api_key == 0 and self._is_authenticating:
                self.transport.close()
            self._is_authenticating = heard.api_key in {HELLO, TOKEN} or self._is_authenticating

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._task.cancel()

    async def _work(self) -> None:
        while True:
            heard = await self._queue.get()
            if heard.api_key == HELLO:
                self._hello(heard)
            elif heard.api_key == TOKEN:
                await self._token(heard)
            elif self._expects is not None:
                self._close(f"request {heard.api_key} where {self._expects} was expected")
            elif self._now() >= self._expires_at:
                self._close("a request after the end of the session")
            else:
                self._serve(heard)

    def _serve(self, heard: Heard) -> None:
        self.served.append(int.from_bytes(heard.body[-4:], "big"))
        if heard.version != 99:  # of a request without a response
            self.answer(heard, heard.body[-4:])

    def _hello(self, heard: Heard) -> None:
        if self._expects == TOKEN:
            self._close("two handshakes")
        is_too_soon = self._now() < self._last_at + self.too_soon_s
        code = 34 if is_too_soon else 0
        if is_too_soon:
            self.crimes.append("too soon")
        self.answer(heard, struct.pack(">hi", code, 0), header=b"")
        self._expects = TOKEN if not is_too_soon else None

    async def _token(self, heard: Heard) -> None:
        if self._expects != TOKEN:
            self.answer(heard, verdict(34, "not expected"))
            return
        if self.verdict_after_s:
            await asyncio.sleep(self.verdict_after_s)
        token = _token_of(heard)
        if self.says is not None:
            if self.serves_what_follows:
                self._serve(await self._queue.get())
            self._refuse(heard, *self.says)
        elif self.mechanism == "PLAIN":
            self._plain(heard, token)
        else:
            self._scram(heard, token)

    def _plain(self, heard: Heard, token: bytes) -> None:
        if token.split(b"\0")[2].decode() in self.passwords:
            self._open(heard)
        else:
            self._refuse(heard, 58, "Invalid username or password")

    def _scram(self, heard: Heard, token: bytes) -> None:
        if self._server is None:
            self._server = ScramServer(self.mechanism, self.passwords[0])
            self.answer(heard, verdict(0, None, self._server.challenge(token)))
            return
        self._open(heard, self._server.verdict(token))
        self._server = None

    def _open(self, heard: Heard, token: bytes = b"") -> None:
        self.sessions += 1
        self._expects = None
        self._is_authenticating = False
        self._last_at = self._now()
        self._expires_at = self._now() + self.lifetime_ms / 1000 if self.lifetime_ms > 0 else float("inf")
        self.answer(heard, verdict(0, None, token, lifetime_ms=self.lifetime_ms))

    def _refuse(self, heard: Heard, code: int, words: str) -> None:
        self.answer(heard, verdict(code, words))
        self.transport.close()

    def _close(self, crime: str) -> None:
        self.crimes.append(crime)
        self.transport.close()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def verdict(code: int, words: str | None, token: bytes = b"", *, lifetime_ms: int = 0) -> bytes:
    text = b"\x00" if words is None else bytes((len(words) + 1,)) + words.encode()
    size = len(token) + 1
    length = bytes((size,)) if size < 128 else bytes((size & 0x7F | 0x80, size >> 7))
    return struct.pack(">h", code) + text + length + token + struct.pack(">q", lifetime_ms) + b"\x00"


def _token_of(heard: Heard) -> bytes:
    body, size, shift, at = heard.body[1:], 0, 0, 0  # behind the tags of the header
    while True:
        size |= (body[at] & 0x7F) << shift
        shift += 7
        at += 1
        if body[at - 1] < 128:
            return body[at : at + size - 1]


class Secured:
    """A connection to a `SaslBroker`, not ready yet."""

    def __init__(
        self,
        broker: SaslBroker,
        password: Password | None = None,
        *,
        on_closed: OnClosed = nothing,
        settings: NetworkSettings | None = None,
        sasl: SaslClient | None = None,
    ) -> None:
        self.broker = broker
        self.context: NetworkContext = network_context(settings)
        asked = SaslSettings(mechanism=broker.mechanism, username="alice", password=password or Secret("canary-secret"))
        self.sasl = sasl or SaslClient(asked, self.context.loop, nonce=lambda: "own-nonce-of-this-test")
        self.connection = SaslConnection(self.context, "broker 1 at host:9092", on_closed, place=PLACE, sasl=self.sasl)
        transport, _ = connect_in_memory(self.context.loop, self.connection, broker)
        self.transport: MemoryTransport = transport


async def authenticated(broker: SaslBroker, password: Password | None = None) -> Secured:
    secured = Secured(broker, password)
    await secured.connection.ready
    return secured
