"""Credentials for secured clusters: secrets that logs, errors and reprs do not show, and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.security._secret import Secret
from aioproducer.security._tokens import Token, TokenProvider

if TYPE_CHECKING:
    from aioproducer.security._msk_iam import MskIam
    from aioproducer.security._token_endpoint import ClientCredentials, JwtBearer

__all__ = ["ClientCredentials", "JwtBearer", "MskIam", "Secret", "Token", "TokenProvider"]


def __getattr__(name: str) -> object:
    if name in {"ClientCredentials", "JwtBearer"}:  # with HTTP and TLS, which a plaintext producer need not load
        from aioproducer.security import _token_endpoint  # noqa: PLC0415

        return getattr(_token_endpoint, name)
    if name == "MskIam":
        from aioproducer.security._msk_iam import MskIam  # noqa: PLC0415  # as above

        return MskIam
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
