"""Brokers that refuse this client for good, and how soon they are tried again.

A password or certificate does get fixed, so a refused broker is tried again, but seldom: brokers lock accounts after
too many wrong passwords, and each attempt costs them work.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from aioproducer._timing.retry_backoff import ExponentialBackoff, RandomSource
from aioproducer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    ConfigurationError,
    KafkaError,
    TlsRefusedError,
    TlsVerificationError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

FIRST_PAUSE_MS: Final = 1_000
MOST_A_MINUTE: Final = 10
_MINUTE_S: Final = 60.0
_UNWELCOME_AT_MOST: Final = 3


def is_for_good(error: BaseException | None) -> bool:
    """Whether nothing but another configuration, or another broker, makes the next attempt succeed."""
    return is_refusal(error) or isinstance(error, UnsupportedVersionError)


def is_refusal(error: BaseException | None) -> bool:
    """Whether one side does not accept the other, or what this side needs to show cannot be read."""
    if isinstance(error, AuthenticationError | ConfigurationError):
        return not error.retriable
    return isinstance(error, TlsRefusedError | TlsVerificationError)


def may_pass(error: BaseException | None) -> bool:
    """Whether this side could not fetch what it needs to show, and may fetch it later."""
    return isinstance(error, AuthenticationError | ConfigurationError) and error.retriable


def is_worth_repeating(error: KafkaError) -> bool:
    """Whether a request that has failed so may be answered later: no broker was reached, or nothing was to show."""
    return isinstance(error, BrokerConnectionError) or may_pass(error)


def of_user(error: AuthenticationError) -> AuthenticationError:
    """Return an error that the user's code has raised: it may pass, unless it says otherwise."""
    error.__dict__.setdefault("retriable", True)
    return error


class Refusals:
    """The refusals of one producer, by the place of the broker; at most ten a minute each.

    Args:
        max_pause_ms: longest pause between two attempts, unless there were ten within a minute.
    """

    def __init__(self, max_pause_ms: int) -> None:
        self._max_pause_ms = max_pause_ms
        self._latest: dict[Hashable, deque[float]] = {}
        self._in_a_row: dict[Hashable, int] = {}
        self._not_before: dict[Hashable, float] = {}
        self._turn_ends: dict[Hashable, float] = {}
        self._errors: dict[Hashable, KafkaError] = {}
        self._has_response = False
        self._unwelcome: dict[str, int] = {}  # connections in a row, by the label of the broker
        self._answered: set[str] = set()  # labels of brokers

    def note(
        self, place: Hashable, now: float, error: KafkaError | None, *, random: RandomSource, addresses: int = 1
    ) -> None:
        """Note a refusal.

        Args:
            error: the reason; None if other addresses of the name have failed in another way, and may accept.
            random: for the jitter of the pause.
            addresses: of the name that have refused; the next attempt will try as many.
        """
        in_a_row = self._in_a_row.get(place, 0)
        self._in_a_row[place] = in_a_row + 1
        self._errors.pop(place, None)
        if error is not None:
            self._errors[place] = error
        latest = self._latest.setdefault(place, deque(maxlen=MOST_A_MINUTE))
        latest.extend([now] * addresses)
        not_before = now + ExponentialBackoff(FIRST_PAUSE_MS, self._max_pause_ms, random=random).delay_s(in_a_row)
        too_many = len(latest) + addresses - MOST_A_MINUTE
        if too_many > 0:
            not_before = max(not_before, latest[min(too_many, len(latest)) - 1] + _MINUTE_S)
        self._not_before[place] = not_before

    def begin(self, place: Hashable, now: float) -> None:
        """Let a broker that has refused be tried by one connection at a time, as a bootstrap server or as a node."""
        if place in self._in_a_row:
            self._turn_ends[place] = now + FIRST_PAUSE_MS / 1000

    def turn_ends(self, place: Hashable) -> float:
        """Return until when another connection tries this broker; monotonic seconds."""
        return self._turn_ends.get(place, 0.0)

    def error(self, place: Hashable) -> KafkaError | None:
        """Return why a broker that is not to be tried now has refused; None if it has accepted since."""
        return self._errors.get(place)

    def end(self, place: Hashable) -> None:
        """Forget the refusals of a broker that has accepted this client."""
        for each in (self._in_a_row, self._not_before, self._turn_ends, self._errors):
            each.pop(place, None)

    def is_unwelcome(self, label: str) -> bool:
        """Note a connection that was closed at its first request; tell whether it was the third in a row.

        A broker that shuts down does so once; and if any broker has ever answered, this one is only in trouble.
        """
        self._unwelcome[label] = self._unwelcome.get(label, 0) + 1
        return self._unwelcome[label] >= _UNWELCOME_AT_MOST and not self._has_response

    def answered(self, label: str) -> None:
        """Note that a broker has answered a request of a connection that is lost now."""
        self._unwelcome.pop(label, None)
        self._answered.add(label)

    def has_answered(self, label: str) -> bool:
        """Whether a broker has answered requests of a connection before: then its listener is the right one."""
        return label in self._answered

    def metadata_came(self) -> None:
        """Note that the cluster has answered: the listener is the right one."""
        self._has_response = True

    def not_before(self, place: Hashable) -> float:
        """Return the earliest time of the next attempt; monotonic seconds."""
        return self._not_before.get(place, 0.0)
