"""Plays a trace to a broker and returns the answers.

For each step one of: the answer as plain values, "closed" (the broker closed the connection), "silent" (nothing
was answered, as acks=0 wants), "no answer" (nothing within ten seconds), "garbled ..." (no message of that version).

After a step that changes topics the player waits, on a connection of its own, until the broker shows the change:
a real one tells its own metadata and replicas a moment later.
"""

import hashlib
import json
import uuid
from collections.abc import Callable, Sequence
from itertools import count
from typing import cast

from aioproducer.testing.fake_broker.log.record_batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    checksum,
    decompress,
    read_header,
)
from aioproducer.testing.fake_broker.version_profiles import VersionProfile
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from aioproducer.testing.fake_broker.wire.primitives import MalformedRequestError
from tests.contracts.traces.brokers import Broker, ModelBroker, SocketBroker
from tests.contracts.traces.message_codec import Tree, decode_answer
from tests.contracts.traces.steps import Step, Symbols, ask, request_bytes, version_of
from tests.kafka_releases import profile_of

_BARRIER: Step = {"api": "API_VERSIONS", "v": 0}


class Player:
    """Plays one trace."""

    def __init__(self, broker: Broker, profile: VersionProfile, *, prefix: str) -> None:
        self._broker = broker
        self._profile = profile
        self._symbols = Symbols(prefix, broker.now_ms())
        self._watch = TopicWatch(broker, self._symbols)
        self._transactions = TransactionWatch(broker, self._symbols)
        self._correlation_ids = count(1)

    def play(self, steps: Sequence[Step]) -> list[object]:
        answers: list[object] = []
        together: list[Step] = []
        for step in steps:
            together.append(step)
            if not step.get("pipelined"):
                answers += self._play_together(together)
                together = []
        self._broker.close()
        return answers

    def _play_together(self, steps: Sequence[Step]) -> list[object]:
        connection = steps[0].get("on", 0)
        self._broker.send(connection, [self._bytes(step) for step in steps])
        answers: list[object] = []
        is_open = True
        for step in steps:
            answer = self._answer(step, connection) if is_open else "closed"
            is_open = answer != "closed"
            answers.append(answer)
            self._learn(step, answer)
        return answers

    def _bytes(self, step: Step) -> bytes:
        version = version_of(step, self._profile)
        return request_bytes(step, version, self._symbols, correlation_id=next(self._correlation_ids))

    def _answer(self, step: Step, connection: int) -> object:
        if step["api"] == "PRODUCE" and step.get("acks") == 0:
            self._broker.send(connection, [self._bytes(_BARRIER)])
            return "closed" if self._broker.receive(connection) is None else "silent"
        try:
            frame = self._broker.receive(connection)
        except TimeoutError:
            return "no answer"
        if frame is None:
            return "closed"
        try:
            return answer_words(ApiKey[step["api"]], version_of(step, self._profile), frame, symbols=self._symbols)
        except (ValueError, MalformedRequestError) as error:
            return f"garbled: {error}"

    def _learn(self, step: Step, answer: object) -> None:
        if not isinstance(answer, dict):
            return
        self._transactions.learn(step, cast("Tree", answer))
        if step["api"] == "INIT_PRODUCER_ID" and answer["error_code"] == 0 and isinstance(answer["producer_id"], int):
            self._symbols.learn_producer_id(cast("int", answer["producer_id"]))
            answer["producer_id"] = self._symbols.of_producer_id(cast("int", answer["producer_id"]))
        self._watch.learn(step, cast("Tree", answer))


def answers_of_model(steps: Sequence[Step], release: str) -> list[object]:
    return _answers(ModelBroker(profile_of(release)), steps, release, prefix="t-")


def answers_of_real(steps: Sequence[Step], release: str, *, bootstrap_servers: str, prefix: str) -> list[object]:
    """Return the real broker's responses; `prefix` is of topics that it does not have yet."""
    return _answers(SocketBroker(bootstrap_servers), steps, release, prefix=prefix)


def _answers(broker: Broker, steps: Sequence[Step], release: str, *, prefix: str) -> list[object]:
    answers: list[object] = json.loads(json.dumps(Player(broker, profile_of(release), prefix=prefix).play(steps)))
    return answers


