"""Kerberos through the package `gssapi`: tickets, and the client's side of GSS-API with one broker.

What may ask a KDC, and so block, runs in a thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aioproducer._network.kerberos_errors import WITHOUT_A_TICKET, TicketAttempt, signed, ticket_error
from aioproducer._protocol.cluster_text import printable
from aioproducer.errors import AuthenticationError, TicketError

if TYPE_CHECKING:
    from types import ModuleType

_cache_numbers: Final = count(1)


class KerberosSettings(NamedTuple):
    """What the configuration says about Kerberos."""

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
    """Where the tickets of a producer come from: a keytab, or a ticket cache.

    Args:
        settings: of the configuration.
    """

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
        """Return a new ticket; may block.

        Raises:
            TicketError: there is none.
        """
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


class KerberosContext:
    """The client's side of GSS-API with one broker.

    Args:
        ticket: of the client.
        service_name: first part of the broker's principal.
        host: the second.
    """

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
        raise TicketError(f"sasl_kerberos_keytab={path!r} cannot be read: {error.strerror}") from error


def _library() -> ModuleType:
    """Return the package `gssapi`, whose import takes too long for the event loop."""
    try:
        return import_module("gssapi")
    except ImportError as error:
        raise TicketError(
            f"GSSAPI needs the package gssapi, which cannot be loaded ({error}): pip install 'aioproducer[kerberos]', "
            "and on Linux the system's library of MIT Kerberos (libgssapi-krb5-2)"
        ) from error
