"""TLS of one producer: its context, loaded again when files have changed, for each connection."""

from __future__ import annotations

import asyncio
import inspect
import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from aioproducer._network.addresses import text_of
from aioproducer._network.tls import InnerProtocol, TlsProtocol
from aioproducer._network.tls_errors import TlsAttempt
from aioproducer._threads.calls import run_in_thread
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.security import Secret
from aioproducer.security._stores import KeyStore, TrustStore
from aioproducer.security._tls_context import TlsContext, TlsRules, build_context, types_that_differ

if TYPE_CHECKING:
    from aioproducer._logs import EventLog


ANSWER_S: Final = 10.0
"""Time for a function that is asked for a password; all connections wait for its response."""

RETRY_S: Final = 10.0
"""Pause before unchanged files that could not be used are loaded again: what was missing may be a password."""

InnerT = TypeVar("InnerT", bound=InnerProtocol)
ResultT = TypeVar("ResultT")

Password: TypeAlias = Secret | Callable[[], "str | Secret | Awaitable[str | Secret]"] | None
ContextSource: TypeAlias = ssl.SSLContext | Callable[[], ssl.SSLContext]
"""A context, or a function called for each connection."""

_Stamp: TypeAlias = tuple[tuple[int, int, int, int] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoreOptions:
    """The options of the two stores; passwords are not revealed yet."""

    truststore_location: str | None = None
    truststore_type: str | None = None  # None: not given
    truststore_certificates: str | None = None
    truststore_password: Password = None
    keystore_location: str | None = None
    keystore_type: str | None = None
    keystore_key: Password = None
    keystore_certificate_chain: str | None = None
    key_location: str | None = None
    keystore_password: Password = None
    key_password: Password = None


class TlsReloader:
    """Makes connections TLS, and loads files again when they change. `prepare` comes before `wrap`, per connection.

    Args:
        stores: whom to trust, and our own certificate.
        source: takes the place of rules and stores.
    """

    def __init__(self, rules: TlsRules, stores: StoreOptions, source: ContextSource | None, *, log: EventLog) -> None:
        self._rules = rules
        self._stores = stores
        self._source = source
        self._log = log
        given = (stores.truststore_location, stores.keystore_location, stores.key_location)
        self._paths = tuple(path for path in given if path is not None)
        self._context: TlsContext | None = None
        self._stamp: _Stamp = ()  # of the files that were loaded
        self._failed_stamp: _Stamp = ()  # of those that could not be used
        self._retry_at = 0.0  # monotonic seconds
        self._warned_reason = ""
        self._lock = asyncio.Lock()
        self._has_warned = False  # about a context of the user's

    async def prepare(self) -> None:
        """Load the stores, or load them again if a file has changed; files that cannot be used change nothing.

        Those are loaded again when they change once more, and after `RETRY_S`: their password may come later.

        Raises:
            ConfigurationError: they cannot be used the first time.
        """
        if self._source is not None:
            return
        async with self._lock:  # one load for all connections
            stamp = self._look()
            if self._context is not None and (stamp == self._stamp or self._has_just_failed(stamp)):
                return
            try:
                loaded = await self._load_unchanged(stamp)
            except Exception as error:  # the system may have no descriptor left
                if self._context is None:
                    raise
                self._keep_loaded(stamp, error)
                return
            self._take(loaded, stamp)

    def wrap(self, make: Callable[[], InnerT], host: str) -> Callable[[], TlsProtocol[InnerT]]:
        """Return a function that makes the protocol below TLS, which makes the one above by `make`.

        Args:
            host: whose name is checked: the one that the cluster advertises.

        Raises:
            ConfigurationError: the user's function returned no context.
        """
        found = self._context if self._source is None else self._from_user(self._source)
        assert found is not None  # `prepare` came before
        attempt = TlsAttempt(name_to_check(host), found.has_certificate, found.has_truststore, unnamed=found.unnamed)
        return partial(TlsProtocol, found.context, attempt, make)

    def context(self) -> ssl.SSLContext:
        """Return the context of the next connection, for those that other libraries make."""
        found = self._context if self._source is None else self._from_user(self._source)
        assert found is not None  # `prepare` came before
        return found.context

    def _look(self) -> _Stamp:
        return tuple(map(_stamp_of, self._paths))

    async def _load_unchanged(self, stamp: _Stamp) -> TlsContext:
        """Load the files, and once more if they were replaced between the first and the last of them."""
        try:
            return await self._load()
        except ConfigurationError:
            if self._look() == stamp:
                raise
            return await self._load()

    async def _load(self) -> TlsContext:
        options = self._stores
        trusted = TrustStore(
            location=options.truststore_location,
            certificates=options.truststore_certificates,
            password=await reveal(options.truststore_password, "ssl_truststore_password"),
        )
        own = KeyStore(
            location=options.keystore_location,
            key=await reveal(options.keystore_key, "ssl_keystore_key"),
            certificate_chain=options.keystore_certificate_chain,
            key_location=options.key_location,
            password=await reveal(options.keystore_password, "ssl_keystore_password"),
            key_password=await reveal(options.key_password, "ssl_key_password"),
        )
        loaded = await run_in_thread(partial(build_context, self._rules, trusted, own), "aioproducer-tls-files")
        if self._context is None:
            for option, configured, found in types_that_differ(
                trusted, own, trusted_type=options.truststore_type, own_type=options.keystore_type
            ):
                self._log.info("store_type_differs", option=option, configured=configured, found=found)
        return loaded

    def _has_just_failed(self, stamp: _Stamp) -> bool:
        return stamp == self._failed_stamp and asyncio.get_running_loop().time() < self._retry_at

    def _keep_loaded(self, stamp: _Stamp, error: Exception) -> None:
        self._failed_stamp, self._retry_at = stamp, asyncio.get_running_loop().time() + RETRY_S
        # Other errors than ours and the system's may quote what they could not read.
        reason = text_of(error) if isinstance(error, ConfigurationError | OSError) else type(error).__name__
        if reason != self._warned_reason:
            self._warned_reason = reason
            self._log.warning("tls_files_not_reloaded", reason=reason)

    def _take(self, loaded: TlsContext, stamp: _Stamp) -> None:
        if self._context is not None:
            self._log.info("tls_files_reloaded", files=list(self._paths))
        self._warned_reason = ""
        for option, text in loaded.warnings:
            self._log.warning("tls_setting", option=option, reason=text)
        self._context, self._stamp = loaded, stamp

    def _from_user(self, source: ContextSource) -> TlsContext:
        context: object = source if isinstance(source, ssl.SSLContext) else source()
        if not isinstance(context, ssl.SSLContext):
            text = f"ssl_context returned {type(context).__name__}, and must return an ssl.SSLContext"
            raise ConfigurationTypeError(text, option="ssl_context")
        if not self._has_warned and context.verify_mode is not ssl.CERT_REQUIRED:
            self._has_warned = True
            text = "it does not check the certificates of brokers: everyone between here and there may read and change"
            self._log.warning("tls_setting", option="ssl_context", reason=text)
        # A context does not tell whether it has a client certificate; texts assume so.
        return TlsContext(context, has_certificate=True, has_truststore=True)


def name_to_check(host: str) -> str:
    """Return the name for SNI and the check of the certificate: without the dot of a full name, or a scope."""
    return host.partition("%")[0].removesuffix(".")


def _stamp_of(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # one call before each connection
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino  # ctime: of its owner and permissions, too


async def reveal(password: Password, option: str) -> str | None:
    """Return a password in clear; a function is asked for it.

    Raises:
        ConfigurationError: the variable or file of a Secret cannot be read, or the function fails.
        ConfigurationTypeError: it returned something else than text.
    """
    if password is None:
        return None
    if isinstance(password, Secret):
        return password.reveal()
    timeout = asyncio.timeout(ANSWER_S)
    try:
        async with timeout:
            answer = password()
            found: object = await answer if inspect.isawaitable(answer) else answer
    except Exception as error:
        if isinstance(error, TimeoutError) and timeout.expired():
            text = f"{option}: the function has not answered within {ANSWER_S:g} s"
            raise ConfigurationError(text, option=option, retriable=True) from error
        # Without what it says, which may hold the secret.
        text = f"{option}: the function raised {type(error).__name__}"
        raise ConfigurationError(text, option=option, retriable=True) from error
    if isinstance(found, Secret):
        return found.reveal()
    if not isinstance(found, str):
        text = f"{option}: the function returned {type(found).__name__}, and must return text or a Secret"
        del answer, found  # may hold the secret, and error reports show local variables
        raise ConfigurationTypeError(text, option=option)
    return found
