"""Faults of authentication: sessions end, passwords change, and the steps of an exchange go wrong.

A password that changes is another one for the brokers than for the client for a while, in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from aioproducer.testing import ApiKey, Where
from aioproducer.testing.cluster_security import ClusterSecurity

if TYPE_CHECKING:
    from tests.programs.simulation.nemesis import Nemesis
    from tests.programs.simulation.plan import Plan

LISTENER = "SASL_PLAINTEXT"
USER, PASSWORD = "alice", "alice-secret"
STEPS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_AUTHENTICATE)
REFUSALS = (58, 58, 33, 34)
LONGEST_REFUSAL_S = 12.0
"""How long a client may wait at most before it asks a broker that has refused it again."""


class Passwords:
    """The password as the client knows it; the brokers have their own."""

    def __init__(self) -> None:
        self.clients = PASSWORD
        self.newest = PASSWORD

    def for_client(self) -> str:
        return self.clients


def security_of(plan: Plan) -> ClusterSecurity | None:
    """What the brokers of a run ask for, drawn apart from everything else."""
    if not plan.mechanism:
        return None
    chance = Random(f"security-{plan.seed}")
    return ClusterSecurity(
        users={USER: PASSWORD},
        session_lifetime_ms=chance.choice((1_200, 1_200, 1_500, 2_000, 5_000, 0)),
        failed_authentication_delay_ms=chance.choice((0, 100)),
    )


def security_options(plan: Plan, passwords: Passwords) -> dict[str, object]:
    if not plan.mechanism:
        return {}
    return {
        "security_protocol": LISTENER,
        "allow_plaintext_credentials": True,
        "sasl_mechanism": plan.mechanism,
        "sasl_username": USER,
        "sasl_password": passwords.for_client,
    }


def sessions_end(nemesis: Nemesis, chance: Random) -> None:
    """All sessions expire, now and in a while."""
    nemesis.model.end_sessions(nemesis.now)
    nemesis.later(nemesis.a_while(chance), lambda: nemesis.model.end_sessions(nemesis.now))


def password_changes(nemesis: Nemesis, chance: Random) -> None:
    """The password is another one from now on, first for the brokers or first for the client."""
    new = f"{nemesis.passwords.newest}."
    nemesis.passwords.newest = new
    steps = [lambda: nemesis.set_password(new), lambda: nemesis.give_password(new)]
    chance.shuffle(steps)
    steps[0]()
    nemesis.later(nemesis.a_while(chance), steps[1])


def refused_for_a_while(nemesis: Nemesis, chance: Random) -> None:
    """A step of an authentication is refused, once or a few times."""
    where = Where(api=chance.choice(STEPS))
    nemesis.model.faults.error(chance.choice(REFUSALS), where, times=chance.randint(1, 2), skip=chance.randrange(2))


def lost_step(nemesis: Nemesis, chance: Random) -> None:
    """A step of an authentication, or its answer, is lost with the connection."""
    where, times = Where(api=chance.choice(STEPS)), chance.randint(1, 2)
    nemesis.model.faults.drop_connection(where, after_append=chance.random() < 0.5, times=times)


def slow_step(nemesis: Nemesis, chance: Random) -> None:
    """A step of an authentication is served late, or answered late."""
    where, delay_s = Where(api=chance.choice(STEPS)), chance.uniform(0, 2) * nemesis.request_timeout_s
    nemesis.model.faults.delay(delay_s, where, after_append=chance.random() < 0.5, times=chance.randint(1, 3))


SECURITY_FAULTS: Mapping[str, Callable[[Nemesis, Random], None]] = {
    "sessions end": sessions_end,
    "password changes": password_changes,
    "refused login": refused_for_a_while,
    "lost login": lost_step,
    "slow login": slow_step,
}
