"""Contents of stores, and the errors of stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from aioproducer.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyEntry:
    """A private key with its certificates; no repr shows it."""

    key: bytes  # PEM, possibly encrypted
    password: str | None  # of `key`
    chain: tuple[bytes, ...]  # DER, our own certificate first

    def __repr__(self) -> str:
        return f"<KeyEntry of {len(self.chain)} certificates>"


class Origin(NamedTuple):
    """Origin of a store, for texts and the attribute `option` of errors."""

    option: str
    path: str | None = None  # None: the option is the store itself

    def __str__(self) -> str:
        return self.option if self.path is None else f"{self.option}={self.path!r}"


def refuse(origin: Origin, why: str, *, option: str | None = None) -> NoReturn:
    """Raise for a store that cannot be used.

    Args:
        option: the one to change, if it is another one than that of the store.
    """
    # Never with a cause: what libraries say may hold a part of the store.
    raise ConfigurationError(f"{origin}: {why}", option=option or origin.option) from None
