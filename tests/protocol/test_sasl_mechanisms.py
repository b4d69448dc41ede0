"""SCRAM, OAUTHBEARER and GSSAPI: vectors of their standards, Kafka's ways, and servers that break the rules."""

import base64
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._protocol.sasl_exchange import (
    Bearer,
    BearerWanted,
    Message,
    PasswordWanted,
    SaltedPasswordWanted,
    TicketWanted,
    Work,
)
from aioproducer._protocol.sasl_mechanisms import (
    HASHES,
    LONGEST_TOKEN,
    Gssapi,
    OAuthBearer,
    Scram,
    check_extensions,
    check_token,
    describe_claims,
)
from aioproducer.errors import AuthenticationError, CredentialsError, TicketError, TokenError
from tests.reference.scram_server import SALT, SERVER_NONCE, ScramServer

NONCE = "rOprNGfwEbeRWgbNEkqO"


def scram_messages(scram: Scram, password: str, *answers_of: Callable[[bytes], bytes]) -> list[Message]:
    """Run a conversation to its end and return the client's messages."""
    conversation = scram.converse()
    answers = iter(answers_of)
    messages: list[Message] = []
    step = next(conversation)
    try:
        while True:
            if isinstance(step, PasswordWanted):
                step = conversation.send(password)
            elif isinstance(step, SaltedPasswordWanted):
                salted = step.compute(step.hash_name, step.password.encode(), step.salt, step.iterations)
                step = conversation.send(salted)
            else:
                assert isinstance(step, Message)
                messages.append(step)
                step = conversation.send(next(answers)(step.token))
    except StopIteration:
        return messages


def error_of(challenge: bytes | None = None, verdict: bytes | None = None) -> AuthenticationError:
    server = ScramServer("SCRAM-SHA-256", "pencil")

    def first(token: bytes) -> bytes:
        right = server.challenge(token)
        return right if challenge is None else challenge

    def last(token: bytes) -> bytes:
        right = server.verdict(token)
        return right if verdict is None else verdict

    with pytest.raises(AuthenticationError) as caught:
        scram_messages(Scram("SCRAM-SHA-256", "user", nonce=NONCE), "pencil", first, last)
    return caught.value


def test_scram_sends_the_bytes_of_rfc_7677() -> None:
    server = ScramServer("SCRAM-SHA-256", "pencil")
    first, last = scram_messages(
        Scram("SCRAM-SHA-256", "user", nonce=NONCE), "pencil", server.challenge, server.verdict
    )

    assert first.token == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert last.token == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert (first.is_last, last.is_last) == (False, True)
    assert server.verdict(last.token) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("name", sorted(HASHES))
@given(password=st.text(min_size=1))
def test_scram_agrees_with_a_server_for_any_password(name: str, password: str) -> None:
    try:
        password.encode()
    except UnicodeEncodeError:
        return
    server = ScramServer(name, password)

    assert len(scram_messages(Scram(name, "user", nonce=NONCE), password, server.challenge, server.verdict)) == 2


def test_scram_takes_a_password_as_it_is() -> None:
    ligature, prepared = "\ufb03", "ffi"  # SASLprep would make the second of the first, which Kafka does not do
    server = ScramServer("SCRAM-SHA-512", ligature)
    scram = Scram("SCRAM-SHA-512", "user", nonce=NONCE)

    assert len(scram_messages(scram, ligature, server.challenge, server.verdict)) == 2
    with pytest.raises(AssertionError, match="a wrong password"):
        scram_messages(Scram("SCRAM-SHA-512", "user", nonce=NONCE), prepared, server.challenge, server.verdict)


