"""The exchange: order of the requests, refusals, and what may follow when a session is renewed."""

import struct
from collections.abc import Callable

import pytest

from aioproducer._protocol.api_versions import ApiVersions
from aioproducer._protocol.sasl.exchange import Exchange, RefusedError, Session, exchange
from aioproducer._protocol.sasl.oauthbearer import OAuthBearer
from aioproducer._protocol.sasl.plain import Plain
from aioproducer._protocol.sasl.steps import Bearer, BearerWanted, NextResponse, PasswordWanted, Send, Step
from aioproducer.errors import (
    AuthenticationError,
    CredentialsError,
    PrincipalChangedError,
    ProtocolError,
    TokenError,
    UnsupportedMechanismError,
    UnsupportedVersionError,
    WrongListenerError,
)

VERSIONS = ApiVersions({17: (0, 1), 36: (0, 2)})
PASSWORD = "canary-password"


def hello(code: int = 0, *mechanisms: str) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in mechanisms)
    return struct.pack(">hi", code, len(mechanisms)) + names


def answer(code: int = 0, message: str | None = None, token: bytes = b"", *, lifetime_ms: int = 0) -> bytes:
    text = b"\x00" if message is None else bytes((len(message) + 1,)) + message.encode()
    return struct.pack(">h", code) + text + bytes((len(token) + 1,)) + token + struct.pack(">q", lifetime_ms) + b"\x00"


def kinds(step: Step) -> list[int]:
    assert isinstance(step, Send)
    return [request.api.key for request in step.requests]


def renewal(*, is_patient: bool) -> Exchange:
    return exchange(Plain("alice"), VERSIONS, repeats=True, is_patient=is_patient)


def result_of(run: Exchange, payload: bytes) -> Session | None:
    with pytest.raises(StopIteration) as finished:
        run.send(payload)
    value = finished.value.value
    assert value is None or isinstance(value, Session)
    return value


def refusal_of(run: Exchange, payload: bytes) -> AuthenticationError:
    with pytest.raises(RefusedError) as caught:
        run.send(payload)
    assert PASSWORD not in str(caught.value.error)
    return caught.value.error


def test_first_authentication_awaits_each_answer() -> None:
    run = exchange(Plain("alice"), VERSIONS)

    assert kinds(next(run)) == [17]
    assert isinstance(run.send(hello(0, "PLAIN")), PasswordWanted)
    last = run.send(PASSWORD)
    assert kinds(last) == [36]
    assert isinstance(last, Send)
    assert last.is_last
    assert result_of(run, answer(lifetime_ms=60_000)) == Session(60_000)


def test_renewal_is_one_write_when_the_password_is_known() -> None:
    run = renewal(is_patient=False)

    assert isinstance(next(run), PasswordWanted)
    step = run.send(PASSWORD)
    assert kinds(step) == [17, 36]
    assert isinstance(step, Send)
    assert step.is_last
    assert isinstance(run.send(hello(0, "PLAIN")), NextResponse)
    assert result_of(run, answer(lifetime_ms=5)) == Session(5)


def test_patient_renewal_gets_the_password_before_the_handshake() -> None:
    run = renewal(is_patient=True)

    assert isinstance(next(run), PasswordWanted)
    step = run.send(PASSWORD)
    assert kinds(step) == [17]
    assert isinstance(step, Send)
    assert not step.is_last
    assert kinds(run.send(hello(0, "PLAIN"))) == [36]


@pytest.mark.parametrize("is_patient", [True, False])
def test_renewal_that_comes_too_soon_changes_nothing(is_patient: bool) -> None:  # noqa: FBT001
    run = renewal(is_patient=is_patient)
    next(run)
    run.send(PASSWORD)
    if not is_patient:
        assert isinstance(run.send(hello(34)), NextResponse)

    assert result_of(run, hello(34) if is_patient else answer(34)) is None


def started() -> Exchange:
    run = exchange(Plain("alice"), VERSIONS)
    next(run)
    return run


def test_listener_without_sasl_is_named() -> None:
    assert isinstance(refusal_of(started(), hello(34)), WrongListenerError)


