"""TLS servers that send what is allowed in quantities that are not, or what is not allowed at all."""

import ssl
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import TlsError, TlsRefusedError, TlsVerificationError
from aioproducer.security._stores.files import KeyStore, TrustStore
from aioproducer.security._tls_context import TlsRules, build_context
from aioproducer.testing.certificates import Certificate, CertificateAuthority
from tests.fakes.sealed_records import HELLO_REQUEST, NEW_SESSION_TICKET, ServerKeys12, ServerKeys13
from tests.fakes.tls_peer import AUTHORITY, HOST, Scene, TlsPeer, server_certificate, server_context

FLOOD = 10_000
MOST_MEMORY = 64 * 2**20
MOST_ANSWERED = 2**20
NO_KEY = KeyStore(location=None, key=None, certificate_chain=None, password=None, key_password=None)


@cache
def client_context() -> ssl.SSLContext:
    """The context that the options make, and not one of the tests' own."""
    trusted = TrustStore(location=None, certificates=AUTHORITY.certificate, password=None)
    return build_context(TlsRules(), trusted, NO_KEY).context


def logging_context(key_log: Path, ciphers: str = "") -> ssl.SSLContext:
    context = server_context(ciphers=ciphers)
    context.num_tickets = 0
    context.keylog_filename = str(key_log)
    return context


def open_13(folder: Path) -> tuple[Scene, ServerKeys13]:
    made = Scene(TlsPeer(logging_context(folder / "keys")), context=client_context())
    made.shake_hands()
    assert made.peer.tls.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
    return made, ServerKeys13(folder / "keys")


def open_12(folder: Path) -> tuple[Scene, ServerKeys12]:
    made = Scene(TlsPeer(logging_context(folder / "keys", "ECDHE-RSA-AES128-GCM-SHA256")), context=client_context())
    hello = made.raw.take()
    answer = made.peer.feed(hello)
    made.answer(answer)
    made.shake_hands()
    return made, ServerKeys12(folder / "keys", hello, answer)


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def flooded(made: Scene, record: Callable[[], bytes]) -> bytes:
    """Send many records; returns what the client answered."""
    before, answered = resident(), bytearray()
    for _ in range(FLOOD):
        made.answer(record())
        answered += made.raw.take()
    assert resident() - before < MOST_MEMORY
    assert len(answered) < MOST_ANSWERED
    return bytes(answered)


@pytest.mark.parametrize("is_asked_back", [False, True])
async def test_flood_of_key_updates_costs_no_memory_and_no_answers(tmp_path: Path, *, is_asked_back: bool) -> None:
    made, keys = open_13(tmp_path)
    made.peer.feed(flooded(made, lambda: keys.update(is_asked_back=is_asked_back)))
    if not made.raw.is_closing():  # OpenSSL may also give up
        made.answer(keys.seal(b"still here", 23))
        assert bytes(made.protocol.done.result().received) == b"still here"
        made.transport.write(b"and back")
        made.peer.feed(made.raw.take())
        assert bytes(made.peer.received) == b"and back"


async def test_flood_of_tickets_costs_no_memory_and_no_answers(tmp_path: Path) -> None:
    made, keys = open_13(tmp_path)
    assert flooded(made, lambda: keys.seal(NEW_SESSION_TICKET)) == b""
    made.answer(keys.seal(b"still here", 23))
    assert bytes(made.protocol.done.result().received) == b"still here"


async def test_flood_of_empty_records_is_read_over_or_refused(tmp_path: Path) -> None:
    made, keys = open_13(tmp_path)
    inner = made.protocol.done.result()
    flooded(made, lambda: keys.seal(b"", 23))
    assert not inner.received


async def test_renegotiation_is_refused_and_costs_no_handshake(tmp_path: Path) -> None:
    made, keys = open_12(tmp_path)
    made.answer(keys.seal(HELLO_REQUEST))
    refusal = made.raw.take()
    assert refusal[:1] in {b"", b"\x15"}  # nothing, or an alert: no ClientHello
    flooded(made, lambda: keys.seal(HELLO_REQUEST))
    if not made.raw.is_closing():
        made.answer(keys.seal(b"still here", 23))
        assert bytes(made.protocol.done.result().received) == b"still here"


