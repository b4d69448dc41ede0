"""What client and brokers of one run know of each other: passwords, tokens, certificates.

A password is another one for the brokers than for the client while it changes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from aioproducer.security import Token
from aioproducer.testing import ApiKey
from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.fake_broker.version_profiles import profile_named
from tests.programs.simulation.simulated_tls import Certificates

if TYPE_CHECKING:
    from tests.programs.simulation.plan import Plan


PLAINTEXT_LISTENER, TLS_LISTENER = "SASL_PLAINTEXT", "SASL_SSL"
USER, PASSWORD = "alice", "alice-secret"
QUESTIONS: Final = (20, 60, 120)
"""Questions for metadata while things go wrong, at most."""

ROUND_TRIPS: Final = 50
"""A session lasts for so many differences between two ways to a broker: it says that requests are not that late."""

REFRESH_AT: Final = 0.8  # of a token's life, at the earliest; Kafka's window
TICK_S: Final = 0.002
_RETRY_BACKOFF_MS: Final = 100
_SPREAD: Final = 0.8

Violated = Callable[[str, str], None]


def security_of(plan: Plan) -> ClusterSecurity | None:
    """What the brokers of a run ask for, drawn apart from everything else."""
    if not plan.mechanism:
        return None
    rng = Random(f"security-{plan.seed}")
    lifetime_ms = rng.choice((1_200, 1_200, 1_500, 2_000, 5_000, 0))
    lifetime_ms = lifetime_ms and max(lifetime_ms, round(ROUND_TRIPS * 1_000 * (plan.jitter_s + plan.beat_s)))
    return ClusterSecurity(
        users={USER: PASSWORD},
        session_lifetime_ms=lifetime_ms if _tells_lifetime(plan) else 0,
        failed_authentication_delay_ms=rng.choice((0, 100)),
        scram_iterations=rng.choice((4_096, 4_096, 10_000)),  # the last are computed in a thread
    )


def _tells_lifetime(plan: Plan) -> bool:
    """Whether the brokers of the run know sessions that end (KIP-368)."""
    return profile_named(plan.profile).versions[ApiKey.SASL_AUTHENTICATE][1] > 0


class Secured:
    def __init__(self, plan: Plan, clock: Callable[[], float], violated: Violated) -> None:
        self.listener = TLS_LISTENER if plan.tls else PLAINTEXT_LISTENER
        self.passwords = Passwords(plan, clock)
        self.tokens = SimulatedProvider(plan, clock, violated)
        self.certificates = Certificates(plan, clock) if plan.tls else None
        self._plan = plan

    def options(self) -> dict[str, object]:
        """Return options of the producer."""
        plan = self._plan
        options: dict[str, object] = {
            "security_protocol": PLAINTEXT_LISTENER,
            "allow_plaintext_credentials": True,
            "sasl_mechanism": plan.mechanism,
            "sasl_login_retry_backoff_ms": _RETRY_BACKOFF_MS,
            "sasl_login_connect_timeout_ms": 500,
            "sasl_login_read_timeout_ms": 500,
            # questions come at every point of an exchange
            "metadata_max_age_ms": max(
                60, round(1_000 * plan.chaos_s / Random(f"questions-{plan.seed}").choice(QUESTIONS))
            ),
        }
        if plan.mechanism == "OAUTHBEARER":
            self.tokens.begin()
            options["sasl_token_provider"] = self.tokens
        else:
            options |= {"sasl_username": USER, "sasl_password": self.passwords.option()}
        if self.certificates is not None:
            options |= self.certificates.options()
            del options["allow_plaintext_credentials"]
        return options

    def heal(self) -> None:
        self.passwords.is_silent = self.passwords.is_failing = False
        self.tokens.heal()


class Passwords:
    """The password as the client knows it; the brokers have their own."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        self.newest = PASSWORD
        self.is_silent = False  # the client's function does not return
        self.is_failing = False  # it raises
        self._clients = PASSWORD
        self._until: dict[str, float] = {}  # when a former password was replaced
        self._clock = clock
        self._rng = Random(f"passwords-{plan.seed}")
        self._changes = bool({"password changes", "slow password"} & set(plan.enabled))
        self._is_async = self._rng.random() < 0.5
        self._troubles = Random(f"password-troubles-{plan.seed}")

    def next_trouble(self) -> str:
        """Return what the client's function does next instead of giving the password."""
        return self._troubles.choice(("is_silent", "is_failing"))

    def option(self) -> object:
        """Return the value of `sasl_password`: a function, or text where it never changes."""
        if not self._changes and self._clients == PASSWORD and self._rng.random() < 0.5:
            return PASSWORD
        return self._in_a_while if self._is_async else self._at_once

    def give(self, password: str) -> None:
        """Tell the client."""
        self._until[self._clients] = self._clock()
        self._clients = password
        self._until.pop(password, None)

    def may_be_sent(self, password: str, within_s: float) -> bool:
        """Whether the client has known no newer password for longer than that."""
        return password == self._clients or self._clock() - self._until.get(password, -1e9) <= within_s

    def _at_once(self) -> str:
        if self.is_failing:
            raise OSError("the vault is sealed")
        return self._clients

    async def _in_a_while(self) -> str:
        await asyncio.sleep(self._rng.choice((0.0, 0.01, 0.3)) * self._rng.random())
        await _once_over(lambda: self.is_silent)
        return self._at_once()


