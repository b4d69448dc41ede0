"""The groups of metrics: Kafka's, and one of our own."""

from __future__ import annotations

from typing import Final

PRODUCER: Final = "producer-metrics"
NODE: Final = "producer-node-metrics"
TOPIC: Final = "producer-topic-metrics"
OWN: Final = "aioproducer-metrics"
APP: Final = "app-info"
COUNT: Final = "kafka-metrics-count"
