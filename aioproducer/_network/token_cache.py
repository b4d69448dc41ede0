"""One token for all connections of a producer: fetched once, renewed before its end, kept while a renewal fails.

A token that a broker refuses is renewed at once: it may have been revoked, or signed with a key that is no longer in
use. Refusals that go on renew it at a slower and slower pace, up to `retry_backoff_max_ms`.

Source: ExpiringCredentialRefreshingLogin in Apache Kafka; KIP-255, KIP-768.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, cast

from aioproducer._network.refusals import of_user
from aioproducer._protocol.sasl_exchange import Bearer
from aioproducer._protocol.sasl_mechanisms import check_extensions, check_token, claims_of, describe_claims, time_claim
from aioproducer._timing.retry_backoff import ExponentialBackoff, RandomSource
from aioproducer.errors import AuthenticationError, ConfigurationError, TokenError
from aioproducer.security import Token, TokenProvider

if TYPE_CHECKING:
    from aioproducer._logs import EventLog

_DEFAULT_TIMEOUT_MS: Final = 10_000  # to connect, and to read
_LONGEST_TIMER_S: Final = 86_400.0  # event loops refuse times that are too far away


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """The `sasl_login_...` options."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: float = 60.0
    buffer_s: float = 300.0
    timeout_s: float = 2 * _DEFAULT_TIMEOUT_MS / 1000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    extensions: Mapping[str, str] = field(default_factory=dict)
    """SASL extensions of `sasl_jaas_config`, sent with those of each token."""


def fetch_timeout_s(connect_ms: int | None, read_ms: int | None) -> float:
    return ((connect_ms or _DEFAULT_TIMEOUT_MS) + (read_ms or _DEFAULT_TIMEOUT_MS)) / 1000


class _Kept(NamedTuple):
    bearer: Bearer
    expires_at: float  # wall-clock seconds


