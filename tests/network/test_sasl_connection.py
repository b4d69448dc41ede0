"""One authenticated connection in virtual time: when it asks, what it holds, and how it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from aioproducer._network.connection import ClosedHereError
from aioproducer._network.context import NetworkSettings
from aioproducer._network.requests import Answered, Lost, OutgoingRequest, RequestEnd
from aioproducer._network.sasl_client import Password
from aioproducer.errors import (
    BrokerConnectionError,
    CredentialsError,
)
from aioproducer.security import Secret
from tests.fakes.logs import EventList
from tests.fakes.sasl_broker import HELLO, PLACE, TOKEN, SaslBroker, Secured, authenticated
from tests.fakes.virtual_loop import in_virtual_time


class Requests:
    """Sends numbered requests and keeps their ends."""

    def __init__(self, secured: Secured) -> None:
        self._connection = secured.connection
        self.ends: list[tuple[int, RequestEnd]] = []
        self.sent = 0

    def send(self, count: int = 1, *, acks: int = -1) -> list[OutgoingRequest]:
        requests = [self._numbered(number, acks) for number in range(self.sent, self.sent + count)]
        self.sent += count
        for request in requests:
            self._connection.send(request)
        return requests

    def _numbered(self, number: int, acks: int) -> OutgoingRequest:
        return OutgoingRequest(
            api_key=0,
            name="Produce",
            version=99 if acks == 0 else 13,
            flexible=True,
            buffers=[number.to_bytes(4, "big")],
            expects_response=acks != 0,
            on_end=partial(self._ended, number),
        )

    def _ended(self, number: int, end: RequestEnd) -> None:
        self.ends.append((number, end))

    @property
    def answered(self) -> list[int]:
        return [number for number, end in self.ends if isinstance(end, Answered)]

    def lost(self) -> dict[int, Lost]:
        return {number: end for number, end in self.ends if isinstance(end, Lost)}


MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


async def send_steadily(requests: Requests, seconds: float, *, every_s: float = 0.05, acks: int = -1) -> None:
    for _ in range(round(seconds / every_s)):
        requests.send(acks=acks)
        await asyncio.sleep(every_s)


async def later(broker: SaslBroker, after_s: float, *, password: Password | None = None) -> tuple[Secured, Requests]:
    """Authenticate a connection, and wait; a session of ten seconds is due for renewal after 9.5 s."""
    secured = await authenticated(broker, password)
    await asyncio.sleep(after_s)
    return secured, Requests(secured)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@in_virtual_time
async def test_connection_is_ready_when_it_is_authenticated(mechanism: str) -> None:
    secured = await authenticated(SaslBroker(mechanism=mechanism))
    requests = Requests(secured)
    requests.send(3)
    await asyncio.sleep(0.01)

    assert requests.answered == [0, 1, 2]
    assert secured.broker.crimes == []
    assert secured.context.counters.authentications == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("acks", [-1, 0])
@in_virtual_time
async def test_session_is_renewed_in_the_same_stream(mechanism: str, acks: int) -> None:
    secured = await authenticated(SaslBroker(10_000, mechanism=mechanism, verdict_after_s=0.01))
    requests = Requests(secured)
    await send_steadily(requests, 60, acks=acks)

    assert secured.broker.crimes == []
    assert [number for number, _ in requests.ends] == list(range(requests.sent))
    assert 6 <= secured.broker.sessions <= 8
    assert secured.context.counters.reauthentications == secured.broker.sessions - 1


@in_virtual_time
async def test_renewal_of_one_token_holds_nothing() -> None:
    secured, requests = await later(SaslBroker(10_000, verdict_after_s=0.5), 9.6)
    requests.send(3)
    await asyncio.sleep(0.01)

    assert secured.broker.order[-5:] == [HELLO, TOKEN, 0, 0, 0]
    assert secured.connection.can_send
    await asyncio.sleep(1)
    assert requests.answered == [0, 1, 2]


@in_virtual_time
async def test_requests_are_held_between_two_tokens_in_order() -> None:
    secured, requests = await later(SaslBroker(10_000, mechanism="SCRAM-SHA-256", verdict_after_s=0.5), 9.6)
    requests.send(3)
    await asyncio.sleep(0.3)

    assert not secured.connection.can_send
    assert secured.connection.in_flight == 4
    await asyncio.sleep(2)
    assert secured.broker.order[-6:] == [HELLO, TOKEN, TOKEN, 0, 0, 0]
    assert requests.answered == [0, 1, 2]


@pytest.mark.parametrize("pause_s", [0.7, 30.0])
@in_virtual_time
async def test_held_requests_wait_for_the_end_of_a_pause(pause_s: float) -> None:
    """The authentication is over after 0.5 s, and its session within the longer pause."""
    secured, requests = await later(SaslBroker(10_000, mechanism="SCRAM-SHA-256", verdict_after_s=0.25), 9.6)
    requests.send(3)
    secured.connection.pause_until(asyncio.get_running_loop().time() + pause_s)
    await asyncio.sleep(pause_s - 0.05)
    assert secured.broker.order[-3:] == [HELLO, TOKEN, TOKEN]
    secured.connection.end_pause()
    await asyncio.sleep(1)

    assert secured.broker.order[-3:] == [0, 0, 0]
    assert requests.answered == [0, 1, 2]
    assert secured.broker.crimes == []


@in_virtual_time
async def test_idle_connection_is_authenticated_when_it_is_needed() -> None:
    secured, requests = await later(SaslBroker(10_000), 300)
    assert secured.broker.sessions == 1
    requests.send()
    await asyncio.sleep(0.01)

    assert requests.answered == [0]
    assert secured.broker.crimes == []


@pytest.mark.parametrize("lifetime_ms", [0, -1, -(2**63), 2**63 - 1])
@in_virtual_time
async def test_session_without_an_end_is_never_renewed(lifetime_ms: int) -> None:
    secured = await authenticated(SaslBroker(lifetime_ms))
    requests = Requests(secured)
    for _ in range(100):
        requests.send()
        await asyncio.sleep(500)

    assert secured.broker.sessions == 1
    assert requests.answered == list(range(100))


@pytest.mark.parametrize("lifetime_ms", [1, 100, 999, 1000, 1100])
@in_virtual_time
async def test_short_session_is_renewed_at_most_once_a_second(lifetime_ms: int) -> None:
    secured = await authenticated(SaslBroker(lifetime_ms))
    requests = Requests(secured)
    await send_steadily(requests, 10)
    await asyncio.sleep(2)

    assert secured.broker.crimes == []
    assert secured.broker.sessions <= 12
    assert requests.answered == list(range(requests.sent))


@in_virtual_time
async def test_broker_that_finds_it_too_soon_keeps_the_session() -> None:
    broker = SaslBroker(2_000)
    _, requests = await later(broker, 1.92)
    broker.too_soon_s = 1.95
    requests.send(2)
    await asyncio.sleep(0.01)
    assert broker.crimes == ["too soon"]
    assert requests.answered == [0, 1]
    broker.too_soon_s = 1.0
    await asyncio.sleep(2)
    requests.send()
    await asyncio.sleep(2)

    assert requests.answered == [0, 1, 2]
    assert broker.sessions == 2


@in_virtual_time
async def test_refused_renewal_leaves_what_is_behind_it_unprocessed() -> None:
    broker = SaslBroker(10_000, verdict_after_s=0.5)
    secured = await authenticated(broker)
    requests = Requests(secured)
    broker.passwords = ["another"]
    await asyncio.sleep(7.9)
    requests.send(2)  # before most of the lifetime is over
    await asyncio.sleep(1.2)
    requests.send(3)
    await secured.connection.closed

    assert requests.answered == [0, 1]
    assert [end.is_unprocessed for end in requests.lost().values()] == [True] * 3
    assert isinstance(secured.connection.error, CredentialsError)
    assert secured.context.counters.reauthentication_failures == 1


@in_virtual_time
async def test_requests_without_a_response_wait_for_the_verdict() -> None:
    broker = SaslBroker(10_000, verdict_after_s=0.5)
    secured, requests = await later(broker, 9.6)
    broker.passwords = ["another"]
    requests.send(3, acks=0)
    await secured.connection.closed

    assert [end.is_unprocessed for end in requests.lost().values()] == [True] * 3
    assert broker.order[-2:] == [HELLO, TOKEN]


@in_virtual_time
async def test_broker_that_closes_on_what_follows_is_asked_patiently() -> None:
    broker = SaslBroker(10_000, verdict_after_s=0.1)
    secured, requests = await later(broker, 9.6)
    broker.closes_on_what_follows = True
    requests.send(2)
    await secured.connection.closed

    assert [end.is_unprocessed for end in requests.lost().values()] == [False] * 2
    assert secured.sasl.is_patient(PLACE)


@in_virtual_time
async def test_patient_renewal_sends_nothing_before_the_verdict() -> None:
    broker = SaslBroker(10_000, verdict_after_s=0.5)
    secured, requests = await later(broker, 9.6)
    secured.sasl.be_patient(PLACE)
    requests.send(3)
    await asyncio.sleep(0.4)
    assert broker.order[-2:] == [HELLO, TOKEN]
    await asyncio.sleep(0.5)

    assert requests.answered == [0, 1, 2]


def names_of_events(secured: Secured) -> list[str]:
    log = secured.context.log
    assert isinstance(log, EventList)
    return log.names()


@pytest.mark.parametrize("serves_what_follows", [False, True])
@in_virtual_time
async def test_changed_principal_replaces_the_connection(*, serves_what_follows: bool) -> None:
    """Real brokers answer what is behind the token first, and so out of order."""
    broker = SaslBroker(10_000)
    broker.serves_what_follows = serves_what_follows
    secured, requests = await later(broker, 9.6)
    broker.says = (58, "Cannot change principals during re-authentication from User.alice: User.bob")
    requests.send()
    await secured.connection.closed

    assert isinstance(secured.connection.error, ClosedHereError)
    assert not requests.lost()[0].is_unprocessed  # real brokers may have served it
    assert secured.context.counters.reauthentication_failures == 0
    assert "principal_changed" in names_of_events(secured)


def passwords(delay_s: float) -> tuple[Callable[[], Awaitable[str]], list[float]]:
    asked: list[float] = []

    async def password() -> str:
        asked.append(asyncio.get_running_loop().time())
        if len(asked) > 1:
            await asyncio.sleep(delay_s)
        return "canary-secret"

    return password, asked


@in_virtual_time
async def test_requests_pass_while_the_password_is_asked_for() -> None:
    password, asked = passwords(0.3)
    secured, requests = await later(SaslBroker(10_000), 9.55, password=password)
    requests.send(3)
    await asyncio.sleep(0.1)
    assert requests.answered == [0, 1, 2]
    await asyncio.sleep(1)

    assert len(asked) == 2
    assert secured.broker.sessions == 2


@in_virtual_time
async def test_requests_are_held_when_a_session_ends_before_a_password() -> None:
    password, _ = passwords(5)
    secured, requests = await later(SaslBroker(10_000), 9.55, password=password)
    await send_steadily(requests, 3)
    assert len(requests.answered) < 12
    await asyncio.sleep(5)

    assert secured.broker.crimes == []
    assert requests.answered == list(range(requests.sent))


@in_virtual_time
async def test_request_of_the_last_moment_waits_for_the_next_session() -> None:
    """It might arrive behind the end of the session, on which brokers close the connection."""
    password, _ = passwords(1)
    secured, requests = await later(SaslBroker(10_000), 9.9, password=password)
    requests.send()
    await asyncio.sleep(0.5)
    assert requests.answered == []
    await asyncio.sleep(1)

    assert requests.answered == [0]
    assert secured.broker.sessions == 2


class Vault:
    """Gives the password, unless it is sealed."""

    def __init__(self, opens_at: float = 1e9) -> None:
        self.asked: list[float] = []
        self._opens_at = opens_at

    def __call__(self) -> str:
        now = asyncio.get_running_loop().time()
        self.asked.append(now)
        if len(self.asked) > 1 and now < self._opens_at:
            raise OSError("the vault is sealed")
        return "canary-secret"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@in_virtual_time
async def test_session_goes_on_while_there_is_no_password_to_renew_it(mechanism: str) -> None:
    vault = Vault(asyncio.get_running_loop().time() + 97.5)
    secured = await authenticated(SaslBroker(100_000, mechanism=mechanism), vault)
    requests = Requests(secured)
    await send_steadily(requests, 150, every_s=0.5)
    await asyncio.sleep(1)

    assert requests.answered == list(range(requests.sent))
    assert secured.broker.crimes == []
    assert secured.broker.sessions == 2
    assert 3 <= len(vault.asked) <= 7
    assert (
        names_of_events(secured).count("session_not_renewed") == len(vault.asked) - 2
    )  # the first is a warning, others debug
    assert secured.context.counters.reauthentication_failures == len(vault.asked) - 2  # the first and last came


@in_virtual_time
async def test_connection_ends_with_its_session_without_a_password() -> None:
    """What was answered in time stays so, and what is sent behind the end is not processed."""
    secured = await authenticated(SaslBroker(10_000), Vault())
    requests = Requests(secured)
    began_at = asyncio.get_running_loop().time()
    while secured.connection.is_open:
        requests.send()
        await asyncio.sleep(0.05)

    assert 9.8 <= asyncio.get_running_loop().time() - began_at <= 10
    assert [end.is_unprocessed for end in requests.lost().values()] == [True]
    assert "sasl_password" in str(secured.connection.error)
    assert secured.context.counters.reauthentication_failures >= 2  # each that was tried, and the end


@in_virtual_time
async def test_password_that_hangs_in_a_long_session_is_asked_again() -> None:
    password, asked = passwords(1e9)
    secured = await authenticated(SaslBroker(1_000_000), password)
    requests = Requests(secured)
    await send_steadily(requests, 955, every_s=5)
    await send_steadily(requests, 34, every_s=1)

    assert requests.answered == list(range(requests.sent))
    assert len(asked) >= 2
    assert secured.connection.is_open


@in_virtual_time
async def test_empty_password_file_is_read_again_in_the_session(tmp_path: Path) -> None:
    """It is empty for a moment while a program writes it."""
    path = tmp_path / "password"
    path.write_text("canary-secret", encoding="utf-8")
    secured = await authenticated(SaslBroker(100_000), Secret.from_file(path))
    requests = Requests(secured)
    path.write_text("", encoding="utf-8")
    await asyncio.sleep(95.5)
    requests.send()
    await asyncio.sleep(0.1)
    path.write_text("canary-secret", encoding="utf-8")
    await send_steadily(requests, 10, every_s=0.5)

    assert requests.answered == list(range(requests.sent))
    assert secured.broker.sessions == 2


@in_virtual_time
async def test_password_that_never_comes_ends_the_connection() -> None:
    password, _ = passwords(1e9)
    secured, requests = await later(SaslBroker(10_000), 11, password=password)
    requests.send(2)
    await secured.connection.closed

    assert [end.is_unprocessed for end in requests.lost().values()] == [True] * 2
    assert "sasl_password has not returned within 30 s" in str(secured.connection.error)


def raises() -> str:
    raise OSError("no such vault")


@pytest.mark.parametrize(
    "password, reason",
    [
        (raises, "the function of sasl_password raised OSError$"),
        (lambda: None, "not NoneType"),
        (lambda: "", "an empty text"),
        (lambda: "canary\udce9", "what the function of sasl_password returned is not valid Unicode"),
    ],
)
@in_virtual_time
async def test_password_function_that_fails_is_named(password: Callable[[], object], reason: str) -> None:
    secured = Secured(SaslBroker(), password)
    with pytest.raises(CredentialsError, match=reason) as caught:
        await secured.connection.ready
    assert "canary" not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"


@in_virtual_time
async def test_wrong_password_is_refused_before_the_first_request() -> None:
    broker = SaslBroker()
    broker.passwords = ["another"]
    secured = Secured(broker)
    with pytest.raises(CredentialsError, match="broker 1 at host:9092: the broker refused user 'alice'"):
        await secured.connection.ready
    await secured.connection.closed

    assert secured.context.counters.authentication_failures == 1


@in_virtual_time
async def test_connection_closed_during_the_authentication_says_so() -> None:
    broker = SaslBroker(verdict_after_s=5)
    secured = Secured(broker)
    asyncio.get_running_loop().call_later(1, broker.transport.close)
    with pytest.raises(BrokerConnectionError, match="during the authentication with PLAIN"):
        await secured.connection.ready


@in_virtual_time
async def test_withdrawn_request_is_sent_only_if_it_was_not_held() -> None:
    secured = await authenticated(SaslBroker(10_000, mechanism="SCRAM-SHA-256", verdict_after_s=0.5))
    requests = Requests(secured)
    first = requests.send()[0]
    secured.connection.withdraw(first)
    await asyncio.sleep(9.6)
    held = requests.send(3)
    await asyncio.sleep(0.3)
    secured.connection.withdraw(held[1])
    in_flight = secured.connection.in_flight
    await asyncio.sleep(2)

    assert in_flight == 3
    assert requests.answered == [0, 1, 3]
    assert requests.lost() == {}


@in_virtual_time
async def test_retiring_connection_closes_when_its_held_are_withdrawn() -> None:
    secured, requests = await later(SaslBroker(300), 0.9)
    held = requests.send()[0]  # until the broker allows another exchange
    secured.connection.retire(BrokerConnectionError("not needed any more"))
    assert not secured.connection.closed.done()
    secured.connection.withdraw(held)
    await asyncio.wait_for(secured.connection.closed, 0.01)


@in_virtual_time
async def test_held_requests_end_when_the_connection_closes() -> None:
    secured, requests = await later(SaslBroker(10_000, mechanism="SCRAM-SHA-256", verdict_after_s=5), 9.6)
    requests.send(3)
    secured.connection.close(BrokerConnectionError("called off"))
    await secured.connection.closed

    assert [end.is_unprocessed for end in requests.lost().values()] == [True] * 3


@in_virtual_time
async def test_nothing_is_written_when_the_transport_closes() -> None:
    secured, requests = await later(SaslBroker(300), 0.9)
    requests.send()  # held, until the broker allows another exchange
    secured.transport.is_closing = lambda: True
    await asyncio.sleep(1)

    assert secured.broker.sessions == 1
    assert len(secured.broker.order) == 2


@in_virtual_time
async def test_retired_connection_ends_what_it_holds_first() -> None:
    secured, requests = await later(SaslBroker(10_000, mechanism="SCRAM-SHA-256", verdict_after_s=1), 9.6)
    requests.send(3)
    secured.connection.retire(BrokerConnectionError("no longer needed"))
    await secured.connection.closed

    assert requests.answered == [0, 1, 2]


@in_virtual_time
async def test_exchange_counts_as_no_silence_of_held_requests() -> None:
    """A request that waits 40 s for a password is not 40 s late when it is sent."""
    password, _ = passwords(25)
    settings = NetworkSettings(request_timeout_ms=10_000)
    secured = Secured(SaslBroker(10_000), password, settings=settings)
    await secured.connection.ready
    requests = Requests(secured)
    await asyncio.sleep(10.5)
    requests.send()
    await asyncio.sleep(30)

    assert requests.answered == [0]


@in_virtual_time
async def test_exchange_that_stalls_ends_at_the_request_timeout() -> None:
    secured, requests = await later(SaslBroker(10_000), 9.6)
    secured.broker.verdict_after_s = 1e9
    requests.send()
    await secured.connection.closed

    assert "request_timeout_ms" in str(secured.connection.error)


@in_virtual_time
async def test_salted_password_is_computed_once_for_all_connections() -> None:
    secured = await authenticated(SaslBroker(mechanism="SCRAM-SHA-512"))
    again = Secured(SaslBroker(mechanism="SCRAM-SHA-512"), sasl=secured.sasl)
    await again.connection.ready

    assert secured.sasl.salted_passwords == 1
