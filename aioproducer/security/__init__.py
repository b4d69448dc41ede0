"""What a secured cluster asks for: secrets that logs, errors and reprs do not show, and tokens."""

from aioproducer.security._secret import Secret
from aioproducer.security._tokens import Token, TokenProvider

__all__ = ["Secret", "Token", "TokenProvider"]
