"""Kerberos through the package `gssapi`: tickets, the client's side of GSS-API with one broker, and its errors.

What may ask a KDC, and so block, runs in a thread.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aioproducer._protocol.cluster_text import printable
from aioproducer._threads.calls import run_in_thread
from aioproducer.errors import AuthenticationError, TicketError
from aioproducer.security._secret import is_passing

if TYPE_CHECKING:
    from types import ModuleType

    from aioproducer._logs import EventLog


_RENEWED_AFTER: Final = 0.8  # of a ticket's life; as Kafka's `sasl.kerberos.ticket.renew.window.factor`
_PAUSE_S: Final = 60.0  # between two requests for a ticket while there is a valid one
_cache_numbers: Final = count(1)


class KerberosSettings(NamedTuple):
    """Options of Kerberos."""

    service_name: str
    principal: str | None = None
    keytab: str | None = None
    uses_cache: bool = True  # before the keytab, if both are given
    cache: str | None = None  # name of the ticket cache; None is the default one


class _Credentials(Protocol):
    """The part of `gssapi.Credentials` that is used."""

    @property
    def lifetime(self) -> int | None: ...

    @property
    def name(self) -> object: ...


class _GssContext(Protocol):
    """The part of `gssapi.SecurityContext` that is used."""

    @property
    def complete(self) -> bool: ...

    def step(self, token: bytes | None) -> bytes | None: ...

    def wrap(self, message: bytes, encrypt: bool) -> tuple[bytes, bool]: ...  # noqa: FBT001  # its signature

    def unwrap(self, message: bytes) -> tuple[bytes, bool, int]: ...


class _GssError(Protocol):
    """The part of `gssapi.exceptions.GSSError` that is used."""

    @property
    def maj_code(self) -> int: ...

    @property
    def min_code(self) -> int: ...

    def get_all_statuses(self, code: int, is_maj: bool) -> list[str]: ...  # noqa: FBT001  # its signature


class Ticket(NamedTuple):
    """A ticket for tickets, and the principal that it is of."""

    credentials: _Credentials
    user: str
    life_s: float
    is_own: bool = False  # of a keytab, and not of a ticket cache that others change

    def __str__(self) -> str:
        """Return one line."""
        hours, minutes = divmod(int(min(self.life_s, 10**9)) // 60, 60)
        return f"{self.user}, {hours} h {minutes} min left" if math.isfinite(self.life_s) else self.user

    def __repr__(self) -> str:
        return f"Ticket({self.user})"


class TicketSource:
    """Source of the tickets of a producer: a keytab, or a ticket cache."""

    def __init__(self, settings: KerberosSettings) -> None:
        self._settings = settings

    @property
    def user(self) -> str:
        """The principal, as far as it is configured."""
        source = "keytab" if self._settings.keytab is not None else "ticket cache"
        return self._settings.principal or f"the principal of the {source}"

    def service(self, host: str) -> str:
        """Return the name of a broker's principal, without its realm."""
        return f"{self._settings.service_name}/{host}"

    def open_context(self, host: str, ticket: object) -> KerberosContext:
        assert isinstance(ticket, Ticket)
        return KerberosContext(ticket, self._settings.service_name, host)

    def acquire(self) -> Ticket:
        """Return a new ticket, or raise TicketError; may block."""
        settings = self._settings
        gss = _library()
        name = None
        if settings.principal is not None:
            name = gss.Name(settings.principal, gss.NameType.kerberos_principal)
        if settings.keytab is None:
            return self._of_cache(name)
        if settings.uses_cache:
            with suppress(TicketError):
                return self._of_cache(name)
        return self._of_keytab(settings.keytab, name)

    def _of_cache(self, name: object) -> Ticket:
        cache = self._settings.cache
        attempt = self._attempt._replace(cache=cache or "")
        return _initiating(attempt, name, None if cache is None else {"ccache": cache})

    def _of_keytab(self, path: str, name: object) -> Ticket:
        _check_file(path)
        # Of its own, so that no ticket of another principal is used or lost; in memory, until the process ends.
        cache = f"MEMORY:aioproducer-{next(_cache_numbers)}"
        gss, attempt = _library(), self._attempt
        try:
            return _initiating(attempt, name, {"client_keytab": path, "ccache": cache})._replace(is_own=True)
        except TicketError as error:
            if signed(getattr(error.__cause__, "min_code", 0)) in WITHOUT_A_TICKET:
                with _explained(attempt):  # the library says nothing about the keytab: ask whether it has the key
                    gss.Credentials(usage="accept", name=name, store={"keytab": path})
            raise

    @property
    def _attempt(self) -> TicketAttempt:
        return TicketAttempt(self.user, self._settings.service_name)