class SimulatedProvider:
    """An identity provider, which may hang, fail, or give tokens that brokers refuse.

    TOKEN: there is one fetch at a time, and none while the last token has most of its life before it.
    """

    def __init__(self, plan: Plan, clock: Callable[[], float], violated: Violated) -> None:
        rng = self._rng = Random(f"tokens-{plan.seed}")
        self.subject = USER
        self.is_hanging = self.is_failing = False
        self.bad_tokens = 0  # so many of the next are refused by brokers
        lifetimes_s = (1.5, 3.0, 10.0, 300.0) if plan.enabled else (10.0, 60.0)
        self._lifetime_s = rng.choice(lifetimes_s) if _tells_lifetime(plan) else 300.0
        self._says_when = rng.random() < 0.5  # beside the token's own claim
        self._clock = clock
        self._violated = violated
        self._open = 0
        self._not_before = 0.0
        self._failed_until = 0.0  # the pause after a fetch that failed
        self._ends: dict[str, float] = {}  # by token

    def begin(self) -> None:
        """Another producer begins, which has no token."""
        self._not_before = self._failed_until = 0.0

    def heal(self) -> None:
        self.is_hanging = self.is_failing = False
        self.bad_tokens = 0

    def was_refused(self) -> None:
        """Note that a broker has refused a token: the next may be fetched early."""
        self._not_before = 0.0

    def has_expired(self, token: str, *, within_s: float) -> bool:
        """Whether a token has been over for longer than that."""
        return self._clock() > self._ends.get(token, 0.0) + within_s

    async def token(self) -> str | Token:
        if self._open:
            self._violated("TOKEN", "a token is fetched while another fetch is under way")
        not_before = max(self._not_before, self._failed_until)
        if self._clock() < not_before - TICK_S:
            self._violated("TOKEN", f"a token is fetched {not_before - self._clock():.3f} s too early")
        self._open += 1
        try:
            await asyncio.sleep(0.05 * self._rng.random())
            await _once_over(lambda: self.is_hanging)
            return self._made()
        except BaseException:
            self._failed_until = self._clock() + _SPREAD * _RETRY_BACKOFF_MS / 1000
            raise
        finally:
            self._open -= 1

    def _made(self) -> str | Token:
        if self.is_failing:
            raise OSError("the identity provider is down")
        now_s = self._clock()
        wall_s = WALL_CLOCK_S + now_s
        ends = wall_s + self._lifetime_s
        algorithm = "none"
        if self.bad_tokens:
            self.bad_tokens -= 1
            algorithm = "RS256"
        claims = {"sub": self.subject, "iat": int(wall_s), "exp": ends, "jti": self._rng.getrandbits(32)}
        token = f"{_encoded({'alg': algorithm})}.{_encoded(claims)}."
        self._ends[token] = now_s + self._lifetime_s
        self._not_before = now_s + REFRESH_AT * self._lifetime_s
        return Token(value=token, expires_at=ends) if self._says_when else token


async def _once_over(is_hanging: Callable[[], bool]) -> None:
    while is_hanging():  # noqa: ASYNC110  # virtual time, and faults begin again
        await asyncio.sleep(0.1)


WALL_CLOCK_S: Final = 1_700_000_000


def _encoded(part: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


_NONCE: Final = re.compile(rb"r=[^,]{20,},s=[^,]+,i=\d+")
_SIGNATURE: Final = re.compile(rb"v=[A-Za-z0-9+/]{43,}=*")


def forged(answer: bytes, kind: str) -> bytes:
    """Return the answer with something changed; as it is, if it has nothing of this kind."""
    found = (_SIGNATURE if "signature" in kind else _NONCE).search(answer)
    if found is None:
        return answer
    text = found[0]
    match kind:
        case "signature":
            text = b"v=" + (b"B" if text[2:3] == b"A" else b"A") + text[3:]
        case "no signature":
            text = b"x" + text[1:]
        case "nonce":  # the client's part of it
            text = b"r=" + (b"B" if text[2:3] == b"A" else b"A") + text[3:]
        case "iterations":
            start, _, number = text.rpartition(b"=")
            text = start + b"=" + b"1".zfill(len(number))
    return answer[: found.start()] + text + answer[found.end() :]
