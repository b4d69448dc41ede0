"""Traces and metrics of OpenTelemetry: `OpenTelemetryInterceptor`. Needs the extra `otel`."""

from aioproducer.integrations import _extras

try:
    from aioproducer.integrations.opentelemetry.interceptor import OpenTelemetryInterceptor
except ModuleNotFoundError as _error:
    raise _extras.missing("OpenTelemetryInterceptor needs opentelemetry-api", "otel", _error) from _error

__all__ = ["OpenTelemetryInterceptor"]
