"""The version of this package, for users and for brokers (KIP-511)."""

from typing import Final

VERSION: Final = "0.2.0"
