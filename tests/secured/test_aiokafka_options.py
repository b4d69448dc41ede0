"""Commands that read give their TLS and SASL to aiokafka."""

from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigurationError
from aioproducer.integrations._aiokafka_security import aiokafka_security, check_readable
from aioproducer.testing.kafka import KafkaCluster


@pytest.mark.kafka
@pytest.mark.parametrize("way", ["mtls", "plain", "tls-scram-512"])
async def test_consumer_connects_with_the_options_of_a_producer(
    options: dict[str, dict[str, object]], secured_kafka: KafkaCluster, way: str
) -> None:
    config = ProducerConfig(**cast("Any", options[way]))
    check_readable(config)
    servers = list(config.bootstrap_servers)
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, **await aiokafka_security(config))
    await consumer.start()
    topics = await consumer.topics()
    await consumer.stop()

    assert isinstance(topics, set)
    assert secured_kafka is not None


@pytest.mark.parametrize(
    "given, option",
    [
        ({"proxy_url": "http://p:1"}, "proxy_url"),
        ({"address_map": {"a:1": "b:1"}}, "address_map"),
        ({"allowed_brokers": ["a"]}, "allowed_brokers"),
    ],
)
def test_option_that_aiokafka_does_not_have_is_refused(given: dict[str, object], option: str) -> None:
    config = ProducerConfig(bootstrap_servers="h:1", **cast("Any", given))
    with pytest.raises(ConfigurationError, match=f"^{option} cannot be used here"):
        check_readable(config)


async def test_plaintext_needs_no_arguments() -> None:
    assert await aiokafka_security(ProducerConfig(bootstrap_servers="h:1")) == {}
