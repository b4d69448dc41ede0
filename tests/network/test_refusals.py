"""Brokers that refuse the credentials are tried again, but seldom; each address and bootstrap server has its turn."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from aioproducer import Producer
from aioproducer._network.context import ConnectionSecurity, NetworkSettings
from aioproducer._network.network_client import NetworkClient
from aioproducer._network.node_connection import NodeConnection
from aioproducer._network.refusals import Refusals, is_for_good, is_refusal, is_worth_repeating
from aioproducer._network.sasl_client import SaslClient, SaslSettings
from aioproducer._protocol.messages import METADATA, encode_metadata_request
from aioproducer.cluster import Node
from aioproducer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    ConfigurationError,
    CredentialsError,
    KafkaError,
    TlsError,
    TlsVerificationError,
    UnsupportedVersionError,
    WrongListenerError,
)
from aioproducer.security import Secret
from aioproducer.testing import ClusterSecurity, FakeCluster
from tests.fakes.logs import EventList
from tests.fakes.network import TimerDriver, network_context
from tests.fakes.sasl_broker import SaslBroker
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_loop import in_virtual_time, run, virtual_loop

PLACE = ("host", 9092)


def assert_seldom_in_ten_minutes(attempts: list[float]) -> None:
    """At most ten attempts a minute, and not much less."""
    assert max(sum(start <= at < start + 60 for at in attempts) for start in attempts) <= 10
    assert len(attempts) >= 50


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

    assert_seldom_in_ten_minutes(attempts)


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
    assert_seldom_in_ten_minutes(attempts)


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


SETTINGS = NetworkSettings(connection_setup_timeout_ms=2_000, connection_setup_timeout_max_ms=2_000)
SASL = SaslSettings(mechanism="PLAIN", username="alice", password=Secret("canary-secret"))


def accepts() -> ScriptedBroker:
    return SaslBroker()


def refuses() -> ScriptedBroker:
    broker = SaslBroker()
    broker.passwords = []
    return broker


def is_silent() -> ScriptedBroker:
    return ScriptedBroker(greets=False)


class Name:
    """A node whose name has an address for each of these brokers, and what becomes of attempts to connect to it."""

    def __init__(self, *brokers: Callable[[], ScriptedBroker] | None, sasl: SaslSettings = SASL) -> None:
        loop = virtual_loop()
        self.met: list[tuple[float, int]] = []  # when, and the number of the address
        loop.names["seed"] = [f"10.0.0.{number}" for number in range(len(brokers))]
        for number, make in enumerate(brokers):
            if make is not None:
                loop.servers[f"10.0.0.{number}", 9092] = self._noting(number, make)
        self._has_ended = asyncio.Event()
        context = replace(network_context(SETTINGS), security=ConnectionSecurity(sasl=SaslClient(sasl, loop)))
        self.node = NodeConnection(Node(-1, "seed", 9092), context, lambda _: self._has_ended.set())

    def _noting(self, number: int, make: Callable[[], ScriptedBroker]) -> Callable[[], ScriptedBroker]:
        def met() -> ScriptedBroker:
            self.met.append((asyncio.get_running_loop().time(), number))
            return make()

        return met

    async def attempt(self) -> KafkaError | None:
        """Return why there is no connection."""
        self._has_ended.clear()
        self.node.connect()
        await self._has_ended.wait()
        return self.node.last_error

    async def close(self) -> None:
        await self.node.close(BrokerConnectionError("done"))


@in_virtual_time
async def test_address_that_refuses_is_followed_by_one_that_accepts() -> None:
    """During a rolling change one broker of a name has the new password, and another one not yet."""
    name = Name(refuses, refuses, accepts)
    error = await name.attempt()
    is_open = name.node.is_open
    await name.close()

    assert error is None
    assert is_open
    assert [number for _, number in name.met] == [0, 1, 2]


@in_virtual_time
async def test_name_refuses_when_each_of_its_addresses_has() -> None:
    name = Name(refuses, refuses, refuses)
    error = await name.attempt()
    await name.close()

    assert isinstance(error, CredentialsError)
    assert name.node.has_failed_for_good
    assert [number for _, number in name.met] == [0, 1, 2]


@in_virtual_time
async def test_address_without_a_listener_does_not_hide_a_refusal() -> None:
    """`localhost` has two addresses, and brokers mostly listen at one of them."""
    name = Name(None, refuses)
    error = await name.attempt()
    await name.close()

    assert isinstance(error, CredentialsError)


@in_virtual_time
async def test_address_that_does_not_answer_may_still_accept() -> None:
    name = Name(refuses, is_silent)
    error = await name.attempt()
    await name.close()

    assert type(error) is BrokerConnectionError
    assert "10.0.0.0: bootstrap broker seed:9092: the broker refused user 'alice'" in str(error)
    assert "10.0.0.1: " in str(error)
    assert not name.node.has_failed_for_good


@pytest.mark.parametrize("addresses", [2, 3, 4, 12])
@in_virtual_time
async def test_addresses_of_a_name_share_ten_attempts_a_minute(addresses: int) -> None:
    """They may lead to one broker, which locks accounts."""
    name = Name(*[refuses] * addresses)
    ends_at = asyncio.get_running_loop().time() + 600
    while asyncio.get_running_loop().time() < ends_at:
        assert isinstance(await name.attempt(), CredentialsError)
    await name.close()

    times = [when for when, _ in name.met]
    assert_seldom_in_ten_minutes(times)


@in_virtual_time
async def test_refusals_beside_other_failures_are_ten_a_minute_too() -> None:
    name = Name(refuses, is_silent)
    ends_at = asyncio.get_running_loop().time() + 600
    while asyncio.get_running_loop().time() < ends_at:
        assert type(await name.attempt()) is BrokerConnectionError
    await name.close()

    times = [when for when, number in name.met if number == 0]
    assert_seldom_in_ten_minutes(times)


@in_virtual_time
async def test_missing_password_is_asked_for_once_for_all_addresses() -> None:
    """The next address would not have it either, and no broker has refused anything."""
    asked = []

    def vault() -> str:
        asked.append(asyncio.get_running_loop().time())
        raise OSError("the vault is away")

    name = Name(accepts, accepts, accepts, sasl=replace(SASL, password=vault))
    errors = [await name.attempt() for _ in range(4)]
    await name.close()

    assert all(isinstance(error, AuthenticationError) for error in errors)
    assert len(asked) == 4
    assert asked[-1] - asked[0] < 20


# Several bootstrap servers


def options_of(cluster: FakeCluster, **changes: object) -> dict[str, object]:
    return cluster.client_options("SASL_SSL", "SCRAM-SHA-256") | changes


async def failure_at_start(options: Mapping[str, object]) -> KafkaError:
    producer = Producer(**options)  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as caught:
        await producer.start()
    await producer.close()
    return caught.value


async def test_start_ends_at_once_when_each_bootstrap_server_refuses() -> None:
    async with FakeCluster(3, security=ClusterSecurity()) as cluster:
        options = options_of(cluster, sasl_password="canary-wrong", max_block_ms=600_000)
        servers = str(options["bootstrap_servers"])
        error = await failure_at_start(options)
        refusals = len(cluster.authentications)

    assert servers.count(",") == 2
    assert isinstance(error, CredentialsError)
    assert refusals >= 3


async def test_start_waits_for_a_bootstrap_server_that_is_away() -> None:
    """It may accept what the other one refuses; the error of the time-out names both."""
    async with FakeCluster(1, security=ClusterSecurity()) as cluster:
        options = options_of(cluster, sasl_password="canary-wrong", max_block_ms=500)
        options["bootstrap_servers"] = f"127.0.0.1:1,{options['bootstrap_servers']}"
        error = await failure_at_start(options)

    assert not isinstance(error, CredentialsError)
    assert "Connection refused" in str(error)
    assert "sasl_password" in str(error)


async def test_bootstrap_server_that_accepts_is_enough() -> None:
    way = ("SASL_PLAINTEXT", "SCRAM-SHA-256")
    async with (
        FakeCluster(1, security=ClusterSecurity()) as refusing,
        FakeCluster(1, topics={"orders": 1}, security=ClusterSecurity()) as own,
    ):
        refusing.change_password("alice", "canary-another")
        servers = ",".join(each.secured_servers("SASL_PLAINTEXT") for each in (refusing, own))
        options = own.client_options(*way) | {"bootstrap_servers": servers}
        async with Producer(**options) as producer:  # type: ignore[arg-type]
            await producer.send_and_wait("orders", b"x")
        received = own.records("orders", 0)

    assert len(received) == 1


async def is_refused(producer: Producer) -> bool:
    with pytest.raises(CredentialsError):
        await producer.partitions_for("unknown")
    return True


@in_virtual_time
async def test_wait_for_metadata_ends_with_a_later_refusal() -> None:
    """The broker is a bootstrap server and a node, which are tried in turn, and fail together."""
    loop = asyncio.get_running_loop()
    async with FakeCluster(1, topics={"orders": 1}, security=ClusterSecurity()) as cluster:
        options = cluster.client_options("SASL_PLAINTEXT", "SCRAM-SHA-256") | {"max_block_ms": 600_000}
        async with Producer(**options) as producer:  # type: ignore[arg-type]
            await producer.send_and_wait("orders", b"x")
            cluster.change_password("alice", "canary-another")
            cluster.end_sessions()
            began_at = loop.time()
            questions = [await is_refused(producer) for _ in range(3)]
            took_s = loop.time() - began_at
            cluster.change_password("alice", "alice-secret")
            await asyncio.sleep(60)
            await producer.send_and_wait("orders", b"y")

    assert questions == [True] * 3
    assert took_s < 15


@pytest.mark.parametrize("retriable", [True, False])
@pytest.mark.parametrize("kind", [AuthenticationError, ConfigurationError])
def test_request_is_repeated_while_a_password_cannot_be_had(
    kind: type[AuthenticationError | ConfigurationError], *, retriable: bool
) -> None:
    """Of a broker or of a key store."""
    assert is_worth_repeating(kind("no password now", retriable=retriable)) is retriable
