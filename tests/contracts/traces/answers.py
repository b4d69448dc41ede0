"""Responses as plain values that are equal on every broker that behaves the same.

Everything of an answer is kept, field by field, but for what `exclusions` takes away. Names, ids and times are put
into the trace's words; record batches are taken apart.
"""

import hashlib
import uuid
from collections.abc import Callable
from typing import cast

from aioproducer.testing.fake_broker.log.record_batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    checksum,
    decompress,
    read_header,
)
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from tests.contracts.traces.message_codec import Tree, decode_answer
from tests.contracts.traces.symbols import Symbols

UNSUPPORTED_VERSION = 35
_SHORT_RECORDS = 64

_SORTED_BY = {
    "topics": ("name", "topic", "topic_id"),
    "responses": ("name", "topic_id"),
    "partitions": ("partition_index", "partition"),
    "partition_responses": ("index",),
    "configs": ("name",),
    "results": ("name",),
    "coordinators": ("key",),
    "api_keys": ("api_key",),
    "results_by_topic_v3_and_below": ("name",),
    "results_by_partition": ("partition_index",),
    "active_producers": ("producer_id",),
    "transaction_states": ("transactional_id",),
    "groups": ("group_id",),
    "supported_features": ("name",),
    "finalized_features": ("name",),
}
"""Lists whose order says nothing, since Kafka makes them from hash maps."""

_IN_ORDER = {ApiKey.FETCH}  # answers in which the order does say something


def answer_words(api: ApiKey, version: int, frame: bytes, *, symbols: Symbols) -> object:
    """One answer's frame, its correlation id not looked at."""
    has_tags = api.is_flexible(version) and api is not ApiKey.API_VERSIONS
    body = frame[4:]
    if api is ApiKey.API_VERSIONS and int.from_bytes(body[:2], "big") == UNSUPPORTED_VERSION:
        version = 0
    if has_tags:
        if body[:1] != b"\0":
            raise ValueError(f"the answer's header has tagged fields: {body[:1]!r}")
        body = body[1:]
    words = _words(decode_answer(api, version, body), symbols)
    return words if api in _IN_ORDER else _sorted(words)


def _words(tree: Tree, symbols: Symbols) -> Tree:
    return {name: _value(name, value, symbols) for name, value in tree.items()}


def _value(name: str, value: object, symbols: Symbols) -> object:
    match value:
        case dict():
            return _words(value, symbols)
        case list():
            return [_value(name, item, symbols) for item in value]
        case bytes():
            return batches_words(value, symbols) if name == "records" else value.hex()
        case _ if name in _CONVERTED and value is not None:
            return _CONVERTED[name](value, symbols)
        case _:
            return value


def _sorted(tree: Tree) -> Tree:
    return {name: _in_order(name, value) for name, value in tree.items()}


def _in_order(name: str, value: object) -> object:
    if name == "partitions" and isinstance(value, list) and value and isinstance(value[0], int):
        return sorted(value)
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return value
    items = [_sorted(item) for item in value]
    keys = _SORTED_BY.get(name)
    return sorted(items, key=lambda item: [str(item.get(key)).zfill(12) for key in keys]) if keys else items


def _of_text(value: object, symbols: Symbols) -> object:
    return symbols.of_text(cast("str", value))


def _of_name(value: object, symbols: Symbols) -> object:
    return symbols.of_name(cast("str", value))


def _of_time(value: object, symbols: Symbols) -> object:
    return symbols.of_time(cast("int", value))


_CONVERTED: dict[str, Callable[[object, Symbols], object]] = {
    "error_message": _of_text,
    "batch_index_error_message": _of_text,
    "name": _of_name,
    "key": _of_name,
    "topic": _of_name,
    "transactional_id": _of_name,
    "group_id": _of_name,
    "last_timestamp": _of_time,
    "transaction_start_time": _of_time,
    "topic_id": lambda value, symbols: symbols.of_topic_id(cast("uuid.UUID", value)),
    "producer_id": lambda value, symbols: symbols.of_producer_id(cast("int", value)),
    "timestamp": _of_time,
    "log_append_time": _of_time,
    "host": lambda _value, _symbols: "the broker's" if _value else "",
    "port": lambda value, _symbols: "the broker's" if cast("int", value) > 0 else value,
    "cluster_id": lambda value, _symbols: "the cluster's" if value else value,
}


def batches_words(data: bytes, symbols: Symbols) -> list[object]:
    """Describe record batches one after the other; an incomplete one by its length."""
    found: list[object] = []
    position = 0
    while position < len(data):
        rest = data[position:]
        size = int.from_bytes(rest[8:12], "big") + LENGTH_OVERHEAD
        if len(rest) < HEADER_SIZE or size > len(rest):
            found.append({"bytes of a batch that is cut off": len(rest)})
            break
        found.append(_batch_words(rest[:size], symbols))
        position += size
    return found


def _batch_words(batch: bytes, symbols: Symbols) -> Tree:
    header = read_header(batch)
    words: Tree = dict(header._asdict())
    words["crc"] = "right" if checksum(batch) == header.crc else "wrong"
    words["base_timestamp"] = symbols.of_time(header.base_timestamp)
    words["max_timestamp"] = symbols.of_time(header.max_timestamp)
    words["producer_id"] = symbols.of_producer_id(header.producer_id)
    records = decompress(header.codec, batch[HEADER_SIZE:])
    if header.codec:
        del words["length"]  # what a codec makes of the same records changes with its release
    words["records"] = records.hex() if len(records) <= _SHORT_RECORDS else hashlib.sha256(records).hexdigest()[:16]
    return words
