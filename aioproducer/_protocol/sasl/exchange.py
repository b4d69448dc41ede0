"""The authentication of a connection, as a generator without I/O; also repeated on an open connection (KIP-368).

    first        SaslHandshake ──► mechanism enabled ──► SaslAuthenticate ──► ... ──► last token accepted ──► session
    repeated     first token made ──► SaslHandshake and the first SaslAuthenticate in one write ──► ... as above

Between SaslHandshake and the last token a broker closes the connection on any other request. What must be asked for is
therefore asked before SaslHandshake when other requests are waiting, and the handshake is not awaited: the broker has
accepted the mechanism on this connection before.

Source: SaslClientAuthenticator and SaslServerAuthenticator in Apache Kafka; KIP-43, KIP-152, KIP-255, KIP-368.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple, TypeAlias

from aioproducer._protocol.api_versions import ApiVersions
from aioproducer._protocol.cluster_text import printable, printable_message
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import HandshakeRequest
from aioproducer._protocol.sasl.messages import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateResponse,
    decode_sasl_authenticate_response,
    decode_sasl_handshake_response,
    encode_sasl_authenticate_request,
    encode_sasl_handshake_request,
)
from aioproducer._protocol.sasl.steps import (
    Conversation,
    Mechanism,
    Message,
    NextResponse,
    Send,
    Step,
)
from aioproducer.errors import (
    AuthenticationError,
    PrincipalChangedError,
    UnsupportedMechanismError,
    WrongListenerError,
)

_MOST_MECHANISMS: Final = 10  # shown in an error


class Session(NamedTuple):
    """The session that the broker granted."""

    lifetime_ms: int = 0  # from the broker's last answer; 0 or less if the session has no end


class RefusedError(Exception):
    """The broker refused; it processes nothing that was sent behind the refused request."""

    def __init__(self, error: AuthenticationError) -> None:
        super().__init__(str(error))
        self.error = error


Exchange: TypeAlias = Generator[Step, object, Session | None]


def exchange(
    mechanism: Mechanism, versions: ApiVersions, *, repeats: bool = False, is_patient: bool = True
) -> Exchange:
    """Authenticate.

    Args:
        mechanism: a new one.
        versions: of the broker.
        repeats: whether the connection is authenticated already.
        is_patient: whether each answer is awaited before the next request; False needs `repeats`.

    Yields:
        Steps, whose results are sent in.

    Returns:
        The session; None if the broker wants no other yet, and the current one goes on.

    Raises:
        RefusedError: the broker refuses.
        AuthenticationError: credentials cannot be had or used, or the broker's answers do not prove what they must.
    """
    run = _Run(mechanism, versions)
    message = (yield from run.first()) if repeats else None
    ahead = () if is_patient or message is None else (run.request(message),)
    payload = yield Send((run.hello(), *ahead), is_last=bool(ahead) and message is not None and message.is_last)
    is_too_soon = run.check_hello(_bytes_of(payload), repeats=repeats)
    if is_too_soon and not ahead:
        return None
    if ahead:
        payload = yield NextResponse()
        if is_too_soon:
            return None
    else:
        message = message or (yield from run.first())
        payload = yield Send((run.request(message),), is_last=message.is_last)
    while True:
        assert message is not None
        answer = run.checked(_bytes_of(payload), repeats=repeats)
        following = yield from run.next(answer.token)
        if following is None:
            return Session(answer.lifetime_ms)
        if message.is_last and not is_patient:
            # The mechanism has found a refusal, and other requests were sent meanwhile, on which the broker closes.
            raise RefusedError(mechanism.refusal(""))
        message = following
        payload = yield Send((run.request(message),), is_last=message.is_last)


class _Run:
    """The requests and answers of one exchange."""

    def __init__(self, mechanism: Mechanism, versions: ApiVersions) -> None:
        versions.highest_common(SASL_HANDSHAKE)
        self._version = versions.highest_common(SASL_AUTHENTICATE)
        self._mechanism = mechanism
        self._conversation: Conversation = mechanism.converse()

    def hello(self) -> HandshakeRequest:
        body = encode_sasl_handshake_request(self._mechanism.name)
        return HandshakeRequest(SASL_HANDSHAKE, SASL_HANDSHAKE.max_version, body)

    def request(self, message: Message) -> HandshakeRequest:
        body = encode_sasl_authenticate_request(self._version, message.token)
        return HandshakeRequest(SASL_AUTHENTICATE, self._version, body)

    def first(self) -> Generator[Step, object, Message]:
        message = yield from self.next(None)
        assert message is not None
        return message

    def next(self, result: object) -> Generator[Step, object, Message | None]:
        """Return the mechanism's next token; None at its end."""
        try:
            step = self._conversation.send(result)
            while not isinstance(step, Message):
                result = yield step
                step = self._conversation.send(result)
        except StopIteration:
            return None
        return step

    def check_hello(self, payload: bytes, *, repeats: bool) -> bool:
        """Return whether the broker wants no other session yet."""
        answer = decode_sasl_handshake_response(payload)
        code = answer.error_code
        if code == ErrorCode.NONE:
            return False
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            if repeats:
                return True  # within a second of the previous authentication
            raise RefusedError(_no_sasl_here())
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise RefusedError(_not_enabled(self._mechanism.name, answer.mechanisms))
        raise RefusedError(AuthenticationError(f"the broker refused SaslHandshake: {ErrorCode.in_words(code)}"))

    def checked(self, payload: bytes, *, repeats: bool) -> SaslAuthenticateResponse:
        answer = decode_sasl_authenticate_response(self._version, payload)
        code = answer.error_code
        if code == ErrorCode.NONE:
            return answer
        said = printable_message(answer.error_message)
        if code != ErrorCode.SASL_AUTHENTICATION_FAILED:
            text = (
                f"the broker refused SaslAuthenticate: {ErrorCode.in_words(code)}{'' if said is None else f' ({said})'}"
            )
            raise RefusedError(AuthenticationError(text))
        if repeats and said is not None and "principal" in said.lower():
            raise RefusedError(PrincipalChangedError(f"the credentials are now those of another principal: {said}"))
        raise RefusedError(self._mechanism.refusal("" if said is None else f" ({said!r})"))


def _bytes_of(payload: object) -> bytes:
    assert isinstance(payload, bytes)
    return payload


def _no_sasl_here() -> AuthenticationError:
    return WrongListenerError(
        "this listener wants no authentication: use the port of a SASL listener, or security_protocol without SASL_"
    )


def _not_enabled(mechanism: str, enabled: tuple[str, ...]) -> AuthenticationError:
    shown = ", ".join(printable(name, 40) for name in enabled[:_MOST_MECHANISMS])
    if not shown:
        return UnsupportedMechanismError(f"the broker does not offer sasl_mechanism={mechanism!r}, nor any other")
    more = "" if len(enabled) <= _MOST_MECHANISMS else ", ..."
    return UnsupportedMechanismError(
        f"the broker does not offer sasl_mechanism={mechanism!r} on this listener; it offers {shown}{more}: set "
        "sasl_mechanism to one of them, or use the port of a listener that offers it"
    )
