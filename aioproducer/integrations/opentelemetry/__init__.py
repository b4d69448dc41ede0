"""Traces and metrics of OpenTelemetry: `OpenTelemetryInterceptor`. Needs the extra `otel`."""

from aioproducer.integrations.opentelemetry.interceptor import OpenTelemetryInterceptor

__all__ = ["OpenTelemetryInterceptor"]
