"""TLS in memory: positions in plaintext, back-pressure, ends, and hostile peers with the keys of a server."""

import asyncio
import ssl
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer._network import tls
from aioproducer._network.tls_errors import Phase, TlsAttempt, tls_error
from aioproducer._network.tls_reloader import name_to_check
from aioproducer.errors import TlsClosedError, TlsError, TlsRefusedError, TlsVerificationError
from aioproducer.security._stores import KeyStore, TrustStore
from aioproducer.security._tls_context import TlsRules, build_context
from aioproducer.testing.certificates import Certificate, CertificateAuthority
from tests.fakes.tls_peer import (
    AUTHORITY,
    HELLO_REQUEST,
    HOST,
    NEW_SESSION_TICKET,
    Scene,
    ServerKeys12,
    ServerKeys13,
    SlowTransport,
    TlsPeer,
    client_context,
    server_certificate,
    server_context,
)

CIPHERS = ["", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-RSA-AES256-SHA384"]


_server = cache(lambda ciphers: server_context(ciphers=ciphers))


def scene(ciphers: str = "") -> Scene:
    made = Scene(TlsPeer(_server(ciphers)))
    made.shake_hands()
    return made


# Positions


@pytest.mark.parametrize("ciphers", CIPHERS, ids=["1.3", "gcm", "chacha", "cbc"])
@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.one_of(st.integers(0, 300), st.integers(0, 400_000)), max_size=3),
            st.one_of(st.integers(0, 1000), st.integers(0, 500_000)),
        ),
        max_size=8,
    )
)
async def test_positions_are_what_the_other_end_can_read(ciphers: str, steps: list[tuple[list[int], int]]) -> None:
    """Of every byte that it has read, and of no other, the transport says that it has left."""
    made, handed = scene(ciphers), 0
    for sizes, leave in steps:
        made.transport.writelines([b"x" * size for size in sizes])
        handed += sum(sizes)
        made.peer.feed(made.raw.take(leave))
        assert handed - made.transport.get_write_buffer_size() == len(made.peer.received)
    while made.raw.held:
        made.peer.feed(made.raw.take())
    assert made.transport.get_write_buffer_size() == 0
    assert len(made.peer.received) == handed


async def test_many_small_requests_and_a_slow_reader_never_look_unsent() -> None:
    """2,000 requests of 100 B: the overhead of their records is as large as hundreds of them."""
    made = scene()
    for _ in range(2000):
        made.transport.write(b"x" * 100)
    while made.raw.held:
        made.peer.feed(made.raw.take(37))
        assert 200_000 - made.transport.get_write_buffer_size() == len(made.peer.received)
    assert len(made.peer.received) == 200_000


# Back-pressure


async def test_ciphertext_is_bounded_and_plaintext_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "perf_counter", lambda: 0.0)
    made = scene()
    inner = made.protocol.done.result()
    made.transport.set_write_buffer_limits(high=512 * 1024)
    for _ in range(40):
        made.transport.write(b"x" * 250_000)
    assert made.raw.most_held < tls.RAW_BYTES + 2 * tls.SEAL_BYTES
    assert inner.calls == ["made", "pause"]
    while made.raw.held:
        made.peer.feed(made.raw.take(50_000))
    assert made.raw.most_held < tls.RAW_BYTES + 2 * tls.SEAL_BYTES
    assert inner.calls == ["made", "pause", "resume"]
    assert len(made.peer.received) == 10_000_000


async def test_plaintext_is_let_go_of_when_it_is_encrypted() -> None:
    made = scene()
    memory = bytearray(b"x" * 1000)
    made.transport.write(memoryview(memory))
    memory.extend(b"y")  # BufferError while a view is held
    assert made.peer.feed(made.raw.take()) is not None
    assert made.peer.received == b"x" * 1000


async def test_small_pieces_become_few_records() -> None:
    made = scene()
    made.transport.writelines([b"x" * 100] * 100)
    assert len(made.raw.held) == 10_000 + 22


async def test_header_is_encrypted_with_the_beginning_of_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "perf_counter", lambda: 0.0)
    made, records = scene(), bytearray(b"r" * 300_000)
    pieces: list[int] = []
    write = made.raw.write
    monkeypatch.setattr(made.raw, "write", lambda data: (pieces.append(len(data)), write(data))[1])
    made.transport.writelines([b"h" * 100, memoryview(records)])
    while made.raw.held:
        made.peer.feed(made.raw.take())
    records.extend(b"r")  # no view of it is held
    assert made.peer.received == b"h" * 100 + b"r" * 300_000
    assert [size > tls.SEAL_BYTES for size in pieces] == [True, True, False]


