"""Creates the topic of a write, where the option `createTopic` asks for it; on the driver, before any task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._admin.topics import Topics
from aioproducer._producer.connection_security import cluster_access
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.topic_admin_messages import NewTopic
from aioproducer.errors import BrokerError, ConfigurationError
from aioproducer.spark._options import FIRST_ANSWER_TIMEOUT_S

if TYPE_CHECKING:
    from aioproducer.spark._options import SinkOptions


def create_missing_topic(options: SinkOptions, *, is_running: bool = False) -> None:
    """Create the topic of a write unless it exists; another driver may do it at the same time.

    Args:
        options: of the write.
        is_running: whether its query has written before, so that brokers which are away now will come back.

    Raises:
        ConfigurationError: the cluster refuses, as for more replicas than it has brokers.
        KafkaError: no answer in time.
    """
    if options.topic is not None and options.topic_shape is not None:
        patience_s = options.commit_timeout_ms / 1_000 if is_running else FIRST_ANSWER_TIMEOUT_S
        asyncio.run(_create(options, NewTopic(options.topic, *options.topic_shape), patience_s))


async def _create(options: SinkOptions, topic: NewTopic, patience_s: float) -> None:
    config = options.producer_config()
    access = cluster_access(config)
    async with ClusterRequests(config.bootstrap, patience_s, client_id="aioproducer-spark", access=access) as requests:
        cluster = await requests.refresh([topic.name])
        if cluster.partition_count(topic.name):
            return
        try:
            await Topics(requests).create(topic)
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise ConfigurationError(f"createTopic: {error}", option="createTopic") from error