class TokenCache:
    """Asks the user's provider, at most once at a time; `wall_clock` returns seconds since the epoch."""

    def __init__(
        self,
        provider: TokenProvider,
        settings: TokenSettings,
        loop: asyncio.AbstractEventLoop,
        *,
        wall_clock: Callable[[], float],
        random: RandomSource,
        log: EventLog,
    ) -> None:
        self._provider = provider
        self._settings = settings
        self._loop = loop
        self._wall_clock = wall_clock
        self._random = random
        self._log = log
        self._backoff = ExponentialBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, random=random)
        self._kept: _Kept | None = None
        self._fetching: asyncio.Task[Bearer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0  # in a row
        self._last_error: AuthenticationError | None = None
        self._retry_at = 0.0  # monotonic seconds
        self._kept_at = 0.0  # monotonic seconds
        self._refusals = 0  # of tokens that were refused soon, in a row
        self._is_closed = False

    @property
    def fetching(self) -> asyncio.Future[Bearer] | None:
        """The fetch that is under way."""
        return self._fetching

    def current(self) -> Bearer | None:
        """Return the last token if it is valid, else None."""
        if self._kept is None or self._wall_clock() >= self._kept.expires_at:
            return None
        return self._kept.bearer

    async def token(self) -> Bearer:
        """Return a valid token, fetched first if there is none, or raise TokenError."""
        current = self.current()
        if current is not None:
            return current
        if self._fetching is None:
            if self._last_error is not None and self._loop.time() < self._retry_at:
                raise self._last_error.fresh()
            self._fetch()
        assert self._fetching is not None
        return await asyncio.shield(self._fetching)  # others wait for it too

    def refused(self) -> None:
        """Renew the token now, since a broker refuses it; until then it is still used, which others may accept."""
        now = self._loop.time()
        is_tried_later = self._last_error is not None and now < self._retry_at
        if self.current() is None or self._fetching is not None or is_tried_later:
            return
        age_s = now - self._kept_at
        if age_s > self._settings.retry_backoff_max_ms / 1000:
            self._refusals = 0
        if age_s >= self._backoff.delay_s(self._refusals):
            self._refusals += 1
            self._fetch()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._fetching is not None and not self._loop.is_closed():
            self._fetching.cancel()

    def _fetch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._fetching is None and not self._is_closed:
            self._fetching = self._loop.create_task(self._ask(), name="aioproducer-token")
            self._fetching.add_done_callback(self._fetched)

    async def _ask(self) -> Bearer:
        kept = self._checked(*await self._given())
        self._keep(kept)
        return kept.bearer

    async def _given(self) -> tuple[object, Mapping[str, str]]:
        """Return what the provider gives, with the extensions of one of aiokafka."""
        timeout = asyncio.timeout(self._settings.timeout_s)
        try:
            async with timeout:
                answer = self._provider.token()
                given: object = await answer if inspect.isawaitable(answer) else answer
                return given, {} if isinstance(given, Token) else _extensions_of(self._provider)
        except AuthenticationError as error:
            raise of_user(error) from error.__cause__
        except Exception as error:
            if isinstance(error, TimeoutError) and timeout.expired():
                text = f"sasl_token_provider has not returned a token within {self._settings.timeout_s:g} s"
                raise TokenError(text, retriable=True) from None
            # Without what it says, which may hold a token, or a URL with a secret.
            may_pass = not isinstance(error, ConfigurationError) or error.retriable
            raise TokenError(f"sasl_token_provider raised {type(error).__name__}", retriable=may_pass) from error

    def _checked(self, given: object, extensions: Mapping[str, str]) -> _Kept:
        token = given if isinstance(given, Token) else None
        text = given if token is None else token.value
        if not isinstance(text, str):
            raise TokenError(f"sasl_token_provider must return text or a Token, not {type(text).__name__}")
        check_token(text)
        extensions = {
            **self._settings.extensions,
            **(extensions if token is None else _checked_extensions(token.extensions)),
        }
        check_extensions(extensions)
        now = self._wall_clock()
        expires_at = None if token is None else _checked_end(token.expires_at)
        if expires_at is None:
            expires_at = time_claim(claims_of(text), "exp")
        if expires_at is not None and expires_at <= now:
            text = f"sasl_token_provider returned a token that has expired; {describe_claims(text, now)}"
            raise TokenError(text, retriable=True)
        return _Kept(Bearer(text, extensions, now), now if expires_at is None else expires_at)

    def _keep(self, kept: _Kept) -> None:
        self._failures, self._last_error = 0, None
        self._kept, self._kept_at = kept, self._loop.time()
        lifetime_s = kept.expires_at - kept.bearer.fetched_at
        if lifetime_s > 0:
            self._fetch_in(self._refresh_after_s(lifetime_s))

    def _refresh_after_s(self, lifetime_s: float) -> float:
        settings = self._settings
        fraction = settings.window_factor + settings.window_jitter * self._random.uniform(0.0, 1.0)
        after_s = lifetime_s * min(fraction, 1.0)
        if settings.min_period_s + settings.buffer_s <= lifetime_s:
            after_s = max(min(after_s, lifetime_s - settings.buffer_s), settings.min_period_s)
        return after_s

    def _fetch_in(self, after_s: float) -> None:
        if not self._is_closed:
            self._timer = self._loop.call_later(min(after_s, _LONGEST_TIMER_S), self._fetch)

    def _fetched(self, fetching: asyncio.Task[Bearer]) -> None:
        self._fetching = None
        if fetching.cancelled():
            return
        error = fetching.exception()
        if not isinstance(error, AuthenticationError):
            return
        error.__traceback__ = None  # its frames hold the token
        delay_s = self._backoff.delay_s(self._failures)
        self._failures += 1
        self._last_error, self._retry_at = error, self._loop.time() + delay_s
        write = self._log.warning if self._failures == 1 else self._log.debug
        write(
            "token_fetch_failed", reason=str(error), failures=self._failures, has_valid_token=self.current() is not None
        )
        if self.current() is not None:
            self._fetch_in(delay_s)


def _checked_end(expires_at: object) -> float | None:
    if expires_at is None:
        return None
    is_number = isinstance(expires_at, int | float) and not isinstance(expires_at, bool)
    if not is_number or math.isnan(cast("float", expires_at)):
        what = repr(expires_at) if is_number else type(expires_at).__name__
        text = f"expires_at of the Token of sasl_token_provider must be seconds since the epoch, or None, not {what}"
        raise TokenError(text, retriable=False)
    return cast("float", expires_at)


def _checked_extensions(extensions: object) -> Mapping[str, str]:
    allowed = "extensions of the Token of sasl_token_provider must be a mapping of str to str"
    if not isinstance(extensions, Mapping):
        raise TokenError(f"{allowed}, not {type(extensions).__name__}", retriable=False)
    for name, value in extensions.items():
        if not isinstance(name, str):
            raise TokenError(f"{allowed}: a name is of {type(name).__name__}", retriable=False)
        if not isinstance(value, str):
            text = f"{allowed}: the value of {name[:40]!r} is of {type(value).__name__}"
            raise TokenError(text, retriable=False)
    return extensions


def _extensions_of(provider: object) -> Mapping[str, str]:
    """Return the SASL extensions of an `AbstractTokenProvider` of aiokafka."""
    extensions = getattr(provider, "extensions", None)
    found: object = extensions() if callable(extensions) else {}
    if not isinstance(found, Mapping):
        _refuse_extensions(found)
    return {str(name): str(value) for name, value in found.items()}


def _refuse_extensions(found: object) -> NoReturn:
    text = f"extensions() of sasl_token_provider must return a mapping, not {type(found).__name__}"
    raise TokenError(text, retriable=False)