@pytest.mark.parametrize("late", [False, True])
async def test_more_is_encrypted_at_once_without_the_gil(monkeypatch: pytest.MonkeyPatch, *, late: bool) -> None:
    clock = iter(range(1000))
    made = scene()
    monkeypatch.setattr(tls, "perf_counter", lambda: next(clock) * (1.0 if late else 0.0))
    made.transport.write(b"x")
    made.transport.writelines([b"x" * 100_000] * 30)
    assert made.raw.most_held > (tls.SEAL_BYTES_UNDER_CONTENTION - 100_000 if late else 0)
    assert late or made.raw.most_held < tls.RAW_BYTES + 2 * tls.SEAL_BYTES


# Ends


async def test_close_sends_everything_then_says_goodbye() -> None:
    made = scene()
    made.transport.write(b"x" * 1_000_000)
    made.transport.close()
    made.transport.write(b"ignored")
    assert made.transport.is_closing()
    while made.raw.held:
        made.peer.feed(made.raw.take(100_000))
    assert len(made.peer.received) == 1_000_000
    assert made.peer.got_close_notify
    assert made.raw.is_closing()
    assert not made.raw.is_aborted


async def test_abort_lets_go_of_what_waits() -> None:
    made = scene()
    memory = bytearray(b"x" * 1_000_000)
    made.transport.write(memoryview(memory))
    made.transport.abort()
    memory.extend(b"y")
    assert made.raw.is_aborted
    assert made.transport.get_write_buffer_size() == 0
    assert made.end() is None
    assert made.protocol.done.result().calls[-1] == "lost"


async def test_goodbye_of_the_other_end_is_an_end() -> None:
    made = scene()
    inner = made.protocol.done.result()
    made.answer(made.peer.write(b"last") + made.peer.close_notify() + b"after the end")
    assert bytes(inner.received) == b"last"
    assert inner.calls == ["made", "eof"]
    assert made.raw.is_closing()
    made.protocol.data_received(b"more after the end")
    assert bytes(inner.received) == b"last"


async def test_end_without_goodbye_is_an_end() -> None:
    made = scene()
    made.answer(made.peer.write(b"last"))
    assert made.protocol.eof_received() is False
    made.end()
    assert made.protocol.done.result().calls == ["made", "eof", "lost"]
    assert made.protocol.done.result().lost is None


async def test_connection_retires_before_its_keys_are_worn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "MOST_SEALED_BYTES", 1000)
    made = scene()
    made.transport.write(b"x" * 999)
    assert "worn" not in made.protocol.done.result().calls
    made.transport.write(b"x")
    assert made.protocol.done.result().calls == ["made", "worn"]


# The handshake


@pytest.mark.parametrize(
    "host, name", [("a.example.", "a.example"), ("fe80::1%eth0", "fe80::1"), ("10.0.0.1", "10.0.0.1")]
)
def test_name_is_checked_without_trailing_dot_and_scope(host: str, name: str) -> None:
    assert name_to_check(host) == name


async def test_server_sees_the_advertised_name() -> None:
    seen: list[str | None] = []
    context = server_context()
    context.sni_callback = lambda _socket, name, _context: seen.append(name)
    Scene(TlsPeer(context)).shake_hands()
    assert seen == [HOST]


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", ""])
async def test_name_that_no_certificate_has_is_refused(host: str) -> None:
    made = Scene(host=host)
    failure = made.end() if made.raw.is_closing() else None
    if failure is None:  # "" is no name: nothing would be checked
        pytest.fail("the handshake began")
    assert "cannot check the host name" in str(failure)


async def test_unknown_authority_is_named_with_the_option_to_change() -> None:
    made = Scene(context=client_context(CertificateAuthority("another CA", rsa=True)))
    made.answer(made.peer.feed(made.raw.take()))
    assert made.raw.is_closing()
    assert made.raw.held, "an alert tells the other end"
    failure = made.end()
    assert isinstance(failure, TlsVerificationError)
    assert "ssl_truststore_location" in str(failure)


