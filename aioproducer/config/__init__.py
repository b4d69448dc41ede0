"""The producer's configuration: Kafka's names, Kafka's defaults, every rule checked before any I/O.

Only the producer and what is above it import this; other layers take the few values they use.
"""

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.config.producer_options import ProducerOptions, TopicOptions

__all__ = ["ProducerConfig", "ProducerOptions", "TopicOptions"]
