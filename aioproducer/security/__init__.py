"""What a secured cluster asks for: secrets that logs, errors and reprs do not show."""

from aioproducer.security._secret import Secret

__all__ = ["Secret"]
