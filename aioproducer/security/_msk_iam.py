"""Tokens for Amazon MSK from AWS credentials (IAM)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aioproducer._protocol.cluster_text import printable
from aioproducer._threads.off_loop import run_in_thread
from aioproducer.errors import ConfigurationError, TokenError
from aioproducer.security._tokens import Token

if TYPE_CHECKING:
    from types import ModuleType


class MskIam:
    """Tokens for Amazon MSK, signed with AWS credentials, for `sasl_token_provider`; needs the extra `aws`.

    Credentials come from where AWS's libraries look for them: environment, profile, container or instance role.

    Args:
        region: of the cluster, such as `eu-central-1`.
        profile: of the shared credentials file.
        role_arn: a role to assume.
        role_session_name: name of the role's session. It is part of the principal, and a connection cannot change its
            principal, so it stays the same for all tokens.

    Raises:
        ConfigurationError: the signer is not installed, or a value does not fit.
    """

    def __init__(
        self, region: str, *, profile: str = "", role_arn: str = "", role_session_name: str = "aioproducer"
    ) -> None:
        """Check the arguments; nothing is signed yet."""
        if not region:
            raise ConfigurationError("region must not be empty")
        if profile and role_arn:
            raise ConfigurationError("profile and role_arn exclude each other: give one of them")
        self._signer = _signer()
        self._region, self._profile = region, profile
        self._role_arn, self._role_session_name = role_arn, role_session_name

    async def token(self) -> Token:
        """Sign a token, in a thread: AWS's library may ask a server for credentials.

        Raises:
            TokenError: there are no credentials.
        """
        return await run_in_thread(self._sign, "aioproducer-token")

    def _sign(self) -> Token:
        make = self._signer
        try:
            if self._role_arn:
                answer = make.generate_auth_token_from_role_arn(
                    self._region, self._role_arn, sts_session_name=self._role_session_name
                )
            elif self._profile:
                answer = make.generate_auth_token_from_profile(self._region, self._profile)
            else:
                answer = make.generate_auth_token(self._region)
        except Exception as error:
            said = f"{type(error).__name__}: {printable(str(error))}"
            raise TokenError(f"AWS gives no credentials for MSK: {said}") from error
        value, expires_at_ms = answer
        return Token(value=value, expires_at=expires_at_ms / 1000)

    def __repr__(self) -> str:
        """Show for which cluster and role tokens are."""
        role = f", role_arn={self._role_arn!r}" if self._role_arn else ""
        return f"MskIam({self._region!r}{role})"


def _signer() -> ModuleType:
    try:
        return import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    except ImportError:
        text = "MskIam needs aws-msk-iam-sasl-signer-python, which is not installed: pip install 'aioproducer[aws]'"
        raise ConfigurationError(text) from None
