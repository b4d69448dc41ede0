"""One ticket for all connections: asked for once, renewed before its end, kept while a renewal fails."""

import asyncio
import math

import pytest

from aioproducer._logs import event_log
from aioproducer._network.kerberos import Ticket
from aioproducer._network.tickets import TicketCache
from aioproducer._protocol.sasl.gssapi import SecurityContext
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
