"""What brokers answer to a raw client that logs in well and badly: the embedded cluster as real Kafka."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from aioproducer.testing import CertificateAuthority, FakeCluster
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.tokens import unsecured_token
from tests.secured.raw_client import (
    API_VERSIONS,
    Authenticated,
    Handshaken,
    RawClient,
    ScramClient,
    bearer,
    plain,
    read_authenticate,
    read_handshake,
)
from tests.secured.ways import SHORT_SESSIONS

FAKES = [("fake", version) for version in ("3.9.1", "4.4.0")]
REALS = [("real", version) for version in ("3.9.1", "4.4.0")]


class Connect(Protocol):
    def __call__(self, listener: str = ..., context: ssl.SSLContext | None = ...) -> Awaitable[RawClient]:
        """Connect to the listener of a name, over TLS if a context is given."""


LIFETIME_MS = SHORT_SESSIONS.session_lifetime_ms
ALL = tuple(sorted(SHORT_SESSIONS.mechanisms))
ALICE = plain("alice", "alice-secret")
OTHER_USER = "Cannot change principals during re-authentication from User.alice: User.bob"
STARTED = Handshaken(0, ALL)
DONE = Authenticated(0, "", b"", LIFETIME_MS)
NOTHING_GOING_ON = Authenticated(34, "SaslAuthenticate request received after successful authentication", b"", 0)


def refused(message: str) -> Authenticated:
    return Authenticated(58, message, b"", 0)


def invalid(mechanism: str) -> Authenticated:
    said = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
    return refused(f"{said} {mechanism}")


@pytest.fixture(
    params=[
        *(pytest.param(each, id="-".join(each)) for each in FAKES),
        *(pytest.param(each, id="-".join(each), marks=pytest.mark.kafka) for each in REALS),
    ]
)
async def ports(request: pytest.FixtureRequest) -> AsyncIterator[Mapping[str, int]]:
    """Port of each listener of a broker with sessions of three seconds."""
    kind, version = request.param
    if kind == "real":
        kafka: KafkaCluster = request.getfixturevalue(f"sessions_{version.replace('.', '')}")
        node = kafka.node(1).ports
        yield {"PLAINTEXT": node.broker_port, **node.secured}
        return
    async with FakeCluster(1, profile=version, security=SHORT_SESSIONS) as fake:
        names = ("PLAINTEXT", *SHORT_SESSIONS.listeners)
        yield {name: int(fake.secured_servers(name).rpartition(":")[2]) for name in names}


@pytest.fixture
async def connect(ports: Mapping[str, int]) -> AsyncIterator[Connect]:
    opened: list[RawClient] = []

    async def connect_to(listener: str = "SASL_PLAINTEXT", context: ssl.SSLContext | None = None) -> RawClient:
        opened.append(await RawClient.connect("127.0.0.1", ports[listener], context))
        return opened[-1]

    yield connect_to
    for client in opened:
        client.abort()
    await asyncio.sleep(0)  # until they are closed


@pytest.fixture
async def client(connect: Connect) -> RawClient:
    """A connection to the listener SASL_PLAINTEXT."""
    return await connect()


@pytest.fixture
async def logged_in(client: RawClient) -> RawClient:
    assert await client.versions() == 0
    assert await client.handshake("PLAIN") == STARTED
    assert await client.authenticate(ALICE) == DONE
    return client


# The order of requests


async def test_versions_may_be_asked_for_once_before_the_handshake(client: RawClient) -> None:
    assert await client.versions() == 0
    assert await client.versions() is None


async def test_versions_are_asked_again_after_an_unknown_version(client: RawClient) -> None:
    client.ask(API_VERSIONS, 99, b"", flexible=True)
    answer = await client.answer()
    assert answer is not None
    assert struct.unpack_from(">h", answer) == (35,)
    assert await client.versions() == 0
    assert await client.handshake("PLAIN") == STARTED


async def test_handshake_needs_no_question_for_versions(client: RawClient) -> None:
    assert await client.handshake("PLAIN") == STARTED
    assert await client.authenticate(ALICE) == DONE
    assert await client.metadata()


@pytest.mark.parametrize("is_asked", [True, False])
async def test_request_without_authentication_closes_the_connection(client: RawClient, is_asked: bool) -> None:  # noqa: FBT001
    if is_asked:
        assert await client.versions() == 0
    assert not await client.metadata()


async def test_token_without_a_handshake_closes_the_connection(client: RawClient) -> None:
    assert await client.authenticate(ALICE) is None


async def test_question_before_the_token_is_answered_without_brokers(
    client: RawClient,
) -> None:
    await client.handshake("PLAIN")
    client.ask_metadata()
    answer = await client.answer()

    assert answer is not None
    assert struct.unpack_from(">i", answer) == (0,)
    assert await client.answer() is None


async def test_question_for_versions_before_the_token_is_refused(client: RawClient) -> None:
    await client.handshake("PLAIN")
    assert await client.versions() == 34
    assert await client.answer() is None


async def test_second_handshake_is_refused(client: RawClient) -> None:
    await client.handshake("PLAIN")
    assert await client.handshake("PLAIN") == Handshaken(34, ())
    assert await client.answer() is None


async def test_disabled_mechanism_is_refused_with_the_enabled_ones(client: RawClient) -> None:
    assert await client.handshake("GSSAPI") == Handshaken(33, ALL)
    assert await client.answer() is None


async def test_listener_of_signed_tokens_has_one_mechanism(connect: Connect) -> None:
    client = await connect("SIGNED", unchecked())
    assert await client.handshake("PLAIN") == Handshaken(33, ("OAUTHBEARER",))


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_lifetime_is_told_since_version_1(client: RawClient, version: int) -> None:
    await client.handshake("PLAIN")
    assert await client.authenticate(ALICE, version) == DONE._replace(lifetime_ms=LIFETIME_MS if version else 0)


async def test_too_large_a_token_closes_the_connection(client: RawClient) -> None:
    await client.handshake("PLAIN")
    assert await client.authenticate(b"x" * 524_289) is None


@pytest.mark.parametrize(
    "raw", [b"\xff\xff\xff\xff", struct.pack(">i", 20) + b"\xff" * 20], ids=["negative", "unknown"]
)
async def test_what_is_no_request_closes_the_connection(client: RawClient, raw: bytes) -> None:
    client.write(raw)
    assert await client.rest() == b""


async def test_listener_without_sasl_refuses_it_and_goes_on(connect: Connect) -> None:
    client = await connect("PLAINTEXT")
    assert await client.handshake("PLAIN") == Handshaken(34, ())
    assert await client.authenticate(ALICE) == NOTHING_GOING_ON
    assert await client.metadata()


# Credentials


async def answered(client: RawClient, token: bytes) -> Authenticated:
    answer = await client.authenticate(token)
    assert answer is not None
    return answer


BAD_PLAIN = {
    "wrong password": (plain("alice", "wrong"), "Authentication failed: Invalid username or password"),
    "unknown user": (plain("zoe", "x"), "Authentication failed: Invalid username or password"),
    "not UTF-8": (b"\x00\xff\x00\xff", "Authentication failed: Invalid username or password"),
    "no user": (plain("", "x"), "Authentication failed: username not specified"),
    "no password": (plain("alice", ""), "Authentication failed: password not specified"),
    "other authorization id": (
        plain("alice", "alice-secret", "bob"),
        "Authentication failed: Client requested an authorization id that is different from username",
    ),
    "two parts": (b"\x00alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
    "four parts": (b"\x00a\x00b\x00c", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    "nothing": (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
}


@pytest.mark.parametrize("case", BAD_PLAIN)
async def test_bad_plain_is_refused_with_a_reason_then_the_end(client: RawClient, case: str) -> None:
    token, message = BAD_PLAIN[case]
    await client.handshake("PLAIN")
    assert await client.authenticate(token) == refused(message)
    assert await client.answer() is None


async def test_plain_with_the_own_authorization_id_is_accepted(client: RawClient) -> None:
    await client.handshake("PLAIN")
    assert await client.authenticate(plain("alice", "alice-secret", "alice")) == DONE


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram_proves_that_the_broker_knows_the_password(client: RawClient, mechanism: str) -> None:
    scram = ScramClient(mechanism, "alice", "alice-secret")
    await client.handshake(mechanism)
    first = await answered(client, scram.first)
    assert first.token.startswith(b"r=clientnonce")
    assert first.token.endswith(b",i=4096")
    final = scram.final(first.token)
    assert await client.authenticate(final) == DONE._replace(token=f"v={scram.signature}".encode())
    assert await client.metadata()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram_refuses_users_at_once_and_passwords_at_the_end(connect: Connect, mechanism: str) -> None:
    unknown, wrong = await connect(), await connect()
    await unknown.handshake(mechanism)
    assert await unknown.authenticate(ScramClient(mechanism, "zoe", "x").first) == invalid(mechanism)

    scram = ScramClient(mechanism, "alice", "wrong")
    await wrong.handshake(mechanism)
    first = await answered(wrong, scram.first)
    assert await wrong.authenticate(scram.final(first.token)) == invalid(mechanism)
    assert await wrong.answer() is None


BAD_FIRST = {
    "garbage": b"hello",
    "channel binding": b"p=tls-unique,,n=alice,r=abc",
    "binding not supported": b"y,,n=alice,r=abc",
    "not ASCII": "n,,n=jörg,r=abc".encode(),
    "unknown token": b"n,,n=alice,r=abc,tokenauth=true",
    "no nonce": b"n,,n=alice,r=",
}
GOOD_FIRST = {
    "own authorization id": b"n,a=alice,n=alice,r=abc",
    "extension": b"n,,n=alice,r=abc,x=1",
    "mandatory extension": b"n,,m=1,n=alice,r=abc",
}


@pytest.mark.parametrize("case", BAD_FIRST)
async def test_bad_first_message_of_scram_is_refused(client: RawClient, case: str) -> None:
    await client.handshake("SCRAM-SHA-256")
    assert await client.authenticate(BAD_FIRST[case]) == invalid("SCRAM-SHA-256")


@pytest.mark.parametrize("case", GOOD_FIRST)
async def test_odd_first_message_of_scram_is_accepted(client: RawClient, case: str) -> None:
    await client.handshake("SCRAM-SHA-256")
    answer = await answered(client, GOOD_FIRST[case])
    assert (answer.error, answer.token[:5]) == (0, b"r=abc")


async def test_scram_for_another_authorization_id_is_refused(client: RawClient) -> None:
    await client.handshake("SCRAM-SHA-256")
    text = "Authentication failed: Client requested an authorization id that is different from username"
    assert await client.authenticate(b"n,a=bob,n=alice,r=abc") == refused(text)


BAD_FINAL: Mapping[str, Callable[[bytes], bytes]] = {
    "garbage": lambda _: b"hello",
    "other nonce": lambda final: final.replace(b"r=", b"r=x"),
    "other binding": lambda final: final.replace(b"c=biws", b"c=eSws"),
    "no proof": lambda final: final.split(b",p=")[0],
}


@pytest.mark.parametrize("case", BAD_FINAL)
async def test_bad_final_message_of_scram_is_refused(client: RawClient, case: str) -> None:
    scram = ScramClient("SCRAM-SHA-256", "alice", "alice-secret")
    await client.handshake("SCRAM-SHA-256")
    first = await answered(client, scram.first)
    assert await client.authenticate(BAD_FINAL[case](scram.final(first.token))) == invalid("SCRAM-SHA-256")


async def test_proof_of_another_length_closes_the_connection(client: RawClient) -> None:
    scram = ScramClient("SCRAM-SHA-256", "alice", "alice-secret")
    await client.handshake("SCRAM-SHA-256")
    first = await answered(client, scram.first)
    assert await client.authenticate(scram.final(first.token).split(b",p=")[0] + b",p=AAAA") is None


async def test_password_of_scram_is_not_normalised(client: RawClient) -> None:
    """SASLprep would make "fi" of the ligature."""
    scram = ScramClient("SCRAM-SHA-256", "ligature", "\ufb01rst")
    await client.handshake("SCRAM-SHA-256")
    first = await answered(client, scram.first)
    assert (await answered(client, scram.final(first.token))).error == 0


# Tokens


def good_token() -> bytes:
    return bearer(unsecured_token("alice"))


GOOD_TOKENS: Mapping[str, Callable[[], bytes]] = {
    "token": good_token,
    "extensions": lambda: bearer(unsecured_token("alice"), logicalCluster="lkc-1"),
    "own authorization id": lambda: good_token().replace(b"n,,", b"n,a=alice,"),
}
INVALID_TOKENS: Mapping[str, Callable[[], bytes]] = {
    "expired": lambda: bearer(unsecured_token("alice", lifetime_s=5, issued_ago_s=10)),
    "issued in the future": lambda: bearer(unsecured_token("alice", issued_ago_s=-60)),
    "no token": lambda: bearer("abc"),
    "no subject": lambda: bearer(unsecured_token("")),
}
NO_MESSAGES: Mapping[str, Callable[[], bytes]] = {
    "garbage": lambda: b"hello",
    "control character": lambda: bearer(unsecured_token("alice"), a="b\x02"),
    "digit in a name": lambda: bearer(unsecured_token("alice"), a1="b"),
    "line break": lambda: bearer(unsecured_token("alice") + "\r\n."),
}


@pytest.mark.parametrize("case", GOOD_TOKENS)
async def test_valid_token_is_accepted(client: RawClient, case: str) -> None:
    await client.handshake("OAUTHBEARER")
    assert await client.authenticate(GOOD_TOKENS[case]()) == DONE
    assert await client.metadata()


@pytest.mark.parametrize("case", INVALID_TOKENS)
async def test_invalid_token_is_refused_after_an_acknowledgement(client: RawClient, case: str) -> None:
    await client.handshake("OAUTHBEARER")
    assert await client.authenticate(INVALID_TOKENS[case]()) == Authenticated(0, "", b'{"status":"invalid_token"}', 0)
    assert await client.authenticate(b"\x01") == refused('{"status":"invalid_token"}')
    assert await client.answer() is None


async def test_other_answer_to_the_refusal_of_a_token_is_refused(client: RawClient) -> None:
    await client.handshake("OAUTHBEARER")
    await client.authenticate(bearer("abc"))
    assert await client.authenticate(b"other") == invalid("OAUTHBEARER")


@pytest.mark.parametrize("case", NO_MESSAGES)
async def test_what_is_no_message_of_oauthbearer_is_refused(client: RawClient, case: str) -> None:
    await client.handshake("OAUTHBEARER")
    assert await client.authenticate(NO_MESSAGES[case]()) == invalid("OAUTHBEARER")


async def test_other_scheme_than_bearer_closes_the_connection(client: RawClient) -> None:
    await client.handshake("OAUTHBEARER")
    assert await client.authenticate(good_token().replace(b"Bearer", b"Basic")) is None


async def test_token_of_another_user_than_asked_for_is_refused(client: RawClient) -> None:
    await client.handshake("OAUTHBEARER")
    answer = await answered(client, good_token().replace(b"n,,", b"n,a=bob,"))
    assert answer.error == 58
    assert "(bob) that is different from the token's principal name (alice)" in str(answer.message)


async def test_session_is_no_longer_than_the_token(client: RawClient) -> None:
    await client.handshake("OAUTHBEARER")
    answer = await answered(client, bearer(unsecured_token("alice", lifetime_s=2)))
    assert answer.error == 0
    assert 0 < answer.lifetime_ms <= 2000


@pytest.mark.parametrize(
    "claims",
    [{}, {"audience": "other"}, {"issuer": "https://other.test"}, {"lifetime_s": 5, "issued_ago_s": 100}],
    ids=["good", "audience", "issuer", "expired"],
)
async def test_claims_of_a_signed_token_are_checked(connect: Connect, claims: Mapping[str, object]) -> None:
    client = await connect("SIGNED", unchecked())
    await client.handshake("OAUTHBEARER")
    answer = await client.authenticate(bearer(SHORT_SESSIONS.signer.token("alice", **claims)))  # type: ignore[arg-type]
    assert answer is not None
    assert answer.token == (b'{"status":"invalid_token"}' if claims else b"")


async def test_unsecured_token_is_invalid_where_signed_are_wanted(connect: Connect) -> None:
    client = await connect("SIGNED", unchecked())
    await client.handshake("OAUTHBEARER")
    answer = await answered(client, good_token())
    assert answer.token or answer.error == 58


# Re-authentication


async def test_requests_around_a_renewal_are_answered_in_order(logged_in: RawClient) -> None:
    for _ in range(5):
        logged_in.ask_metadata()
    logged_in.ask_handshake("PLAIN")
    logged_in.ask_authenticate(ALICE)
    for _ in range(5):
        logged_in.ask_metadata()

    before = [await logged_in.answer() for _ in range(5)]
    assert read_handshake(await logged_in.answer()) == STARTED
    assert read_authenticate(await logged_in.answer()) == DONE
    assert [await logged_in.answer() for _ in range(5)] == before
    assert None not in before


async def test_second_renewal_within_a_second_is_refused(logged_in: RawClient) -> None:
    assert await logged_in.handshake("PLAIN") == STARTED
    assert await logged_in.authenticate(ALICE) == DONE
    assert await logged_in.handshake("PLAIN") == Handshaken(34, ())
    assert await logged_in.authenticate(ALICE) == NOTHING_GOING_ON
    assert await logged_in.metadata()


async def test_token_without_a_handshake_is_refused(logged_in: RawClient) -> None:
    assert await logged_in.authenticate(ALICE) == NOTHING_GOING_ON
    assert await logged_in.metadata()


async def test_renewal_as_another_user_is_refused_then_the_end(logged_in: RawClient) -> None:
    await logged_in.handshake("PLAIN")
    logged_in.ask_authenticate(plain("bob", "bob-secret"))
    assert read_authenticate(await logged_in.answer()) == refused(OTHER_USER)
    assert await logged_in.answer() is None


async def test_requests_behind_another_users_token_are_answered_first(
    logged_in: RawClient,
) -> None:
    """So what was written behind such a token may have been appended, and its answer comes out of order."""
    await logged_in.handshake("PLAIN")
    logged_in.ask_authenticate(plain("bob", "bob-secret"))
    logged_in.ask_metadata()
    logged_in.ask_metadata()
    numbers = [await logged_in.numbered_answer() for _ in range(3)]
    first = numbers[2][0]
    assert [number for number, _ in numbers] == [first + 1, first + 2, first]
    assert read_authenticate(numbers[2][1]) == refused(OTHER_USER)
    assert await logged_in.answer() is None


async def test_renewal_with_another_mechanism_ends_at_the_token(logged_in: RawClient) -> None:
    assert await logged_in.handshake("SCRAM-SHA-256") == STARTED
    assert await logged_in.authenticate(ScramClient("SCRAM-SHA-256", "alice", "alice-secret").first) is None


async def test_renewal_with_a_mechanism_not_enabled_closes(logged_in: RawClient) -> None:
    assert await logged_in.handshake("GSSAPI") is None


async def test_renewal_with_a_wrong_password_is_refused_then_the_end(logged_in: RawClient) -> None:
    await logged_in.handshake("PLAIN")
    logged_in.ask_authenticate(plain("alice", "wrong"))
    logged_in.ask_metadata()
    wrong = refused("Authentication failed: Invalid username or password")
    assert read_authenticate(await logged_in.answer()) == wrong
    assert await logged_in.answer() is None


async def test_question_amid_a_renewal_is_answered_without_brokers(
    logged_in: RawClient,
) -> None:
    await logged_in.handshake("PLAIN")
    logged_in.ask_metadata()
    answer = await logged_in.answer()
    assert answer is not None
    assert struct.unpack_from(">i", answer) == (0,)
    assert await logged_in.answer() is None


@pytest.mark.slow
async def test_token_made_after_the_handshake_is_taken(client: RawClient) -> None:
    await client.handshake("OAUTHBEARER")
    await asyncio.sleep(1.1)  # so that its `iat` is later: claims are whole seconds
    done = await client.authenticate(bearer(unsecured_token("alice")))
    assert done is not None
    assert not done.token


@pytest.mark.slow
async def test_after_the_end_of_a_session_only_a_handshake_is_accepted(connect: Connect) -> None:
    clients = [await connect() for _ in range(4)]
    for client in clients:
        await client.handshake("OAUTHBEARER")
        done = await client.authenticate(bearer(unsecured_token("alice", lifetime_s=2)))  # claims are whole seconds
        assert done is not None
        assert not done.token
    await asyncio.sleep(2.1)  # the broker's own clock decides

    assert not await clients[0].metadata()
    assert await clients[1].versions() is None
    assert await clients[2].authenticate(ALICE) is None
    assert await clients[3].handshake("OAUTHBEARER") == STARTED
    assert await clients[3].authenticate(good_token()) == DONE
    assert await clients[3].metadata()


# TLS


def unchecked() -> ssl.SSLContext:
    """A context that accepts any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