class TicketCache:
    """One ticket for all connections of a producer; it is asked for at most once at a time.

    That of a keytab is renewed when four fifths of its life are over, and kept while a renewal fails. A ticket cache is
    read for each authentication, so that a new `kinit` takes effect.
    """

    def __init__(self, source: TicketSource, loop: asyncio.AbstractEventLoop, *, log: EventLog) -> None:
        self.source = source
        self.asking: asyncio.Task[Ticket] | None = None
        self._loop = loop
        self._log = log
        self._kept: Ticket | None = None
        self._expires_at = self._renew_at = self._asked_at = -math.inf

    @property
    def user(self) -> str:
        """The principal, as far as it is known."""
        return self.source.user if self._kept is None else self._kept.user

    def current(self) -> Ticket | None:
        """Return the ticket if it is valid, and renew it in the background if that is due."""
        now = self._loop.time()
        if self._kept is None or now >= self._expires_at:
            return None
        if now >= self._renew_at and now >= self._asked_at + _PAUSE_S:
            self._ask()
        return self._kept

    async def ticket(self) -> Ticket:
        """Return a new ticket, or raise TicketError."""
        return await asyncio.shield(self._ask())  # others wait for it too

    def failed(self) -> None:
        """Renew the ticket: with it came one for a broker whose key has changed, perhaps."""
        self._renew_at = -math.inf
        self.current()

    def close(self) -> None:
        if self.asking is not None:
            self.asking.cancel()

    def _ask(self) -> asyncio.Task[Ticket]:
        if self.asking is None:
            self._asked_at = self._loop.time()
            self.asking = self._loop.create_task(self._renewed(), name="aioproducer-sasl")
            self.asking.add_done_callback(self._note_end)
        return self.asking

    def _note_end(self, task: asyncio.Task[Ticket]) -> None:
        self.asking = None
        if not task.cancelled():
            task.exception()  # seen: a renewal in the background has no waiter

    async def _renewed(self) -> Ticket:
        began_at = self._loop.time()
        try:
            ticket = await run_in_thread(self.source.acquire, "aioproducer-sasl")
        except TicketError as error:
            if self._kept is None or self._loop.time() >= self._expires_at:
                raise
            self._log.warning("ticket_not_renewed", reason=str(error))
            return self._kept
        if ticket.is_own:
            self._kept = ticket
            self._expires_at = began_at + ticket.life_s
            self._renew_at = began_at + _RENEWED_AFTER * ticket.life_s
        return ticket


class KerberosContext:
    """The client's side of GSS-API with one broker, whose principal is `service_name/host`."""

    def __init__(self, ticket: Ticket, service_name: str, host: str) -> None:
        self.is_established = False
        self._credentials = ticket.credentials
        self._service, self._host = service_name, host
        self._attempt = TicketAttempt(ticket.user, f"{service_name}/{host}")
        self._context: _GssContext | None = None

    def first_token(self) -> bytes:
        gss = _library()
        with _explained(self._attempt):
            context = self._context = gss.SecurityContext(
                name=gss.Name(f"{self._service}@{self._host}", gss.NameType.hostbased_service),
                creds=self._credentials,
                mech=gss.MechType.kerberos,
                flags=gss.RequirementFlag.mutual_authentication | gss.RequirementFlag.integrity,
                usage="initiate",
            )
            return self._step(context, None)

    def next_token(self, answer: bytes) -> bytes:
        with self._of_the_broker() as context:
            return self._step(context, answer)

    def wrap(self, message: bytes) -> bytes:
        with self._of_the_broker() as context:
            return context.wrap(message, False)[0]  # signed, and not encrypted

    def unwrap(self, message: bytes) -> bytes:
        with self._of_the_broker() as context:
            return context.unwrap(message)[0]

    def _step(self, context: _GssContext, token: bytes | None) -> bytes:
        following = context.step(token)
        self.is_established = context.complete
        return following or b""

    @contextmanager
    def _of_the_broker(self) -> Iterator[_GssContext]:
        assert self._context is not None  # of the first token
        try:
            yield self._context
        except _library().exceptions.GSSError as error:
            said = "; ".join(map(printable, _words(error)))
            raise AuthenticationError(
                f"the broker has not proved that it is {self._attempt.service}: {said}: it has no key of that "
                "principal, or its answers are changed on the way"
            ) from error


