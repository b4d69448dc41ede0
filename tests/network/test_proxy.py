"""Proxies: what they are asked for, and answers that are invalid, hostile, or missing."""

import asyncio
import base64
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer import Producer
from aioproducer._network.proxy import LARGEST_HTTP_RESPONSE, Exchange, Proxy, ProxyProtocol, ask
from aioproducer._protocol.sent_secrets import SentSecrets
from aioproducer.config import ProducerConfig
from aioproducer.errors import AuthenticationError, BrokerConnectionError, KafkaError, TlsVerificationError
from aioproducer.security import Secret
from aioproducer.testing import CertificateAuthority, FakeCluster
from tests.fakes.event_loops import LOOPS
from tests.fakes.proxies import hostile_proxy, working_proxy
from tests.fakes.tls_peer import silent_tls_server

ResultT = TypeVar("ResultT")

EVERY_LOOP = pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
SCHEMES = pytest.mark.parametrize("scheme", ["socks5", "socks5h", "http"])
PASSWORD = "canary-pa:ss@word/%"
QUOTED = "canary-pa:ss%40word%2F%25"
CREDENTIALS = f"billing:{PASSWORD}"
GRANTED = b"HTTP/1.1 200 Connection established\r\n\r\n"

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def run(new_loop: NewLoop, story: Coroutine[object, object, ResultT]) -> ResultT:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(story)


def port_of(cluster: FakeCluster) -> int:
    return int(cluster.bootstrap_servers.rpartition(":")[2])


@EVERY_LOOP
@SCHEMES
def test_records_go_through_a_proxy_that_wants_a_password(new_loop: NewLoop, scheme: str) -> None:
    async def story() -> tuple[int, set[str], str]:
        async with (
            FakeCluster(nodes=1, topics={"orders": 1}) as cluster,
            working_proxy(credentials=CREDENTIALS) as proxy,
        ):
            url = f"{scheme}://billing:{QUOTED}@127.0.0.1:{proxy.port}"
            async with Producer(cluster.bootstrap_servers, proxy_url=url) as producer:
                for _ in range(10):
                    await producer.send("orders", b"x" * 100_000)
            return len(cluster.records("orders", 0)), set(proxy.asked), cluster.bootstrap_servers

    count, asked, bootstrap = run(new_loop, story())

    assert count == 10
    assert asked == {bootstrap}


@EVERY_LOOP
@pytest.mark.parametrize("scheme", ["socks5h", "http"])
def test_proxy_resolves_the_names(new_loop: NewLoop, scheme: str) -> None:
    """`.invalid` cannot be resolved here."""

    async def story() -> list[str]:
        async with FakeCluster(nodes=1, topics={"orders": 1}) as cluster:
            places = {"kafka.invalid:9092": port_of(cluster)}
            async with working_proxy(places=places) as proxy:
                url = f"{scheme}://127.0.0.1:{proxy.port}"
                async with Producer("kafka.invalid:9092", proxy_url=url) as producer:
                    await producer.send("orders", b"tea")
            return proxy.asked

    assert run(new_loop, story())[0] == "kafka.invalid:9092"


@EVERY_LOOP
def test_names_are_resolved_here_for_socks5(new_loop: NewLoop) -> None:
    async def story() -> list[str]:
        async with FakeCluster(nodes=1, topics={"orders": 1}) as cluster, working_proxy() as proxy:
            url = f"socks5://127.0.0.1:{proxy.port}"
            async with Producer(f"localhost:{port_of(cluster)}", proxy_url=url) as producer:
                await producer.send("orders", b"tea")
            return [place.rpartition(":")[0] for place in proxy.asked]

    assert set(run(new_loop, story())) == {"127.0.0.1"}


@EVERY_LOOP
def test_no_record_is_lost_when_the_proxy_is_killed(new_loop: NewLoop) -> None:
    async def story() -> list[bytes | None]:
        async with FakeCluster(nodes=1, topics={"orders": 1}) as cluster, working_proxy() as proxy:
            url = f"socks5h://127.0.0.1:{proxy.port}"
            async with Producer(cluster.bootstrap_servers, proxy_url=url) as producer:
                for number in range(20):
                    delivery = producer.send("orders", b"%d" % number)
                    asyncio.get_running_loop().call_soon(proxy.cut if number % 5 == 0 else int)
                    await delivery
            return [record.value for record in cluster.records("orders", 0)]

    assert run(new_loop, story()) == [b"%d" % number for number in range(20)]


