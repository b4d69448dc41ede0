"""A broker that refuses the credentials is tried again, but seldom."""

import asyncio
import random

import pytest

from aioproducer._network.context import ConnectionSecurity, NetworkSettings
from aioproducer._network.network_client import NetworkClient
from aioproducer._network.refusals import Refusals, is_for_good, is_refusal
from aioproducer._network.sasl_client import SaslClient, SaslSettings
from aioproducer._protocol.messages import METADATA, encode_metadata_request
from aioproducer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    ConfigurationError,
    CredentialsError,
    TlsError,
    TlsVerificationError,
    UnsupportedVersionError,
    WrongListenerError,
)
from aioproducer.security import Secret
from tests.fakes.event_log import EventList
from tests.fakes.sasl_broker import SaslBroker
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.timer_driver import TimerDriver
from tests.fakes.virtual_loop import run, virtual_loop

PLACE = ("host", 9092)


def test_pause_grows_to_its_maximum() -> None:
    refusals, now = Refusals(10_000), 0.0
    pauses = []
    for _ in range(9):
        refusals.note(PLACE, now, CredentialsError("x"), random=random.Random(1))
        pauses.append(refusals.not_before(PLACE) - now)
        now = refusals.not_before(PLACE)

    assert 0.8 <= pauses[0] <= 1.2
    assert pauses[1] > pauses[0]
    assert 8 <= pauses[-1] <= 10


@pytest.mark.parametrize("max_pause_ms", [0, 100, 10_000])
def test_broker_is_tried_at_most_ten_times_a_minute(max_pause_ms: int) -> None:
    refusals, now = Refusals(max_pause_ms), 0.0
    attempts = []
    while now < 600:
        attempts.append(now)
        refusals.note(PLACE, now, CredentialsError("x"), random=random.Random(1))
        now = max(refusals.not_before(PLACE), now + 0.001)

    assert max(sum(start <= at < start + 60 for at in attempts) for start in attempts) <= 10
    assert len(attempts) >= 50


def test_acceptance_ends_the_pause() -> None:
    refusals = Refusals(10_000)
    refusals.note(PLACE, 5.0, CredentialsError("x"), random=random.Random(1))
    refusals.end(PLACE)

    assert refusals.not_before(PLACE) == 0.0


@pytest.mark.parametrize(
    "error, refuses, for_good",
    [
        (CredentialsError("x"), True, True),
        (TlsVerificationError("x"), True, True),
        (ConfigurationError("x"), True, True),
        (UnsupportedVersionError("x"), False, True),
        (TlsError("x"), False, False),
        (BrokerConnectionError("x"), False, False),
        (None, False, False),
    ],
)
def test_errors_that_another_attempt_would_meet_again(
    error: Exception | None, *, refuses: bool, for_good: bool
) -> None:
    assert (is_refusal(error), is_for_good(error)) == (refuses, for_good)


def client_with(sasl: SaslSettings | None) -> NetworkClient:
    loop = virtual_loop()
    driver = TimerDriver(loop)
    client = NetworkClient(
        bootstrap=(("seed", 9092),),
        settings=NetworkSettings(),
        timers=driver.heap,
        random=random.Random(1),
        events=driver.events,
        log=EventList(),
        client_id="tests",
        security=None if sasl is None else ConnectionSecurity(sasl=SaslClient(sasl, loop)),
    )
    loop.names["seed"] = ["10.0.0.1"]
    client.start(loop)
    return client


async def ask(client: NetworkClient) -> None:
    await client.request(METADATA, lambda version: encode_metadata_request(version, []), lambda raw: raw)  # type: ignore[type-var]


def test_refused_client_authenticates_at_most_ten_times_a_minute() -> None:
    attempts: list[float] = []

    def refuse() -> ScriptedBroker:
        broker = SaslBroker()
        broker.passwords = []
        attempts.append(asyncio.get_running_loop().time())
        return broker

    async def story() -> None:
        client = client_with(SaslSettings(mechanism="PLAIN", username="alice", password=Secret("canary-secret")))
        virtual_loop().servers[("10.0.0.1", 9092)] = refuse
        end = asyncio.get_running_loop().time() + 600
        while asyncio.get_running_loop().time() < end:
            with pytest.raises(CredentialsError):
                await ask(client)
        await client.close()

    run(story())
    assert max(sum(start <= at < start + 60 for at in attempts) for start in attempts) <= 10
    assert len(attempts) >= 50


def test_listener_that_closes_three_times_wants_sasl() -> None:
    def close(broker: ScriptedBroker, _heard: object) -> None:
        broker.transport.close()

    errors: list[Exception] = []

    async def story() -> None:
        client = client_with(None)
        virtual_loop().servers[("10.0.0.1", 9092)] = lambda: ScriptedBroker(close)
        for _ in range(3):
            try:
                await ask(client)
            except (AuthenticationError, BrokerConnectionError) as error:
                errors.append(error)
        await client.close()

    run(story())
    assert [type(error) for error in errors] == [BrokerConnectionError, BrokerConnectionError, WrongListenerError]
    assert "security_protocol" in str(errors[-1])


def test_broker_in_trouble_is_not_taken_for_a_wrong_listener() -> None:
    refusals = Refusals(10_000)
    refusals.metadata_came()

    assert [refusals.is_unwelcome("broker 1") for _ in range(5)] == [False] * 5
