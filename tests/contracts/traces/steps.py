"""One request of a trace: what it says, in symbols, and the bytes it becomes for one broker."""

import re
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NotRequired, TypeAlias, TypedDict, cast

from aioproducer.testing.fake_broker.settings import NEWEST
from aioproducer.testing.fake_broker.version_profiles import PROFILES, VersionProfile
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from tests.contracts.clients import odd_batch, record
from tests.contracts.traces.brokers import Broker
from tests.contracts.traces.message_codec import Tree, decode_answer, encode_message

DAY_MS = 24 * 3_600_000
APPENDED_WITHIN_MS = 40_000
"""A time from just before the trace to this much later is that of an append: traces themselves send no such time."""

_LIMITS = re.compile(r"within \[(-?\d+), (-?\d+)\]")
_TIME = re.compile(r"\b1\d{12}\b")
_MINUTE_MS = 60_000


class Symbols:
    """The meanings, on one broker, of a trace's symbols for what a broker chooses, and the symbols of its responses.

    "$a"            the trace's own topic a                 "#a", "#a@0"   its id; the id it had when first made
    "?1"            an id that no topic has                  "p0"           the producer id of the first InitProducerId
    -60000          a time, in ms from the trace's start     ["at", 1000]   a time as it stands
    ["pid", "$x"]   the producer id that transactional id $x has now, or p0 as above
    ["epoch", "$x", 1]   its epoch now, and one more (never less than 0)

    So one trace can be played again and again, and to different brokers, and its answers are the same text each time.
    """

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


BatchWords: TypeAlias = Mapping[str, object]
"""A few words that say in what a record batch is not an ordinary one.

    {}                                       one record, its time a minute before the trace
    {"n": 3, "pid": "p0", "epoch": 0, "seq": 6}
    {"n": 2, "codec": 4, "body": "00ff"}     says zstd, holds something else
    {"n": 2, "count": 5}                     a header that lies
    {"n": 2, "of": "$x", "to": ["$a", 0]}    the next one of a transactional id in that partition (ahead: not quite;
                                             epochs: so many more than it has)

Words: n, size (of a value), t and dt (first time, and what each record adds), keyless (which records), deltas (offset
deltas as they are written), claims (what is added to the length that a record claims), trailing (hex, at the end of
each record), junk (hex, behind the records), body (hex, instead of the records), pid, epoch, seq, codec, attributes,
count, last_delta, base_offset, magic, crc, max_time, length (in the header), cut (bytes missing at the end).
"""

ORDINARY_TIME = -60_000  # when records were made, in ms from the start of the trace, unless a batch says otherwise

_SAME_IN_HEADER = ("count", "last_delta", "base_offset", "magic", "crc", "codec", "attributes", "epoch")


def batch_bytes(words: BatchWords, symbols: Symbols) -> bytes:
    if "raw" in words:
        return bytes.fromhex(str(words["raw"]))
    section = [bytes.fromhex(str(words["body"]))] if "body" in words else [*_record_list(words), _hex(words, "junk")]
    wrong: dict[str, int] = {name: cast("int", words[name]) for name in _SAME_IN_HEADER if name in words}
    wrong.setdefault("count", cast("int", words.get("n", 1)))
    wrong["timestamp"] = symbols.time(cast("int | Sequence[object]", words.get("t", ORDINARY_TIME)))
    wrong["max_timestamp"] = wrong["timestamp"] + max(_time_deltas(words), default=0)
    if "max_time" in words:
        wrong["max_timestamp"] = symbols.time(cast("int | Sequence[object]", words["max_time"]))
    if "pid" in words:
        wrong["producer_id"] = symbols.producer_id(cast("str | int", words["pid"]))
    if "seq" in words:
        wrong["sequence"] = cast("int", words["seq"])
    if "of" in words:
        wrong |= _transactional(words, symbols)
    codec_only_said = "body" in words and "codec" in wrong
    if codec_only_said:
        wrong["attributes"] = wrong.get("attributes", 0) | wrong.pop("codec")
    batch = odd_batch(section, **wrong)
    if "length" in words:
        batch = batch[:8] + struct.pack(">i", words["length"]) + batch[12:]
    return batch[: len(batch) - cast("int", words.get("cut", 0))]


def _transactional(words: BatchWords, symbols: Symbols) -> dict[str, int]:
    producer = symbols.transactional.named(str(words["of"]))
    topic, partition = cast("tuple[str, int]", words["to"])
    return {
        "attributes": cast("int", words.get("attributes", 0x10)),
        "producer_id": symbols.producer_id(cast("str", words.get("pid", words["of"]))),
        "epoch": max(0, producer.epoch + cast("int", words.get("epochs", 0))),
        "sequence": max(0, producer.sequences.get((topic, partition), 0) + cast("int", words.get("ahead", 0))),
    }


