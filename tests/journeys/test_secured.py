"""Secured connections: errors at start that say what to change, handshakes that peers spoil, and long sessions.

The handshakes and sessions are in virtual time, over the memory transport.
"""

import asyncio
import datetime as dt
import enum
import gc
import os
import ssl
import threading
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar, cast

import psutil
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer import Producer
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.errors import (
    ConfigurationError,
    KafkaError,
    MetadataTimeoutError,
    TlsRefusedError,
    TlsVerificationError,
)
from aioproducer.testing import ClusterSecurity, FakeCluster
from aioproducer.testing.certificates import DAY, Certificate, CertificateAuthority
from aioproducer.testing.fake_cluster import wall_clock_ms
from aioproducer.testing.tokens import unsecured_token
from tests.fakes.tls_peer import silent_tls_server
from tests.fakes.virtual_loop import ClusterLoop, MemoryTransport, in_virtual_time, now
from tests.nightly import rounds

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
ResultT = TypeVar("ResultT")

ROOT = CertificateAuthority("root", rsa=True)
OTHER = CertificateAuthority("root", rsa=True)
BELOW = CertificateAuthority("below", issuer=ROOT, rsa=True)


def context_of(certificate: Certificate, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = folder / "server.pem"
    path.write_text(certificate.pem, encoding="utf-8")
    context.load_cert_chain(path)
    return context


def trusting(folder: Path, authority: CertificateAuthority = ROOT) -> dict[str, object]:
    path = folder / "ca.pem"
    path.write_text(authority.certificate, encoding="utf-8")
    return {"security_protocol": "SSL", "ssl_truststore_location": path}


async def failure_at_start(address: str, options: dict[str, object]) -> KafkaError:
    producer = Producer(address, **{"max_block_ms": 20_000, **options})  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as caught:
        await producer.start()
    return caught.value


def in_loop(loop: str, run: Coroutine[object, object, ResultT]) -> ResultT:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(run)  # type: ignore[arg-type]


CERTIFICATES: dict[str, tuple[Callable[[], Certificate], str]] = {
    "another CA of the same name": (OTHER.issue, "is not known"),
    "another name": (
        lambda: ROOT.issue("broker.example", "10.0.0.1"),
        "is not for 'localhost'; it is for broker.example, 10.0.0.1",
    ),
    "expired": (lambda: ROOT.issue(begins=-2 * DAY, ends=-DAY), "has expired"),
    "not yet valid": (lambda: ROOT.issue(begins=DAY, ends=2 * DAY), "is not valid yet"),
    "for clients only": (lambda: ROOT.issue(usage=("client",)), "is not for servers"),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("case", CERTIFICATES)
def test_refused_certificate_of_a_broker_is_an_error_at_once(
    tmp_path: Path, case: str, *, version: str, loop: str
) -> None:
    make, text = CERTIFICATES[case]

    async def run() -> KafkaError:
        with silent_tls_server(context_of(make(), tmp_path)) as running:
            return await failure_at_start(running.address, {**trusting(tmp_path), "ssl_enabled_protocols": [version]})

    error = in_loop(loop, run())
    assert isinstance(error, TlsVerificationError)
    assert text in str(error)
    assert "broker" in str(error)
    assert "localhost:" in str(error)


async def test_missing_intermediate_is_named(tmp_path: Path) -> None:
    issued = BELOW.issue()
    end = "-----END CERTIFICATE-----\n"
    alone = Certificate(issued.chain.partition(end)[0] + end, issued.key)
    with silent_tls_server(context_of(alone, tmp_path)) as running:
        error = await failure_at_start(running.address, trusting(tmp_path))
    assert isinstance(error, TlsVerificationError)
    assert "does not send an intermediate certificate" in str(error)
    # A trust store with the intermediate alone is enough: partial chains are on.
    with silent_tls_server(context_of(alone, tmp_path)) as running:
        options = {**trusting(tmp_path, BELOW), "max_block_ms": 300}
        assert isinstance(await failure_at_start(running.address, options), MetadataTimeoutError)


async def test_address_that_the_certificate_does_not_have_is_named(tmp_path: Path) -> None:
    with silent_tls_server(context_of(ROOT.issue("localhost"), tmp_path)) as running:
        error = await failure_at_start(running.address.replace("localhost", "127.0.0.1"), trusting(tmp_path))
    assert isinstance(error, TlsVerificationError)
    assert "is not for '127.0.0.1'" in str(error)
    with silent_tls_server(context_of(ROOT.issue("localhost"), tmp_path)) as running:
        unchecked = {"ssl_endpoint_identification_algorithm": "", "max_block_ms": 300}
        error = await failure_at_start(
            running.address.replace("localhost", "127.0.0.1"), {**trusting(tmp_path), **unchecked}
        )
    assert isinstance(error, MetadataTimeoutError)


async def test_server_of_tls_1_1_is_refused(tmp_path: Path) -> None:
    context = context_of(ROOT.issue(), tmp_path)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of old versions, which are the subject
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with silent_tls_server(context) as running:
        error = await failure_at_start(running.address, trusting(tmp_path))
    assert isinstance(error, TlsRefusedError)
    assert "ssl_enabled_protocols" in str(error)


@pytest.mark.parametrize("loop", LOOPS)
def test_listener_without_tls_is_named_after_three_closes(tmp_path: Path, loop: str) -> None:
    """T10: nothing is sent in plaintext, whatever fails."""
    seen: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(3))
        writer.close()

    async def run() -> KafkaError:
        running = await asyncio.start_server(take, "127.0.0.1", 0)
        async with running:
            address = f"localhost:{running.sockets[0].getsockname()[1]}"
            return await failure_at_start(address, trusting(tmp_path))

    error = in_loop(loop, run())
    assert isinstance(error, TlsRefusedError)
    assert "the port of a listener without TLS" in str(error)
    assert 3 <= len(seen) <= 5  # another task of the producer may ask once more before the error arrives
    assert {first[:2] for first in seen} == {b"\x16\x03"}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("loop", LOOPS)
def test_refused_client_certificate_is_an_error_at_once(tmp_path: Path, version: str, *, loop: str) -> None:
    context = context_of(ROOT.issue(), tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=ROOT.certificate)
    cases: dict[str, tuple[Certificate | None, str]] = {
        "missing": (None, "wants a client certificate"),
        "of another CA": (OTHER.issue("client"), "it does not accept our certificate"),
        "expired": (ROOT.issue("client", begins=-2 * DAY, ends=-DAY), "ssl_keystore_location needs a new one"),
        "for servers only": (ROOT.issue("client", usage=("server",)), "it does not accept our certificate"),
    }

    async def run() -> list[tuple[str, KafkaError]]:
        failures = []
        with silent_tls_server(context) as running:
            for name, (certificate, _) in cases.items():
                options = {**trusting(tmp_path), "ssl_enabled_protocols": [version]}
                if certificate is not None:
                    path = tmp_path / f"{name}.pem"
                    path.write_text(certificate.pem, encoding="utf-8")
                    options["ssl_keystore_location"] = path
                failures.append((name, await failure_at_start(running.address, options)))
        return failures

    for name, error in in_loop(loop, run()):
        assert isinstance(error, TlsRefusedError), (name, error)
        assert cases[name][1] in str(error), (name, str(error))


async def test_unreadable_store_is_an_error_before_any_connection(tmp_path: Path) -> None:
    options = {"security_protocol": "SSL", "ssl_truststore_location": tmp_path / "missing.pem"}
    error = await failure_at_start("127.0.0.1:1", options)
    assert isinstance(error, ConfigurationError)
    assert error.option == "ssl_truststore_location"
    assert "there is no such file" in str(error)


async def test_context_function_that_returns_none_is_named() -> None:
    error = await failure_at_start("127.0.0.1:1", {"security_protocol": "SSL", "ssl_context": lambda: None})
    assert isinstance(error, ConfigurationError)
    assert "ssl_context returned NoneType" in str(error)


def left_behind(process: psutil.Process) -> tuple[int, int, int, int]:
    """Return numbers of descriptors, threads, tasks and timers; those of this call are the same each time."""
    timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]  # noqa: SLF001  # asyncio has no other way
    is_set = [timer for timer in timers if not timer.cancelled()]
    return process.num_fds(), threading.active_count(), len(asyncio.all_tasks()), len(is_set)


