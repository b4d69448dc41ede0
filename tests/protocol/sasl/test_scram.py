"""SCRAM: the vector of RFC 7677, Kafka's ways, and servers that do not play by the rules."""

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._protocol.sasl.scram import HASHES, Scram
from aioproducer._protocol.sasl.steps import Message, PasswordWanted, SaltedPasswordWanted
from aioproducer.errors import AuthenticationError, CredentialsError
from tests.reference.scram_server import SALT, SERVER_NONCE, ScramServer

NONCE = "rOprNGfwEbeRWgbNEkqO"


def converse(scram: Scram, password: str, *answers_of: Callable[[bytes], bytes]) -> list[Message]:
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
        converse(Scram("SCRAM-SHA-256", "user", nonce=NONCE), "pencil", first, last)
    return caught.value


def test_scram_sends_the_bytes_of_rfc_7677() -> None:
    server = ScramServer("SCRAM-SHA-256", "pencil")
    first, last = converse(Scram("SCRAM-SHA-256", "user", nonce=NONCE), "pencil", server.challenge, server.verdict)

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

    assert len(converse(Scram(name, "user", nonce=NONCE), password, server.challenge, server.verdict)) == 2


def test_scram_takes_a_password_as_it_is() -> None:
    ligature, prepared = "\ufb03", "ffi"  # SASLprep would make the second of the first, which Kafka does not do
    server = ScramServer("SCRAM-SHA-512", ligature)
    scram = Scram("SCRAM-SHA-512", "user", nonce=NONCE)

    assert len(converse(scram, ligature, server.challenge, server.verdict)) == 2
    with pytest.raises(AssertionError, match="a wrong password"):
        converse(Scram("SCRAM-SHA-512", "user", nonce=NONCE), prepared, server.challenge, server.verdict)


def test_scram_escapes_the_user_name() -> None:
    conversation = Scram("SCRAM-SHA-256", "a=b,c", nonce=NONCE).converse()
    next(conversation)
    first = conversation.send("pencil")

    assert isinstance(first, Message)
    assert first.token == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


def test_scram_says_when_it_uses_a_delegation_token() -> None:
    conversation = Scram("SCRAM-SHA-256", "id", nonce=NONCE, is_token=True).converse()
    next(conversation)
    first = conversation.send("hmac")

    assert isinstance(first, Message)
    assert first.token.endswith(b",tokenauth=true")


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

    assert len(converse(Scram("SCRAM-SHA-256", "user", nonce=NONCE), "pencil", challenge, server.verdict)) == 2


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