def _initiating(attempt: TicketAttempt, name: object, store: Mapping[str, str] | None) -> Ticket:
    """Return the ticket of a ticket cache or keytab."""
    gss = _library()
    with _explained(attempt):
        credentials: _Credentials = gss.Credentials(usage="initiate", name=name, store=store)
        life_s = credentials.lifetime  # an error if it has expired
        return Ticket(credentials, str(credentials.name), math.inf if life_s is None else float(life_s))


@contextmanager
def _explained(attempt: TicketAttempt) -> Iterator[None]:
    try:
        yield
    except _library().exceptions.GSSError as error:
        raise ticket_error(error.maj_code, error.min_code, attempt, words=_words(error)) from error


def _words(error: _GssError) -> list[str]:
    """Return what the library says about the minor code, or else about the major one."""
    return error.get_all_statuses(error.min_code, False) or error.get_all_statuses(error.maj_code, True)


def _check_file(path: str) -> None:
    """Raise `TicketError` if the keytab cannot be read: the library would only say that there is no ticket."""
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        text = f"sasl_kerberos_keytab={path!r} cannot be read: {error.strerror}"
        raise TicketError(text, retriable=is_passing(error)) from error


def _library() -> ModuleType:
    """Return the package `gssapi`, whose import takes too long for the event loop."""
    try:
        return import_module("gssapi")
    except ImportError as error:
        raise TicketError(
            f"GSSAPI needs the package gssapi, which cannot be loaded ({error}): pip install 'aioproducer[kerberos]', "
            "and on Linux the system's library of MIT Kerberos (libgssapi-krb5-2)"
        ) from error


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


PASSING: Final = frozenset({_KRB5 + 29, _KRB5 + 156, _KRB5 + 220})
"""Minor codes of a KDC that cannot be reached or does not serve now, and of its name that cannot be looked up."""


class TicketAttempt(NamedTuple):
    """Facts for the texts."""

    user: str  # whose ticket
    service: str  # the broker's principal
    cache: str = ""  # name of the ticket cache, if one is used


def ticket_error(major: int, minor: int, attempt: TicketAttempt, *, words: Iterable[str]) -> TicketError:
    """Return the error that says what was found and what to change.

    Args:
        major: code of GSS-API, with or without more bits.
        minor: code of the mechanism, unsigned.
        words: the library's, of the minor code.
    """
    code = signed(minor)
    said = "; ".join(printable(each) for each in words if each and each != _SUCCESS)
    is_expired = major & 0xFFFF_0000 == _CREDENTIALS_EXPIRED
    text = _EXPIRED if is_expired else TEXTS.get(code)
    if text is None and major & 0xFFFF_0000 == _NO_CREDENTIALS and not said:
        text = _NO_TICKET
    if text is None:
        text = f"Kerberos gives no ticket of {attempt.user} for {attempt.service}: {said or f'code {code}'}"
        return TicketError(text, retriable=code in PASSING)
    cache = f" {attempt.cache}" if attempt.cache else ""
    shown = text.format(user=attempt.user, service=attempt.service, cache=cache)
    return TicketError(f"{shown} ({said})" if said else shown, retriable=code in PASSING and not is_expired)


def signed(minor: int) -> int:
    """Return a minor code as Kerberos writes it."""
    return minor - (1 << 32) if minor >= 1 << 31 else minor