@pytest.mark.slow
async def test_hundreds_of_failing_starts_leave_nothing(tmp_path: Path) -> None:
    """No task, thread, socket, timer or file descriptor, of a memfd either."""
    issued = ROOT.issue("client")
    options = {
        **trusting(tmp_path, OTHER),
        "ssl_keystore_key": issued.key,
        "ssl_keystore_certificate_chain": issued.chain,
    }
    process = psutil.Process()
    with silent_tls_server(context_of(ROOT.issue(), tmp_path)) as running:
        for _ in range(3):
            await failure_at_start(running.address, options)
        await asyncio.sleep(0.1)
        before = left_behind(process)
        for _ in range(rounds(20, nightly=100)):
            failures = await asyncio.gather(*(failure_at_start(running.address, options) for _ in range(10)))
            assert all(isinstance(each, TlsVerificationError) for each in failures)
        deadline = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=10)
        while any(now > then for now, then in zip(left_behind(process), before, strict=True)):
            assert dt.datetime.now(dt.UTC) < deadline, (left_behind(process), before)
            await asyncio.sleep(0.05)


def test_forked_child_sends_nothing(tmp_path: Path) -> None:
    """T20: neither a record nor close_notify leaves the child's copy of the connection."""
    with silent_tls_server(context_of(ROOT.issue(), tmp_path)) as running, asyncio.Runner() as runner:
        producer = runner.run(started(running.address, trusting(tmp_path)))
        runner.run(asyncio.to_thread(running.got_something.wait, 10))
        before = bytes(running.received)
        child = os.fork()
        if child == 0:
            del producer
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        runner.run(asyncio.sleep(0.2))
        assert before
        assert bytes(running.received) == before
        runner.run(producer.close(0))


