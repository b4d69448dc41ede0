"""The authentication of a connection, as a generator without I/O; also repeated on an open connection (KIP-368).

The generator yields steps that the connection carries out, and their results are sent in; `sasl_mechanisms.py` makes
the tokens.

    first        SaslHandshake ──► mechanism enabled ──► SaslAuthenticate ──► ... ──► last token accepted ──► session
    repeated     first token made ──► SaslHandshake and the first SaslAuthenticate in one write ──► ... as above

Between SaslHandshake and the last token a broker closes the connection on any other request. What must be asked for is
therefore asked before SaslHandshake when other requests are waiting, and the handshake is not awaited: the broker has
accepted the mechanism on this connection before.

Source: SaslClientAuthenticator and SaslServerAuthenticator in Apache Kafka; the JSON descriptions of
its messages; KIP-43, KIP-152, KIP-255, KIP-368.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from aioproducer._protocol.api_versions import ApiVersions
from aioproducer._protocol.cluster_text import LONGEST_MESSAGE
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import Api, HandshakeRequest
from aioproducer._protocol.primitives import NO_TAGGED_FIELDS, ResponseReader, bytes_length, decode, string
from aioproducer._protocol.sent_secrets import SentSecrets
from aioproducer.errors import (
    AuthenticationError,
    PrincipalChangedError,
    UnsupportedMechanismError,
    WrongListenerError,
)

SASL_HANDSHAKE: Final = Api(17, "SaslHandshake", 1, 1, 2)  # no version is flexible
SASL_AUTHENTICATE: Final = Api(36, "SaslAuthenticate", 0, 2, 2)

_FIRST_WITH_LIFETIME: Final = 1
_INT64 = struct.Struct(">q")
_MOST_MECHANISMS: Final = 10  # shown in an error


class Send(NamedTuple):
    """Send these requests at once, and resume with the payload of the first response."""

    requests: tuple[HandshakeRequest, ...]
    is_last: bool = False  # other requests may follow at once: the last token is among these


class NextResponse(NamedTuple):
    """Resume with the payload of the next response to a request of `Send`."""


class PasswordWanted(NamedTuple):
    """Resume with the password, a text."""


class BearerWanted(NamedTuple):
    """Resume with a `Bearer`."""


class Bearer(NamedTuple):
    """A token of OAUTHBEARER."""

    token: str
    extensions: Mapping[str, str]
    fetched_at: float  # wall-clock seconds, to tell whether it had expired

    def __repr__(self) -> str:
        return "Bearer(<hidden>)"


class SaltedPasswordWanted(NamedTuple):
    """Resume with the result of `compute`, which takes up to a second; an equal step has an equal result."""

    hash_name: str
    password: str
    salt: bytes
    iterations: int
    compute: Callable[[str, bytes, bytes, int], bytes]  # hash, password, salt, iterations

    def __repr__(self) -> str:
        return f"SaltedPasswordWanted({self.hash_name}, {self.iterations} iterations)"


class TicketWanted(NamedTuple):
    """Resume with the ticket that `open_context` of the mechanism takes."""


class Work(NamedTuple):
    """Resume with the result of a function that blocks, such as a call to a KDC."""

    run: Callable[[], object]


Step: TypeAlias = Send | NextResponse | PasswordWanted | BearerWanted | SaltedPasswordWanted | TicketWanted | Work


class Message(NamedTuple):
    """A mechanism's next token; resume with the broker's response to it, bytes."""

    token: bytes
    is_last: bool = False

    def __repr__(self) -> str:
        return f"Message({len(self.token)} bytes)"


MechanismStep: TypeAlias = Message | PasswordWanted | BearerWanted | SaltedPasswordWanted | TicketWanted | Work

Conversation: TypeAlias = Generator[MechanismStep, object, None]


class Mechanism(Protocol):
    """One run of a mechanism; a new object authenticates each time."""

    @property
    def name(self) -> str:
        """As in `sasl_mechanism`."""

    @property
    def sent(self) -> SentSecrets:
        """Secrets that the broker was sent, to hide them in its words."""

    def converse(self) -> Conversation:
        """Yield the tokens; end when the broker has proved what it must prove."""

    def refusal(self, words: str) -> AuthenticationError:
        """Return the error of a refusal with the broker's `words`, which are safe to show."""


class Session(NamedTuple):
    """The session that the broker granted."""

    lifetime_ms: int = 0  # from the broker's last response; 0 or less if the session has no end


class RefusedError(Exception):
    """The broker refused; it processes nothing that was sent behind the refused request."""

    def __init__(self, error: AuthenticationError) -> None:
        super().__init__(str(error))
        self.error = error


Exchange: TypeAlias = Generator[Step, object, Session | None]


