"""What this side cannot fetch now is tried again until `max_block_ms`; what is refused ends a start at once."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from aioproducer import ConfigurationError, CredentialsError, KafkaError, MetadataTimeoutError, Producer, TokenError
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.security import ClientCredentials
from aioproducer.testing import ClusterSecurity, FakeCluster
from aioproducer.testing.tokens import unsecured_token
from tests.fakes.token_endpoint import Answer, Endpoint, granted, token_endpoint

TOPICS = {"t": 1}


def options_of(cluster: FakeCluster, mechanism: str, **changes: object) -> ProducerOptions:
    options = cluster.client_options("SASL_PLAINTEXT", mechanism)
    return cast("ProducerOptions", {"max_block_ms": 20_000, **options, **changes})


class FailsFirst:
    """A provider of tokens, or a function of a password, that raises at its first calls."""

    def __init__(self, error: Callable[[], Exception], answer: Callable[[], str], times: int = 1) -> None:
        self.asked = 0
        self._error, self._answer, self._times = error, answer, times

    async def token(self) -> str:
        return self()

    def __call__(self) -> str:
        self.asked += 1
        if self.asked <= self._times:
            raise self._error()
        return self._answer()


async def send(options: ProducerOptions) -> None:
    async with Producer(**options) as producer:
        await producer.send_and_wait("t", b"v")


@pytest.mark.parametrize("error", [OSError, lambda: TokenError("the vault is away")], ids=["OSError", "TokenError"])
async def test_provider_that_raises_at_first_is_asked_again(error: Callable[[], Exception]) -> None:
    provider = FailsFirst(error, lambda: unsecured_token("alice"), times=2)
    async with FakeCluster(1, topics=TOPICS, security=ClusterSecurity()) as cluster:
        await send(options_of(cluster, "OAUTHBEARER", sasl_token_provider=provider))

    assert provider.asked == 3


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_password_function_that_raises_at_first_is_asked_again(mechanism: str) -> None:
    password = FailsFirst(OSError, lambda: "alice-secret", times=2)
    async with FakeCluster(1, topics=TOPICS, security=ClusterSecurity()) as cluster:
        await send(options_of(cluster, mechanism, sasl_username="alice", sasl_password=password))

    assert password.asked == 3


async def test_key_password_that_raises_at_first_is_asked_again() -> None:
    password = FailsFirst(OSError, lambda: "unused")
    async with FakeCluster(1, topics=TOPICS, security=ClusterSecurity()) as cluster:
        options = cluster.client_options("SSL") | {"ssl_truststore_password": password}
        await send(cast("ProducerOptions", options))

    assert password.asked == 2


BUSY: list[Answer] = [
    (503, {}, b"<html>busy</html>"),
    (429, {}, b""),
    (400, {}, json.dumps({"error": "temporarily_unavailable"}).encode()),
]


def provider_of(endpoint: Endpoint) -> ClientCredentials:
    return ClientCredentials(endpoint.url, client_id="alice", client_secret="secret")


@pytest.mark.parametrize("busy", BUSY, ids=["503", "429", "temporarily_unavailable"])
async def test_busy_token_endpoint_is_asked_again(busy: Answer) -> None:
    async with FakeCluster(1, topics=TOPICS, security=ClusterSecurity()) as cluster:
        with token_endpoint() as endpoint:
            endpoint.answer = busy
            options = options_of(cluster, "OAUTHBEARER", sasl_token_provider=provider_of(endpoint))
            sending = asyncio.ensure_future(send(options))
            while len(endpoint.heard) < 3:  # noqa: ASYNC110  # of another thread
                await asyncio.sleep(0.01)
            endpoint.answer = granted(access_token=unsecured_token("alice"))
            await sending


async def test_token_endpoint_that_is_down_is_asked_again() -> None:
    async with FakeCluster(1, topics=TOPICS, security=ClusterSecurity()) as cluster:
        with token_endpoint() as probe:
            provider = provider_of(probe)
        options = options_of(cluster, "OAUTHBEARER", sasl_token_provider=provider, max_block_ms=700)
        with pytest.raises(MetadataTimeoutError, match="cannot be asked: Connection refused") as raised:
            await send(options)

    assert isinstance(raised.value.last_broker_error, TokenError)


@pytest.mark.parametrize("status, error", [(401, "invalid_client"), (400, "invalid_scope"), (403, "access_denied")])
async def test_refused_client_ends_the_start_at_once(status: int, error: str) -> None:
    async with FakeCluster(1, security=ClusterSecurity()) as cluster:
        with token_endpoint() as endpoint:
            endpoint.answer = (status, {}, json.dumps({"error": error}).encode())
            with pytest.raises(TokenError, match=error):
                await send(options_of(cluster, "OAUTHBEARER", sasl_token_provider=provider_of(endpoint)))

    assert len(endpoint.heard) == 1


async def test_provider_that_says_refused_ends_the_start_at_once() -> None:
    provider = FailsFirst(lambda: TokenError("not you", retriable=False), lambda: "", times=99)
    async with FakeCluster(1, security=ClusterSecurity()) as cluster:
        with pytest.raises(TokenError, match="not you"):
            await send(options_of(cluster, "OAUTHBEARER", sasl_token_provider=provider))

    assert provider.asked == 1


async def test_wrong_password_ends_the_start_at_once() -> None:
    async with FakeCluster(1, security=ClusterSecurity()) as cluster:
        with pytest.raises(CredentialsError):
            await send(options_of(cluster, "SCRAM-SHA-256", sasl_username="alice", sasl_password="wrong"))


async def test_missing_store_ends_the_start_at_once(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    with pytest.raises(ConfigurationError, match="there is no such file"):
        await Producer("h:1", security_protocol="SSL", ssl_truststore_location=missing).start()


async def test_send_waits_while_the_provider_fails() -> None:
    """After `start(wait=False)`: the topic is looked up when there is a token; without one, after `max_block_ms`."""
    provider = FailsFirst(OSError, lambda: unsecured_token("alice"), times=3)
    never = FailsFirst(OSError, str, times=10**9)
    async with FakeCluster(1, topics=TOPICS, security=ClusterSecurity()) as cluster:
        producer = await Producer(**options_of(cluster, "OAUTHBEARER", sasl_token_provider=provider)).start(wait=False)
        await producer.send_and_wait("t", b"v")
        await producer.close()
        options = options_of(cluster, "OAUTHBEARER", sasl_token_provider=never, max_block_ms=500)
        producer = await Producer(**options).start(wait=False)
        began_at = time.monotonic()
        with pytest.raises(KafkaError, match="sasl_token_provider raised OSError"):
            await producer.send("t", b"v")
        await producer.close()

    assert time.monotonic() - began_at >= 0.5
