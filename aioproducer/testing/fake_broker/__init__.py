"""The embedded cluster without I/O: requests come in as frames, answers go out as effects, `now` is given.

Nothing in this folder reads a clock, draws unseeded randomness, opens a socket or uses asyncio, so that TCP
(`aioproducer.testing.fake_cluster`) and a simulated network can drive the same brokers.
`ModelCluster` is the entry point; each file of `apis/` serves one group of Kafka's requests.
"""

MOST_PARTITIONS = 999_999
"""Of a topic; more take longer to make than a client waits."""
