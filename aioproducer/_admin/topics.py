"""Creates, describes and deletes topics, and the sentence that says how a missing one is created."""

import asyncio
from collections.abc import Sequence
from typing import Final

from aioproducer._admin.cluster_requests import AdminRequest, ClusterRequests
from aioproducer._protocol.cluster_text import printable_message
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.topic_admin_messages import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    OF_TOPIC,
    DescribedTopic,
    NewTopic,
    Setting,
    SettingsResponse,
    TopicResults,
    decode_create_topics_response,
    decode_delete_topics_response,
    decode_describe_configs_response,
    encode_create_topics_request,
    encode_delete_topics_request,
    encode_describe_configs_request,
)
from aioproducer._shown_values import how_to_create
from aioproducer.errors import BrokerError, KafkaError

WORKING_MS: Final = 4_000
"""How long the controller may work at one request: less than the request's own time-out."""

LOOK_EVERY_S: Final = 0.05


class NoSuchTopicError(KafkaError):
    """No topic with that name exists, or it may not be described."""


class Topics:
    """The topics of one cluster."""

    def __init__(self, requests: ClusterRequests) -> None:
        self._requests = requests

    async def create(self, topic: NewTopic) -> DescribedTopic:
        """Create a topic, and wait until each of its partitions has a leader.

        Raises:
            NoResponseError: no response in time.
            KafkaError: the cluster refuses.
        """

        def encode(version: int) -> bytes:
            return encode_create_topics_request(version, topic, timeout_ms=WORKING_MS)

        def check(response: TopicResults) -> None:
            _raise_refusal(response, "was not created")

        request = AdminRequest(
            CREATE_TOPICS,
            encode,
            lambda response: decode_create_topics_response(response.version, response.payload),
            check,
        )
        await self._requests.to_controller(request)
        while True:  # brokers learn of it one after another
            for found in await self._requests.described_topics([topic.name]):
                if found.partitions and all(partition.leader >= 0 for partition in found.partitions):
                    return found
            await asyncio.sleep(LOOK_EVERY_S)

    async def listed(self) -> Sequence[DescribedTopic]:
        """Return all topics that may be described.

        Raises:
            KafkaError: no broker answers in time.
        """
        return [topic for topic in await self._requests.described_topics() if topic.error_code == ErrorCode.NONE]

    async def described(self, names: Sequence[str]) -> Sequence[DescribedTopic]:
        """Return topics in the order given.

        Raises:
            NoSuchTopicError: one does not exist.
            KafkaError: no broker answers in time, or one refuses.
        """
        by_name = {topic.name: topic for topic in await self._requests.described_topics(names)}
        found = []
        for name in names:
            topic = by_name.get(name)
            if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise NoSuchTopicError(f"topic {name!r} does not exist; {how_to_create(name)}")
            if topic.error_code not in {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE}:
                raise BrokerError.of(topic.error_code, f"topic {name!r}: {ErrorCode.in_words(topic.error_code)}")
            found.append(topic)
        return found

    async def settings(self, name: str) -> Sequence[Setting]:
        """Return the settings that were given to the topic itself.

        Raises:
            KafkaError: the broker does not answer in time, or refuses.
        """

        def check(response: SettingsResponse) -> None:
            if response.error_code != ErrorCode.NONE:
                why = printable_message(response.message) or ErrorCode.in_words(response.error_code)
                raise BrokerError.of(response.error_code, f"settings of topic {name!r}: {why}")

        request = AdminRequest(
            DESCRIBE_CONFIGS,
            lambda version: encode_describe_configs_request(version, name),
            lambda response: decode_describe_configs_response(response.version, response.payload),
            check,
        )
        found = await self._requests.to_controller(request)
        return sorted(setting for setting in found.settings if setting.source == OF_TOPIC)

    async def delete(self, names: Sequence[str]) -> None:
        """Delete topics with their records.

        Raises:
            KafkaError: no response in time, or a refusal; those named before it are deleted.
        """

        def check(response: TopicResults) -> None:
            _raise_refusal(response, "was not deleted")

        request = AdminRequest(
            DELETE_TOPICS,
            lambda version: encode_delete_topics_request(version, names, timeout_ms=WORKING_MS),
            lambda response: decode_delete_topics_response(response.version, response.payload),
            check,
        )
        await self._requests.to_controller(request)


def _raise_refusal(response: TopicResults, what: str) -> None:
    for result in response.results:
        if result.error_code != ErrorCode.NONE:
            row = ErrorCode.of(result.error_code)
            why = printable_message(result.message) or ErrorCode.in_words(result.error_code)
            is_passing = result.error_code in {ErrorCode.NOT_CONTROLLER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
            raise BrokerError.of(
                result.error_code,
                f"topic {result.name!r} {what}: {row.name if row else result.error_code}: {why}",
                retriable=is_passing,
            )
