"""DeleteTopics 1-6: by name or, since version 6, by id; any broker takes it and it works at once.

What is given twice is refused, and a topic that is given by name and by id is not deleted either.

Source: ControllerApis.deleteTopics in Apache Kafka.
"""

import uuid
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, cast

from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as DeleteTopicsByName
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest as DeleteTopicsByEither

_FIRST_BY_ID = 6


class _Asked(NamedTuple):
    name: str | None
    topic_id: uuid.UUID | None


def answer_delete_topics(exchange: Exchange) -> None:
    if exchange.version >= _FIRST_BY_ID:
        by_either = cast("DeleteTopicsByEither", exchange.request())
        asked = [_Asked(state.name, state.topic_id) for state in by_either.topics]
    else:
        by_name = cast("DeleteTopicsByName", exchange.request())
        asked = [_Asked(name, None) for name in by_name.topic_names]
    exchange.reply_tree({"responses": _Deletion(exchange, asked).answers()}, exchange.now)


class _Deletion:
    def __init__(self, exchange: Exchange, asked: list[_Asked]) -> None:
        self._exchange = exchange
        self._topics = exchange.cluster.topics
        self._times = Counter(asked)

    def answers(self) -> list[Tree]:
        """Delete the topics that may be deleted; one response for each topic in the request."""
        return [self._answer(asked, times) for asked, times in self._times.items() if not self._is_also_by_name(asked)]

    def _answer(self, asked: _Asked, times: int) -> Tree:
        topic = self._topics.find(*asked)
        error, message = self._refusal(asked, times)
        if error == 0 and topic is not None:
            self._topics.delete(topic, self._exchange.now)
            asked = _Asked(topic.name, topic.topic_id)
        elif topic is not None and asked.topic_id is None:
            asked = _Asked(topic.name, topic.topic_id)
        return {"name": asked.name, "topic_id": asked.topic_id, "error_code": error, "error_message": message}

    def _refusal(self, asked: _Asked, times: int) -> tuple[int, str | None]:
        """Return the error code and its text; 0 if the topic may be deleted."""
        topic = self._topics.find(*asked)
        if (wrong := self._wrong_words(asked, times)) is not None:
            return codes.INVALID_REQUEST, wrong
        if error := self._exchange.injected_error(asked.name):
            return error, None
        if topic is None and asked.name is not None:
            return codes.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        return (0, None) if topic else (codes.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")

    def _wrong_words(self, asked: _Asked, times: int) -> str | None:
        if asked.name is None and asked.topic_id is None:
            return "Neither topic name nor id were specified."
        if asked.name is not None and asked.topic_id is not None:
            return "You may not specify both topic name and topic id."
        if times > 1:
            return "Duplicate topic name." if asked.name is not None else "Duplicate topic id."
        if asked.name is not None and self._is_given_by_id(asked.name):
            return "The provided topic name maps to an ID that was already supplied."
        return None

    def _is_given_by_id(self, name: str) -> bool:
        topic = self._topics.named(name)
        return topic is not None and _Asked(None, topic.topic_id) in self._times

    def _is_also_by_name(self, asked: _Asked) -> bool:
        topic = self._topics.with_id(asked.topic_id) if asked.name is None else None
        return topic is not None and _Asked(topic.name, None) in self._times