async def started(address: str, options: dict[str, object]) -> Producer:
    producer = Producer(address, **options)  # type: ignore[arg-type]
    return await producer.start(wait=False)


# Peers that stop, drip, close or damage at any byte of a handshake


SECURITY = ClusterSecurity()
SETUP_S = 2.0
WAYS = [
    ("SSL", ""),
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "OAUTHBEARER"),
]
LAST_BYTE = 3000  # behind the end of each handshake


class Tokens:
    """Tokens for an hour, and how many were asked for."""

    asked = 0

    async def token(self) -> str:
        self.asked += 1
        return unsecured_token("alice", lifetime_s=3600)


class Kind(enum.Enum):
    STOPS = "stops"
    DRIPS = "drips"
    CLOSES = "closes"
    DAMAGES = "damages"


class Spoiled:
    """What the client hears of one connection: everything up to a byte, then something else."""

    def __init__(self, ours: MemoryTransport, kind: Kind, at: int) -> None:
        self._ours = ours
        self._feed = ours.feed
        self._kind = kind
        self._left = at
        self._late = bytearray()
        self.opened_at = ours.loop.time()
        self.closed_at: float | None = None
        close = ours.close

        def closing() -> None:
            if self.closed_at is None:
                self.closed_at = ours.loop.time()
            close()

        ours.feed = self.feed  # type: ignore[method-assign]
        ours.close = closing  # type: ignore[method-assign]

    def feed(self, data: bytes) -> None:
        before, behind = data[: self._left], data[self._left :]
        self._left -= len(before)
        if before:
            self._feed(before)
        if not behind:
            return
        match self._kind:
            case Kind.CLOSES:
                self._ours.feed_end()
            case Kind.DAMAGES:
                self._feed(bytes((behind[0] ^ 0x55,)) + behind[1:])
                self._left = 1 << 30
            case Kind.DRIPS:
                self._late += behind
                if len(self._late) == len(behind):
                    self._drip()
            case Kind.STOPS:
                pass

    def _drip(self) -> None:
        if self._late and not self._ours.is_closing():
            self._feed(bytes(self._late[:1]))
            del self._late[0]
            self._ours.loop.call_later(0.2, self._drip)


