"""Proxies and names between a producer and a secured cluster, embedded or real, that do not work."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from aioproducer import AuthenticationError, DeliveryTimeoutError, KafkaError
from tests.fakes.proxies import hostile_proxy, working_proxy
from tests.secured.ways import Place, deliver, producer_of

WAY = ("SASL_SSL", "SCRAM-SHA-256")
PROXIES: dict[str, tuple[Sequence[bytes], str]] = {
    "refuses": ([b"HTTP/1.1 403 Forbidden\r\n\r\n"], "it refuses: 403 Forbidden"),
    "is none": ([b"SSH-2.0-OpenSSH_9.9\r\n"], "it is no HTTP proxy: it answers SSH-2.0"),
    "closes half way": ([b"HTTP/1.1 200 Conn"], "it closed the connection in the middle of its answer"),
}
"""What a proxy answers, and what the error says."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROXIES)
async def test_proxy_that_does_not_work_is_named(place: Place, kind: str) -> None:
    answers, words = PROXIES[kind]
    options = place.client_options(*WAY)
    async with hostile_proxy(answers) as port:
        producer = producer_of(options, proxy_url=f"http://127.0.0.1:{port}", max_block_ms=500)
        with pytest.raises(KafkaError) as caught:
            await producer.start()
        await producer.close()

    assert f"through the proxy http://127.0.0.1:{port}" in str(caught.value)
    assert words in str(caught.value)
    await deliver(options)


@pytest.mark.slow
async def test_proxy_that_wants_a_password_is_named_and_works_with_it(place: Place) -> None:
    options = place.client_options(*WAY)
    async with working_proxy(credentials="u:canary-proxy") as proxy:
        producer = producer_of(options, proxy_url=f"socks5h://127.0.0.1:{proxy.port}", max_block_ms=30_000)
        with pytest.raises(AuthenticationError, match="it wants a user and a password"):
            await producer.start()
        await producer.close()
        await deliver(options | {"proxy_url": f"socks5h://u:canary-proxy@127.0.0.1:{proxy.port}"})


@pytest.mark.slow
async def test_advertised_name_without_an_address_is_named(place: Place) -> None:
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def getaddrinfo(host: str, *rest: Any, **more: Any) -> Any:
        if host == "localhost":  # as the cluster advertises it
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return await resolve(host, *rest, **more)

    options = place.client_options(*WAY)
    servers = str(options["bootstrap_servers"]).replace("localhost", "127.0.0.1")
    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # as an application would
    times = {"request_timeout_ms": 500, "delivery_timeout_ms": 1_000}
    async with producer_of(options | {"bootstrap_servers": servers}, **times) as producer:
        with pytest.raises(DeliveryTimeoutError) as late:
            await producer.send_and_wait("right", b"x")
    loop.getaddrinfo = resolve  # type: ignore[method-assign]
    text = str(late.value)

    assert "as the cluster advertises it, cannot be resolved here: Name or service not known" in text
    assert "advertised.listeners" in text
    await deliver(options)
