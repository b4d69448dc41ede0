"""Errors of an attempt to connect that another attempt would meet again: nothing but a change of the set-up helps."""

from __future__ import annotations

from typing import Final

from aioproducer.errors import (
    AuthenticationError,
    ConfigurationError,
    TlsRefusedError,
    TlsVerificationError,
    UnsupportedVersionError,
)

FOR_GOOD: Final = (
    AuthenticationError,
    ConfigurationError,
    TlsRefusedError,
    TlsVerificationError,
    UnsupportedVersionError,
)
