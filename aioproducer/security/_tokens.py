"""Tokens of OAUTHBEARER, and where they come from."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from aioproducer.security._https import OpenSocket


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token with what cannot be read from it."""

    value: str = field(repr=False)
    """The token itself: the text behind `Bearer`."""

    expires_at: float | None = None
    """When it expires, in seconds since the epoch; `None`: as its claim `exp` says if it is a JSON web token, and
    otherwise it is used once."""

    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """SASL extensions (KIP-342), such as `logicalCluster`: names of letters, values of printable ASCII."""


@runtime_checkable
class TokenProvider(Protocol):
    """Source of tokens. An `AbstractTokenProvider` of aiokafka is one, too."""

    def token(self) -> Awaitable[str | Token]:
        """Return a token that is valid now.

        Called on the event loop, once for all connections: when the first is made, and again when most of the token's
        lifetime is over. What blocks belongs in a thread. Of an exception only the class is shown, since its text may
        hold a secret; that of an `AuthenticationError`, or of a subclass, is shown as it is.

        After an exception it is called again, until `max_block_ms` at a start. `TokenError(text, retriable=False)` ends
        the start: the other side has refused for good.
        """
        ...


def provider_through(provider: TokenProvider, open_socket: OpenSocket) -> TokenProvider:
    """Return a provider of this package with an endpoint that is connected to by a function; others as they are."""
    through = getattr(provider, "_through", None)
    routed: TokenProvider = provider if through is None else through(open_socket)
    return routed


def check_token_provider(given: object) -> None:
    """Raise TypeError unless the object can be asked for tokens."""
    if isinstance(given, type) or not callable(getattr(given, "token", None)):
        what = f"the class {given.__name__}" if isinstance(given, type) else f"{type(given).__name__}"
        raise TypeError(f"sasl_token_provider must be an object with async def token(), not {what}")


def arguments_of(provider: object) -> Mapping[str, str]:
    """Return the arguments of a provider of this package that texts of other clients may give too; none of others."""
    found: object = getattr(provider, "_text_arguments", None)
    return found if isinstance(found, Mapping) else {}
