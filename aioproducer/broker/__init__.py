"""Starts a broker for people and tests: real Apache Kafka on loopback, its jars resolved through Maven.

`KafkaCluster` is the door. The embedded cluster is `aioproducer.testing.FakeCluster`; `aioproducer broker`
starts either of them.
"""
