"""Faults of authentication and TLS, and hostile brokers.

Sessions end, secrets change, steps go wrong, others pretend to be brokers; responses are garbage, belong to other
requests, or are changed on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from aioproducer.testing import ApiKey, Where
from tests.programs.simulation.secured import USER
from tests.programs.simulation.simulated_tls import IMPOSTORS, TROUBLES

if TYPE_CHECKING:
    from tests.programs.simulation.fault_injector import FaultInjector


STEPS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_AUTHENTICATE)
REFUSALS = (58, 58, 33, 34)
FORGERIES = ("signature", "no signature", "nonce", "iterations")
"""What a broker of SCRAM that does not know the password may say."""


def sessions_end(injector: FaultInjector, rng: Random) -> None:
    """All sessions expire, now and in a while."""
    injector.model.end_sessions(injector.now)
    injector.later(injector.a_while(rng), lambda: injector.model.end_sessions(injector.now))


def password_changes(injector: FaultInjector, rng: Random) -> None:
    """The password is another one from now on, first for the brokers or first for the client."""
    new = f"{injector.secured.passwords.newest}."
    injector.secured.passwords.newest = new
    steps = [lambda: injector.set_password(new), lambda: injector.secured.passwords.give(new)]
    rng.shuffle(steps)
    steps[0]()
    injector.later(injector.a_while(rng), steps[1])


def slow_password(injector: FaultInjector, rng: Random) -> None:
    """The function that is asked for the password does not return for a while, or fails."""
    passwords = injector.secured.passwords
    trouble = passwords.next_trouble()
    setattr(passwords, trouble, True)
    injector.later(injector.a_while(rng), lambda: setattr(passwords, trouble, False))


def token_trouble(injector: FaultInjector, rng: Random) -> None:
    """The provider of tokens hangs or fails for a while, or gives tokens that are refused, or of another user."""
    tokens, dice = injector.secured.tokens, rng.randrange(4)
    if dice == 0:
        tokens.bad_tokens += rng.randint(1, 2)
    elif dice == 1:
        tokens.subject = USER if tokens.subject != USER else f"{USER}-2"
    else:
        trouble = ("is_hanging", "is_failing")[dice - 2]
        setattr(tokens, trouble, True)
        injector.later(rng.choice((1, 3)) * injector.a_while(rng), lambda: setattr(tokens, trouble, False))


def refused_for_a_while(injector: FaultInjector, rng: Random) -> None:
    """A step of an authentication is refused, once or a few times."""
    where = Where(api=rng.choice(STEPS))
    injector.model.faults.error(rng.choice(REFUSALS), where, times=rng.randint(1, 2), skip=rng.randrange(2))


def lost_step(injector: FaultInjector, rng: Random) -> None:
    """A step of an authentication, or its answer, is lost with the connection."""
    where, times = Where(api=rng.choice(STEPS)), rng.randint(1, 2)
    injector.model.faults.drop_connection(where, after_append=rng.random() < 0.5, times=times)


def slow_step(injector: FaultInjector, rng: Random) -> None:
    """A step of an authentication is served late, or answered late."""
    where, delay_s = Where(api=rng.choice(STEPS)), rng.uniform(0, 2) * injector.request_timeout_s
    injector.model.faults.delay(delay_s, where, after_append=rng.random() < 0.5, times=rng.randint(1, 3))


def forged_step(injector: FaultInjector, rng: Random) -> None:
    """Someone who does not know the password answers an authentication with SCRAM."""
    injector.node(rng).forgeries.append(rng.choice(FORGERIES))


def strict_proxy(injector: FaultInjector, rng: Random) -> None:
    """A connection is cut on requests that follow a token before its answer, from now on."""
    injector.node(rng).is_strict = True


def certificates_change(injector: FaultInjector, rng: Random) -> None:
    """The client trusts the brokers' next authority, too; then they have its certificates; then it trusts it alone."""
    certificates = injector.secured.certificates
    if certificates is None:
        return
    new = certificates.brokers + 1
    if certificates.is_changing:
        return
    certificates.is_changing = True
    certificates.give_client(certificates.client + 1)
    certificates.trust(certificates.brokers, new)

    def trust_new_alone() -> None:
        certificates.trust(new)
        certificates.is_changing = False

    def change_brokers() -> None:
        certificates.brokers = new
        injector.later(injector.a_while(rng), trust_new_alone)

    injector.later(injector.a_while(rng), change_brokers)


def impostor(injector: FaultInjector, rng: Random) -> None:
    """Who listens at a node's address for a while has a certificate for another name, or a worthless one."""
    node = injector.node(rng)
    node.impostor = rng.choice(IMPOSTORS)
    injector.network.cut_all(node, "someone else listens there now")
    injector.later(injector.a_while(rng), lambda: setattr(node, "impostor", ""))


def broken_handshake(injector: FaultInjector, rng: Random) -> None:
    """What follows the first message of a TLS handshake is no handshake."""
    node = injector.node(rng)
    node.handshake_troubles += [rng.choice(TROUBLES)] * rng.randint(1, 2)
    if rng.random() < 0.5:
        injector.network.cut_all(node, "the node was restarted")


def tampered_record(injector: FaultInjector, rng: Random) -> None:
    """A bit of an encrypted answer is changed on its way."""
    injector.node(rng).tamper_times += 1


SECURITY_FAULTS: Mapping[str, Callable[[FaultInjector, Random], None]] = {
    "sessions end": sessions_end,
    "password changes": password_changes,
    "slow password": slow_password,
    "token trouble": token_trouble,
    "refused login": refused_for_a_while,
    "lost login": lost_step,
    "slow login": slow_step,
    "forged login": forged_step,
    "strict proxy": strict_proxy,
    "certificates change": certificates_change,
    "impostor": impostor,
    "broken handshake": broken_handshake,
    "tampered record": tampered_record,
}


def hostile_bytes(injector: FaultInjector, rng: Random) -> None:
    """An answer is garbage or a stranger's, comes twice, has a wrong size or id, or leaves a partition out."""
    faults, skip = injector.model.faults, rng.randrange(3)
    where = Where(api=rng.choice((ApiKey.PRODUCE, ApiKey.PRODUCE, None)))
    dice = rng.randrange(7)
    injector.fired("hostile bytes")
    if dice == 0:
        faults.garbage(rng.randbytes(rng.randint(1, 200)), where, skip=skip)
    elif dice == 1:
        faults.wrong_correlation_id(where, skip=skip)
    elif dice == 2:
        faults.oversized_frame(where, size=rng.choice((2**31 - 1, -5, -(2**31), 500_000_000)), skip=skip)
    elif dice == 3:
        stranger = injector.node(rng)
        stranger.stranger_times += 1
        injector.network.cut_all(stranger, "someone else listens there now")
    elif dice == 4:
        injector.node(rng).echo_times += 1
    else:
        place = injector.place(rng)
        if dice == 5:
            faults.error(6, place)  # so what the answer omits was not even appended
        injector.network.frames.omissions.append(faults.omit_partition(place))
        injector.network.wire_checker.may_omit()


def lies(injector: FaultInjector, rng: Random) -> None:
    """Change bytes of responses: nothing hangs and nothing grows."""
    injector.node(rng).lie_times += rng.randint(1, 4)


HOSTILE_FAULTS: Mapping[str, Callable[[FaultInjector, Random], None]] = {"hostile bytes": hostile_bytes, "lies": lies}