async def test_slow_look_for_names_lets_its_connection_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "LOOK_S", 0.05)
    raw, peer = SlowTransport(), TlsPeer()

    async def connect(make: Callable[[], asyncio.Protocol]) -> None:
        raw.protocol = protocol = make()
        protocol.connection_made(raw)
        while raw.held:
            protocol.data_received(peer.feed(raw.take()))

    attempt = TlsAttempt(HOST, has_certificate=False, has_truststore=True)
    assert await tls._names_at(connect, attempt, client_context) == ()  # noqa: SLF001  # its way is a refused handshake
    assert raw.is_aborted
    assert raw.protocol is not None
    raw.protocol.connection_lost(None)


@pytest.mark.parametrize(
    "answer, kind, text",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", TlsRefusedError, "does not speak TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x28", TlsRefusedError, "no cipher in common"),
        (b"\x15\x03\x03\x00\x02\x02\x46", TlsRefusedError, "no TLS version in common"),
        (b"\x15\x03\x03\x00\x02\x02\x70", TlsRefusedError, "does not know this name"),
        (b"\x15\x03\x03\x00\x02\x02\x50", TlsRefusedError, "has a defect, or no certificate for this name"),
        (b"\x15\x03\x03\x00\x02\x02\x2f", TlsRefusedError, "does not accept this host name"),
    ],
)
async def test_answer_that_is_no_handshake_is_explained(answer: bytes, kind: type[TlsError], text: str) -> None:
    made = Scene()
    made.answer(answer)
    failure = made.end()
    assert type(failure) is kind
    assert text in str(failure)


async def test_close_at_every_byte_of_the_handshake_is_an_error() -> None:
    whole = Scene()
    hello = whole.raw.take()
    answer = whole.peer.feed(hello)
    for size in [*range(8), *range(8, len(answer), 13)]:
        made = Scene()
        made.answer(answer[:size])  # for another client's hello: at most its beginning is accepted
        made.protocol.eof_received()
        failure = made.end()
        assert isinstance(failure, TlsError), size
        assert size or isinstance(failure, TlsClosedError)


@settings(max_examples=60, deadline=None)
@given(st.data())
async def test_hostile_server_ends_in_an_error(data: st.DataObject) -> None:
    """A flight of the server is changed, cut or mixed with other records, split anyhow."""
    made = Scene()
    answer = bytearray(made.peer.feed(made.raw.take()))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(answer) - 1))
        answer[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=40))
    flight, at = bytes(answer), 0
    while at < len(flight):
        size = data.draw(st.integers(1, len(flight)))
        made.answer(flight[at : at + size])
        at += size
    if not made.raw.is_closing():
        made.protocol.eof_received()
    failure = made.end()
    inner = None if failure is not None else made.protocol.done.result()
    assert failure is not None or inner is not None
    assert inner is None or inner.calls[-1] == "lost"


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385 + 256, 65_535])
@pytest.mark.parametrize("kind", [20, 21, 22, 23, 24, 255])
async def test_record_of_any_size_is_refused_or_waited_for(kind: int, size: int) -> None:
    made = Scene()
    for _ in range(20):
        if not made.raw.is_closing():
            made.answer(bytes([kind, 3, 3]) + size.to_bytes(2, "big") + bytes(size))
    made.protocol.eof_received()
    assert isinstance(made.end(), TlsError)
    assert not made.protocol.done.done() or made.protocol.done.exception() is not None


async def test_garbage_on_the_open_connection_ends_it_with_the_phase() -> None:
    made = scene()
    inner = made.protocol.done.result()
    made.answer(made.peer.write(b"fine"))
    made.answer(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert made.raw.is_closing()
    made.end()
    assert "on the open TLS connection" in str(inner.lost)


async def test_plaintext_is_never_taken_for_an_answer() -> None:
    """T10: bytes before or behind the handshake that are not TLS do not reach the protocol above."""
    made = scene()
    inner = made.protocol.done.result()
    made.answer(b"\x00\x00\x00\x08plain!!!")
    made.end()
    assert not inner.received
    assert isinstance(inner.lost, TlsError)


async def test_refused_client_certificate_shows_at_the_first_read() -> None:
    """With TLS 1.3 our handshake is done before the server has seen that there is no certificate."""
    context = server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=AUTHORITY.certificate)
    made = Scene(TlsPeer(context))
    made.answer(made.peer.feed(made.raw.take()))
    inner = made.protocol.done.result()
    with pytest.raises(ssl.SSLError):
        made.peer.feed(made.raw.take())
    made.answer(made.peer._outgoing.read())  # noqa: SLF001  # its alert
    made.end()
    assert isinstance(inner.lost, TlsRefusedError)
    assert "it wants a client certificate: give ssl_keystore_location" in str(inner.lost)


