"""SASL on real brokers: each mechanism, sessions that are renewed under load, refusals, and delegation tokens."""

import asyncio
import base64
import struct
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

import pytest

from aioproducer import (
    AuthenticationError,
    CredentialsError,
    Delivery,
    DeliveryTimeoutError,
    Outcome,
    Producer,
    TokenError,
)
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.metrics import ProducerStatistics
from aioproducer.security import Token
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.tokens import unsecured_token
from tests.kafka_releases import releases_of_each_run
from tests.secured.raw_client import RawClient, plain
from tests.secured.ways import SECURITY, VERSIONS, Options, deliver, producer_of

pytestmark = pytest.mark.kafka

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
SHA_256_AT_NIGHT = pytest.param("SCRAM-SHA-256", marks=pytest.mark.nightly)


class Tokens:
    """Provider of unsecured tokens."""

    def __init__(self, lifetime_s: float = 3600.0) -> None:
        self.asked = 0
        self._lifetime_s = lifetime_s

    async def token(self) -> str | Token:
        self.asked += 1
        return unsecured_token("alice", lifetime_s=self._lifetime_s)


def options_for(kafka: KafkaCluster, mechanism: str, listener: str = "SASL_PLAINTEXT") -> ProducerOptions:
    options = kafka.client_options(listener, mechanism)
    if mechanism == "OAUTHBEARER":
        options["sasl_token_provider"] = Tokens()
    return cast("ProducerOptions", options)


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_record_is_delivered_with_each_mechanism(
    secured_kafka: KafkaCluster, mechanism: str, listener: str
) -> None:
    async with Producer(**options_for(secured_kafka, mechanism, listener)) as producer:
        result = await producer.send("sasl", b"value")

    assert result.offset >= 0
    assert producer.statistics().authentications >= 1


class SignedTokens:
    """Provider of tokens that the listener SIGNED checks with a local file of keys (JWKS)."""

    async def token(self) -> str:
        return SECURITY.signer.token("alice")


async def test_signed_token_is_accepted(secured_kafka: KafkaCluster) -> None:
    options = secured_kafka.client_options("SIGNED", "OAUTHBEARER") | {"sasl_token_provider": SignedTokens()}
    async with Producer(**cast("ProducerOptions", options)) as producer:
        result = await producer.send("sasl", b"value")

    assert result.offset >= 0


