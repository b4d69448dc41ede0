"""PLAIN: user and password in one token.

Source: RFC 4616; PlainSaslServer in Apache Kafka.
"""

from __future__ import annotations

from typing import Final

from aioproducer._protocol.sasl.steps import Conversation, Message, PasswordWanted
from aioproducer.errors import AuthenticationError, CredentialsError

_NUL: Final = "\0"


class Plain:
    """One authentication with PLAIN."""

    name: Final = "PLAIN"

    def __init__(self, username: str) -> None:
        self._username = username

    def converse(self) -> Conversation:
        password = yield PasswordWanted()
        assert isinstance(password, str)
        if _NUL in password:
            raise CredentialsError("sasl_password contains a NUL character, which PLAIN cannot send")
        yield Message(f"{_NUL}{self._username}{_NUL}{password}".encode(), is_last=True)

    def refusal(self, words: str) -> AuthenticationError:
        return credentials_refused(self._username, words)


def credentials_refused(username: str, words: str) -> CredentialsError:
    return CredentialsError(
        f"the broker refused user {username!r}{words}: check sasl_username and sasl_password, and that the user exists "
        "in this cluster for this mechanism"
    )
