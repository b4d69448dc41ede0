"""Plays a trace to a broker and returns the answers.

For each step one of: the answer as plain values, "closed" (the broker closed the connection), "silent" (nothing
was answered, as acks=0 wants), "no answer" (nothing within ten seconds), "garbled ..." (no message of that version).

After a step that changes topics the player waits, on a connection of its own, until the broker shows the change:
a real one tells its own metadata and replicas a moment later.
"""

import json
from collections.abc import Sequence
from itertools import count
from typing import cast

from aioproducer.testing.fake_broker.version_profiles import VersionProfile
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from aioproducer.testing.fake_broker.wire.primitives import MalformedRequestError
from tests.contracts.traces.answers import answer_words
from tests.contracts.traces.brokers import Broker, ModelBroker, SocketBroker
from tests.contracts.traces.message_codec import Tree
from tests.contracts.traces.steps import Step, request_bytes, version_of
from tests.contracts.traces.symbols import Symbols
from tests.contracts.traces.topic_watch import TopicWatch
from tests.contracts.traces.transaction_watch import TransactionWatch
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