HOSTILE = {
    # SOCKS5
    "wants a password": ("socks5h", [b"\x05\xff"], "it wants a user and a password"),
    "is an HTTP proxy": ("socks5h", [b"HTTP/1.1 400 Bad Request\r\n\r\n"], "it is no SOCKS5 proxy: it answers HT"),
    "is SOCKS4": ("socks5h", [b"\x00\x5b"], r"it is no SOCKS5 proxy: it answers \x00["),
    "takes another method": ("socks5h", [b"\x05\x01"], "the authentication method 1, which was not offered"),
    "takes a password unasked": ("socks5h", [b"\x05\x02"], "the authentication method 2, which was not offered"),
    "refuses": ("socks5h", [b"\x05\x00", b"\x05\x02\x00\x01" + bytes(6)], "it refuses: not allowed by its rules"),
    "refuses, unknown": ("socks5h", [b"\x05\x00", b"\x05\x63\x00\x01" + bytes(6)], "it refuses: reply 99"),
    "unknown address": ("socks5h", [b"\x05\x00", b"\x05\x00\x00\x09" + bytes(6)], "of the unknown kind 9"),
    "hangs up": ("socks5h", [b"\x05\x00"], "it hung up"),
    "half an answer": ("socks5h", [b"\x05\x00", b"\x05\x00\x00\x01\x00"], "in the middle of its answer"),
    "bytes ahead": ("socks5h", [b"\x05\x00injected"], "it sent injected before it was asked"),
    "bytes behind": (
        "socks5h",
        [b"\x05\x00", b"\x05\x00\x00\x01" + bytes(6) + b"\x15\x03"],
        r"it sent \x15\x03 behind",
    ),
    # CONNECT
    "407": ("http", [b"HTTP/1.1 407 Who\r\n\r\n"], "it wants a user and a password (407)"),
    "407, NTLM": (
        "http",
        [b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Negotiate\r\nproxy-authenticate: NTLM TlRMTVNTUAAC\r\n\r\n"],
        "it wants Negotiate or NTLM, and this client speaks only Basic: ",
    ),
    "407, Digest": (
        "http",
        [b'HTTP/1.1 407 Who\r\nProxy-Authenticate: Digest realm="Basic", nonce="x"\r\n\r\n'],
        "it wants Digest, and this client speaks only Basic: ",
    ),
    "407, Basic too": (
        "http",
        [b"HTTP/1.1 407 Who\r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: basic realm=x\r\n\r\n"],
        "it wants a user and a password (407)",
    ),
    "403": ("http", [b"HTTP/1.0 403 \x1b[31mNo\x9b\r\n\r\n"], r"it refuses: 403 \x1b[31mNo\x9b"),
    "100": ("http", [b"HTTP/1.1 100 Continue\r\n\r\n"], "it refuses: 100 Continue"),
    "is SOCKS5": ("http", [b"\x05\xff"], r"it is no HTTP proxy: it answers \x05ÿ"),
    "is a Kafka broker": ("http", [b"\x00\x00\x00\x05hello"], "it is no HTTP proxy: it answers "),
    "HTTP/2": ("http", [b"HTTP/2 200\r\n\r\n"], r"it is no HTTP proxy: it answers HTTP/2 200\r\n"),
    "no status": ("http", [b"HTTP/1.1 OK\r\n\r\n"], "it is no HTTP proxy: it answers "),
    "injection": ("http", [GRANTED + b"\x16\x03\x03"], r"it sent \x16\x03\x03 behind its answer"),
    "endless headers": ("http", [b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 10_000], "more than 16384 bytes"),
    "endless line": ("http", [b"HTTP/1.1 200 " + b"x" * 100_000], "more than 16384 bytes"),
    "long reason": ("http", [b"HTTP/1.1 500 " + b"x" * 9_000 + b"\r\n\r\n"], "it refuses: 500 " + "x" * 64 + "..."),
    "hangs up, HTTP": ("http", [b"HTTP/1.1 200"], "in the middle of its answer"),
}


@pytest.mark.parametrize("scheme, answers, text", HOSTILE.values(), ids=HOSTILE)
async def test_proxy_that_gives_no_connection_is_named_with_the_reason(
    scheme: str, answers: list[bytes], text: str
) -> None:
    async with hostile_proxy(answers) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        producer = Producer("kafka-1:9092", proxy_url=url, max_block_ms=400)
        with pytest.raises(KafkaError) as raised:
            await producer.start()
        await producer.close()

    shown = str(raised.value)
    assert text in shown
    assert f"bootstrap broker kafka-1:9092 (through the proxy {url}): " in shown
    assert shown.isprintable()
    assert len(shown) < 400


@SCHEMES
async def test_refused_proxy_password_ends_the_start_at_once(scheme: str) -> None:
    async with working_proxy(credentials="billing:canary-another") as proxy:
        url = f"{scheme}://billing:{QUOTED}@127.0.0.1:{proxy.port}"
        producer = Producer("127.0.0.1:9092", proxy_url=url, max_block_ms=600_000)
        with pytest.raises(AuthenticationError, match="it refuses the user or the password") as raised:
            await producer.start()
        await producer.close()

    assert f"{scheme}://billing:<hidden>@127.0.0.1:{proxy.port}" in str(raised.value)
    assert PASSWORD not in repr(raised.value)
    assert QUOTED not in repr(raised.value)


@SCHEMES
async def test_names_of_a_certificate_are_looked_at_through_the_proxy(scheme: str, tmp_path: Path) -> None:
    """The proxy's own port is sent nothing but requests to connect, and so does not hold the start up."""
    authority = CertificateAuthority()
    trusted, presented = tmp_path / "ca.pem", tmp_path / "server.pem"
    trusted.write_text(authority.certificate, encoding="utf-8")
    presented.write_text(authority.issue("broker.example").pem, encoding="utf-8")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(presented)
    with silent_tls_server(context) as server:
        port = server.address.rpartition(":")[2]
        async with working_proxy() as proxy:
            url = f"{scheme}://127.0.0.1:{proxy.port}"
            producer = Producer(
                f"127.0.0.1:{port}", security_protocol="SSL", ssl_truststore_location=trusted, proxy_url=url
            )
            with pytest.raises(TlsVerificationError, match=r"is not for '127\.0\.0\.1'; it is for broker\.example"):
                await producer.start()
            await producer.close()

    assert proxy.asked == [f"127.0.0.1:{port}"] * 2


BASIC = base64.b64encode(b"billing:canary-7f3a").decode()


@pytest.mark.parametrize("said", ["canary-7f3a", f"Basic {BASIC}", BASIC[:-6], "canary-7"])
@pytest.mark.parametrize("answer", ["HTTP/1.1 403 no {}\r\n\r\n", "SSH {}\r\n", "HTTP/1.1 200 OK\r\n\r\n{}"])
async def test_password_that_a_proxy_says_back_is_hidden(answer: str, said: str) -> None:
    async with hostile_proxy([answer.format(said).encode()]) as port:
        producer = Producer("kafka-1:9092", proxy_url=f"http://billing:canary-7f3a@127.0.0.1:{port}", max_block_ms=300)
        with pytest.raises(KafkaError, match="<hidden>") as caught:
            await producer.start()
        await producer.close()

    shown = str(caught.value).replace("billing:<hidden>@", "")
    assert "<hidden>" in shown
    assert said not in shown


async def test_silent_proxy_costs_the_setup_timeout() -> None:
    async with hostile_proxy([b"\x05\x00"], hangs_up=False) as port:
        options = {"socket_connection_setup_timeout_ms": 50, "socket_connection_setup_timeout_max_ms": 50}
        producer = Producer("kafka-1:9092", proxy_url=f"socks5h://127.0.0.1:{port}", max_block_ms=300, **options)  # type: ignore[arg-type]
        with pytest.raises(KafkaError, match=r"through the proxy socks5h://127.0.0.1:\d+\): no connection within 0\."):
            await producer.start()
        await producer.close()


@pytest.mark.parametrize(
    "url, text",
    [
        ("socks5h://proxy.invalid:1080", "it cannot be resolved: "),
        ("http://127.0.0.1:1", "it cannot be reached: 127.0.0.1: Connection refused"),
    ],
)
async def test_proxy_that_is_not_there_is_named(url: str, text: str) -> None:
    producer = Producer("kafka-1:9092", proxy_url=url, max_block_ms=300)
    with pytest.raises(KafkaError) as raised:
        await producer.start()
    await producer.close()

    assert f"(through the proxy {url}): {text}" in str(raised.value)


@pytest.mark.parametrize("host", ["a\r\nX: y", "a b", "", "x" * 256, "\ud800"])
@SCHEMES
def test_name_that_would_change_the_request_is_not_sent(host: str, scheme: str) -> None:
    """Metadata chooses names; `Node.is_valid` refuses most of these before."""
    exchange = ask(Proxy(scheme, "proxy", 1), host, 9092)
    greeting = next(exchange).send if scheme != "http" else b""
    with pytest.raises(BrokerConnectionError, match="is no name to ask a proxy for"):
        exchange.send(b"\x05\x00" if greeting else None)  # type: ignore[arg-type]  # the first step takes None


class RecordingTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_aborted = False
        self.protocol: asyncio.BaseProtocol | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_aborted
        self.sent += bytes(data)

    def abort(self) -> None:
        self.is_aborted = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


@given(
    segments=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from([b"\x05\x00", b"\x05\x02", b"\x01\x00", b"\x05\x00\x00\x01" + bytes(6), GRANTED]),
            st.integers(1, 3).map(lambda size: b"HTTP/1.1 200 OK\r\nx: " + b"y" * size * 9_000),
        ),
        max_size=8,
    ),
    scheme=st.sampled_from(["socks5", "socks5h", "http"]),
    has_credentials=st.booleans(),
)
def test_any_answers_end_in_a_connection_or_in_an_error(
    segments: list[bytes], scheme: str, *, has_credentials: bool
) -> None:
    """Bounded memory, nothing written after a failure, and nothing handed over with bytes still held."""
    user, password = ("u", Secret("p")) if has_credentials else (None, None)
    loop = asyncio.new_event_loop()
    exchange: Exchange = ask(Proxy(scheme, "proxy", 1, user, password), "10.0.0.1", 9092)
    transport, inner = RecordingTransport(), asyncio.Protocol()
    protocol = ProxyProtocol(loop, exchange, lambda: inner, sent=SentSecrets())
    protocol.connection_made(transport)
    for segment in segments:
        if transport.is_aborted or transport.protocol is not None:
            break
        protocol.data_received(segment)
        assert transport.is_aborted or protocol.held_bytes <= LARGEST_HTTP_RESPONSE
    if transport.protocol is None:
        with suppress(RuntimeError):
            protocol.connection_lost(None)
        assert transport.is_aborted
        assert isinstance(protocol.done.exception(), KafkaError)
    else:
        assert protocol.done.result() is inner
        assert protocol.held_bytes == 0
    loop.close()


