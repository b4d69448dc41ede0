"""The exchange of SASL: its messages and their order, refusals, and what may follow when a session is renewed."""

import base64
import datetime as dt
import struct
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from aioproducer._protocol.api_versions import ApiVersions
from aioproducer._protocol.sasl_exchange import (
    Bearer,
    BearerWanted,
    Exchange,
    NextResponse,
    PasswordWanted,
    RefusedError,
    SaltedPasswordWanted,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
    Send,
    Session,
    Step,
    decode_sasl_authenticate_response,
    decode_sasl_handshake_response,
    encode_sasl_authenticate_request,
    encode_sasl_handshake_request,
    exchange,
)
from aioproducer._protocol.sasl_mechanisms import OAuthBearer, Plain, Scram
from aioproducer._protocol.sent_secrets import SentSecrets
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
from tests.testing.kio_classes import module_of, read, written

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


def asked() -> Exchange:
    run = started()
    run.send(hello(0, "PLAIN"))
    run.send(PASSWORD)
    return run


@pytest.mark.parametrize(
    "start, payload, kind, words",
    [
        (started, hello(34), WrongListenerError, "wants no authentication"),
        (
            started,
            hello(33, "SCRAM-SHA-512", "\x1b[31mGSSAPI"),
            UnsupportedMechanismError,
            "it offers SCRAM-SHA-512, \\x1b[31mGSSAPI",
        ),
        (started, hello(33), UnsupportedMechanismError, "nor any other"),
        (started, hello(999), AuthenticationError, "a code newer than this client (999)"),
        (
            asked,
            answer(58, "Invalid username or password"),
            CredentialsError,
            "'alice' ('Invalid username or password')",
        ),
        (asked, answer(58, "\x1b[31mforged\nline"), CredentialsError, "sasl_password"),
        (asked, answer(58), CredentialsError, "refused user 'alice': check"),
        (asked, answer(34, "why"), AuthenticationError, "ILLEGAL_SASL_STATE"),
    ],
)
def test_refusal_is_explained(
    start: Callable[[], Exchange], payload: bytes, *, kind: type[AuthenticationError], words: str
) -> None:
    error = refusal_of(start(), payload)

    assert isinstance(error, kind)
    assert words in str(error)
    assert "\x1b" not in str(error)


def said_back(message: bytes, secret: str) -> list[str]:
    """Return what a broker may say of what it was sent."""
    return [
        secret,
        secret[:-2],
        base64.b64encode(message).decode(),
        base64.b64encode(secret.encode()).decode(),
        message.replace(b"\0", b" ").decode("latin-1"),
    ]


def sent_in(step: Step, version: int = 2) -> bytes:
    """Return the token of the last request."""
    assert isinstance(step, Send)
    body = step.requests[-1].body
    length = 1 if body[0] < 128 else 2
    return body[length:-1] if version == 2 else body[4:]


@pytest.mark.parametrize("form", range(5))
def test_password_that_a_broker_says_back_is_hidden(form: int) -> None:
    run = started()
    run.send(hello(0))
    said = said_back(sent_in(run.send(PASSWORD)), PASSWORD)[form]
    error = refusal_of(run, answer(58, f"no [{said}]"))

    assert "refused user 'alice' ('no [" in str(error)
    assert PASSWORD[:-2] not in str(error)
    assert said not in str(error)
    assert "<hidden>" in str(error)


@pytest.mark.parametrize("form", range(4))
def test_token_that_a_broker_says_back_is_hidden(form: int) -> None:
    token = "e30.canary-token-7f3a.sig"
    run = exchange(OAuthBearer(), VERSIONS)
    next(run)
    run.send(hello(0))
    message = sent_in(run.send(Bearer(token, {}, 0.0)))
    said = said_back(message, token)[form]
    run.send(answer(0, None, f"no [{said}]".encode()))
    error = refusal_of(run, answer(58, "{}"))
    assert "refused the token ('{}')" in str(error)

    again = exchange(OAuthBearer(), VERSIONS, repeats=True, is_patient=False)
    next(again)
    again.send(Bearer(token, {}, 0.0))
    again.send(hello(0))
    shown = str(refusal_of(again, answer(58, f"no [{said}]")))
    assert said not in shown
    assert "('no [<hidden>]')" in shown


def test_password_of_scram_is_hidden_in_what_a_broker_says() -> None:
    run = exchange(Scram("SCRAM-SHA-256", "alice", nonce="n"), VERSIONS)
    next(run)
    assert isinstance(run.send(hello(0)), PasswordWanted)
    run.send(PASSWORD)
    wanted = run.send(answer(0, None, b"r=nx,s=c2FsdA==,i=4096"))
    assert isinstance(wanted, SaltedPasswordWanted)
    proof = sent_in(run.send(b"salted")).partition(b"p=")[2].decode()
    with pytest.raises(CredentialsError, match=r"refused user 'alice' \(\"no <hidden> or <hidden>\"\)"):
        run.send(answer(0, None, f"e=no {PASSWORD} or {proof}".encode()))


def test_mechanisms_hide_what_was_sent_before() -> None:
    sent = SentSecrets()
    sent.add(PASSWORD)
    run = exchange(Plain("alice", sent=sent), VERSIONS)
    next(run)

    assert "it offers x-<hidden>:" in str(refusal_of(run, hello(33, f"x-{PASSWORD}")))


def test_list_of_mechanisms_is_cut() -> None:
    assert len(str(refusal_of(started(), hello(33, *("x" * 300 for _ in range(200)))))) < 1000


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


def test_handshake_request_names_the_mechanism() -> None:
    kind = module_of("sasl_handshake", 1, "request").SaslHandshakeRequest

    assert read(kind, encode_sasl_handshake_request("SCRAM-SHA-512")).mechanism == "SCRAM-SHA-512"


def test_handshake_response_lists_mechanisms() -> None:
    kind = module_of("sasl_handshake", 1, "response").SaslHandshakeResponse
    data = written(kind(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=("PLAIN", "GSSAPI")))

    assert decode_sasl_handshake_response(data) == SaslHandshakeResponse(33, ("PLAIN", "GSSAPI"))


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("token", [b"", b"\x00u\x00p", b"x" * 300_000])
def test_authenticate_request_has_the_token(version: int, token: bytes) -> None:
    kind = module_of("sasl_authenticate", version, "request").SaslAuthenticateRequest

    assert read(kind, encode_sasl_authenticate_request(version, token)).auth_bytes == token


@pytest.mark.parametrize("version", [0, 1, 2])
def test_authenticate_response_has_token_words_and_lifetime(version: int) -> None:
    kind = module_of("sasl_authenticate", version, "response").SaslAuthenticateResponse
    lifetime = {"session_lifetime": dt.timedelta(seconds=60)} if version else {}
    data = written(
        kind(error_code=ErrorCode.sasl_authentication_failed, error_message="no", auth_bytes=b"token", **lifetime)
    )

    wanted = SaslAuthenticateResponse(58, "no", b"token", 60_000 if version else 0)
    assert decode_sasl_authenticate_response(version, data) == wanted


@given(st.integers(0, 2), st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_an_error(version: int, payload: bytes) -> None:
    for decode in (partial(decode_sasl_authenticate_response, version), decode_sasl_handshake_response):
        try:
            decode(payload)
        except ProtocolError:
            continue
