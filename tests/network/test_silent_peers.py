"""A time-out, however short, says which step of connecting it interrupted, and what was missing there."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest

from aioproducer import MetadataTimeoutError, Producer
from aioproducer.testing import ClusterSecurity, FakeCluster
from aioproducer.testing.fake_broker.faults import Where
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from tests.fakes.proxies import hostile_proxy

SECURITY = ClusterSecurity()


class NoTokens:
    async def token(self) -> str:
        await asyncio.Event().wait()
        raise AssertionError


async def no_password() -> str:
    await asyncio.Event().wait()
    raise AssertionError


STALLED: dict[str, tuple[ApiKey | None, str, dict[str, object], str]] = {
    "versions": (ApiKey.API_VERSIONS, "", {}, "the port is open, but no Kafka broker has answered there"),
    "metadata": (ApiKey.METADATA, "", {}, "it has not answered Metadata for "),
    "handshake of SASL": (
        ApiKey.SASL_HANDSHAKE,
        "PLAIN",
        {},
        "the broker has not answered the authentication with PLAIN",
    ),
    "authentication": (
        ApiKey.SASL_AUTHENTICATE,
        "SCRAM-SHA-256",
        {},
        "the broker has not answered the authentication with SCRAM-SHA-256",
    ),
    "password": (None, "PLAIN", {"sasl_password": no_password}, "the function of sasl_password has not returned"),
    "token": (
        None,
        "OAUTHBEARER",
        {"sasl_token_provider": NoTokens()},
        "sasl_token_provider has not returned a token",
    ),
}


async def reason_of(place: str, **options: object) -> str:
    """Return why a producer has not started within a tenth of what an attempt to connect may take."""
    producer = Producer(place, max_block_ms=300, **options)  # type: ignore[arg-type]
    try:
        with pytest.raises(MetadataTimeoutError, match=r"^no broker has answered within 0\.3 s: ") as caught:
            await producer.start()
    finally:
        await producer.close()
    return str(caught.value)


@pytest.mark.parametrize("case", STALLED)
async def test_start_names_the_request_without_an_answer(case: str) -> None:
    api, mechanism, options, words = STALLED[case]
    async with FakeCluster(1, security=SECURITY) as cluster:
        options = (cluster.client_options("SASL_PLAINTEXT", mechanism) if mechanism else {}) | options
        place = str(options.pop("bootstrap_servers", cluster.bootstrap_servers))
        if api is not None:
            cluster.faults.stall(Where(api=api))
        reason = await reason_of(place, **options)
        cluster.faults.clear()

    assert f"0.3 s: bootstrap broker {place}: {words}" in reason


@asynccontextmanager
async def swallowing() -> AsyncIterator[int]:
    """Yield a port whose queue of connections is full, so that it answers no further one."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
        for each in waiting:
            each.close()


async def test_start_names_an_address_that_swallows_packets() -> None:
    async with swallowing() as port:
        assert "nothing has answered at 127.0.0.1, as behind a firewall" in await reason_of(f"127.0.0.1:{port}")
        reason = await reason_of("kafka:9092", proxy_url=f"http://127.0.0.1:{port}")

    assert f"the proxy http://127.0.0.1:{port} has not accepted a connection" in reason


async def test_start_names_a_silent_tls_server_and_a_silent_proxy() -> None:
    async with hostile_proxy([], hangs_up=False) as port:
        reason = await reason_of(f"127.0.0.1:{port}", security_protocol="SSL")
        assert "the port is open, but nothing has answered the TLS handshake there" in reason
        for scheme in ("http", "socks5h"):
            reason = await reason_of("kafka:9092", proxy_url=f"{scheme}://127.0.0.1:{port}")
            assert f"the proxy {scheme}://127.0.0.1:{port} is connected to, and has not answered" in reason
            assert "kafka:9092" in reason


async def test_start_names_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_: object, **__: object) -> list[object]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr("aioproducer._network.node_connection.look_up", silent)
    reason = await reason_of("kafka:9092")

    assert "the name 'kafka' has not been resolved: no name server has answered" in reason


async def test_wait_for_a_topic_names_the_silent_broker() -> None:
    options: dict[str, object] = {"max_block_ms": 300, "close_timeout_ms": 0}
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, **options) as producer,  # type: ignore[arg-type]
    ):
        await producer.send("orders", b"1")
        cluster.faults.stall(Where(api=ApiKey.METADATA))
        with pytest.raises(MetadataTimeoutError, match=r"still unknown after .*it has not answered Metadata for"):
            await producer.partitions_for("others")
        cluster.faults.clear()


async def test_reset_of_the_first_request_is_explained() -> None:
    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    async with server:
        reason = await reason_of(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")

    assert "the connection without saying which requests it speaks: is this a Kafka listener, and is it" in reason
