"""Credentials for secured clusters: secrets that logs, errors and reprs do not show, and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.security._secret import Secret
from aioproducer.security._tokens import Token, TokenProvider

if TYPE_CHECKING:
    from aioproducer.security._token_providers import ClientCredentials, JwtBearer, MskIam

__all__ = ["ClientCredentials", "JwtBearer", "MskIam", "Secret", "Token", "TokenProvider"]


def __getattr__(name: str) -> object:
    if name in {"ClientCredentials", "JwtBearer", "MskIam"}:
        from aioproducer.security import _token_providers  # noqa: PLC0415  # with HTTP and TLS: only if they are used

        return getattr(_token_providers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