@pytest.mark.parametrize("kafka_with_sessions", VERSIONS, indirect=True)
@pytest.mark.parametrize("mechanism", ["PLAIN", SHA_256_AT_NIGHT, "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_sessions_are_renewed_on_the_same_connection(kafka_with_sessions: KafkaCluster, mechanism: str) -> None:
    async with Producer(**options_for(kafka_with_sessions, mechanism)) as producer:
        await producer.send("sasl", b"first")
        before = producer.statistics()
        end = asyncio.get_running_loop().time() + 8
        while asyncio.get_running_loop().time() < end:
            await producer.send("sasl", b"value")
            await asyncio.sleep(0.005)
        statistics = producer.statistics()

    assert statistics.connections_created == before.connections_created
    assert statistics.reauthentications >= 2
    assert statistics.records_retried == before.records_retried


SECONDS = 7.0


def producer_for(kafka: KafkaCluster, mechanism: str, **options: object) -> Producer:
    return Producer(**cast("ProducerOptions", kafka.client_options("SASL_PLAINTEXT", mechanism) | options))


def goes_on() -> Callable[[], bool]:
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    return lambda: loop.time() < end


def check(before: ProducerStatistics, after: ProducerStatistics, *, retries: int = 0) -> None:
    assert after.connections_created == before.connections_created
    assert after.records_retried - before.records_retried <= retries
    assert after.records_failed == 0
    assert after.reauthentications >= 2


@pytest.mark.parametrize("mechanism", [pytest.param("PLAIN", marks=pytest.mark.nightly), "SCRAM-SHA-512"])
async def test_many_records_in_flight(kafka_with_sessions: KafkaCluster, mechanism: str) -> None:
    topic = f"load-{mechanism}"
    async with producer_for(kafka_with_sessions, mechanism) as producer:
        await producer.send(topic, b"first", partition=0)
        before, more, deliveries = producer.statistics(), goes_on(), list[Delivery]()
        while more():
            deliveries += [await producer.enqueue(topic, b"x" * 100, partition=0) for _ in range(100)]
            await asyncio.sleep(0.002)
        offsets = [(await delivery).offset for delivery in deliveries]
        check(before, producer.statistics())

    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512"])
async def test_transactions(kafka_with_sessions: KafkaCluster, mechanism: str) -> None:
    name = f"txn-{mechanism}"
    async with producer_for(kafka_with_sessions, mechanism, transactional_id=name) as producer:
        async with producer.transaction() as txn:
            await txn.send(name, b"first")
        before, more = producer.statistics(), goes_on()
        while more():
            async with producer.transaction() as txn:
                await txn.send(name, b"value")
        after = producer.statistics()
        # A first record may meet a broker that still writes the markers of the last transaction, and is sent again.
        check(before, after, retries=after.transactions_committed)

    assert after.transactions_aborted == 0


@pytest.mark.parametrize("mechanism", ["PLAIN"])
async def test_records_without_acknowledgement(kafka_with_sessions: KafkaCluster, mechanism: str) -> None:
    topic = f"acks-0-{mechanism}"
    async with producer_for(kafka_with_sessions, mechanism) as producer:
        start = (await producer.send(topic, b"first", partition=0)).offset
    async with producer_for(kafka_with_sessions, mechanism, acks=0, enable_idempotence=False) as producer:
        await producer.send(topic, b"value", partition=0)
        before, more, sent = producer.statistics(), goes_on(), 1
        while more():
            await asyncio.gather(*(producer.send(topic, b"value", partition=0) for _ in range(20)))
            sent += 20
            await asyncio.sleep(0.005)
        await producer.flush()
        check(before, producer.statistics())
    async with producer_for(kafka_with_sessions, mechanism) as producer:
        end = (await producer.send(topic, b"last", partition=0)).offset

    assert end - start - 1 == sent


class OneToken:
    """Provider of a token that a test chose."""

    def __init__(self, value: str) -> None:
        self._value = value

    async def token(self) -> Token:
        return Token(value=self._value, expires_at=4e9)


async def error_of_start(options: dict[str, object]) -> AuthenticationError:
    producer = Producer(**cast("ProducerOptions", options))
    with pytest.raises(AuthenticationError) as caught:
        await producer.start()
    await producer.close()
    return caught.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("wrong", [{"sasl_password": "canary-wrong"}, {"sasl_username": "nobody"}])
async def test_start_names_user_and_options_when_credentials_are_wrong(
    secured_kafka: KafkaCluster, mechanism: str, wrong: dict[str, object]
) -> None:
    error = await error_of_start(secured_kafka.client_options("SASL_PLAINTEXT", mechanism) | wrong)

    assert isinstance(error, CredentialsError)
    text = str(error)
    assert "sasl_username and sasl_password" in text
    assert "bootstrap broker localhost:" in text
    assert repr(wrong.get("sasl_username", "alice")) in text
    assert "canary-wrong" not in text


@pytest.mark.parametrize("lifetime_s, claim", [(-60.0, "expired"), (3600.0, None)], ids=["expired", "not-a-token"])
async def test_start_tells_the_claims_of_a_refused_token(
    secured_kafka: KafkaCluster, lifetime_s: float, claim: str | None
) -> None:
    value = "canary" if claim is None else unsecured_token("alice", lifetime_s=lifetime_s)
    options: dict[str, Any] = secured_kafka.client_options("SASL_PLAINTEXT", "OAUTHBEARER")
    error = await error_of_start(options | {"sasl_token_provider": OneToken(value)})

    assert isinstance(error, TokenError)
    assert value not in str(error)
    assert (claim or "not a JSON web token") in str(error)


async def test_password_that_is_corrected_while_refused_is_taken(secured_kafka: KafkaCluster) -> None:
    answers = iter(["wrong"])
    asked = []

    async def password() -> str:
        asked.append(1)
        return next(answers, "alice-secret")

    options = secured_kafka.client_options("SASL_PLAINTEXT", "SCRAM-SHA-512") | {"sasl_password": password}
    error = await error_of_start(options)
    async with Producer(**cast("ProducerOptions", options)) as producer:
        result = await producer.send("sasl", b"value")

    assert isinstance(error, CredentialsError)
    assert result.offset >= 0
    assert len(asked) >= 2


class Vault:
    """Holds the password, which a test changes."""

    password = "alice-secret"

    async def __call__(self) -> str:
        return self.password


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512"])
async def test_refused_producer_fails_records_at_their_deadline(
    kafka_with_sessions: KafkaCluster, mechanism: str
) -> None:
    vault = Vault()
    options = kafka_with_sessions.client_options("SASL_PLAINTEXT", mechanism) | {
        "sasl_password": vault,
        "request_timeout_ms": 1_000,
        "delivery_timeout_ms": 3_000,
    }
    async with Producer(**cast("ProducerOptions", options)) as producer:
        await producer.send("sasl", b"first")
        vault.password = "canary-wrong"
        await asyncio.sleep(4)  # past the end of the session
        with pytest.raises(DeliveryTimeoutError) as late:
            await producer.send("sasl", b"late")
        with pytest.raises(CredentialsError):
            await producer.partitions_for("unknown")
        vault.password = "alice-secret"
        end = asyncio.get_running_loop().time() + 15
        while asyncio.get_running_loop().time() < end:
            try:
                result = await producer.send("sasl", b"accepted")
                break
            except DeliveryTimeoutError:
                continue

    assert isinstance(late.value.last_broker_error, CredentialsError)
    assert late.value.outcome is Outcome.NOT_WRITTEN
    assert result.offset >= 0


async def test_records_of_a_deleted_user_end_with_the_refusal(kafka_with_sessions: KafkaCluster) -> None:
    await kafka_with_sessions.change_password("leaver", "canary-leaver")
    right = kafka_with_sessions.client_options("SASL_SSL", "SCRAM-SHA-512")
    leaver = {"sasl_username": "leaver", "sasl_password": "canary-leaver"}
    async with producer_of(right | leaver, request_timeout_ms=1_000, delivery_timeout_ms=3_000) as producer:
        await producer.send_and_wait("sasl", b"first")
        await kafka_with_sessions.delete_user("leaver")
        await asyncio.sleep(4)  # past the end of the session
        with pytest.raises(DeliveryTimeoutError) as late:
            await producer.send_and_wait("sasl", b"late")

    assert isinstance(late.value.last_broker_error, CredentialsError)
    assert late.value.outcome is Outcome.NOT_WRITTEN
    await deliver(right)


async def wrong() -> str:
    await asyncio.sleep(0)
    return "canary-wrong"


async def hangs() -> str:
    await asyncio.Event().wait()
    return "never"


async def tidies_up_slowly() -> str:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.05)
    return "never"


@pytest.mark.parametrize("secured_kafka", releases_of_each_run("4.4.0", among=VERSIONS), indirect=True)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("password", [wrong, hangs, tidies_up_slowly])
async def test_failed_start_leaves_no_task_and_no_thread(
    secured_kafka: KafkaCluster, mechanism: str, password: Callable[[], Awaitable[str]]
) -> None:
    options = secured_kafka.client_options("SASL_PLAINTEXT", mechanism) | {"sasl_password": password}
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    for _ in range(10):
        producer = Producer(**cast("ProducerOptions", options))
        with pytest.raises((AuthenticationError, TimeoutError)):
            async with asyncio.timeout(0.3):
                await producer.start()
        await producer.close()
        assert asyncio.all_tasks() == tasks
    assert {each for each in threading.enumerate() if "sasl" in each.name} <= threads


CREATE_DELEGATION_TOKEN = 38
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


class DelegationToken(NamedTuple):
    name: str
    password: str


async def token_of_alice(kafka: KafkaCluster) -> DelegationToken:
    """Ask for a token as a tool does: over a connection that is authenticated otherwise."""
    host, _, port = kafka.secured_servers("SASL_PLAINTEXT").partition(",")[0].rpartition(":")
    client = await RawClient.connect(host, int(port))
    await client.handshake("PLAIN")
    await client.authenticate(plain("alice", "alice-secret"))
    client.ask(CREATE_DELEGATION_TOKEN, 1, struct.pack(">iq", 0, 3_600_000))  # no renewers; how long it lives
    answer = await client.answer()
    client.abort()
    assert answer is not None
    assert answer[:2] == b"\x00\x00", answer
    name_at = _behind(answer, _behind(answer, 2)) + 3 * 8  # the owner's type and name, and three times
    password_at = _behind(answer, name_at)
    (size,) = struct.unpack_from(">i", answer, password_at)
    password = base64.b64encode(answer[password_at + 4 : password_at + 4 + size]).decode()
    return DelegationToken(answer[name_at + 2 : password_at].decode(), password)


def _behind(answer: bytes, position: int) -> int:
    return position + 2 + int(struct.unpack_from(">h", answer, position)[0])


def options_of(kafka: KafkaCluster, token: DelegationToken, mechanism: str) -> Options:
    login = f'{SCRAM} username="{token.name}" password="{token.password}" tokenauth="true";'
    options = kafka.client_options("SASL_SSL", mechanism)
    del options["sasl_username"], options["sasl_password"]
    return options | {"sasl_jaas_config": login}


async def started_when_known(options: Options) -> Producer:
    """Start a producer as soon as the broker knows the token, which its controller has made."""
    ends_at = asyncio.get_running_loop().time() + 20
    while True:
        producer = producer_of(options)
        try:
            return await producer.start()
        except CredentialsError:
            assert asyncio.get_running_loop().time() < ends_at
        await producer.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_record_is_delivered_with_a_delegation_token(secured_kafka: KafkaCluster, mechanism: str) -> None:
    token = await token_of_alice(secured_kafka)
    options = options_of(secured_kafka, token, mechanism)
    producer = await started_when_known(options)
    result = await producer.send("sasl", b"value")
    await producer.close()

    assert result.offset >= 0


async def test_wrong_delegation_token_is_named_as_one(secured_kafka: KafkaCluster) -> None:
    token = await token_of_alice(secured_kafka)
    wrong = DelegationToken(token.name, "canary-wrong")
    producer = producer_of(options_of(secured_kafka, wrong, "SCRAM-SHA-256"))
    with pytest.raises(CredentialsError, match="delegation token"):
        await producer.start()
    await producer.close()
