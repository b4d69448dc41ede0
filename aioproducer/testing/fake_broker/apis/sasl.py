"""SaslHandshake 0-1 and SaslAuthenticate 0-2, and the refusal of what comes between them."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.faults import FaultKind
from aioproducer.testing.fake_broker.security import (
    OtherPrincipalError,
    SaslSession,
    SeenAuthentication,
    TokenRefusedError,
    TokenUnreadableError,
)
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.metadata.v10.request import MetadataRequest
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

_NOTHING_GOING_ON = "SaslAuthenticate request received after successful authentication"
_INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
_SHAPELESS = frozenset((ApiKey.PRODUCE, ApiKey.FETCH))  # their responses are written elsewhere, and need their topics


def answer_sasl_handshake(exchange: Exchange) -> None:
    session = exchange.session
    mechanism = cast("SaslHandshakeRequest", exchange.request()).mechanism
    if session is None or session.is_open:
        exchange.reply_tree({"error_code": codes.ILLEGAL_SASL_STATE, "mechanisms": ()}, exchange.now)
    elif error := exchange.injected_error():
        _refuse(exchange, session, {"error_code": error, "mechanisms": session.mechanisms}, mechanism=mechanism)
    elif mechanism in session.mechanisms:
        session.begin(mechanism)
        exchange.reply_tree({"error_code": 0, "mechanisms": session.mechanisms}, exchange.now)
    elif session.is_again:
        exchange.hang_up("re-authentication with a mechanism that is not enabled")
    else:
        tree = {"error_code": codes.UNSUPPORTED_SASL_MECHANISM, "mechanisms": session.mechanisms}
        _refuse(exchange, session, tree, mechanism=mechanism)


def answer_sasl_authenticate(exchange: Exchange) -> None:
    session = exchange.session
    if session is None or session.is_open:
        exchange.reply_tree(_failed(codes.ILLEGAL_SASL_STATE, _NOTHING_GOING_ON), exchange.now)
    elif session.is_other_mechanism:
        _later(exchange, lambda _: exchange.hang_up("re-authentication with another mechanism"))
    elif (fault := exchange.fault(FaultKind.ERROR)) is not None:
        _refuse(exchange, session, _failed(fault.code, fault.message))
    else:
        _use_token(exchange, session)


def _use_token(exchange: Exchange, session: SaslSession) -> None:
    token = cast("SaslAuthenticateRequest", exchange.request()).auth_bytes
    now, is_again = exchange.now, session.is_again
    try:
        response, lifetime_ms = session.evaluate(token, now, exchange.cluster.settings.wall_clock_ms(now))
    except TokenUnreadableError as failure:
        exchange.hang_up(str(failure))
    except OtherPrincipalError as refusal:
        _note(exchange, session, "", is_again=True, error_code=codes.SASL_AUTHENTICATION_FAILED)
        tree = _failed(codes.SASL_AUTHENTICATION_FAILED, refusal.message)
        _later(exchange, partial(exchange.reply_late, tree))
        exchange.finish_silently(now)
    except TokenRefusedError as refusal:
        text = refusal.message or f"{_INVALID} {session.mechanism}"
        _refuse(exchange, session, _failed(codes.SASL_AUTHENTICATION_FAILED, text))
    else:
        if lifetime_ms is not None:
            _note(exchange, session, session.principal, is_again=is_again, error_code=0)
        tree = {"error_code": 0, "error_message": "", "auth_bytes": response, "session_lifetime": lifetime_ms or 0}
        exchange.reply_tree(tree, now)


def refuse_between_tokens(exchange: Exchange) -> None:
    """Answer a request that must not come during an exchange as Kafka does: 34 in its own shape, then the end."""
    if exchange.api in _SHAPELESS:
        _later(exchange, lambda _: exchange.hang_up("a request during authentication"))
        return
    tree: dict[str, object] = {"error_code": codes.ILLEGAL_SASL_STATE}
    if exchange.api is ApiKey.METADATA:
        asked = cast("MetadataRequest", exchange.request()).topics or ()
        refused = {"error_code": codes.ILLEGAL_SASL_STATE, "is_internal": False, "partitions": ()}
        tree |= {"brokers": (), "topics": [{**refused, "name": topic.name, "topic_id": None} for topic in asked]}
    _later(exchange, lambda now: exchange.reply_last(tree, now))


def _failed(code: int, message: str | None) -> Tree:
    return {"error_code": code, "error_message": message, "auth_bytes": b""}


def _refuse(exchange: Exchange, session: SaslSession, tree: Tree, *, mechanism: str = "") -> None:
    """Answer after Kafka's delay, and close."""
    _note(
        exchange,
        session,
        "",
        is_again=session.is_again,
        error_code=cast("int", tree["error_code"]),
        mechanism=mechanism,
    )
    _later(exchange, lambda now: exchange.reply_last(tree, now))


def _later(exchange: Exchange, act: Callable[[float], None]) -> None:
    security = exchange.cluster.settings.security
    assert security is not None
    exchange.cluster.schedule.at(exchange.now + security.failed_authentication_delay_ms / 1000, act)


def _note(
    exchange: Exchange, session: SaslSession, user: str, *, is_again: bool, error_code: int, mechanism: str = ""
) -> None:
    exchange.cluster.authentications.append(
        SeenAuthentication(
            exchange.broker.node_id,
            exchange.connection_id,
            session.listener,
            mechanism or session.mechanism,
            user,
            is_again=is_again,
            error_code=error_code,
            at=exchange.now,
        )
    )
