"""What has settings, topics and brokers, and where a value of theirs was set, by Kafka's numbers."""

from aioproducer.testing.fake_broker.topics.config_values import INT_MAX, whole_number
from aioproducer.testing.fake_broker.topics.topic_checks import TopicRefusedError
from aioproducer.testing.fake_broker.wire import codes

TOPIC = 2
BROKER = 4

DYNAMIC_TOPIC_CONFIG = 1
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5


def check_node(asked: str, node_id: int, *, noun: str, expected: str) -> None:
    """Check that a request about one broker went to it; `noun` and `expected` are for Kafka's message."""
    number = whole_number(asked, INT_MAX)
    if number is None:
        raise TopicRefusedError(codes.INVALID_REQUEST, f"{noun} id must be an integer, but it is: {asked}")
    if number != node_id:
        raise TopicRefusedError(
            codes.INVALID_REQUEST, f"Unexpected broker id, expected {expected}, but received {asked}"
        )