class SpoilingLoop(ClusterLoop):
    """Spoils the first connections."""

    def __init__(self, kind: Kind, at: int, connections: int) -> None:
        super().__init__()
        self.spoiled: list[Spoiled] = []
        self._kind, self._at, self._more = kind, at, connections

    async def create_connection(  # type: ignore[override]  # as in the base class
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[MemoryTransport, asyncio.Protocol]:
        made, protocol = await super().create_connection(factory, host, port)
        if self._more:
            self._more -= 1
            self.spoiled.append(Spoiled(made, self._kind, self._at))
        return made, protocol


def secured_producer(cluster: FakeCluster, way: tuple[str, str], **more: object) -> Producer:
    """Return a producer by a security protocol and a SASL mechanism."""
    options = cluster.client_options(*way) | more
    if options.pop("ssl_truststore_location", None):  # files are read in threads, which virtual time does not await
        options["ssl_context"] = ssl.create_default_context(cadata=SECURITY.authority.certificate)
    return Producer(cast("str", options.pop("bootstrap_servers")), **cast("ProducerOptions", options))


def impatient_producer(cluster: FakeCluster, way: tuple[str, str]) -> Producer:
    times = ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms", "request_timeout_ms")
    options: dict[str, object] = dict.fromkeys(times, round(SETUP_S * 1000))
    if way[1] == "OAUTHBEARER":
        options["sasl_token_provider"] = Tokens()
    return secured_producer(cluster, way, **options, max_block_ms=60_000)


async def spoiled_then_fine(way: tuple[str, str]) -> KafkaError | None:
    """Returns why the first start failed; the second one finds a peer that is fine."""
    failure = None
    async with FakeCluster(1, topics={"orders": 1}, security=SECURITY) as cluster:
        try:
            async with impatient_producer(cluster, way) as producer:
                await producer.send_and_wait("orders", b"x")
        except KafkaError as error:
            failure = error
            async with impatient_producer(cluster, way) as producer:
                await producer.send_and_wait("orders", b"x")
        sent = 2 if failure is not None and failure.outcome is not None else 1  # the answer to the record was spoiled
        assert [record.value for record in cluster.records("orders", 0)] in ([b"x"], [b"x"] * sent)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return failure


def run(way: tuple[str, str], kind: Kind, at: int, *, connections: int = 2) -> tuple[SpoilingLoop, KafkaError | None]:
    loop = SpoilingLoop(kind, at, connections)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        failure = runner.run(spoiled_then_fine(way))
    return loop, failure


def check_lives(loop: SpoilingLoop) -> None:
    lives = [each.closed_at - each.opened_at for each in loop.spoiled if each.closed_at is not None]
    assert len(lives) == len(loop.spoiled)
    assert max(lives) <= SETUP_S + 0.2


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@settings(max_examples=6, deadline=None)
@given(kind=st.sampled_from([Kind.STOPS, Kind.DRIPS, Kind.CLOSES]), at=st.integers(0, LAST_BYTE))
def test_peer_that_stops_at_any_byte_costs_the_setup_timeout(way: tuple[str, str], kind: Kind, at: int) -> None:
    loop, failure = run(way, kind, at)
    assert failure is None  # the third connection is fine, within max_block_ms
    if kind is Kind.STOPS and at < LAST_BYTE // 6:
        check_lives(loop)


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@settings(max_examples=8, deadline=None)
@given(at=st.integers(0, LAST_BYTE))
def test_damaged_handshake_is_an_error_or_another_attempt(way: tuple[str, str], at: int) -> None:
    _, failure = run(way, Kind.DAMAGES, at, connections=1)
    assert failure is None or str(failure)


# Hours of sessions in a second


LIFETIME_S = 10.0
SESSIONS = 100
SHORT_SESSIONS = ClusterSecurity(session_lifetime_ms=round(LIFETIME_S * 1000), authority=SECURITY.authority)
WAYS_OF_SESSIONS = [
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SSL", ""),
]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS_OF_SESSIONS, ids="-".join)
@in_virtual_time
async def test_records_outlive_a_hundred_sessions_on_one_connection(way: tuple[str, str]) -> None:
    async with FakeCluster(1, topics={"orders": 1}, security=SHORT_SESSIONS) as cluster:
        async with secured_producer(cluster, way) as producer:
            for number in range(3 * SESSIONS):
                await producer.send_and_wait("orders", str(number).encode())
                await asyncio.sleep(LIFETIME_S / 3)
            connections = {seen.connection_id for seen in cluster.requests}

        assert [record.value for record in cluster.records("orders", 0)] == [
            str(number).encode() for number in range(3 * SESSIONS)
        ]
        first = [seen for seen in cluster.authentications if not seen.is_again]
        again = [seen for seen in cluster.authentications if seen.is_again]
        assert [seen for seen in cluster.authentications if seen.error_code] == []
        assert len(first) == (len(connections) if way[1] else 0)
        assert len(again) >= (SESSIONS - 10 if way[1] else 0)
        assert cluster.model.intruders == []