# The option


@pytest.mark.parametrize(
    "url, text",
    [
        ("socks5h://proxy", "it has no port"),
        ("socks5h://user:hunter2@proxy", "it has no port"),
        ("socks5h://proxy:0", "no host:port stands behind its user"),
        ("socks5h://proxy:99999", "no host:port"),
        ("http://proxy:1080/path", "it has no port"),
        ("socks5h://us:hunter2:proxy:1080", "no host:port"),
        ("proxy:1080", "it has no scheme"),
        ("https://proxy:443", "https is none of socks5, socks5h, http"),
        ("socks4://proxy:1080", "socks4 is none of"),
        ("hunter2 hunter2://proxy:1080", "its scheme is none of"),
        ("http://u:%ff@proxy:1", "its user or password is not UTF-8"),
        ("http://u:hunter2\udce9@proxy:1", "its user or password is not UTF-8"),
        ("http://hunter2\ud83d:p@proxy:1", "its user or password is not UTF-8"),
        ("http://u:hunter2%0d%0ax@proxy:1", "control character"),
        (f"http://{'u' * 256}@proxy:1", "more than 255 bytes"),
        ("http://u@[::1:1", "no host:port"),
    ],
)
def test_invalid_proxy_url_is_refused_without_showing_it(url: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"^proxy_url must be like socks5h://") as raised:
        ProducerConfig(bootstrap_servers="h:1", proxy_url=url)

    assert text in str(raised.value)
    assert "hunter2" not in f"{raised.value} {raised.value.__cause__!r} {raised.value.__context__!r}"


@pytest.mark.parametrize(
    "url, proxy",
    [
        ("SOCKS5h://Proxy:1080", "socks5h://Proxy:1080"),
        ("http://[::1]:3128/", "http://[::1]:3128"),
        ("socks5://user@10.0.0.1:1", "socks5://user@10.0.0.1:1"),
        (Secret(f"http://a:{QUOTED}@proxy:1"), "http://a:<hidden>@proxy:1"),
    ],
)
def test_password_of_a_proxy_is_shown_nowhere(url: str | Secret, proxy: str) -> None:
    config = ProducerConfig(bootstrap_servers="h:1", proxy_url=url)

    assert str(config.proxy_url) == proxy
    for text in (repr(config), repr(config.proxy_url), str(config.given), repr(config.replace(acks=1))):
        assert "ss%40" not in text
        assert PASSWORD not in text
