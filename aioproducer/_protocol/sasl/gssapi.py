"""GSSAPI: a Kerberos ticket for the broker, which proves that it has the key of its principal.

    ticket for the broker ──► its proof ──► (empty) ──► layers that it offers ──► none of them

Kafka knows no security layer: TLS protects the connection. No authorization identity is sent, so the principal of the
ticket is the user.

Source: RFC 4752; SaslServerAuthenticator and SaslServerCallbackHandler in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from aioproducer._protocol.sasl.steps import Conversation, Message, TicketWanted, Work
from aioproducer.errors import AuthenticationError, TicketError

NO_LAYER: Final = 1  # a bit of the broker's offer, and the client's choice
_OFFER_BYTES: Final = 4  # the layers, and the longest message that they take
_MOST_ROUNDS: Final = 5  # Kerberos needs two


class SecurityContext(Protocol):
    """The client's side of GSS-API with one broker; its methods raise `TicketError`."""

    @property
    def is_established(self) -> bool:
        """Whether both sides have proved who they are."""

    def first_token(self) -> bytes:
        """Return the token with the ticket; may ask the KDC, and so block."""

    def next_token(self, answer: bytes) -> bytes:
        """Return the token that follows the broker's answer; empty at the end."""

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, message: bytes) -> bytes: ...


class Gssapi:
    """One authentication with GSSAPI.

    Args:
        open_context: makes a new context, from the result of `TicketWanted`.
        user: names the principal in errors.
        service: names the broker's principal in errors.
    """

    name: Final = "GSSAPI"

    def __init__(self, open_context: Callable[[object], SecurityContext], *, user: str, service: str) -> None:
        self._open_context = open_context
        self._user = user
        self._service = service

    def converse(self) -> Conversation:
        context = self._open_context((yield TicketWanted()))
        token = yield Work(context.first_token)
        for _ in range(_MOST_ROUNDS):
            assert isinstance(token, bytes)
            answer = yield Message(token)
            assert isinstance(answer, bytes)
            if context.is_established:
                yield Message(context.wrap(_choice(context.unwrap(answer))), is_last=True)
                return
            token = context.next_token(answer)
        raise AuthenticationError("the broker's side of GSSAPI comes to no end: it is no Kafka broker")

    def refusal(self, words: str) -> AuthenticationError:
        return TicketError(
            f"the broker refused the ticket of {self._user} for {self._service}{words}: the key in the broker's keytab "
            "is not the one that the KDC has, the clocks of both machines differ by more than five minutes, or no rule "
            "of sasl.kerberos.principal.to.local.rules fits; its log says which"
        )


def _choice(offer: bytes) -> bytes:
    """Return the answer to the broker's offer of security layers."""
    if len(offer) != _OFFER_BYTES:
        raise AuthenticationError(f"the broker's offer of security layers has {len(offer)} bytes, not {_OFFER_BYTES}")
    if not offer[0] & NO_LAYER:
        raise AuthenticationError(
            "the broker demands a security layer of GSSAPI, which Kafka's protocol does not have: it is no Kafka broker"
        )
    return bytes((NO_LAYER, 0, 0, 0))
