"""Metrics for Prometheus: `ProducerCollector`. Needs the extra `prometheus`."""

from aioproducer.integrations import _extras

try:
    from aioproducer.integrations.prometheus.collector import ProducerCollector
except ModuleNotFoundError as _error:
    raise _extras.missing("ProducerCollector needs prometheus-client", "prometheus", _error) from _error

__all__ = ["ProducerCollector"]
