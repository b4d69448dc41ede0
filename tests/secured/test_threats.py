"""Threats without a better place: what hostile brokers, proxies and callers say, and how many sockets refusals cost."""

import ast
import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

import aioproducer
from aioproducer import KafkaError, Producer, UnsupportedMechanismError
from aioproducer._protocol.api_versions import ApiVersions
from aioproducer._protocol.messages import METADATA, PRODUCE
from aioproducer._protocol.sasl_exchange import RefusedError, exchange
from aioproducer._protocol.sasl_mechanisms import Plain
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.errors import ConfigurationError, UnsupportedVersionError
from aioproducer.testing import ClusterSecurity, FakeCluster
from tests.fakes.proxies import hostile_proxy
from tests.fakes.sasl_broker import HELLO, TOKEN, SaslBroker, Secured
from tests.fakes.scripted_broker import Heard
from tests.fakes.virtual_loop import ClusterLoop, MemoryTransport, in_virtual_time

ANSI = "\x1b[31mforged\x1b[0m\r\nINFO all is well\x00\u202e"
TEN_MINUTES_S = 600.0
PACKAGE = Path(aioproducer.__file__).parent


@pytest.mark.parametrize(
    "claimed",
    [(5, 3), (-1, 3), (-32768, 32767), (32767, 32767), (0, -1), (0, 0)],
    ids=lambda pair: f"{pair[0]}..{pair[1]}",
)
def test_invented_versions_lead_to_a_real_one_or_an_error(claimed: tuple[int, int]) -> None:
    for api in (METADATA, PRODUCE):
        versions = ApiVersions({api.key: claimed})
        is_spoken = 0 <= claimed[0] <= api.max_version and claimed[1] >= max(claimed[0], api.min_version)
        if is_spoken:
            assert api.min_version <= versions.highest_common(api) <= api.max_version
        else:
            with pytest.raises(UnsupportedVersionError, match=api.name):
                versions.highest_common(api)


class Offering(SaslBroker):
    """Offers PLAIN alone, or claims to have whatever is asked for, and keeps what it is sent."""

    def __init__(self, code: int) -> None:
        super().__init__(mechanism="SCRAM-SHA-512")
        self._code = code
        self.tokens: list[bytes] = []

    def _hello(self, heard: Heard) -> None:
        names = b"\x00\x00\x00\x01\x00\x05PLAIN"
        self.answer(heard, self._code.to_bytes(2) + names, header=b"")
        self._expects = TOKEN

    async def _token(self, heard: Heard) -> None:
        self.tokens.append(heard.body)
        self.transport.close()


@in_virtual_time
async def test_broker_that_offers_plain_alone_is_sent_no_password() -> None:
    secured = Secured(broker := Offering(33))
    with pytest.raises(UnsupportedMechanismError, match="it offers PLAIN"):
        await secured.connection.ready
    assert broker.tokens == []
    assert broker.order.count(HELLO) == 1


@in_virtual_time
async def test_broker_that_means_plain_is_sent_no_password() -> None:
    secured = Secured(broker := Offering(0))
    with pytest.raises(KafkaError):
        await secured.connection.ready
    assert len(broker.tokens) == 1
    assert b"n,,n=alice,r=" in broker.tokens[0]
    assert b"canary-secret" not in broker.tokens[0]


def test_megabyte_from_a_broker_is_escaped_and_cut() -> None:
    words = ANSI.encode() * 30_000
    size, length = len(words) + 1, bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    verdict = b"\x00\x3a" + length + bytes((size,)) + words + b"\x01" + bytes(9)
    run = exchange(Plain("alice"), ApiVersions({17: (0, 1), 36: (0, 2)}))
    next(run)
    run.send(b"\x00\x00\x00\x00\x00\x00")
    run.send("canary-secret")
    with pytest.raises(RefusedError) as caught:
        run.send(verdict)
    assert_harmless(str(caught.value.error))


def assert_harmless(text: str) -> None:
    assert text.isprintable(), ascii(text)
    assert len(text) < 3_000


@pytest.mark.parametrize("length", [1, 20_000])
async def test_control_characters_from_a_proxy_are_escaped_and_cut(
    length: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = f"HTTP/1.1 403 {ANSI.replace(chr(13), '').replace(chr(10), '') * length}\r\n\r\n".encode()
    async with hostile_proxy([answer]) as port:
        producer = Producer("kafka-1:9092", proxy_url=f"http://127.0.0.1:{port}", max_block_ms=200)
        with pytest.raises(KafkaError) as caught:
            await producer.start()
    assert_harmless(str(caught.value))
    assert [line for line in caplog.messages if not line.isprintable()] == []


@pytest.mark.parametrize("text", ["a\nb", "a\x1b[31m", "a\x00", "a\u202eb", "\ud800", "x" * 32_768])
def test_client_id_that_would_forge_a_log_or_header_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="client_id") as refused:
        Producer("localhost:9092", client_id=text)
    assert str(refused.value).isprintable()