_FIRST_REQUESTS: tuple[Step, ...] = (
    {"api": "INIT_PRODUCER_ID", "v": 0, "body": {"transactional_id": None, "transaction_timeout": 1000}},
    {"api": "FIND_COORDINATOR", "v": 0, "body": {"key": "anything"}},
    {"api": "FIND_COORDINATOR", "v": 1, "body": {"key": "anything", "key_type": 1}},
    {"api": "INIT_PRODUCER_ID", "v": 0, "body": {"transactional_id": "anything", "transaction_timeout": 1000}},
)
"""The first answers say that ids are being loaded and that the topics of groups and of transactions are being made."""


def warm_up(broker: Broker) -> None:
    """Send a fresh broker the requests that it handles differently only once, so that traces find it warm."""
    symbols = Symbols("", 0)
    for step in _FIRST_REQUESTS:
        while True:
            broker.send(0, [request_bytes(step, step["v"], symbols, correlation_id=0)])
            frame = broker.receive(0)
            if frame is not None and decode_answer(ApiKey[step["api"]], step["v"], frame[4:])["error_code"] == 0:
                break
            broker.wait(0.1)
    broker.close()


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
    """One answer's frame as plain values that are equal on every broker that behaves the same.

    Everything is kept, field by field, but the correlation id. Names, ids and times are put into the trace's words;
    record batches are taken apart.
    """
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


OWN_CONNECTION = -1
DEFAULT_PARTITIONS = 4
"""Of a topic that does not say how many; the same on the model and on the brokers that tests start."""

_FIRST_METADATA_WITH_FLAG = 4
_METADATA_VERSION = 12
_LIST_OFFSETS_VERSION = 4
_UNKNOWN_TOPIC = 3
_PAUSE_S = 0.005
_MOST_LOOKS = 2000


class TopicWatch:
    """Waits until a broker shows what one trace has changed about topics, and learns their ids."""

    def __init__(self, broker: Broker, symbols: Symbols) -> None:
        self._broker = broker
        self._symbols = symbols
        self._waiting_for_creation: set[str] = set()

    def learn(self, step: Step, answer: Tree) -> None:
        """Wait for what this request must have changed."""
        match step["api"]:
            case "CREATE_TOPICS":
                self._after_creation(step, answer)
            case "CREATE_PARTITIONS":
                self._after_growth(step, answer)
            case "DELETE_TOPICS":
                for symbol in _succeeded(answer, "responses"):
                    self._wait(symbol, 0)
            case "METADATA":
                self._after_metadata(step, answer)

    def _after_creation(self, step: Step, answer: Tree) -> None:
        body = cast("Tree", step.get("body", {}))
        if body.get("validate_only"):
            return
        wanted = {str(topic["name"]): topic for topic in cast("list[Tree]", body["topics"])}
        for symbol in _succeeded(answer, "topics"):
            partitions = cast("int", wanted[symbol]["num_partitions"])
            assigned = cast("list[object]", wanted[symbol].get("assignments", []))
            self._wait(symbol, len(assigned) or (DEFAULT_PARTITIONS if partitions == -1 else partitions))
        # The answer may name an id that only now is known.
        for topic in cast("list[Tree]", answer["topics"]):
            if "topic_id" in topic and topic["error_code"] == 0:
                topic["topic_id"] = self._symbols.of_topic_id(uuid.UUID(str(topic["topic_id"])))

    def _after_growth(self, step: Step, answer: Tree) -> None:
        body = cast("Tree", step["body"])
        counts = {str(topic["name"]): cast("int", topic["count"]) for topic in cast("list[Tree]", body["topics"])}
        if not body.get("validate_only"):
            for symbol in _succeeded(answer, "results"):
                self._wait(symbol, counts[symbol])

    def _after_metadata(self, step: Step, answer: Tree) -> None:
        body = cast("Tree", step.get("body", {}))
        asked = cast("list[Tree] | None", body.get("topics", []))
        may_create = body.get("allow_auto_topic_creation") or step["v"] < _FIRST_METADATA_WITH_FLAG
        for topic in cast("list[Tree]", answer["topics"]) if asked and may_create else []:
            if topic["error_code"] == _UNKNOWN_TOPIC and str(topic["name"])[:1] == "$":
                self._wait(str(topic["name"]), DEFAULT_PARTITIONS)

    def _wait(self, symbol: str, partitions: int) -> None:
        """Poll until the topic has that many partitions that respond; 0: until it is gone."""
        for _ in range(_MOST_LOOKS):
            if self._partitions(symbol) == partitions and self._all_led(symbol, partitions):
                return
            self._broker.wait(_PAUSE_S)
        raise TimeoutError(f"{symbol} does not get {partitions} partitions")

    def _partitions(self, symbol: str) -> int:
        asked = {"topics": [{"name": symbol, "topic_id": None}], "allow_auto_topic_creation": False}
        (topic,) = cast("list[Tree]", self._ask("METADATA", _METADATA_VERSION, asked)["topics"])
        if topic["error_code"]:
            return 0
        self._symbols.learn_topic_id(symbol, cast("uuid.UUID", topic["topic_id"]))
        partitions = cast("list[Tree]", topic["partitions"])
        return sum(partition["error_code"] == 0 for partition in partitions)

    def _all_led(self, symbol: str, partitions: int) -> bool:
        asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        body: Tree = {"replica_id": -1, "topics": [{"name": symbol, "partitions": asked}]}
        topics = cast("list[Tree]", self._ask("LIST_OFFSETS", _LIST_OFFSETS_VERSION, body)["topics"])
        found = [partition for topic in topics for partition in cast("list[Tree]", topic["partitions"])]
        return all(partition["error_code"] == 0 for partition in found)

    def _ask(self, api: str, version: int, body: Tree) -> Tree:
        step: Step = {"api": api, "v": version, "body": body}
        return ask(self._broker, step, self._symbols, connection=OWN_CONNECTION)


