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
    from tests.programs.simulation.nemesis import Nemesis


STEPS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_AUTHENTICATE)
REFUSALS = (58, 58, 33, 34)
FORGERIES = ("signature", "no signature", "nonce", "iterations")
"""What a broker of SCRAM that does not know the password may say."""


def sessions_end(nemesis: Nemesis, chance: Random) -> None:
    """All sessions expire, now and in a while."""
    nemesis.model.end_sessions(nemesis.now)
    nemesis.later(nemesis.a_while(chance), lambda: nemesis.model.end_sessions(nemesis.now))


def password_changes(nemesis: Nemesis, chance: Random) -> None:
    """The password is another one from now on, first for the brokers or first for the client."""
    new = f"{nemesis.secured.passwords.newest}."
    nemesis.secured.passwords.newest = new
    steps = [lambda: nemesis.set_password(new), lambda: nemesis.secured.passwords.give(new)]
    chance.shuffle(steps)
    steps[0]()
    nemesis.later(nemesis.a_while(chance), steps[1])


def slow_password(nemesis: Nemesis, chance: Random) -> None:
    """The function that is asked for the password does not return for a while, or fails."""
    passwords = nemesis.secured.passwords
    trouble = passwords.next_trouble()
    setattr(passwords, trouble, True)
    nemesis.later(nemesis.a_while(chance), lambda: setattr(passwords, trouble, False))


def token_trouble(nemesis: Nemesis, chance: Random) -> None:
    """The provider of tokens hangs or fails for a while, or gives tokens that are refused, or of another user."""
    tokens, dice = nemesis.secured.tokens, chance.randrange(4)
    if dice == 0:
        tokens.bad_tokens += chance.randint(1, 2)
    elif dice == 1:
        tokens.subject = USER if tokens.subject != USER else f"{USER}-2"
    else:
        trouble = ("is_hanging", "is_failing")[dice - 2]
        setattr(tokens, trouble, True)
        nemesis.later(chance.choice((1, 3)) * nemesis.a_while(chance), lambda: setattr(tokens, trouble, False))


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


def forged_step(nemesis: Nemesis, chance: Random) -> None:
    """Someone who does not know the password answers an authentication with SCRAM."""
    nemesis.node(chance).forgeries.append(chance.choice(FORGERIES))


def strict_proxy(nemesis: Nemesis, chance: Random) -> None:
    """A connection is cut on requests that follow a token before its answer, from now on."""
    nemesis.node(chance).is_strict = True


def certificates_change(nemesis: Nemesis, chance: Random) -> None:
    """The client trusts the brokers' next authority, too; then they have its certificates; then it trusts it alone."""
    certificates = nemesis.secured.certificates
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
        nemesis.later(nemesis.a_while(chance), trust_new_alone)

    nemesis.later(nemesis.a_while(chance), change_brokers)


def impostor(nemesis: Nemesis, chance: Random) -> None:
    """Who listens at a node's address for a while has a certificate for another name, or a worthless one."""
    node = nemesis.node(chance)
    node.impostor = chance.choice(IMPOSTORS)
    nemesis.network.cut_all(node, "someone else listens there now")
    nemesis.later(nemesis.a_while(chance), lambda: setattr(node, "impostor", ""))


def broken_handshake(nemesis: Nemesis, chance: Random) -> None:
    """What follows the first message of a TLS handshake is no handshake."""
    node = nemesis.node(chance)
    node.handshake_troubles += [chance.choice(TROUBLES)] * chance.randint(1, 2)
    if chance.random() < 0.5:
        nemesis.network.cut_all(node, "the node was restarted")


def tampered_record(nemesis: Nemesis, chance: Random) -> None:
    """A bit of an encrypted answer is changed on its way."""
    nemesis.node(chance).tamper_times += 1


SECURITY_FAULTS: Mapping[str, Callable[[Nemesis, Random], None]] = {
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


def hostile_bytes(nemesis: Nemesis, chance: Random) -> None:
    """An answer is garbage or a stranger's, comes twice, has a wrong size or id, or leaves a partition out."""
    faults, skip = nemesis.model.faults, chance.randrange(3)
    where = Where(api=chance.choice((ApiKey.PRODUCE, ApiKey.PRODUCE, None)))
    dice = chance.randrange(7)
    nemesis.fired("hostile bytes")
    if dice == 0:
        faults.garbage(chance.randbytes(chance.randint(1, 200)), where, skip=skip)
    elif dice == 1:
        faults.wrong_correlation_id(where, skip=skip)
    elif dice == 2:
        faults.oversized_frame(where, size=chance.choice((2**31 - 1, -5, -(2**31), 500_000_000)), skip=skip)
    elif dice == 3:
        stranger = nemesis.node(chance)
        stranger.stranger_times += 1
        nemesis.network.cut_all(stranger, "someone else listens there now")
    elif dice == 4:
        nemesis.node(chance).echo_times += 1
    else:
        place = nemesis.place(chance)
        if dice == 5:
            faults.error(6, place)  # so what the answer omits was not even appended
        nemesis.network.frames.omissions.append(faults.omit_partition(place))
        nemesis.network.watch.may_omit()


def lies(nemesis: Nemesis, chance: Random) -> None:
    """Change bytes of responses: nothing hangs and nothing grows."""
    nemesis.node(chance).lie_times += chance.randint(1, 4)


HOSTILE_FAULTS: Mapping[str, Callable[[Nemesis, Random], None]] = {"hostile bytes": hostile_bytes, "lies": lies}
