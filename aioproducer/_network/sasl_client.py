"""Authentication of all connections of one producer: chooses the mechanism, starts exchanges, does what they ask for.

The steps of each mechanism are in `_protocol/sasl_mechanisms.py`.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from aioproducer._network.refusals import of_user
from aioproducer._protocol.sasl_exchange import (
    BearerWanted,
    Exchange,
    Mechanism,
    PasswordWanted,
    SaltedPasswordWanted,
    TicketWanted,
    Work,
    exchange,
)
from aioproducer._protocol.sasl_mechanisms import Gssapi, OAuthBearer, Plain, Scram
from aioproducer._protocol.sent_secrets import SentSecrets
from aioproducer._threads.calls import run_in_thread
from aioproducer.errors import AuthenticationError, ConfigurationError, CredentialsError, TicketError, TokenError
from aioproducer.security import Secret
from aioproducer.security._secret import NOT_UNICODE, is_unicode

if TYPE_CHECKING:
    from aioproducer._network.kerberos import TicketCache
    from aioproducer._network.token_cache import TokenCache
    from aioproducer._protocol.api_versions import ApiVersions

Password: TypeAlias = Secret | Callable[[], object]
Place: TypeAlias = tuple[str, int]
Wish: TypeAlias = PasswordWanted | BearerWanted | SaltedPasswordWanted | TicketWanted | Work

_NONCE_BYTES: Final = 24
_COMPUTED_AT_ONCE: Final = 8192
"""Iterations that take some 3 ms; more are computed in a thread. Kafka's default is 4096."""
_MOST_SALTED: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """Options of SASL."""

    mechanism: str
    username: str = ""
    password: Password | None = None
    is_delegation_token: bool = False
    retry_backoff_max_ms: int = 10_000