async def test_transactional_id_with_control_characters_is_escaped(
    one_broker: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Producer(one_broker.bootstrap_servers, transactional_id=ANSI) as producer:
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"x")
        assert repr(producer).isprintable()
    async with Producer(one_broker.bootstrap_servers, transactional_id=ANSI):
        assert [line for line in caplog.messages if not line.isprintable()] == []


def test_nothing_but_the_splitter_decompresses() -> None:
    """A producer reads no foreign batches, so that no bomb can reach it."""
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "testing" not in path.parts and imports_decompress(path)
    }
    assert users == {"_accumulator/batch_splitter.py"}


def imports_decompress(path: Path) -> bool:
    tree = ast.parse(path.read_text("utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    return "decompress" in names


class CountingLoop(ClusterLoop):
    """Counts open sockets and attempts to connect."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[MemoryTransport] = []
        self.attempts: list[float] = []
        self.attempts_at: dict[int, list[float]] = {}  # by port
        self.most_open = 0
        self.is_resetting = False

    async def create_connection(  # type: ignore[override]  # as in the base class
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[MemoryTransport, asyncio.Protocol]:
        self.attempts.append(self.time())
        self.attempts_at.setdefault(port, []).append(self.time())
        made, protocol = await super().create_connection(factory, host, port)
        self.opened = [each for each in self.opened if not each.is_closing()] + [made]
        self.most_open = max(self.most_open, len(self.opened))
        if self.is_resetting:
            self.call_soon(made.feed_end)
        return made, protocol

    def close_all(self) -> None:
        for each in self.opened:
            each.feed_end()


def counted(story: Callable[[CountingLoop], "asyncio.Future[None] | object"]) -> CountingLoop:
    loop = CountingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(story(loop))  # type: ignore[arg-type]
    return loop


def most_in_a_minute(times: list[float]) -> int:
    return max(sum(start <= at < start + 60 for at in times) for start in times)


BROKERS = 3


async def keep_sending(producer: Producer, loop: asyncio.AbstractEventLoop) -> None:
    ends_at = loop.time() + TEN_MINUTES_S
    while loop.time() < ends_at:
        with pytest.raises(KafkaError):
            await producer.send_and_wait("orders", b"x")
        await asyncio.sleep(1)


def producer_of(cluster: FakeCluster, way: tuple[str, str], security: ClusterSecurity) -> Producer:
    options = cluster.client_options(*way)
    if options.pop("ssl_truststore_location", None):  # files are read in threads, which virtual time does not await
        options["ssl_context"] = ssl.create_default_context(cadata=security.authority.certificate)
    options |= {"request_timeout_ms": 2_000, "delivery_timeout_ms": 5_000, "max_block_ms": 5_000}
    return Producer(cast("str", options.pop("bootstrap_servers")), **cast("ProducerOptions", options))


@pytest.mark.parametrize("way", [("SASL_PLAINTEXT", "SCRAM-SHA-256"), ("SASL_SSL", "PLAIN")], ids="-".join)
def test_refusals_cost_one_socket_and_ten_attempts_a_minute(way: tuple[str, str]) -> None:
    security = ClusterSecurity()

    async def story(loop: CountingLoop) -> None:
        async with (
            FakeCluster(BROKERS, topics={"orders": BROKERS}, security=security) as cluster,
            producer_of(cluster, way, security) as producer,
        ):
            for partition in range(BROKERS):
                await producer.send_and_wait("orders", b"x", partition=partition)
            cluster.change_password("alice", "canary-new")
            loop.close_all()
            loop.attempts.clear()
            loop.attempts_at.clear()
            before = len(cluster.authentications)
            await keep_sending(producer, loop)
            refused = cluster.authentications[before:]
            assert {seen.error_code for seen in refused} == {58}
            cluster.change_password("alice", "alice-secret")
            await asyncio.sleep(60)
            await producer.send_and_wait("orders", b"accepted")

    loop = counted(story)
    assert loop.most_open <= BROKERS + 1  # and one that asks a bootstrap server
    assert len(loop.attempts_at) == BROKERS
    assert {port for port, times in loop.attempts_at.items() if most_in_a_minute(times) > 10} == set()


def test_brokers_that_reset_every_connection_cost_few_sockets() -> None:
    security = ClusterSecurity()

    async def story(loop: CountingLoop) -> None:
        async with (
            FakeCluster(BROKERS, topics={"orders": BROKERS}, security=security) as cluster,
            producer_of(cluster, ("SASL_SSL", "PLAIN"), security) as producer,
        ):
            await producer.send_and_wait("orders", b"x")
            loop.is_resetting = True
            loop.close_all()
            loop.attempts.clear()
            await keep_sending(producer, loop)
            loop.is_resetting = False
            await asyncio.sleep(10)
            await producer.send_and_wait("orders", b"accepted")

    loop = counted(story)
    assert loop.most_open <= BROKERS + 1
    assert most_in_a_minute(loop.attempts) <= 60 * (BROKERS + 1)
