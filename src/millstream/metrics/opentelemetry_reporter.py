"""Metrics and spans to a collector of OpenTelemetry, by OTLP over HTTP."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from millstream.configuration.option import parse_duration
from millstream.contracts.metrics import MetricKind, MetricReporter, TraceReporter
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.contracts.metrics import MetricSample, Span

_TIMEOUT: Final = "10 s"
_NANOSECONDS: Final = 1_000_000
#: Parts of a value -> its limit: what OTLP has for integers.
_LARGEST: Final = 2**63 - 1
_SCOPE: Final = InstrumentationScope("millstream")


class _Exporting:
    """The options of a reporter: where it sends to, and as which service."""

    def __init__(self, properties: Mapping[str, str], path: str) -> None:
        """Read them.

        Raises:
            ConfigurationError: there is no endpoint, or the protocol is not HTTP.
        """
        endpoint = properties.get("exporter.endpoint", "").rstrip("/")
        protocol = properties.get("exporter.protocol", "http").lower()
        if protocol not in {"http", "http/protobuf"}:
            message = (
                f"exporter.protocol is {protocol!r}, but the reporter speaks OTLP over HTTP only:"
                " set it to http, and exporter.endpoint to that port of the collector (4318)"
            )
            raise ConfigurationError(message)
        if not endpoint:
            message = "the reporter needs the option 'exporter.endpoint', as http://collector:4318"
            raise ConfigurationError(message)
        self.endpoint = endpoint if endpoint.endswith(path) else endpoint + path
        #: Seconds.
        self.timeout = parse_duration(properties.get("exporter.timeout", _TIMEOUT)) / 1000
        named = {"service.name": properties.get("service.name", "millstream")}
        if properties.get("service.version"):
            named["service.version"] = properties["service.version"]
        self.resource = Resource(named)


class OpenTelemetryMetricReporter(MetricReporter):
    """Sends metrics; counters are sums, all others gauges, as Flink's reporter does."""

    #: From ``open`` on.
    _settings: _Exporting
    _exporter: OTLPMetricExporter

    def __init__(self) -> None:
        self._began = time.time_ns()

    def open(self, properties: Mapping[str, str]) -> None:
        """Read the options; nothing is sent yet.

        Raises:
            ConfigurationError: they make no sense.
        """
        self._settings = _Exporting(properties, "/v1/metrics")
        self._exporter = OTLPMetricExporter(
            endpoint=self._settings.endpoint, timeout=self._settings.timeout
        )

    def report(self, samples: Sequence[MetricSample]) -> None:
        """Send all samples in one request.

        Raises:
            OSError: the collector has not taken them.
        """
        now = time.time_ns()
        by_name: dict[str, list[MetricSample]] = {}
        for each in samples:
            by_name.setdefault(f"flink.{each.scope}.{each.name}", []).append(each)
        metrics = [self._metric(name, many, now) for name, many in by_name.items()]
        scope = ScopeMetrics(_SCOPE, metrics, "")
        data = MetricsData([ResourceMetrics(self._settings.resource, [scope], "")])
        if self._exporter.export(data) is not MetricExportResult.SUCCESS:
            message = f"the collector at {self._settings.endpoint} has not taken the metrics"
            raise OSError(message)

    def _metric(self, name: str, samples: list[MetricSample], now: int) -> Metric:
        kind = samples[0].kind
        if kind is MetricKind.HISTOGRAM:
            histograms = [self._histogram(each, now) for each in samples]
            whole = Histogram(histograms, AggregationTemporality.CUMULATIVE)
            return Metric(name, None, None, whole)
        points = [
            NumberDataPoint(dict(each.variables), self._began, now, value)
            for each in samples
            if (value := _number(each)) is not None
        ]
        if kind is MetricKind.COUNTER:
            # Functions may count down.
            total = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=False)
            return Metric(name, None, None, total)
        return Metric(name, None, None, Gauge(points))

    def _histogram(self, sample: MetricSample, now: int) -> HistogramDataPoint:
        value = sample.value
        given: Mapping[str, float] = {} if isinstance(value, (int, float)) else value
        count = int(given.get("count", 0))
        return HistogramDataPoint(
            attributes=dict(sample.variables),
            start_time_unix_nano=self._began,
            time_unix_nano=now,
            count=count,
            sum=given.get("sum", 0.0),
            bucket_counts=[count],
            explicit_bounds=[],
            min=given.get("min", 0.0),
            max=given.get("max", 0.0),
        )

    def close(self) -> None:
        self._exporter.shutdown()


def _number(sample: MetricSample) -> float | None:
    value = sample.value
    if not isinstance(value, (int, float)):
        return None
    # What OTLP has no integer for is nothing that anybody looks at.
    return math.inf if isinstance(value, int) and abs(value) > _LARGEST else value


class OpenTelemetryTraceReporter(TraceReporter):
    """Sends spans, each with its children as a trace."""

    #: From ``open`` on.
    _settings: _Exporting
    _exporter: OTLPSpanExporter

    def __init__(self) -> None:
        self._ids = RandomIdGenerator()

    def open(self, properties: Mapping[str, str]) -> None:
        """Read the options; nothing is sent yet.

        Raises:
            ConfigurationError: they make no sense.
        """
        self._settings = _Exporting(properties, "/v1/traces")
        self._exporter = OTLPSpanExporter(
            endpoint=self._settings.endpoint, timeout=self._settings.timeout
        )

    def report(self, samples: Sequence[Span]) -> None:
        """Send spans in one request.

        Raises:
            OSError: the collector has not taken them.
        """
        spans = [made for each in samples for made in self._made(each, None)]
        if spans and self._exporter.export(spans) is not SpanExportResult.SUCCESS:
            message = f"the collector at {self._settings.endpoint} has not taken the spans"
            raise OSError(message)

    def _made(self, span: Span, parent: SpanContext | None) -> Iterator[ReadableSpan]:
        trace = self._ids.generate_trace_id() if parent is None else parent.trace_id
        context = SpanContext(
            trace,
            self._ids.generate_span_id(),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        yield ReadableSpan(
            name=span.name,
            context=context,
            parent=parent,
            resource=self._settings.resource,
            attributes=dict(span.attributes),
            instrumentation_scope=InstrumentationScope(span.scope),
            start_time=span.start * _NANOSECONDS,
            end_time=span.end * _NANOSECONDS,
        )
        for each in span.children:
            yield from self._made(each, context)

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