def _succeeded(answer: Tree, field: str) -> list[str]:
    return [
        str(topic["name"])
        for topic in cast("list[Tree]", answer[field])
        if topic["error_code"] == 0 and str(topic["name"])[:1] == "$"
    ]


WATCH_CONNECTION = -2

_ENDS = frozenset({"END_TXN", "INIT_PRODUCER_ID"})
_MOST_LOOKS_AT_ENDS = 200


class TransactionWatch:
    """Waits until a broker has completed what one trace has ended, and learns who the producers are by now.

    A real broker answers an EndTxn before its markers are written; only when they are, everybody sees the same.
    """

    def __init__(self, broker: Broker, symbols: Symbols) -> None:
        self._broker = broker
        self._symbols = symbols

    def learn(self, step: Step, answer: Tree) -> None:
        if step["api"] == "PRODUCE" and "data" in step:
            self._learn_sequences(step, answer)
        transactional_id = step.get("body", {}).get("transactional_id")
        if step["api"] in _ENDS and isinstance(transactional_id, str) and transactional_id:
            self._learn_identity(transactional_id, answer)
            self._wait(transactional_id)

    def _learn_identity(self, symbol: str, answer: Tree) -> None:
        if answer["error_code"] == 0 and answer.get("producer_id", -1) != -1:
            producer_id = self._symbols.producer_id(cast("str | int", answer["producer_id"]))
            self._symbols.transactional.named(symbol).become(producer_id, cast("int", answer["producer_epoch"]))
            self._symbols.learn_producer_id(producer_id)
            answer["producer_id"] = self._symbols.of_producer_id(producer_id)

    def _learn_sequences(self, step: Step, answer: Tree) -> None:
        """The next sequence of each partition whose next batch was taken."""
        responses = cast("list[Tree]", answer["responses"])
        results = [result for topic in responses for result in cast("list[Tree]", topic["partition_responses"])]
        taken = {cast("int", result["index"]) for result in results if result["error_code"] == 0}
        sent = [
            (topic, index, words)
            for topic, partitions in step["data"]
            for index, batches in partitions
            for words in batches or ()
        ]
        for topic, index, words in sent:
            if index in taken and "of" in words and not {"pid", "epochs", "ahead"} & set(words):
                sequences = self._symbols.transactional.named(str(words["of"])).sequences
                sequences[topic, index] = sequences.get((topic, index), 0) + cast("int", words.get("n", 1))

    def _wait(self, symbol: str) -> None:
        """Poll until the transaction of an id is not completing any more; some never complete."""
        for _ in range(_MOST_LOOKS_AT_ENDS):
            if not self._state(symbol).startswith("Prepare"):
                return
            self._broker.wait(_PAUSE_S)

    def _state(self, symbol: str) -> str:
        step: Step = {"api": "DESCRIBE_TRANSACTIONS", "v": 0, "body": {"transactional_ids": [symbol]}}
        answer = ask(self._broker, step, self._symbols, connection=WATCH_CONNECTION)
        (state,) = cast("list[Tree]", answer["transaction_states"])
        return str(state["transaction_state"])
