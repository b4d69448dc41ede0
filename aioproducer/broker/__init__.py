"""Starts a broker for people and tests: real Apache Kafka on loopback, its jars resolved through Maven.

`KafkaCluster` is the door, `missing_for_kafka` says what a machine lacks. The embedded cluster is
`aioproducer.testing.FakeCluster`; `aioproducer broker` starts either of them.
"""

from aioproducer.broker.prerequisites import missing_for_kafka
from aioproducer.broker.real_kafka import KafkaCluster
from aioproducer.broker.start_error import BrokerStartError, MissingToolError

__all__ = ["BrokerStartError", "KafkaCluster", "MissingToolError", "missing_for_kafka"]