async def test_plaintext_to_a_tls_listener_gets_an_alert_then_the_end(connect: Connect, listener: str) -> None:
    client = await connect(listener)
    client.ask_metadata()
    assert (await client.rest()).startswith(b"\x15\x03")


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_tls_to_a_listener_without_it_ends_without_a_byte(
    connect: Connect, listener: str, version: ssl.TLSVersion
) -> None:
    context = unchecked()
    context.maximum_version = version
    with pytest.raises((ConnectionError, ssl.SSLEOFError)):
        await connect(listener, context)


@pytest.mark.parametrize("version", VERSIONS)
async def test_tls_listener_serves_both_versions(connect: Connect, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cadata=SHORT_SESSIONS.authority.certificate)
    context.minimum_version = context.maximum_version = version
    client = await connect("SSL", context)
    assert client.tls_version == version.name.replace("_", ".")
    assert await client.versions() == 0
    assert await client.metadata()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("listener", ["MTLS", "SASL_MTLS"])
async def test_missing_client_certificate_is_an_alert_afterwards(
    connect: Connect, listener: str, version: ssl.TLSVersion
) -> None:
    context = unchecked()
    context.maximum_version = version
    if version is ssl.TLSVersion.TLSv1_2:
        with pytest.raises(ssl.SSLError, match="ALERT"):
            await connect(listener, context)
        return
    client = await connect(listener, context)
    with pytest.raises(ssl.SSLError, match="ALERT"):
        await client.first_byte()


async def test_client_certificate_opens_the_listener_that_asks_for_one(connect: Connect, tmp_path: Path) -> None:
    context = unchecked()
    load_client_certificate(context, tmp_path)
    client = await connect("MTLS", context)
    assert await client.metadata()


async def test_certificate_of_another_authority_is_refused(connect: Connect, tmp_path: Path) -> None:
    context = unchecked()
    load_client_certificate(context, tmp_path, is_foreign=True)
    with pytest.raises(ssl.SSLError, match="ALERT"):
        await (await connect("MTLS", context)).first_byte()


def load_client_certificate(context: ssl.SSLContext, folder: Path, *, is_foreign: bool = False) -> None:
    authority = CertificateAuthority("other") if is_foreign else SHORT_SESSIONS.authority
    path = folder / "client.pem"
    path.write_text(authority.issue(usage=("client",)).pem, "ascii")
    context.load_cert_chain(path)