FLOOD = 10_000
MOST_MEMORY = 64 * 2**20
MOST_ANSWERED = 2**20
NO_KEY = KeyStore(location=None, key=None, certificate_chain=None, password=None, key_password=None)


@cache
def context_of_options() -> ssl.SSLContext:
    """The context that the options make, and not one of the tests' own."""
    trusted = TrustStore(location=None, certificates=AUTHORITY.certificate, password=None)
    return build_context(TlsRules(), trusted, NO_KEY).context


def logging_context(key_log: Path, ciphers: str = "") -> ssl.SSLContext:
    context = server_context(ciphers=ciphers)
    context.num_tickets = 0
    context.keylog_filename = str(key_log)
    return context


def open_13(folder: Path) -> tuple[Scene, ServerKeys13]:
    made = Scene(TlsPeer(logging_context(folder / "keys")), context=context_of_options())
    made.shake_hands()
    assert made.peer.tls.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
    return made, ServerKeys13(folder / "keys")


def open_12(folder: Path) -> tuple[Scene, ServerKeys12]:
    made = Scene(TlsPeer(logging_context(folder / "keys", "ECDHE-RSA-AES128-GCM-SHA256")), context=context_of_options())
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


@pytest.mark.parametrize("alert", [40, 100], ids=["handshake failure", "no renegotiation"])
async def test_alert_for_a_refused_renegotiation_says_so(tmp_path: Path, alert: int) -> None:
    made, keys = open_12(tmp_path)
    made.answer(keys.seal(HELLO_REQUEST))
    made.raw.take()
    made.answer(keys.seal(bytes((2, alert)), 21))
    made.end()

    error = made.protocol.done.result().lost
    assert isinstance(error, TlsRefusedError)
    assert "asks for a second handshake (renegotiation), which is not done here" in str(error)


@pytest.mark.parametrize(
    "code, text",
    [
        (66, "the key of the broker's certificate is too small: the cluster needs a new one"),
        (67, "the key of the broker's CA is too small: the cluster needs a new one"),
        (68, "is signed with a digest that is too weak, such as SHA-1 or MD5: the cluster needs a new one"),
        (79, "is signed by one that is not of a CA (basicConstraints): the cluster needs a new one"),
    ],
)
def test_weak_certificate_of_a_broker_is_explained(code: int, text: str) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code = code
    failure = tls_error(error, Phase.HANDSHAKE, TlsAttempt(HOST, has_certificate=False, has_truststore=True))

    assert isinstance(failure, TlsVerificationError)
    assert text in str(failure)


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
    early = Scene(context=context_of_options())
    early.answer(alert)
    if not early.raw.is_closing():
        early.protocol.eof_received()
    assert isinstance(early.end(), TlsError)

    halfway = Scene(context=context_of_options())
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
    made = Scene(TlsPeer(server_context(certificate, ciphers=ciphers)), context=context_of_options())
    while made.raw.held and not made.raw.is_closing():
        made.answer(made.peer.feed(made.raw.take()))
    return made


TLS_VERSIONS = pytest.mark.parametrize("ciphers", ["", "ECDHE-ECDSA-AES128-GCM-SHA256"], ids=["1.3", "1.2"])


@TLS_VERSIONS
async def test_chain_of_twenty_authorities_is_accepted(ciphers: str) -> None:
    made = met(chain_below(20), ciphers)
    assert made.protocol.done.result().calls == ["made"]


@TLS_VERSIONS
async def test_chain_of_a_hundred_and_fifty_authorities_is_refused(ciphers: str) -> None:
    made = met(chain_below(150), ciphers)
    assert made.raw.is_closing()
    assert isinstance(made.end(), TlsError)


@TLS_VERSIONS
async def test_certificate_of_a_megabyte_is_refused_before_it_is_read(ciphers: str) -> None:
    names = (f"{'x' * 40}{number}.example" for number in range(20_000))
    issued = CertificateAuthority("small").issue(HOST, *names)
    made = met(issued, ciphers)
    assert made.raw.is_closing()
    assert isinstance(made.end(), TlsError)


@pytest.mark.parametrize("kind", [2, 11, 4])
async def test_endless_handshake_message_is_refused_or_bounded(kind: int) -> None:
    """It claims 16 MiB, of which 4 are sent."""
    made, before = Scene(context=context_of_options()), resident()
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