@in_virtual_time
async def test_session_not_renewed_is_renewed_before_its_end() -> None:
    """A password that could not be fetched once costs no connection; the next try comes at half of the time left."""
    asked_at: list[float] = []

    def password() -> str:
        asked_at.append(now())
        if len(asked_at) == 2:
            raise OSError("the vault is away")
        return "alice-secret"

    lifetime_s = 100.0
    security = ClusterSecurity(session_lifetime_ms=round(lifetime_s * 1000))
    async with (
        FakeCluster(1, topics={"orders": 1}, security=security) as cluster,
        secured_producer(cluster, ("SASL_PLAINTEXT", "PLAIN"), sasl_password=password) as producer,
    ):
        while now() < asked_at[0] + lifetime_s:
            await producer.send_and_wait("orders", b"v")
            await asyncio.sleep(0.1)
        statistics = producer.statistics()

    first, failed, again = asked_at
    assert (again - failed) == pytest.approx((first + lifetime_s - failed) / 2, abs=1.0)
    assert (statistics.reauthentication_failures, statistics.reauthentications) == (1, 1)
    assert statistics.connections_closed == 0


@in_virtual_time
async def test_new_token_is_valid_however_slow_the_machine_is() -> None:
    """Its times are those of the clock on the wall, which here runs on by a minute while that of the loop stands."""
    ahead_s = 0.0

    class LaterTokens:
        async def token(self) -> str:
            return unsecured_token("alice", issued_ago_s=-ahead_s)

    security = ClusterSecurity()

    def clock() -> float:
        return wall_clock_ms() + ahead_s * 1000

    async with FakeCluster(1, topics={"orders": 1}, security=security, clock=clock) as cluster:
        ahead_s = 60.0
        way = ("SASL_PLAINTEXT", "OAUTHBEARER")
        async with secured_producer(cluster, way, sasl_token_provider=LaterTokens()) as producer:
            await producer.send_and_wait("orders", b"v")


@in_virtual_time
async def test_one_token_serves_all_connections_and_sessions() -> None:
    tokens = Tokens()
    async with FakeCluster(3, topics={"orders": 3}, security=SHORT_SESSIONS) as cluster:
        async with secured_producer(cluster, ("SASL_PLAINTEXT", "OAUTHBEARER"), sasl_token_provider=tokens) as producer:
            for partition in (0, 1, 2) * 10:
                await producer.send_and_wait("orders", b"v", partition=partition)
                await asyncio.sleep(LIFETIME_S / 3)

        assert len({seen.connection_id for seen in cluster.authentications}) >= 3
        assert any(seen.is_again for seen in cluster.authentications)
    assert tokens.asked == 1
