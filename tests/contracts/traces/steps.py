"""One request of a trace: what it says, in symbols, and the bytes it becomes for one broker."""

import struct
import uuid
from typing import NotRequired, TypedDict

from aioproducer.testing.fake_broker.settings import NEWEST
from aioproducer.testing.fake_broker.version_profiles import PROFILES, VersionProfile
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from tests.contracts.traces.batches import BatchWords, batch_bytes
from tests.contracts.traces.brokers import Broker
from tests.contracts.traces.message_codec import Tree, decode_answer, encode_message
from tests.contracts.traces.symbols import Symbols, replaced

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