def exchange(
    mechanism: Mechanism, versions: ApiVersions, *, repeats: bool = False, is_patient: bool = True
) -> Exchange:
    """Authenticate; yields steps, whose results are sent in.

    Args:
        mechanism: a new one.
        repeats: whether the connection is authenticated already.
        is_patient: whether each response is awaited before the next request; False needs `repeats`.

    Returns:
        The session; None if the broker wants no other yet, and the current one goes on.

    Raises:
        RefusedError: the broker refuses.
        AuthenticationError: credentials cannot be had or used, or the broker's responses do not prove what they must.
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
        response = run.checked(_bytes_of(payload), repeats=repeats)
        following = yield from run.next(response.token)
        if following is None:
            return Session(response.lifetime_ms)
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
        self._mechanism.sent.add_encoded(message.token)
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
        response = decode_sasl_handshake_response(payload)
        code = response.error_code
        if code == ErrorCode.NONE:
            return False
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            if repeats:
                return True  # within a second of the previous authentication
            raise RefusedError(_no_sasl_here())
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise RefusedError(_not_enabled(self._mechanism, response.mechanisms))
        raise RefusedError(AuthenticationError(f"the broker refused SaslHandshake: {ErrorCode.in_words(code)}"))

    def checked(self, payload: bytes, *, repeats: bool) -> SaslAuthenticateResponse:
        response = decode_sasl_authenticate_response(self._version, payload)
        code = response.error_code
        if code == ErrorCode.NONE:
            return response
        raw = response.error_message
        said = None if raw is None else self._mechanism.sent.shown(raw, LONGEST_MESSAGE)
        if code != ErrorCode.SASL_AUTHENTICATION_FAILED:
            text = (
                f"the broker refused SaslAuthenticate: {ErrorCode.in_words(code)}{'' if said is None else f' ({said})'}"
            )
            raise RefusedError(AuthenticationError(text))
        if repeats and raw is not None and "principal" in raw.lower():
            raise RefusedError(PrincipalChangedError(f"the credentials are now those of another principal: {said}"))
        raise RefusedError(self._mechanism.refusal("" if said is None else f" ({said!r})"))


def _bytes_of(payload: object) -> bytes:
    assert isinstance(payload, bytes)
    return payload


def _no_sasl_here() -> AuthenticationError:
    return WrongListenerError(
        "this listener wants no authentication: use the port of a SASL listener, or security_protocol without SASL_"
    )


def _not_enabled(mechanism: Mechanism, enabled: tuple[str, ...]) -> AuthenticationError:
    shown = ", ".join(mechanism.sent.shown(name, 40) for name in enabled[:_MOST_MECHANISMS])
    if not shown:
        return UnsupportedMechanismError(f"the broker does not offer sasl_mechanism={mechanism.name!r}, nor any other")
    more = "" if len(enabled) <= _MOST_MECHANISMS else ", ..."
    return UnsupportedMechanismError(
        f"the broker does not offer sasl_mechanism={mechanism.name!r} on this listener; it offers {shown}{more}: set "
        "sasl_mechanism to one of them, or use the port of a listener that offers it"
    )


class SaslHandshakeResponse(NamedTuple):
    """Answer to the name of a mechanism; version 1, since version 0 is for Kafka before 1.0."""

    error_code: int
    mechanisms: tuple[str, ...]  # enabled on the listener


class SaslAuthenticateResponse(NamedTuple):
    """Answer to one token."""

    error_code: int
    error_message: str | None
    token: bytes
    lifetime_ms: int  # of the session, in the last response only; 0 or less if it has no end


def encode_sasl_handshake_request(mechanism: str) -> bytes:
    return string(mechanism, flexible=False)


def decode_sasl_handshake_response(payload: bytes | memoryview) -> SaslHandshakeResponse:
    return decode("SaslHandshake v1", payload, flexible=False, read=_handshake)


def encode_sasl_authenticate_request(version: int, token: bytes) -> bytes:
    flexible = SASL_AUTHENTICATE.is_flexible(version)
    body = bytes_length(len(token), flexible=flexible) + token
    return body + NO_TAGGED_FIELDS if flexible else body


def decode_sasl_authenticate_response(version: int, payload: bytes | memoryview) -> SaslAuthenticateResponse:
    def read(reader: ResponseReader) -> SaslAuthenticateResponse:
        error_code, error_message = reader.int16(), reader.string()
        token = reader.take(reader.array_length())  # bytes have the length of an array of one-byte elements
        lifetime_ms = 0
        if version >= _FIRST_WITH_LIFETIME:
            (lifetime_ms,) = _INT64.unpack(reader.take(_INT64.size))
        reader.skip_tagged_fields()
        return SaslAuthenticateResponse(error_code, error_message, token, lifetime_ms)

    return decode(f"SaslAuthenticate v{version}", payload, flexible=SASL_AUTHENTICATE.is_flexible(version), read=read)


def _handshake(reader: ResponseReader) -> SaslHandshakeResponse:
    error_code = reader.int16()
    return SaslHandshakeResponse(error_code, tuple(reader.string() or "" for _ in range(reader.array_length())))
