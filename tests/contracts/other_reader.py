"""Records of a partition as read by confluent-kafka's consumer."""

import confluent_kafka

PATIENCE_S = 20.0
END_OF_PARTITION = -191  # librdkafka's own code


def read(servers: str, topic: str, isolation: str) -> list[bytes]:
    """Every record of partition 0, as `isolation` lets it see; blocks."""
    settings = {"bootstrap.servers": servers, "group.id": "unused", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**settings, "isolation.level": isolation, "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = list[bytes]()
    while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
        found.append(message.value())
    assert message is not None
    assert message.error().code() == END_OF_PARTITION
    consumer.close()
    return found
