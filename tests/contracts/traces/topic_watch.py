"""Waits until a broker shows what a request has changed about topics, and learns their ids."""

import uuid
from typing import cast

from tests.contracts.traces.brokers import Broker
from tests.contracts.traces.message_codec import Tree
from tests.contracts.traces.steps import Step, ask
from tests.contracts.traces.symbols import Symbols

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
    """Waits for changes of one trace's topics on one broker."""

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