class SaslClient:
    """Shared by all connections of a producer.

    Args:
        tokens: for OAUTHBEARER.
        tickets: for GSSAPI.
        nonce: returns text that it never returns again.
        read_again: returns the settings of the next authentication, whose user and password stand in one text.
    """

    def __init__(
        self,
        settings: SaslSettings,
        loop: asyncio.AbstractEventLoop,
        *,
        tokens: TokenCache | None = None,
        tickets: TicketCache | None = None,
        nonce: Callable[[], str] | None = None,
        read_again: Callable[[], SaslSettings] | None = None,
    ) -> None:
        self.settings = settings
        self._read_again = read_again
        self._loop = loop
        self.tickets = tickets
        self._tokens = tokens
        self._nonce = nonce or _random_nonce
        self._salted: dict[SaltedPasswordWanted, asyncio.Future[bytes]] = {}
        self._patient: set[Place] = set()
        self._sent = SentSecrets()  # of earlier exchanges too: a broker may know what it was sent before

    @property
    def mechanism(self) -> str:
        return self.settings.mechanism

    @property
    def user(self) -> str:
        """User or principal, as far as it is known; empty for OAUTHBEARER."""
        return self.settings.username if self.tickets is None else self.tickets.user

    def exchange(self, host: str, versions: ApiVersions, *, repeats: bool = False, is_patient: bool = True) -> Exchange:
        """Return a new exchange, as `exchange` does; ConfigurationError if the settings cannot be read again."""
        if self._read_again is not None:
            self.settings = self._read_again()
        return exchange(self._mechanism(host), versions, repeats=repeats, is_patient=is_patient)

    @property
    def salted_passwords(self) -> int:
        """Number of salted passwords that were computed, and are kept."""
        return len(self._salted)

    def is_patient(self, place: Place) -> bool:
        return place in self._patient

    def be_patient(self, place: Place) -> None:
        """Wait for each response from now on: this broker, or a proxy before it, has closed on what was sent behind."""
        self._patient.add(place)

    def at_once(self, wish: Wish) -> object:
        """Return the result of a step that needs no waiting, else None."""
        if isinstance(wish, PasswordWanted) and isinstance(self.settings.password, Secret):
            return _revealed(self.settings.password)
        if isinstance(wish, BearerWanted) and self._tokens is not None:
            return self._tokens.current()
        if isinstance(wish, SaltedPasswordWanted):
            return self._salted_at_once(wish)
        if isinstance(wish, TicketWanted) and self.tickets is not None:
            return self.tickets.current()
        return None

    async def carry_out(self, wish: Wish) -> object:
        """Return the result of a step, or raise AuthenticationError."""
        if isinstance(wish, PasswordWanted):
            return await self._ask_password()
        if isinstance(wish, BearerWanted):
            assert self._tokens is not None
            return await self._tokens.token()
        if isinstance(wish, SaltedPasswordWanted):
            return await self._salt_in_thread(wish)
        if isinstance(wish, TicketWanted):
            assert self.tickets is not None
            return await self.tickets.ticket()
        return await run_in_thread(wish.run, "aioproducer-sasl")

    def failed(self, error: BaseException) -> None:
        """Note the error of an exchange."""
        if self.tickets is not None and isinstance(error, TicketError):
            self.tickets.failed()

    def refused(self, error: AuthenticationError) -> None:
        """Note what a broker has refused: another token is asked for."""
        if self._tokens is not None and isinstance(error, TokenError):
            self._tokens.refused()

    def close(self) -> None:
        """Stop; `closed` waits for the end."""
        for computing in self._salted.values():
            computing.cancel()
        if self._tokens is not None:
            self._tokens.close()
        if self.tickets is not None:
            self.tickets.close()

    async def closed(self) -> None:
        """Wait for what was cancelled."""
        await asyncio.gather(*self._salted.values(), return_exceptions=True)
        if self._tokens is not None and self._tokens.fetching is not None:
            await asyncio.wait((self._tokens.fetching,))
        if self.tickets is not None and self.tickets.asking is not None:
            await asyncio.wait((self.tickets.asking,))

    def _mechanism(self, host: str) -> Mechanism:
        settings = self.settings
        if settings.mechanism == Plain.name:
            return Plain(settings.username, sent=self._sent)
        if settings.mechanism == OAuthBearer.name:
            return OAuthBearer(sent=self._sent)
        if self.tickets is not None:
            host = host.removesuffix(".")
            source = self.tickets.source
            opened = partial(source.open_context, host)
            return Gssapi(opened, user=self.tickets.user, service=source.service(host), sent=self._sent)
        return Scram(
            settings.mechanism,
            settings.username,
            nonce=self._nonce(),
            is_token=settings.is_delegation_token,
            sent=self._sent,
        )

    # Passwords

    async def _ask_password(self) -> str:
        ask = self.settings.password
        assert ask is not None
        assert not isinstance(ask, Secret)
        try:
            answer = ask()
            if inspect.isawaitable(answer):
                answer = await answer
        except AuthenticationError as error:
            raise of_user(error) from error.__cause__
        except Exception as error:
            # Without what it says, which may hold the secret.
            text = f"the function of sasl_password raised {type(error).__name__}"
            raise CredentialsError(text, retriable=True) from error
        if isinstance(answer, Secret):
            return _revealed(answer)
        if not isinstance(answer, str) or not answer:
            what = "an empty text" if answer == "" else type(answer).__name__
            raise CredentialsError(f"the function of sasl_password must return text or a Secret, not {what}")
        if not is_unicode(answer):
            raise CredentialsError(f"what the function of sasl_password returned {NOT_UNICODE}")
        return answer

    # Salted passwords: one computation for all connections

    def _salted_at_once(self, wish: SaltedPasswordWanted) -> bytes | None:
        known = self._salted.get(wish)
        if known is not None:
            return known.result() if known.done() else None
        if wish.iterations > _COMPUTED_AT_ONCE:
            return None
        salted = _compute(wish)
        computed: asyncio.Future[bytes] = self._loop.create_future()
        computed.set_result(salted)
        self._remember(wish, computed)
        return salted

    async def _salt_in_thread(self, wish: SaltedPasswordWanted) -> bytes:
        computing = self._salted.get(wish)
        if computing is None:
            name = "aioproducer-sasl"
            computing = self._loop.create_task(run_in_thread(partial(_compute, wish), name), name=name)
            self._remember(wish, computing)
            computing.add_done_callback(partial(self._forget_failed, wish))
        return await asyncio.shield(computing)  # others wait for it too

    def _forget_failed(self, wish: SaltedPasswordWanted, computing: asyncio.Future[bytes]) -> None:
        """Compute it again at the next authentication, if the system had no thread for it, or it was cancelled."""
        if computing.cancelled() or computing.exception() is not None:
            self._salted.pop(wish, None)

    def _remember(self, wish: SaltedPasswordWanted, computed: asyncio.Future[bytes]) -> None:
        while len(self._salted) >= _MOST_SALTED:
            del self._salted[next(iter(self._salted))]
        self._salted[wish] = computed


def _compute(wish: SaltedPasswordWanted) -> bytes:
    return wish.compute(wish.hash_name, wish.password.encode(), wish.salt, wish.iterations)


def _revealed(secret: Secret) -> str:
    try:
        text = secret.reveal()
    except ConfigurationError as error:
        raise CredentialsError(f"sasl_password cannot be read: {error}", retriable=error.retriable) from error
    if not text:
        raise CredentialsError(f"sasl_password is empty: {secret!r}")
    return text


def _random_nonce() -> str:
    return base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