def _record_list(words: BatchWords) -> list[bytes]:
    count = cast("int", words.get("n", 1))
    keyless = cast("list[int]", words.get("keyless", []))
    claims = cast("dict[str, int]", words.get("claims", {}))
    given = cast("list[int]", words.get("deltas", []))
    deltas = [*given[:count], *range(len(given), count)]
    size = cast("int", words.get("size", 4))
    return [
        record(
            deltas[index],
            key=None if index in keyless else b"k%d" % (index % 7),
            value=(b"%d-" % index * size)[:size],
            time_delta=delta,
            trailing=_hex(words, "trailing"),
            claims=claims.get(str(index), 0),
        )
        for index, delta in enumerate(_time_deltas(words))
    ]


def _time_deltas(words: BatchWords) -> list[int]:
    count = cast("int", words.get("n", 1))
    given = cast("list[int]", words.get("dt", []))
    return [*given[:count], *range(len(given), count)]


def _hex(words: BatchWords, name: str) -> bytes:
    return bytes.fromhex(str(words.get(name, "")))


FIRST_PRODUCE_WITH_TOPIC_IDS = 13
OLDEST_PRODUCE = 3
_KNOWN = frozenset(ApiKey)

PartitionWords = tuple[int, list[BatchWords] | None]
"""Index of a partition and the batches for it, one after the other; None: null instead of bytes."""


class Step(TypedDict):
    """One request of a trace."""

    api: str
    v: int  # its version; a release that has none so new gets its newest, unless `exact`
    on: NotRequired[int]  # which of the trace's connections, 0 unless said
    exact: NotRequired[bool]  # send this version, whether the broker has it or not
    body: NotRequired[Tree]  # the fields, with symbols; of those a version does not have nothing is sent
    acks: NotRequired[int]
    timeout: NotRequired[int]
    tid: NotRequired[str]
    data: NotRequired[list[tuple[str, list[PartitionWords]]]]
    """Of Produce instead of `body`: topics and their partitions."""

    cut: NotRequired[int]  # bytes missing at the end of the request
    more: NotRequired[str]  # bytes after its end, in hex
    patch: NotRequired[tuple[int, str]]  # bytes of the body that are replaced: where, and with what, in hex
    pipelined: NotRequired[bool]  # sent together with the step after it, before the answer to this one is there


def version_of(step: Step, profile: VersionProfile) -> int:
    if step.get("exact") or step["api"] not in ApiKey.__members__:
        return step["v"]
    low, high = profile.versions[ApiKey[step["api"]]]
    return min(max(step["v"], low), high)


def request_bytes(step: Step, version: int, symbols: Symbols, *, correlation_id: int) -> bytes:
    number = int(ApiKey[step["api"]]) if step["api"] in ApiKey.__members__ else int(step["api"])
    is_flexible = number in _KNOWN and ApiKey(number).is_flexible(version)
    header = struct.pack(">hhih", number, version, correlation_id, 5) + b"trace" + (b"\0" if is_flexible else b"")
    body = bytearray(_body(step, number, version, symbols=symbols))
    if "patch" in step:
        where, what = step["patch"][0], bytes.fromhex(step["patch"][1])
        body[where : where + len(what)] = what
    body = body[: len(body) - step.get("cut", 0)] + bytes.fromhex(step.get("more", ""))
    return header + bytes(body)


def ask(broker: Broker, step: Step, symbols: Symbols, *, connection: int) -> Tree:
    broker.send(connection, [request_bytes(step, step["v"], symbols, correlation_id=0)])
    frame, api = broker.receive(connection), ApiKey[step["api"]]
    assert frame is not None, f"{api.name} got no response"
    return decode_answer(api, step["v"], frame[5 if api.is_flexible(step["v"]) else 4 :])


def _body(step: Step, number: int, version: int, *, symbols: Symbols) -> bytes:
    if number not in _KNOWN:
        return b""
    api = ApiKey(number)
    if api is ApiKey.PRODUCE and "data" in step:
        return encode_message(api, _known(api, version), _produce(step, version, symbols))
    fields = replaced(step.get("body", {}), symbols)
    assert isinstance(fields, dict)
    return encode_message(api, _known(api, version), fields)


def _known(api: ApiKey, version: int) -> int:
    """The nearest version that there is a layout of."""
    low, high = PROFILES[NEWEST].versions[api]
    return max(min(version, high), OLDEST_PRODUCE if api is ApiKey.PRODUCE else low)


def _produce(step: Step, version: int, symbols: Symbols) -> Tree:
    topics = []
    for topic, partitions in step.get("data", []):
        data = [{"index": index, "records": _records(batches, symbols)} for index, batches in partitions]
        by_id = uuid.UUID(int=0)
        if version >= FIRST_PRODUCE_WITH_TOPIC_IDS:
            by_id = symbols.topic_id(topic)
        topics.append({"name": symbols.name(topic), "topic_id": by_id, "partition_data": data})
    return {
        "transactional_id": symbols.name(step.get("tid")),
        "acks": step.get("acks", -1),
        "timeout": step.get("timeout", 5000),
        "topic_data": topics,
    }


def _records(batches: list[BatchWords] | None, symbols: Symbols) -> bytes | None:
    return None if batches is None else b"".join(batch_bytes(words, symbols) for words in batches)