@pytest.mark.parametrize(
    "user, is_token, token",
    [
        ("a=b,c", False, b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"),
        ("id", True, b"n,,n=id,r=rOprNGfwEbeRWgbNEkqO,tokenauth=true"),
    ],
    ids=["escaped", "delegation token"],
)
def test_scram_names_the_user_or_its_delegation_token(user: str, *, is_token: bool, token: bytes) -> None:
    conversation = Scram("SCRAM-SHA-256", user, nonce=NONCE, is_token=is_token).converse()
    next(conversation)

    assert conversation.send("pencil") == Message(token)


def test_refused_delegation_token_is_named_as_one() -> None:
    scram = Scram("SCRAM-SHA-256", "token-id", nonce="abc", is_token=True)

    assert "delegation token 'token-id'" in str(scram.refusal(""))
    assert isinstance(scram.refusal(""), CredentialsError)


def test_scram_accepts_unknown_attributes_behind_the_known_ones() -> None:
    server = ScramServer("SCRAM-SHA-256", "pencil")

    def challenge(token: bytes) -> bytes:
        right = server.challenge(token) + b",x=1"
        server.first = right.decode()
        return right

    assert len(scram_messages(Scram("SCRAM-SHA-256", "user", nonce=NONCE), "pencil", challenge, server.verdict)) == 2


SALT_TEXT = base64.b64encode(SALT).decode()
R = f"r={NONCE}{SERVER_NONCE}"


@pytest.mark.parametrize(
    "challenge, reason",
    [
        (f"r={NONCE},s={SALT_TEXT},i=4096", "nonce"),
        (f"r=x{NONCE}y,s={SALT_TEXT},i=4096", "nonce"),
        (f"s={SALT_TEXT},i=4096", "nonce"),
        (f"r={NONCE}\x00,s={SALT_TEXT},i=4096", "nonce"),
        (f"r={NONCE}{'x' * 2000},s={SALT_TEXT},i=4096", "nonce"),
        (f"{R},s={SALT_TEXT},i=1", "asks for 1 iterations"),
        (f"{R},s={SALT_TEXT},i=4095", "4095"),
        (f"{R},s={SALT_TEXT},i=1000001", "1000001"),
        (f"{R},s={SALT_TEXT},i=1000000000000", "iterations"),
        (f"{R},s={SALT_TEXT},i=-4096", "iterations"),
        (f"{R},s={SALT_TEXT},i=4096.5", "iterations"),
        (f"{R},s={SALT_TEXT},i=", "no iterations"),
        (f"{R},s={SALT_TEXT}", "no iterations"),
        (f"{R},s={SALT_TEXT},i=\u0664\u0660\u0669\u0666", "iterations"),
        (f"{R},s=,i=4096", "salt of 0 bytes"),
        (f"{R},i=4096", "salt of 0 bytes"),
        (f"{R},s={'A' * 1_398_104},i=4096", "salt of 1048578 bytes"),
        (f"{R},s=!!!,i=4096", "base64"),
        (f"{R},{R},s={SALT_TEXT},i=4096", "twice"),
        (f"{R},s={SALT_TEXT},i=4096,i=5000", "twice"),
        (f"m=ext,{R},s={SALT_TEXT},i=4096", "extension"),
        ("", "not a list"),
        ("hello", "not a list"),
        (",,,", "not a list"),
    ],
)
def test_scram_refuses_an_invalid_first_message(challenge: str, reason: str) -> None:
    assert reason in str(error_of(challenge.encode()))


def test_scram_refuses_a_first_message_that_is_not_text() -> None:
    assert "not UTF-8" in str(error_of(b"\xff\xfe"))


@pytest.mark.parametrize(
    "verdict", [b"v=AAAA", b"v=", b"x=1", b"v=" + base64.b64encode(bytes(32)), b"", b"v=!", b"\xff", b"v=AAAA,v=AAAA"]
)
def test_scram_requires_the_signature_of_the_server(verdict: bytes) -> None:
    assert isinstance(error_of(verdict=verdict), AuthenticationError)


def test_scram_reports_a_server_error_as_refused_credentials() -> None:
    error = error_of(verdict=b"e=other-error\x1b[31m")

    assert isinstance(error, CredentialsError)
    assert "other-error\\x1b[31m" in str(error)


@given(st.binary(max_size=200))
def test_scram_survives_any_bytes(challenge: bytes) -> None:
    assert "pencil" not in str(error_of(challenge))


def jwt(claims: dict[str, object]) -> str:
    parts = ({"alg": "none"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join((*encoded, "c2lnbmF0dXJl"))


def test_token_is_sent_with_its_extensions() -> None:
    conversation = OAuthBearer().converse()
    assert isinstance(next(conversation), BearerWanted)
    message = conversation.send(Bearer("abc", {"logicalCluster": "lkc-1", "pool": "p"}, 0.0))

    assert message == Message(b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01pool=p\x01\x01", is_last=True)
    with pytest.raises(StopIteration):
        conversation.send(b"")


def test_refusal_is_answered_with_a_single_separator() -> None:
    conversation = OAuthBearer().converse()
    next(conversation)
    conversation.send(Bearer("canary", {}, 0.0))
    message = conversation.send(b'{"status":"invalid_token"}')

    assert message == Message(b"\x01", is_last=True)
    with pytest.raises(TokenError, match="invalid_token") as caught:
        conversation.send(b"")
    assert "canary" not in str(caught.value)


def test_claims_are_told_without_the_token() -> None:
    token = jwt({"exp": 1_000.0, "aud": ["kafka"], "iss": "https://idp", "sub": "alice", "email": "private"})
    text = describe_claims(token, 2_000.0)

    assert text == ('it says exp=1970-01-01T00:16:40+00:00 (expired), aud=["kafka"], iss="https://idp", sub="alice"')


@pytest.mark.parametrize("token", ["opaque", "a.b", "a.b.c", "a.!!!.c", jwt({}).replace(".", ""), "..", "a.W10.c"])
def test_opaque_token_is_called_that(token: str) -> None:
    assert "not a JSON web token" in describe_claims(token, 0.0)


@pytest.mark.parametrize("exp", [True, "soon", -1, 1e300, None, float("nan")])
def test_strange_expiry_is_left_out(exp: object) -> None:
    assert "exp=" not in describe_claims(jwt({"exp": exp, "sub": "alice"}), 0.0)


def test_long_or_unprintable_claim_is_cut_and_escaped() -> None:
    text = describe_claims(jwt({"sub": "\x1b[31m" + "x" * 1000}), 0.0)

    assert "\x1b" not in text
    assert len(text) < 300


@given(st.text())
def test_claims_of_any_text_are_described(token: str) -> None:
    assert describe_claims(token, 0.0)


@pytest.mark.parametrize("token", ["a", "a.b-c_d~e+f/g", "abc=="])
def test_token_characters_of_rfc_6750_are_accepted(token: str) -> None:
    check_token(token)


@pytest.mark.parametrize(
    "token", ["", "a b", "a\n", "a\r\nb", "a\x01b", "\u00e9", "=", "a=b", "x" * (LONGEST_TOKEN + 1), "a\x00"]
)
def test_token_with_other_characters_is_refused(token: str) -> None:
    with pytest.raises(TokenError):
        check_token(token)


@pytest.mark.parametrize(
    "extensions",
    [{"auth": "x"}, {"Auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "x\x01"}, {"a": "\u00e9"}, {"a": "x\n"}],
)
def test_invalid_extension_is_refused(extensions: dict[str, str]) -> None:
    with pytest.raises(TokenError):
        check_extensions(extensions)


def test_token_is_in_no_repr() -> None:
    assert "canary" not in repr(Bearer("canary", {}, 0.0))
    assert "canary" not in repr(Message(b"canary"))


def test_valid_extensions_are_accepted() -> None:
    check_extensions({})
    check_extensions({"logicalCluster": "lkc-1", "identityPoolId": "pool 1"})


class FakeContext:
    """A context whose tokens are texts; established after some answers."""

    def __init__(self, answers: int = 1) -> None:
        self.is_established = answers == 0
        self.seen: list[bytes] = []
        self._answers = answers

    def first_token(self) -> bytes:
        return b"ticket"

    def next_token(self, answer: bytes) -> bytes:
        self.seen.append(answer)
        self._answers -= 1
        self.is_established = self._answers == 0
        return b"" if self.is_established else b"more"

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped " + message

    def unwrap(self, message: bytes) -> bytes:
        return message.removeprefix(b"wrapped ")


def gssapi_messages(context: FakeContext, answer: Callable[[int], bytes]) -> list[Message]:
    """Run a conversation to its end and return the client's messages."""
    opened: list[object] = []

    def open_context(ticket: object) -> FakeContext:
        opened.append(ticket)
        return context

    conversation = Gssapi(open_context, user="alice@R", service="kafka/host").converse()
    assert isinstance(next(conversation), TicketWanted)
    step = conversation.send("a ticket")
    assert opened == ["a ticket"]
    assert isinstance(step, Work)
    messages: list[Message] = []
    result: object = step.run()
    try:
        while True:
            message = conversation.send(result)
            assert isinstance(message, Message)
            messages.append(message)
            result = answer(len(messages))
    except StopIteration:
        return messages


def broker(offer: bytes = b"\x01\0\0\0") -> Callable[[int], bytes]:
    return lambda number: {1: b"proof", 2: b"wrapped " + offer}.get(number, b"")


def test_three_tokens_prove_both_sides_and_choose_no_layer() -> None:
    context = FakeContext()
    messages = gssapi_messages(context, broker())

    assert [message.token for message in messages] == [b"ticket", b"", b"wrapped \x01\0\0\0"]
    assert [message.is_last for message in messages] == [False, False, True]
    assert context.seen == [b"proof"]


def test_no_layer_is_chosen_among_those_that_are_offered() -> None:
    messages = gssapi_messages(FakeContext(), broker(b"\x07\x00\xff\xff"))

    assert messages[-1].token == b"wrapped \x01\0\0\0"  # no layer, no longest message, no other user


def test_context_established_at_once_needs_no_empty_token() -> None:
    messages = gssapi_messages(FakeContext(answers=0), lambda _: b"wrapped \x01\0\0\0")

    assert [message.token for message in messages] == [b"ticket", b"wrapped \x01\0\0\0"]


@pytest.mark.parametrize(
    "offer, words",
    [
        (b"\x06\0\0\0", "demands a security layer"),
        (b"\0\0\0\0", "demands a security layer"),
        (b"", "has 0 bytes"),
        (b"\x01\0\0\0alice", "has 9 bytes"),
    ],
)
def test_offer_that_cannot_be_taken_is_refused(offer: bytes, words: str) -> None:
    with pytest.raises(AuthenticationError, match=words):
        gssapi_messages(FakeContext(), broker(offer))


def test_broker_that_never_ends_is_left() -> None:
    context = FakeContext(answers=100)
    with pytest.raises(AuthenticationError, match="comes to no end"):
        gssapi_messages(context, lambda _: b"again")

    assert len(context.seen) == 5


def test_refusal_names_both_principals_and_what_to_look_at() -> None:
    error = Gssapi(lambda _: FakeContext(), user="alice@R", service="kafka/host").refusal(" ('no')")

    assert isinstance(error, TicketError)
    assert "refused the ticket of alice@R for kafka/host ('no'): the key in the broker's keytab" in str(error)
