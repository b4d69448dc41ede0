"""Validity of a certificate, read from its DER without another library."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_LONG: Final = 0x80
_YEARS_OF_1900: Final = 50


class Validity(NamedTuple):
    """From when until when a certificate is valid."""

    begins: datetime
    ends: datetime

    def trouble(self, now: datetime) -> str | None:
        """Return what is wrong with the certificate now; None if it is valid."""
        if now < self.begins:
            return f"it is not valid before {self.begins:%Y-%m-%d %H:%M} UTC"
        return f"it has expired at {self.ends:%Y-%m-%d %H:%M} UTC" if now > self.ends else None


def validity_of(certificate: bytes) -> Validity | None:
    """Return the validity of a certificate in DER; None if it cannot be read."""
    try:
        _, whole, _ = _element(certificate, 0)
        _, signed, _ = _element(whole, 0)
        at = 0
        if signed[0] == _VERSION:
            _, _, at = _element(signed, at)
        for _ in range(3):  # serial number, signature algorithm, issuer
            _, _, at = _element(signed, at)
        _, dates, _ = _element(signed, at)
        kind, begins, at = _element(dates, 0)
        other_kind, ends, _ = _element(dates, at)
        return Validity(_time(kind, begins), _time(other_kind, ends))
    except (IndexError, ValueError):
        return None


def _element(der: bytes, at: int) -> tuple[int, bytes, int]:
    """Return tag and content of the element at a position, and the position behind it."""
    tag, size, at = der[at], der[at + 1], at + 2
    if size & _LONG:
        count = size & ~_LONG
        size, at = int.from_bytes(der[at : at + count], "big"), at + count
    return tag, der[at : at + size], at + size


def _time(kind: int, text: bytes) -> datetime:
    digits = text.decode("ascii")
    if kind == _UTC_TIME:  # two digits of the year (RFC 5280)
        digits = f"{19 if int(digits[:2]) >= _YEARS_OF_1900 else 20}{digits}"
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
