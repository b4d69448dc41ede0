"""Metrics for Prometheus: `ProducerCollector`. Needs the extra `prometheus`."""

from aioproducer.integrations.prometheus.collector import ProducerCollector

__all__ = ["ProducerCollector"]
