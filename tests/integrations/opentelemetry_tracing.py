"""A tracer and a meter of OpenTelemetry's SDK that tests look into."""

from collections.abc import Iterator

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aioproducer.integrations.opentelemetry import OpenTelemetryInterceptor


class Tracing:
    """A tracer and a meter, with what they have recorded."""

    def __init__(self) -> None:
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics])

    def interceptor(self, **options: bool) -> OpenTelemetryInterceptor:
        return OpenTelemetryInterceptor(self.tracers, self.meters, **options)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._spans.get_finished_spans()

    def tree(self) -> list[str]:
        """Names of the spans, each indented below its parent."""
        children: dict[int | None, list[ReadableSpan]] = {}
        for span in self.spans:
            children.setdefault(span.parent.span_id if span.parent else None, []).append(span)

        def below(parent: int | None, depth: int) -> Iterator[str]:
            for span in sorted(children.get(parent, []), key=lambda each: each.start_time or 0):
                yield "  " * depth + span.name
                yield from below(span.context.span_id if span.context else None, depth + 1)

        return list(below(None, 0))

    def meter_schemas(self) -> set[str]:
        data = self._metrics.get_metrics_data()
        assert data is not None
        return {scope.schema_url for resource in data.resource_metrics for scope in resource.scope_metrics}

    def points(self, name: str) -> list[tuple[dict[str, object], object]]:
        data = self._metrics.get_metrics_data()
        if data is None:  # nothing was measured
            return []
        return [
            (dict(point.attributes or {}), point)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def recorded() -> Iterator[Tracing]:
    """Yield a tracer and a meter, and shut them down; for a fixture."""
    made = Tracing()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def traceparent(span: ReadableSpan) -> bytes:
    assert span.context is not None
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()
