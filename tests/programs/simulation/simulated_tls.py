"""TLS on simulated connections: certificates that change, impostors, and the node's end of each connection.

What the producer encrypts is decrypted when it is written, so that all checkers see plaintext; it travels when its
ciphertext leaves, one TLS record after the other. So the network's faults are the same with TLS and without.

Keys and signatures are random and their sizes nearly are not: a seed decides what happens all the same.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import ssl
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from aioproducer.testing.certificates import DAY, CertificateAuthority

if TYPE_CHECKING:
    from tests.programs.simulation.plan import Plan

StateT = TypeVar("StateT")

BOOTSTRAP_NAME: Final = "kafka"
STRANGER: Final = "stranger.test"
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
IMPOSTORS: Final = ("another name", "another authority", "expired")
GENERATIONS: Final = 3  # of the brokers' authority; then the first comes back
SLOWEST_CONNECTION_S: Final = 8.0
"""Between a look at the files and a handshake with them: threads, and the time-outs of a name's other addresses."""

_CLIENTS: Final = "authority of clients"
_HEADER: Final = 5  # of a TLS record: type, version, length
_RECORD_TYPES: Final = range(20, 24)
_READ_BYTES: Final = 16 * 1024
_stamps = count(1_000_000_000)


@cache
def _authority(name: str) -> CertificateAuthority:
    return CertificateAuthority(name)


