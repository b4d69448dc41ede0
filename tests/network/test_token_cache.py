"""One token for all connections (threat T13), in virtual time."""

import asyncio
import base64
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import cast

import pytest

from aioproducer._network.sasl_client import SaslClient, SaslSettings
from aioproducer._network.token_cache import TokenCache, TokenSettings, fetch_timeout_s
from aioproducer.errors import TokenError
from aioproducer.security import Token, TokenProvider
from tests.fakes.logs import EventList
from tests.fakes.virtual_loop import in_virtual_time


def jwt(lifetime_s: float, now: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": now + lifetime_s, "sub": "alice"}).encode())
    return f"e30.{claims.decode().rstrip('=')}.sig"


class Provider:
    """Provider that gives one answer after the other, and the last again."""

    def __init__(self, *answers: object, after_s: float = 0.0) -> None:
        self.asked = 0
        self._answers = answers
        self._after_s = after_s

    async def token(self) -> str | Token:
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        await asyncio.sleep(self._after_s)
        if isinstance(answer, Exception):
            raise answer
        return cast("str", answer() if callable(answer) else answer)


class Cached:
    def __init__(self, provider: object, settings: TokenSettings | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.log = EventList()
        self.cache = TokenCache(
            cast("TokenProvider", provider),
            settings or TokenSettings(),
            loop,
            wall_clock=loop.time,
            random=random.Random(1),
            log=self.log,
        )


def fresh(lifetime_s: float) -> Callable[[], Token]:
    numbers = iter(range(1000))

    def make() -> Token:
        expires_at = asyncio.get_running_loop().time() + lifetime_s
        return Token(value=f"token-{next(numbers)}", expires_at=expires_at)

    return make


@in_virtual_time
async def test_thousand_connections_at_once_fetch_one_token() -> None:
    provider = Provider(fresh(3600), after_s=0.1)
    cache = Cached(provider).cache
    bearers = await asyncio.gather(*(cache.token() for _ in range(1000)))
    cache.close()

    assert provider.asked == 1
    assert {bearer.token for bearer in bearers} == {"token-0"}


@in_virtual_time
async def test_token_is_replaced_at_most_of_its_lifetime() -> None:
    provider = Provider(fresh(3600))
    cache = Cached(provider).cache
    await cache.token()
    await asyncio.sleep(2870)
    assert provider.asked == 1
    await asyncio.sleep(200)  # 0.8 to 0.85 of the lifetime
    assert provider.asked == 2
    await asyncio.sleep(10 * 3600)
    cache.close()

    assert 11 <= provider.asked <= 15


@pytest.mark.parametrize(
    "lifetime_s, settings, at_s",
    [
        (1000, TokenSettings(window_jitter=0.0), 700),  # 300 s before its end
        (400, TokenSettings(window_jitter=0.0), 100),
        (370, TokenSettings(window_jitter=0.0), 70),
        (300, TokenSettings(window_jitter=0.0), 240),  # shorter than period and buffer together
        (4, TokenSettings(window_jitter=0.0), 3.2),
        (1000, TokenSettings(window_factor=0.5, window_jitter=0.0, min_period_s=600, buffer_s=0), 600),
    ],
)
@in_virtual_time
async def test_token_is_replaced_in_the_window_of_kafka(
    lifetime_s: float, settings: TokenSettings, at_s: float
) -> None:
    provider = Provider(fresh(lifetime_s))
    cache = Cached(provider, settings).cache
    await cache.token()
    await asyncio.sleep(at_s - 0.1)
    before = provider.asked
    await asyncio.sleep(0.2)
    cache.close()

    assert (before, provider.asked) == (1, 2)


@in_virtual_time
async def test_last_valid_token_is_kept_while_fetching_fails() -> None:
    make = fresh(3600)
    provider = Provider(make, *[OSError("down")] * 5, make)
    cached = Cached(provider, TokenSettings(window_jitter=0.0))
    cache = cached.cache
    await cache.token()
    await asyncio.sleep(2881)
    assert (await cache.token()).token == "token-0"
    assert cached.log.names().count("token_fetch_failed") >= 1
    await asyncio.sleep(60)
    cache.close()

    assert (await cache.token()).token == "token-1"


@in_virtual_time
async def test_refused_token_is_renewed_once_for_all_connections() -> None:
    provider = Provider(fresh(3600), after_s=0.1)
    cache = Cached(provider).cache
    client = SaslClient(
        SaslSettings(mechanism="OAUTHBEARER", username="", password=None), asyncio.get_running_loop(), tokens=cache
    )
    await cache.token()
    await asyncio.sleep(100)
    for _ in range(50):  # connections with the old token
        client.refused(TokenError("the broker refused the token"))
        await asyncio.sleep(0.001)
    used_meanwhile = (await cache.token()).token
    await asyncio.sleep(1)
    used_then = (await cache.token()).token
    asked = provider.asked
    await asyncio.sleep(2700)  # counted from the second, its time has not come
    asked_later = provider.asked
    cache.close()

    assert (used_meanwhile, used_then) == ("token-0", "token-1")
    assert asked == asked_later == 2


@in_virtual_time
async def test_refusals_do_not_shorten_the_pause_after_a_failed_fetch() -> None:
    provider = Provider(fresh(3600), OSError("down"))
    cache = Cached(provider).cache
    await cache.token()
    await asyncio.sleep(100)
    for _ in range(6000):
        cache.refused()
        await asyncio.sleep(0.01)
    cache.close()

    assert 8 <= provider.asked <= 18


@in_virtual_time
async def test_provider_of_refused_tokens_is_asked_ever_more_slowly() -> None:
    provider = Provider(fresh(3600))
    cache = Cached(provider).cache
    await cache.token()
    for _ in range(6000):
        await asyncio.sleep(0.01)
        cache.refused()
    in_a_minute = provider.asked
    for _ in range(6000):
        await asyncio.sleep(0.01)
        cache.refused()
    cache.close()

    assert 8 <= in_a_minute <= 15
    assert provider.asked - in_a_minute <= 8


@in_virtual_time
async def test_failure_without_a_token_is_tried_again_after_a_pause() -> None:
    provider = Provider(OSError("down"), fresh(3600))
    cache = Cached(provider, TokenSettings(retry_backoff_ms=1000)).cache
    for _ in range(10):
        with pytest.raises(TokenError, match=r"sasl_token_provider raised OSError$"):
            await cache.token()
    assert provider.asked == 1
    await asyncio.sleep(2)

    assert (await cache.token()).token == "token-0"
    cache.close()


@in_virtual_time
async def test_provider_that_hangs_is_given_up() -> None:
    cache = Cached(Provider("token", after_s=1e9)).cache
    with pytest.raises(TokenError, match="has not returned a token within 20 s"):
        await cache.token()
    cache.close()


@in_virtual_time
async def test_caller_that_is_cancelled_leaves_the_fetch_to_the_others() -> None:
    provider = Provider(fresh(3600), after_s=1)
    cache = Cached(provider).cache
    first, second = (asyncio.ensure_future(cache.token()) for _ in range(2))
    await asyncio.sleep(0.5)
    first.cancel()

    assert (await second).token == "token-0"
    assert provider.asked == 1
    cache.close()


@pytest.mark.parametrize(
    "answer, reason",
    [
        (None, "not NoneType"),
        (b"token", "not bytes"),
        ("", "empty"),
        ("canary\n", "line breaks"),
        ("canary\x01", "characters"),
        ("x" * 600_000, "600000 characters"),
        (Token(value="canary", expires_at=999.0), "has expired"),
        (Token(value="canary", expires_at=1e9, extensions={"auth": "x"}), "extension"),
        (Token(value=cast("str", None)), "not NoneType"),
        (ValueError("canary"), r"raised ValueError$"),
        (
            Token(value="canary", expires_at=cast("float", datetime.now(UTC))),
            "expires_at of the Token of sasl_token_provider must be seconds since the epoch, or None, not datetime",
        ),
        (Token(value="canary", expires_at=cast("float", "1900000000")), "expires_at .*, not str"),
        (Token(value="canary", expires_at=float("nan")), "expires_at .*, not nan"),
        (Token(value="canary", expires_at=True), "expires_at .*, not bool"),
        (
            Token(value="canary", extensions=cast("Mapping[str, str]", None)),
            "extensions of the Token of sasl_token_provider must be a mapping of str to str, not NoneType",
        ),
        (
            Token(value="canary", extensions=cast("Mapping[str, str]", {"a": 5})),
            "extensions .*: the value of 'a' is of int",
        ),
        (Token(value="canary", extensions=cast("Mapping[str, str]", {5: "a"})), "extensions .*: a name is of int"),
    ],
)
@in_virtual_time
async def test_invalid_answer_of_a_provider_is_named(answer: object, reason: str) -> None:
    cache = Cached(Provider(answer)).cache
    with pytest.raises(TokenError, match=reason) as caught:
        await cache.token()
    cache.close()

    assert "canary" not in str(caught.value)


@in_virtual_time
async def test_expired_web_token_tells_its_claims() -> None:
    cache = Cached(Provider(jwt(-5, asyncio.get_running_loop().time()))).cache
    with pytest.raises(TokenError, match=r'expired.*sub="alice"'):
        await cache.token()
    cache.close()


@in_virtual_time
async def test_expiry_is_read_from_a_web_token() -> None:
    provider = Provider(lambda: jwt(1000, asyncio.get_running_loop().time()))
    cache = Cached(provider).cache
    await cache.token()
    await asyncio.sleep(500)
    await cache.token()
    assert provider.asked == 1
    cache.close()


@in_virtual_time
async def test_text_of_unknown_lifetime_is_used_once() -> None:
    provider = Provider("opaque", after_s=0.1)
    cache = Cached(provider).cache
    await asyncio.gather(cache.token(), cache.token())
    await cache.token()
    cache.close()

    assert provider.asked == 2


@in_virtual_time
async def test_provider_of_aiokafka_is_asked_for_its_extensions() -> None:
    class AiokafkaProvider(Provider):
        def extensions(self) -> Mapping[str, str]:
            return {"logicalCluster": "lkc-1"}

    bearer = await Cached(AiokafkaProvider("token")).cache.token()

    assert bearer.extensions == {"logicalCluster": "lkc-1"}


@in_virtual_time
async def test_extensions_of_a_jaas_text_go_with_each_token() -> None:
    provider = Provider(Token(value="t", expires_at=1e9, extensions={"a": "of the token"}))
    settings = TokenSettings(extensions={"a": "of the text", "logicalCluster": "lkc-1"})

    bearer = await Cached(provider, settings).cache.token()

    assert bearer.extensions == {"a": "of the token", "logicalCluster": "lkc-1"}


@in_virtual_time
async def test_closed_cache_leaves_no_task_and_no_timer() -> None:
    provider = Provider(fresh(3600), after_s=5)
    cache = Cached(provider).cache
    waiting = asyncio.ensure_future(cache.token())
    await asyncio.sleep(1)
    cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(10_000)

    assert provider.asked == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_function_that_is_not_async_is_a_provider_too() -> None:
    class Plain:
        def token(self) -> str:
            return "token"

    asks: Callable[[], Awaitable[object]] = Cached(Plain()).cache.token

    assert await asks() is not None


def test_time_of_a_fetch_is_that_of_both_options() -> None:
    assert fetch_timeout_s(None, None) == 20.0
    assert fetch_timeout_s(1000, None) == 11.0
    assert fetch_timeout_s(1000, 500) == 1.5
