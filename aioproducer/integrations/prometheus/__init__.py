"""Metrics for Prometheus: `ProducerCollector`. Needs the extra `prometheus`."""

from aioproducer.integrations import _extras

try:
    from aioproducer.integrations.prometheus.collector import ProducerCollector
except ImportError as error:
    raise _extras.missing("ProducerCollector needs prometheus-client", "prometheus", error) from error

__all__ = ["ProducerCollector"]