@cache
def _folder(process: int) -> Path:
    """Return this process's folder: a forked one makes another."""
    folder = Path(tempfile.mkdtemp(prefix=f"simulation-{process}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _client_pem(generation: int) -> str:
    return _authority(_CLIENTS).issue("client", common_name=f"client-{generation}", usage=("client",)).pem


@cache
def _context(authority: str, host: str, version: str, is_expired: bool, asks: bool) -> ssl.SSLContext:  # noqa: FBT001, PLR0917  # cached
    names = (host,) if host == STRANGER else (BOOTSTRAP_NAME, host)
    certificate = _authority(authority).issue(*names, ends=-DAY / 2 if is_expired else 365 * DAY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = VERSIONS[version]
    path = _folder(os.getpid()) / "broker.pem"
    path.write_text(certificate.pem, "utf-8")
    context.load_cert_chain(path)
    if asks:
        context.load_verify_locations(cadata=_authority(_CLIENTS).certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class Certificates:
    """Who has which certificate, and trusts whom, in one run."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        self.has_client_certificate = plan.has_client_certificate
        self.client = 0  # generation of the client's certificate, in its file
        self.is_changing = False
        self.brokers = 0  # of the authority of the brokers' certificates
        self._version = plan.tls
        self._clock = clock
        self._clients: list[tuple[float, int]] = []  # when each certificate was written
        self._trusted: list[tuple[float, frozenset[int]]] = []
        self.trust(0)
        self.give_client(0)

    def options(self) -> dict[str, object]:
        options: dict[str, object] = {"ssl_truststore_location": str(self._path("ca")), "security_protocol": "SASL_SSL"}
        if self.has_client_certificate:
            options["ssl_keystore_location"] = str(self._path("client"))
        return options

    def trust(self, *generations: int) -> None:
        """Let the client trust these authorities of brokers."""
        names = [_authority(self._authority_name(each)).certificate for each in generations]
        self._trusted.append((self._clock(), frozenset(each % GENERATIONS for each in generations)))
        self._write("ca", "".join(names))

    def give_client(self, generation: int) -> None:
        """Let the client have its next certificate."""
        self.client = generation
        self._clients.append((self._clock(), generation))
        self._write("client", _client_pem(generation))

    def context(self, host: str, impostor: str = "") -> ssl.SSLContext:
        """Return the context of a node's next connection."""
        authority, name = self._authority_name(self.brokers), host
        if impostor == "another name":
            name = STRANGER
        elif impostor == "another authority":
            authority = "authority of strangers"
        is_expired = impostor == "expired"
        return _context(authority, name, self._version, is_expired, self.has_client_certificate)

    def may_be_client(self, generation: int, connected_at: float) -> bool:
        """Whether a connection that was begun then may show this certificate."""
        return generation in _current_at(self._clients, connected_at)

    def must_trust_brokers(self, connected_at: float) -> bool:
        """Whether the client has trusted the authority of the brokers long enough to accept a connection begun then."""
        return all(self.brokers % GENERATIONS in trusted for trusted in _current_at(self._trusted, connected_at))

    @staticmethod
    def _authority_name(generation: int) -> str:
        return f"authority {generation % GENERATIONS}"

    def _path(self, name: str) -> Path:
        return _folder(os.getpid()) / f"{name}.pem"

    def _write(self, name: str, text: str) -> None:
        """Replace a file at once; each has a time of its own, since runs take less than the clock of files."""
        arriving = self._path(f"{name}-new")
        arriving.write_text(text, "utf-8")
        stamp = next(_stamps)
        os.utime(arriving, (stamp, stamp))
        arriving.replace(self._path(name))


def _current_at(states: Sequence[tuple[float, StateT]], connected_at: float) -> list[StateT]:
    """Return each state that a connection begun then may have seen, the last one before included."""
    begins = [at for at, _ in states[1:]] + [float("inf")]
    return [
        state
        for (at, state), end in zip(states, begins, strict=True)
        if at <= connected_at and end > connected_at - SLOWEST_CONNECTION_S
    ]


class Sealed(NamedTuple):
    """What one TLS record of the producer brings."""

    end: int  # of its ciphertext, from the first byte of the connection on
    plain: bytes
    answer: bytes  # of the node's TLS: handshake, tickets, alerts
    is_end: bool  # whether the node closes


class TlsEnd:
    """The node's end of TLS on one connection."""

    def __init__(self, context: ssl.SSLContext, *, impostor: str, trouble: str, rng: Random) -> None:
        self.impostor = impostor
        self.trouble = trouble  # what happens instead of the handshake
        self.is_ready = False
        self.plain_bytes = 0  # of the producer
        self._rng = rng
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unread = bytearray()  # ciphertext without a whole record
        self._taken = self._gone = 0  # positions in ciphertext: decrypted, and left
        self._records: deque[Sealed] = deque()
        self._frames = bytearray()  # plaintext without a whole frame
        self._is_over = False

    @property
    def client_generation(self) -> int | None:
        """Which of the client's certificates was shown; None for none."""
        found: object = self._tls.getpeercert() or {}
        assert isinstance(found, dict)
        names = [value for part in found.get("subject", ()) for name, value in part if name == "commonName"]
        return int(names[0].rpartition("-")[2]) if names else None

    def take(self, data: bytes) -> Iterator[bytes]:
        """Decrypt what is written; yields whole frames.

        Raises:
            ValueError: it is no TLS.
        """
        self._unread += data
        while len(self._unread) >= _HEADER:
            if self._unread[0] not in _RECORD_TYPES or self._unread[1] != 3:
                raise ValueError(f"{bytes(self._unread[:20])!r}")
            end = _HEADER + int.from_bytes(self._unread[3:_HEADER], "big")
            if len(self._unread) < end:
                return
            record = bytes(self._unread[:end])
            del self._unread[:end]
            self._taken += end
            self._records.append(self._opened(record))
            yield from self._whole_frames(self._records[-1].plain)

    def left(self, size: int) -> list[Sealed]:
        """Note that so much ciphertext has left the producer; returns the records that are whole with it."""
        self._gone += size
        whole = []
        while self._records and self._records[0].end <= self._gone:
            whole.append(self._records.popleft())
        return whole

    def seal(self, data: bytes) -> bytes:
        if self._is_over:
            return b""
        self._tls.write(data)
        return self._outgoing.read()

    def goodbye(self) -> bytes:
        if self.is_ready and not self._is_over and self._rng.random() < 0.5:
            self._is_over = True
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
        return self._outgoing.read()

    def _opened(self, record: bytes) -> Sealed:
        if self._is_over:
            return Sealed(self._taken, b"", b"", is_end=False)
        if self.trouble:
            return self._spoiled(record)
        self._incoming.write(record)
        plain = b""
        try:
            if not self.is_ready:
                self._tls.do_handshake()
                self.is_ready = True
            while True:
                data = self._tls.read(_READ_BYTES)
                if not data:
                    break
                plain += data
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # close_notify and alerts, too
            self._is_over = True
        self.plain_bytes += len(plain)
        return Sealed(self._taken, plain, self._outgoing.read(), self._is_over)

    def _spoiled(self, record: bytes) -> Sealed:
        """Answer the client's first message in another way than by a handshake."""
        self._is_over = True
        answer, is_end = b"", True
        match self.trouble:
            case "garbage":
                answer = self._rng.randbytes(self._rng.randint(1, 300))
            case "alert":
                answer = bytes.fromhex("15030300020228")  # handshake_failure
            case "plaintext":
                answer = b"HTTP/1.1 400 Bad Request\r\n\r\n"
            case "silence":
                is_end = False
            case "half":
                self._incoming.write(record)
                with contextlib.suppress(ssl.SSLError):
                    self._tls.do_handshake()
                whole = self._outgoing.read()
                answer = whole[: self._rng.randrange(len(whole))]
        return Sealed(self._taken, b"", answer, is_end)

    def _whole_frames(self, plain: bytes) -> Iterator[bytes]:
        self._frames += plain
        while len(self._frames) >= 4:
            end = 4 + int.from_bytes(self._frames[:4], "big")
            if len(self._frames) < end:
                return
            frame = bytes(self._frames[:end])
            del self._frames[:end]
            yield frame


TROUBLES: Final = ("garbage", "alert", "plaintext", "silence", "half", "close")
"""What may happen instead of a handshake."""
