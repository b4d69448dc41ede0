"""Starts a broker for people and tests: real Apache Kafka on loopback, its jars resolved through Maven.

`KafkaCluster` is the door, `Kdc` a Kerberos realm for it; `missing_for_kafka` and `missing_for_kerberos` say what a
machine lacks. The embedded cluster is
`aioproducer.testing.FakeCluster`; `aioproducer broker` starts either of them.
"""

from aioproducer.testing.kafka.kdc import Kdc
from aioproducer.testing.kafka.prerequisites import missing_for_kafka, missing_for_kerberos
from aioproducer.testing.kafka.programs import BrokerStartError, MissingToolError
from aioproducer.testing.kafka.real_kafka import KafkaCluster

__all__ = ["BrokerStartError", "KafkaCluster", "Kdc", "MissingToolError", "missing_for_kafka", "missing_for_kerberos"]
