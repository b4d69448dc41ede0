"""The record batches of a trace: a few words that say in what a batch is not an ordinary one, and its bytes.

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

import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

from tests.contracts.odd_batches import odd_batch, record
from tests.contracts.traces.symbols import Symbols

BatchWords: TypeAlias = Mapping[str, object]

ORDINARY_TIME = -60_000  # when records were made, in ms from the start of the trace, unless a batch says otherwise

_SAME_IN_HEADER = ("count", "last_delta", "base_offset", "magic", "crc", "codec", "attributes", "epoch")


def batch_bytes(words: BatchWords, symbols: Symbols) -> bytes:
    if "raw" in words:
        return bytes.fromhex(str(words["raw"]))
    section = [bytes.fromhex(str(words["body"]))] if "body" in words else [*_records(words), _hex(words, "junk")]
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


def _records(words: BatchWords) -> list[bytes]:
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
