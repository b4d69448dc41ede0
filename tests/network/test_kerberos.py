"""Tickets of Kerberos: one for all connections, renewed before its end, and what is said when there is none."""

import asyncio
import math

import pytest

from aioproducer._logs import event_log
from aioproducer._network.kerberos import Ticket, TicketAttempt, TicketCache, signed, ticket_error
from aioproducer._protocol.sasl_mechanisms import SecurityContext
from aioproducer.errors import TicketError


class Credentials:
    """Credentials of no library."""

    lifetime = None
    name = "alice@R"


class Source:
    """A source whose tickets live as long as it is told."""

    user = "alice"

    def __init__(self, life_s: float = math.inf, *, is_own: bool = True) -> None:
        self.life_s = life_s
        self.asked = 0
        self.error: TicketError | None = None
        self._is_own = is_own

    def acquire(self) -> Ticket:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Ticket(Credentials(), f"alice-{self.asked}", self.life_s, self._is_own)

    def service(self, host: str) -> str:
        return f"kafka/{host}"

    def open_context(self, host: str, ticket: object) -> SecurityContext:
        raise NotImplementedError


class Clock:
    """The loop, whose time is set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._loop = asyncio.get_running_loop()

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)


def cache_of(source: Source, clock: Clock) -> TicketCache:
    return TicketCache(source, clock, log=event_log("test"))  # type: ignore[arg-type]


async def ended(cache: TicketCache) -> None:
    while cache.asking is not None:
        await asyncio.wait((cache.asking,))
        await asyncio.sleep(0)


async def test_hundred_connections_ask_once_and_the_ticket_is_kept() -> None:
    source = Source()
    cache = cache_of(source, Clock())
    assert cache.current() is None
    assert cache.user == "alice"
    tickets = await asyncio.gather(*(cache.ticket() for _ in range(100)))

    assert source.asked == 1
    assert set(map(str, tickets)) == {"alice-1"}
    assert cache.current() is tickets[0]
    assert cache.user == "alice-1"


async def test_ticket_of_a_ticket_cache_is_read_each_time() -> None:
    source = Source(is_own=False)
    cache = cache_of(source, Clock())
    await cache.ticket()

    assert cache.current() is None
    assert (await cache.ticket()).user == "alice-2"


async def test_ticket_is_renewed_after_four_fifths_of_its_life() -> None:
    source, clock = Source(1000.0), Clock()
    cache = cache_of(source, clock)
    await cache.ticket()
    clock.now += 799.0
    assert str(cache.current()) == "alice-1, 0 h 16 min left"
    assert cache.asking is None
    clock.now += 2.0
    assert cache.current() is not None  # without waiting
    await ended(cache)

    assert cache.user == "alice-2"
    assert source.asked == 2


async def test_valid_ticket_is_kept_while_no_kdc_answers() -> None:
    source, clock = Source(1000.0), Clock()
    cache = cache_of(source, clock)
    await cache.ticket()
    source.error = TicketError("no KDC")
    clock.now += 900.0
    for _ in range(50):
        assert cache.current() is not None
        await ended(cache)
    assert source.asked == 2
    clock.now += 61.0
    assert cache.current() is not None
    await ended(cache)

    assert source.asked == 3
    assert (await cache.ticket()).user == "alice-1"


async def test_expired_ticket_is_asked_for_and_the_error_raised() -> None:
    source, clock = Source(10.0), Clock()
    cache = cache_of(source, clock)
    await cache.ticket()
    clock.now += 11.0
    source.error = TicketError("no KDC")

    assert cache.current() is None
    with pytest.raises(TicketError, match="no KDC"):
        await cache.ticket()
    source.error = None
    assert (await cache.ticket()).user == "alice-3"


async def test_refused_ticket_is_renewed_at_most_once_a_minute() -> None:
    source, clock = Source(), Clock()
    cache = cache_of(source, clock)
    await cache.ticket()
    for _ in range(5):
        cache.failed()
        await ended(cache)
    assert source.asked == 1
    clock.now += 61.0
    for _ in range(5):
        cache.failed()
        await ended(cache)

    assert cache.user == "alice-2"


async def test_close_cancels_what_is_asked() -> None:
    cache = cache_of(Source(), Clock())
    cache.close()
    asking = asyncio.ensure_future(cache.ticket())
    await asyncio.sleep(0)
    cache.close()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert cache.asking is None


KRB5 = -1_765_328_384
GSS_OF_KRB5 = 39_756_032
NO_CREDENTIALS, EXPIRED, FAILURE = 7 << 16, 11 << 16, 13 << 16
ATTEMPT = TicketAttempt("alice@R", "kafka/host", "FILE:/c")


def text_of(minor: int, major: int = FAILURE, *words: str) -> str:
    error = ticket_error(major, minor & 0xFFFF_FFFF, ATTEMPT, words=words or ("said",))
    assert isinstance(error, TicketError)
    return str(error)


@pytest.mark.parametrize(
    "code, words",
    [
        (KRB5 + 6, "does not know alice@R: look at sasl_kerberos_principal"),
        (KRB5 + 7, "does not know kafka/host: sasl_kerberos_service_name"),
        (KRB5 + 14, "encryption type"),
        (KRB5 + 18, "alice@R is locked"),
        (KRB5 + 23, "the password of alice@R has expired"),
        (KRB5 + 24, "another key for alice@R"),
        (KRB5 + 31, "another key for alice@R"),
        (KRB5 + 32, "has expired: run kinit"),
        (KRB5 + 33, "clocks"),
        (KRB5 + 37, "clocks of this machine, the KDC and the broker differ by more than five minutes"),
        (KRB5 + 41, "the broker has another key for kafka/host"),
        (KRB5 + 44, "the broker has another key for kafka/host"),
        (KRB5 + 45, "the broker has another key for kafka/host"),
        (KRB5 + 68, "another realm"),
        (KRB5 + 134, "not the name of a principal"),
        (KRB5 + 135, "KRB5_CONFIG"),
        (KRB5 + 136, "KRB5_CONFIG"),
        (KRB5 + 139, "KRB5CCNAME"),
        (KRB5 + 140, "KRB5CCNAME"),
        (KRB5 + 141, "no ticket in the ticket cache FILE:/c: run kinit, or set sasl_kerberos_keytab"),
        (KRB5 + 148, "clocks"),
        (KRB5 + 150, "encryption type"),
        (KRB5 + 154, "default_realm"),
        (KRB5 + 156, "no KDC of the realm answers"),
        (KRB5 + 179, "not a keytab"),
        (KRB5 + 181, "no key for alice@R"),
        (KRB5 + 184, "not a keytab"),
        (KRB5 + 193, "ticket cache cannot be read"),
        (KRB5 + 194, "ticket cache cannot be read"),
        (KRB5 + 195, "run kinit"),
        (KRB5 + 199, "ticket cache cannot be read"),
        (KRB5 + 210, "another key for alice@R"),
        (KRB5 + 212, "ticket cache cannot be read"),
        (KRB5 + 213, "not a keytab"),
        (KRB5 + 217, "realm"),
        (KRB5 + 220, "no KDC of the realm answers"),
        (KRB5 + 224, "default_realm"),
        (KRB5 + 237, "permitted_enctypes"),
        (GSS_OF_KRB5, "another principal than alice@R"),
        (GSS_OF_KRB5 + 1, "no key for alice@R"),
    ],
)
def test_code_has_a_text_that_says_what_to_look_at(code: int, words: str) -> None:
    text = text_of(code)

    assert words in text
    assert text.endswith(" (said)")


def test_unknown_code_shows_what_the_library_says() -> None:
    assert text_of(KRB5 + 60, FAILURE, "generic") == "Kerberos gives no ticket of alice@R for kafka/host: generic"


def test_unknown_code_is_not_taken_for_a_missing_ticket() -> None:
    assert text_of(KRB5 + 60, NO_CREDENTIALS, "generic").endswith("for kafka/host: generic")


def test_unknown_code_without_words_is_shown() -> None:
    assert text_of(5, FAILURE, "Success") == "Kerberos gives no ticket of alice@R for kafka/host: code 5"


@pytest.mark.parametrize(
    "major, words", [(NO_CREDENTIALS, "run kinit"), (EXPIRED, "has expired"), (EXPIRED | 3, "has expired")]
)
def test_major_code_tells_where_the_minor_one_does_not(major: int, words: str) -> None:
    assert words in text_of(100_001, major, "Success")


def test_words_of_a_kdc_are_escaped_and_cut() -> None:
    text = text_of(KRB5 + 60, FAILURE, "\x1b[31m" + "x" * 100_000)

    assert "\x1b" not in text
    assert len(text) < 2_000


def test_minor_codes_are_signed_as_in_kerberos() -> None:
    assert signed(2529638919) == KRB5 + 7
    assert signed(GSS_OF_KRB5) == GSS_OF_KRB5
