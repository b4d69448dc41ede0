"""Symbols of a trace for names that a broker chooses, and the translation of its responses into them.

    "$a"            the trace's own topic a                 "#a", "#a@0"   its id; the id it had when first made
    "?1"            an id that no topic has                  "p0"           the producer id of the first InitProducerId
    -60000          a time, in ms from the trace's start     ["at", 1000]   a time as it stands
    ["pid", "$x"]   the producer id that transactional id $x has now, or p0 as above
    ["epoch", "$x", 1]   its epoch now, and one more (never less than 0)

So one trace can be played again and again, and to different brokers, and its answers are the same text each time.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

DAY_MS = 24 * 3_600_000
APPENDED_WITHIN_MS = 40_000
"""A time from just before the trace to this much later is that of an append: traces themselves send no such time."""

_LIMITS = re.compile(r"within \[(-?\d+), (-?\d+)\]")
_TIME = re.compile(r"\b1\d{12}\b")
_MINUTE_MS = 60_000


class Symbols:
    """The meanings of a trace's symbols on one broker."""

    def __init__(self, prefix: str, now_ms: int) -> None:
        self._prefix = prefix
        self._now_ms = now_ms
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._made: dict[str, int] = {}
        self._producer_ids: dict[str, int] = {}
        self.transactional = TransactionalProducers()

    # What the broker has chosen

    def learn_topic_id(self, symbol: str, topic_id: uuid.UUID) -> None:
        if self._topic_ids.get(f"#{symbol[1:]}") == topic_id:
            return
        number = self._made.get(symbol, 0)
        self._made[symbol] = number + 1
        self._topic_ids[f"#{symbol[1:]}@{number}"] = topic_id
        self._topic_ids[f"#{symbol[1:]}"] = topic_id

    def learn_producer_id(self, producer_id: int) -> None:
        if producer_id not in self._producer_ids.values():
            self._producer_ids[f"p{len(self._producer_ids)}"] = producer_id

    # From symbols to what is sent

    def name(self, symbol: str | None) -> str | None:
        return f"{self._prefix}{symbol[1:]}" if symbol and symbol[0] == "$" else symbol

    def topic_id(self, symbol: str) -> uuid.UUID:
        known = self._topic_ids.get("#" + symbol[1:])
        return known or uuid.uuid5(uuid.NAMESPACE_DNS, symbol)

    def producer_id(self, symbol: str | int) -> int:
        if isinstance(symbol, int):
            return symbol
        if symbol[:1] == "$":
            return self.transactional.named(symbol).producer_id
        return self._producer_ids.get(symbol, 4_000_000_000 + int(symbol[1:]))

    def time(self, when: int | Sequence[object]) -> int:
        return self._now_ms + when if isinstance(when, int) else int(str(when[1]))

    # From what came back to symbols

    def own_topic(self, name: str) -> str | None:
        """Return the symbol of a topic of this trace; None for other topics."""
        return f"${name.removeprefix(self._prefix)}" if name.startswith(self._prefix) else None

    def of_name(self, name: str | None) -> str | None:
        return (self.own_topic(name) or name) if name is not None else None

    def of_topic_id(self, topic_id: uuid.UUID) -> str:
        found = [symbol for symbol, known in self._topic_ids.items() if known == topic_id and "@" in symbol]
        return found[0] if found else str(topic_id)

    def of_producer_id(self, producer_id: int) -> str | int:
        return next((symbol for symbol, known in self._producer_ids.items() if known == producer_id), producer_id)

    def of_time(self, time_ms: int) -> object:
        if abs(time_ms - self._now_ms) > 10 * DAY_MS:
            return ["at", time_ms]
        delta = time_ms - self._now_ms
        return "append" if -1000 <= delta < APPENDED_WITHIN_MS else delta

    def of_text(self, text: str | None) -> str | None:
        if text is None:
            return None
        for symbol, topic_id in self._topic_ids.items():
            text = text.replace(str(topic_id), symbol)
        text = text.replace(self._prefix, "$")
        text = _LIMITS.sub(lambda found: f"within [{self._minutes(found[1])}, {self._minutes(found[2])}]", text)
        text = _TIME.sub(lambda found: f"<{self.of_time(int(found[0]))}>", text)
        for symbol, producer_id in self._producer_ids.items():
            text = re.sub(rf"(?i)\b(producer(?: ?id)?:? ?){producer_id}\b", rf"\g<1>{symbol}", text)
        return text

    def _minutes(self, time_ms: str) -> str:
        return f"{round((int(time_ms) - self._now_ms) / _MINUTE_MS)} min"


def replaced(value: object, symbols: Symbols) -> object:
    match value:
        case str():
            return _replaced_text(value, symbols)
        case ["at" | "now" | "pid" | "epoch" as what, *words]:
            return _replaced_words(what, words, symbols)
        case list():
            return [replaced(item, symbols) for item in value]
        case Mapping():
            return {name: replaced(item, symbols) for name, item in value.items()}
        case _:
            return value


def _replaced_words(what: str, words: Sequence[object], symbols: Symbols) -> object:
    match what, words:
        case "at" | "now", [int(time)]:
            return symbols.time(["at", time] if what == "at" else time)
        case "epoch", [str(symbol), int(more)]:
            return max(0, symbols.transactional.named(symbol).epoch + more)
        case _:
            return symbols.producer_id(str(words[0]))


def _replaced_text(value: str, symbols: Symbols) -> object:
    return symbols.topic_id(value) if value[:1] in {"#", "?"} else symbols.name(value)


NO_ID = 4_000_000_000  # identity of a transactional id that was never initialized: an unused producer id


@dataclass(slots=True)
class TransactionalProducer:
    """One transactional id, as its producer sees it."""

    producer_id: int = NO_ID
    epoch: int = 0
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)  # the next one of each partition

    def become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()


class TransactionalProducers:
    """All transactional ids of a trace, by symbol."""

    def __init__(self) -> None:
        self._by_symbol: dict[str, TransactionalProducer] = {}

    def named(self, symbol: str) -> TransactionalProducer:
        return self._by_symbol.setdefault(symbol, TransactionalProducer())
