"""Traces and metrics of OpenTelemetry: `OpenTelemetryInterceptor`, `observe_relays`. Needs the extra `otel`."""

from aioproducer.integrations import _extras

try:
    from aioproducer.integrations.opentelemetry.interceptor import OpenTelemetryInterceptor
    from aioproducer.integrations.opentelemetry.relays import observe_relays
except ModuleNotFoundError as _error:
    raise _extras.missing("OpenTelemetryInterceptor needs opentelemetry-api", "otel", _error) from _error

__all__ = ["OpenTelemetryInterceptor", "observe_relays"]
