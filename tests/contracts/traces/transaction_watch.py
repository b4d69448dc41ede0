"""Waits until a broker has completed what a request has ended, and learns who the producers are by now.

A real broker answers an EndTxn before its markers are written; only when they are, everybody sees the same.
"""

from typing import cast

from tests.contracts.traces.brokers import Broker
from tests.contracts.traces.message_codec import Tree
from tests.contracts.traces.steps import Step, ask
from tests.contracts.traces.symbols import Symbols

OWN_CONNECTION = -2

_ENDS = frozenset({"END_TXN", "INIT_PRODUCER_ID"})
_PAUSE_S = 0.005
_MOST_LOOKS = 200


class TransactionWatch:
    """Waits for the transactional ids of one trace on one broker."""

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
        for _ in range(_MOST_LOOKS):
            if not self._state(symbol).startswith("Prepare"):
                return
            self._broker.wait(_PAUSE_S)

    def _state(self, symbol: str) -> str:
        step: Step = {"api": "DESCRIBE_TRANSACTIONS", "v": 0, "body": {"transactional_ids": [symbol]}}
        answer = ask(self._broker, step, self._symbols, connection=OWN_CONNECTION)
        (state,) = cast("list[Tree]", answer["transaction_states"])
        return str(state["transaction_state"])