def test_mechanisms_that_are_offered_are_listed() -> None:
    error = refusal_of(started(), hello(33, "SCRAM-SHA-512", "\x1b[31mGSSAPI"))

    assert isinstance(error, UnsupportedMechanismError)
    assert "it offers SCRAM-SHA-512, \\x1b[31mGSSAPI" in str(error)


def test_list_of_mechanisms_is_cut() -> None:
    assert len(str(refusal_of(started(), hello(33, *("x" * 300 for _ in range(200)))))) < 1000


def test_no_offered_mechanism_differs_from_other_mechanisms() -> None:
    assert "nor any other" in str(refusal_of(started(), hello(33)))


def test_handshake_refused_with_another_code_names_it() -> None:
    assert "a code newer than this client (999)" in str(refusal_of(started(), hello(999)))


def asked() -> Exchange:
    run = started()
    run.send(hello(0, "PLAIN"))
    run.send(PASSWORD)
    return run


def test_refused_password_names_user_and_options() -> None:
    error = refusal_of(asked(), answer(58, "Invalid username or password"))

    assert isinstance(error, CredentialsError)
    assert "user 'alice' ('Invalid username or password')" in str(error)
    assert "sasl_password" in str(error)


def test_words_of_the_broker_are_escaped() -> None:
    assert "\x1b" not in str(refusal_of(asked(), answer(58, "\x1b[31mforged\nline")))


def test_refusal_without_words_is_a_sentence() -> None:
    assert "refused user 'alice': check" in str(refusal_of(asked(), answer(58)))


def test_token_refused_with_another_code_names_it() -> None:
    assert "ILLEGAL_SASL_STATE" in str(refusal_of(asked(), answer(34, "why")))


def test_changed_principal_at_renewal_is_no_refused_credential() -> None:
    words = "Cannot change principals during re-authentication from User.alice: User.bob"
    run = renewal(is_patient=False)
    next(run)
    run.send(PASSWORD)
    run.send(hello(0, "PLAIN"))

    assert isinstance(refusal_of(run, answer(58, words)), PrincipalChangedError)
    assert isinstance(refusal_of(asked(), answer(58, words)), CredentialsError)


def test_token_refused_in_a_renewal_is_a_refusal_at_once() -> None:
    # Other requests were sent behind it: the broker closes the connection on the first of them.
    run = exchange(OAuthBearer(), VERSIONS, repeats=True, is_patient=False)
    assert isinstance(next(run), BearerWanted)
    run.send(Bearer("abc", {}, 0.0))
    run.send(hello(0, "OAUTHBEARER"))

    assert isinstance(refusal_of(run, answer(0, None, b'{"status":"invalid_token"}')), TokenError)


def test_token_refused_at_first_is_acknowledged_before_the_error() -> None:
    run = exchange(OAuthBearer(), VERSIONS)
    next(run)
    run.send(hello(0, "OAUTHBEARER"))
    run.send(Bearer("abc", {}, 0.0))
    step = run.send(answer(0, None, b'{"status":"invalid_token"}'))

    assert kinds(step) == [36]
    assert isinstance(refusal_of(run, answer(58, '{"status":"invalid_token"}')), TokenError)


def test_password_with_nul_is_refused() -> None:
    run = started()
    run.send(hello(0, "PLAIN"))
    with pytest.raises(CredentialsError, match="NUL"):
        run.send("a\0b")


@pytest.mark.parametrize("versions", [{36: (0, 2)}, {17: (0, 0), 36: (0, 2)}, {17: (0, 1)}])
def test_broker_without_the_requests_is_too_old(versions: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(UnsupportedVersionError):
        next(exchange(Plain("alice"), ApiVersions(versions)))


@pytest.mark.parametrize("start", [started, asked])
@pytest.mark.parametrize("payload", [b"", b"\x00", b"\xff" * 40, hello(0, "PLAIN") + b"x", b"\x00\x00\x7f\xff\xff\xff"])
def test_unreadable_answer_is_an_error_of_the_protocol(start: Callable[[], Exchange], payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        start().send(payload)
