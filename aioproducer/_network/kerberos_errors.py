"""What a failure of Kerberos means: from the library's codes to a text that says what to change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from aioproducer._protocol.cluster_text import printable
from aioproducer.errors import TicketError

_NO_CREDENTIALS: Final = 7 << 16  # major codes
_CREDENTIALS_EXPIRED: Final = 11 << 16

_KRB5: Final = -1_765_328_384  # base of the codes of Kerberos, in MIT's and Heimdal's library
_GSS_OF_KRB5: Final = 39_756_032  # base of the codes of MIT's GSS-API
_SUCCESS: Final = "Success"

_CLOCKS: Final = "the clocks of this machine, the KDC and the broker differ by more than five minutes: synchronise them"
_BROKER_KEY: Final = (
    "the broker has another key for {service} than the KDC: its keytab must be written again, or, if it has been, the "
    "ticket here is older: run kinit again"
)
_OLD_KEY: Final = (
    "the KDC has another key for {user} than the keytab: it was changed, and the keytab of sasl_kerberos_keytab must "
    "be written again"
)
_TYPES: Final = (
    "the two sides have no encryption type in common: write the keytab again with the types that the KDC has, or look "
    "at permitted_enctypes in krb5.conf"
)
_NO_KDC: Final = (
    "no KDC of the realm answers: look at the realm's kdc in krb5.conf, or its DNS records, and at firewalls (port 88)"
)
_REALM: Final = (
    "the realm is not known here: krb5.conf needs default_realm and, in [realms], the KDCs of the realm, or DNS its "
    "records; in a container, mount krb5.conf or set KRB5_CONFIG"
)
_CONFIG: Final = "krb5.conf cannot be read: look at /etc/krb5.conf, or at the file that KRB5_CONFIG names"
_NO_TICKET: Final = "there is no ticket in the ticket cache{cache}: run kinit, or set sasl_kerberos_keytab"
_EXPIRED: Final = "the ticket in the ticket cache has expired: run kinit, or set sasl_kerberos_keytab, which needs none"
_CACHE: Final = "the ticket cache cannot be read{cache}: look at KRB5CCNAME, and at whose file it is"
_NO_KEY: Final = "sasl_kerberos_keytab has no key for {user}: look with klist -k, or set sasl_kerberos_principal"
_BAD_KEYTAB: Final = "the file of sasl_kerberos_keytab is not a keytab, or is damaged: write it again"
_NO_SERVICE: Final = (
    "the KDC does not know {service}: sasl_kerberos_service_name must be the first part of the brokers' principals, "
    "and the brokers' names in bootstrap_servers and advertised.listeners the second. For aliases set "
    "client_dns_lookup='resolve_canonical_bootstrap_servers_only'; for hosts of another realm, [domain_realm] in "
    "krb5.conf"
)

TEXTS: Final = {
    _KRB5 + 6: "the KDC does not know {user}: look at sasl_kerberos_principal, and at the realm behind its @",
    _KRB5 + 7: _NO_SERVICE,
    _KRB5 + 14: _TYPES,
    _KRB5 + 18: "{user} is locked or has expired: ask who runs the KDC",
    _KRB5 + 23: "the password of {user} has expired: change it, and write the keytab again",
    _KRB5 + 24: _OLD_KEY,
    _KRB5 + 31: _OLD_KEY,
    _KRB5 + 32: _EXPIRED,
    _KRB5 + 33: _CLOCKS,
    _KRB5 + 37: _CLOCKS,
    _KRB5 + 41: _BROKER_KEY,
    _KRB5 + 44: _BROKER_KEY,
    _KRB5 + 45: _BROKER_KEY,
    _KRB5 + 68: "the KDC of another realm was asked for {user}: look at the realm behind the @ of the principal",
    _KRB5 + 134: "{user} is not the name of a principal: alice, alice@REALM or service/host@REALM",
    _KRB5 + 135: _CONFIG,
    _KRB5 + 136: _CONFIG,
    _KRB5 + 139: _CACHE,
    _KRB5 + 140: _CACHE,
    _KRB5 + 141: _NO_TICKET,
    _KRB5 + 148: _CLOCKS,
    _KRB5 + 150: _TYPES,
    _KRB5 + 154: _REALM,
    _KRB5 + 156: _NO_KDC,
    _KRB5 + 179: _BAD_KEYTAB,
    _KRB5 + 181: _NO_KEY,
    _KRB5 + 184: _BAD_KEYTAB,
    _KRB5 + 193: _CACHE,
    _KRB5 + 194: _CACHE,
    _KRB5 + 195: _NO_TICKET,
    _KRB5 + 199: _CACHE,
    _KRB5 + 210: _OLD_KEY,
    _KRB5 + 212: _CACHE,
    _KRB5 + 213: _BAD_KEYTAB,
    _KRB5 + 217: _REALM,
    _KRB5 + 220: _NO_KDC,
    _KRB5 + 224: _REALM,
    _KRB5 + 237: _TYPES,
    _GSS_OF_KRB5: "the ticket cache{cache} has a ticket of another principal than {user}: look with klist",
    _GSS_OF_KRB5 + 1: _NO_KEY,
}
"""Minor code, as krb5.h names it -> text."""


WITHOUT_A_TICKET: Final = frozenset({_KRB5 + 141, _KRB5 + 195})
"""Minor codes that also stand for a keytab that cannot be used."""


class TicketAttempt(NamedTuple):
    """What the texts need to know."""

    user: str  # whose ticket
    service: str  # the broker's principal
    cache: str = ""  # name of the ticket cache, if one is used


def ticket_error(major: int, minor: int, attempt: TicketAttempt, *, words: Iterable[str]) -> TicketError:
    """Return the error that says what was found and what to change.

    Args:
        major: code of GSS-API, with or without more bits.
        minor: code of the mechanism, unsigned.
        attempt: that failed.
        words: the library's, of the minor code.
    """
    code = signed(minor)
    said = "; ".join(printable(each) for each in words if each and each != _SUCCESS)
    is_expired = major & 0xFFFF_0000 == _CREDENTIALS_EXPIRED
    text = _EXPIRED if is_expired else TEXTS.get(code)
    if text is None and major & 0xFFFF_0000 == _NO_CREDENTIALS and not said:
        text = _NO_TICKET
    if text is None:
        return TicketError(
            f"Kerberos gives no ticket of {attempt.user} for {attempt.service}: {said or f'code {code}'}"
        )
    cache = f" {attempt.cache}" if attempt.cache else ""
    shown = text.format(user=attempt.user, service=attempt.service, cache=cache)
    return TicketError(f"{shown} ({said})" if said else shown)


def signed(minor: int) -> int:
    """Return a minor code as Kerberos writes it."""
    return minor - (1 << 32) if minor >= 1 << 31 else minor
