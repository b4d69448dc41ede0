"""History of one run: the operation of each record, the violations, and, on request, every event as text.

`Secrecy` looks for payloads, passwords, tokens and keys in what the producer says.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from aioproducer import Delivery, KafkaError, OffsetRange, Outcome, RecordMetadata, UndeliveredError
from aioproducer.records import TopicPartition

LOOKS_FOR_PAYLOADS: Final = 16  # one in so many seeds makes events and searches errors, which costs a tenth of a run
LOOKS_FOR_SECRETS: Final = 4  # the same, of those with secrets

_PAYLOAD: Final = re.compile(r"\d+\.\d+\.\d+\||\bk\d+\||\d\.\d+\|xx|brown fox|lazy dog")

_SECRET: Final = re.compile(r"alice-secret|eyJ[\w-]{10,}|PRIVATE KEY")
_PARTS: Final = ("|", "brown fox", "lazy dog", "-secret", "eyJ", "PRIVATE KEY")
"""One of them is in each such text."""


class Secrecy:
    """SECRECY: no payload and no password, token or key in events, errors and what hangs on them, and every `repr`.

    Payloads of a simulation begin with the name of their record and a bar, and most go on with words that are used
    nowhere else. So a text that quotes one, from its beginning or out of its middle, is recognized.
    """

    def __init__(self, violated: Callable[[str, str], None]) -> None:
        self._violated = violated

    def check(self, what: str, text: str) -> None:
        if not any(part in text for part in _PARTS):
            return  # as almost always, and to know it takes less time than to search
        secret = _SECRET.search(text)
        if secret is not None:
            self._violated("SECRECY", f"{what} holds a secret ({secret[0]:.12}...)")
        found = _PAYLOAD.search(text)
        if found is not None:
            self._violated("SECRECY", f"{what} holds a payload ({found[0]!r}): {text[:200]}")

    def check_error(self, error: BaseException) -> None:
        """Look at an error, at what it came of, and at what hangs on each of them."""
        for each in _chain(error):
            name = type(each).__name__
            self.check(f"the text of {name}", f"{each} {each.args!r}")
            for attribute, value in vars(each).items():
                self.check(f"{name}.{attribute}", repr(value))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    rest = [error]
    while rest:
        each = rest.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        rest += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            rest += each.exceptions


class RecordId(NamedTuple):
    """Identity of a record: it stands in the payload, so that a log tells which record it holds."""

    client: int
    stream: int
    number: int

    def __str__(self) -> str:
        return f"{self.client}.{self.stream}.{self.number}"


class End(StrEnum):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    NOT_WRITTEN = "not written"
    UNKNOWN = "unknown"
    GIVEN_UP = "given up"  # the caller was cancelled before it learned more: written once or not at all


@dataclass(slots=True, eq=False)
class Operation:
    record: RecordId
    order: int
    topic: str
    value: bytes | None
    key: bytes | None
    verb: str
    called_at: float  # virtual seconds
    partition: int | None = None  # the one asked for, or the one it went to
    is_free: bool = False
    """Whether it has neither partition nor key: it may go anywhere, and chooses only when there is room."""

    is_by_key: bool = False
    headers: tuple[tuple[str, bytes | None], ...] = ()
    end: End = End.OPEN
    ended_at: float = -1.0
    offset: int = -1
    timestamp: int = -1
    log_start: int = -1  # reported offset of the first record in its log
    deadline_s: float | None = None  # its own, where the caller set one
    given_timestamp: int | None = None  # ms since the epoch, when the caller set one
    error: str = ""
    delivery: Delivery | None = None
    expects_callback: bool = False  # an `on_delivery` was given with a record that was not refused
    was_called_back: bool = False
    was_given_up: bool = False  # whether its caller was cancelled, before or after an outcome
    is_left: bool = False  # whether its delivery is never awaited: flush or `close` must report its failure
    ranges: Mapping[TopicPartition, OffsetRange] | None = None
    """Result of `send_many`, which does not say which record is where."""

    def acknowledge(self, metadata: RecordMetadata, now: float) -> None:
        self.end, self.ended_at = End.ACKNOWLEDGED, now
        self.partition, self.offset, self.timestamp = metadata.partition, metadata.offset, metadata.timestamp
        self.log_start = metadata.log_start_offset

    def fail(self, error: BaseException, now: float) -> None:
        outcome = error.outcome if isinstance(error, KafkaError) else None
        self.end = End.UNKNOWN if outcome is Outcome.UNKNOWN else End.NOT_WRITTEN
        self.ended_at, self.error = now, f"{type(error).__name__}: {error}"

    def give_up(self, now: float) -> None:
        self.was_given_up = True
        if self.end is End.OPEN:
            self.end, self.ended_at = End.GIVEN_UP, now


class Violation(NamedTuple):
    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


@dataclass(slots=True, eq=False)
class History:
    is_recording: bool = False
    clock: Callable[[], float] = lambda: 0.0
    operations: list[Operation] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    events: list[tuple[float, str, str]] = field(default_factory=list)  # (virtual seconds, source, event)
    secrecy: Secrecy | None = None  # looks for payloads in what the producer says; None: not in this run
    undelivered: int = 0  # records that flushes and closes said were not delivered

    def note_undelivered(self, error: UndeliveredError) -> None:
        """A flush, or `close`, says that records were not delivered."""
        self.undelivered += error.count
        if self.secrecy is not None:
            self.secrecy.check_error(error)
        self.note("caller", "%s", error)

    def note(self, who: str, what: str, *values: object) -> None:
        """Keep an event; `what` is a %-format, filled in only where it is kept."""
        if self.is_recording:
            self.events.append((self.clock(), who, what % values))

    def violated(self, invariant: str, text: str) -> None:
        """An invariant was broken; the run goes on, for what else it shows."""
        self.note("VIOLATION", "%s: %s", invariant, text)
        if len(self.violations) < 20:
            self.violations.append(Violation(invariant, text))

    def begin(self, operation: Operation) -> Operation:
        self.operations.append(operation)
        if self.is_recording:
            self.note(
                "caller", "%s %s to %s-%s", operation.verb, operation.record, operation.topic, operation.partition
            )
        return operation

    def lines(self) -> list[str]:
        return [f"{at:12.6f}  {who:<9} {what}" for at, who, what in self.events]