@pytest.mark.parametrize(
    "message", [b"\x01\x00\x00\x00", b"\x0b\xff\xff\xff", b"\x02" + bytes(300), b"\x14\x00\x00\x00"]
)
async def test_handshake_message_on_the_open_connection_ends_it(tmp_path: Path, message: bytes) -> None:
    made, keys = open_13(tmp_path)
    inner = made.protocol.done.result()
    for _ in range(200):
        if not made.raw.is_closing():
            made.answer(keys.seal(message))
    assert made.raw.is_closing()
    made.end()
    assert isinstance(inner.lost, TlsError)


async def test_data_behind_close_notify_is_not_read(tmp_path: Path) -> None:
    made, keys = open_13(tmp_path)
    inner = made.protocol.done.result()
    made.answer(keys.seal(b"first", 23) + keys.seal(b"\x01\x00", 21) + keys.seal(b"second", 23))
    assert bytes(inner.received) == b"first"
    assert inner.calls[-1] == "eof"
    assert made.raw.is_closing()


@settings(max_examples=60, deadline=None)
@given(level=st.integers(0, 255), code=st.integers(0, 255))
async def test_alert_at_every_state_ends_the_connection_with_an_error(level: int, code: int) -> None:
    alert = bytes((21, 3, 3, 0, 2, level, code))
    early = Scene(context=client_context())
    early.answer(alert)
    if not early.raw.is_closing():
        early.protocol.eof_received()
    assert isinstance(early.end(), TlsError)

    halfway = Scene(context=client_context())
    answer = halfway.peer.feed(halfway.raw.take())
    size = 5 + int.from_bytes(answer[3:5])
    halfway.answer(answer[:size] + alert)  # behind ServerHello, where only encrypted records may come
    if not halfway.raw.is_closing():
        halfway.protocol.eof_received()
    assert isinstance(halfway.end(), TlsError)


@cache
def chain_below(authorities: int) -> Certificate:
    issuer = AUTHORITY
    for number in range(authorities):
        issuer = CertificateAuthority(f"authority {number}", issuer=issuer)
    return issuer.issue(HOST)


def met(certificate: Certificate, ciphers: str) -> Scene:
    made = Scene(TlsPeer(server_context(certificate, ciphers=ciphers)), context=client_context())
    while made.raw.held and not made.raw.is_closing():
        made.answer(made.peer.feed(made.raw.take()))
    return made


CIPHERS = pytest.mark.parametrize("ciphers", ["", "ECDHE-ECDSA-AES128-GCM-SHA256"], ids=["1.3", "1.2"])


@CIPHERS
async def test_chain_of_twenty_authorities_is_accepted(ciphers: str) -> None:
    made = met(chain_below(20), ciphers)
    assert made.protocol.done.result().calls == ["made"]


@CIPHERS
async def test_chain_of_a_hundred_and_fifty_authorities_is_refused(ciphers: str) -> None:
    made = met(chain_below(150), ciphers)
    assert made.raw.is_closing()
    assert isinstance(made.end(), TlsError)


@CIPHERS
async def test_certificate_of_a_megabyte_is_refused_before_it_is_read(ciphers: str) -> None:
    names = (f"{'x' * 40}{number}.example" for number in range(20_000))
    issued = CertificateAuthority("small").issue(HOST, *names)
    made = met(issued, ciphers)
    assert made.raw.is_closing()
    assert isinstance(made.end(), TlsError)


@pytest.mark.parametrize("kind", [2, 11, 4])
async def test_endless_handshake_message_is_refused_or_bounded(kind: int) -> None:
    """It claims 16 MiB, of which 4 are sent."""
    made, before = Scene(context=client_context()), resident()
    fragment = bytes((22, 3, 3, 0x40, 0))
    made.answer(fragment + bytes((kind, 255, 255, 255)) + bytes(16_380))
    for _ in range(256):
        if not made.raw.is_closing():
            made.answer(fragment + bytes(16_384))
    made.protocol.eof_received()
    assert isinstance(made.end(), TlsError)
    assert resident() - before < MOST_MEMORY


async def test_certificate_of_another_kind_of_name_is_not_the_brokers() -> None:
    """The common name is no name to check, nor is a name with a NUL in it or a wildcard too wide."""
    for names in (("other.example",), ("*.example.example",), ("*",)):
        certificate = AUTHORITY.issue(*names, common_name=HOST)
        failure = met(certificate, "").end()
        assert isinstance(failure, TlsVerificationError)


async def test_right_certificate_is_accepted_by_the_context() -> None:
    made = met(server_certificate(), "")
    assert made.protocol.done.result().calls == ["made"]
    assert not isinstance(made.end(), TlsRefusedError)
