"""A scrape endpoint for Prometheus, with the names and labels of Flink's reporter."""

from __future__ import annotations

import logging
import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from millstream import ports
from millstream.configuration.option import parse_boolean
from millstream.contracts.metrics import MetricKind, MetricReporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from wsgiref.simple_server import WSGIServer

    from millstream.contracts.metrics import MetricSample


_LOG: Final = logging.getLogger("millstream")
_INVALID: Final = re.compile(r"[^a-zA-Z0-9:_]")
#: As in Flink; a range lets several jobs of one machine find a free one.
_PORT: Final = "9249"
#: Whoever may read metrics from elsewhere is the operator's decision.
_HOST: Final = "127.0.0.1"

#: Those that a histogram may have.
_QUANTILES: Final = (
    *(("0", "min"), ("0.5", "p50"), ("0.75", "p75"), ("0.95", "p95"), ("0.98", "p98")),
    *(("0.99", "p99"), ("0.999", "p999"), ("1", "max")),
)


class PrometheusReporter(MetricReporter):
    """Serves the metrics of a job at ``http://HOST:PORT/metrics``."""

    is_scheduled = False

    def __init__(self) -> None:
        self._collect: Callable[[], Sequence[MetricSample]] = tuple
        self._server: WSGIServer | None = None

    def serve(self, collect: Callable[[], Sequence[MetricSample]]) -> None:
        self._collect = collect

    def open(self, properties: Mapping[str, str]) -> None:
        """Listen at the first free port.

        Raises:
            ConfigurationError: ``port`` is neither a port nor a range.
            OSError: none is free.
        """
        registry = CollectorRegistry()
        registry.register(Samples(self._collect, properties))
        host = properties.get("host", _HOST)
        wanted = ports.parse_ports(properties.get("port", _PORT))
        for port in wanted:
            try:
                self._server, _ = start_http_server(port, host, registry)
            except OSError as error:
                if port != wanted[-1]:
                    continue
                message = f"no port of {properties.get('port', _PORT)} is free at {host}: {error}"
                raise OSError(message) from error
            break
        if self._server is not None:
            ports.close_in_children(self._server.socket)
            _LOG.info("metrics: http://%s:%d/metrics", host, self._server.server_port)

    def report(self, samples: Sequence[MetricSample]) -> None:
        """Do nothing: Prometheus asks."""

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            ports.close(self._server.socket)


class Samples(Collector):
    """Makes Prometheus' metrics of a job's, at each scrape.

    Args:
        collect: returns the metrics of the job.
        properties: of the reporter.
    """

    def __init__(
        self, collect: Callable[[], Sequence[MetricSample]], properties: Mapping[str, str]
    ) -> None:
        self._collect = collect
        self._filters = parse_boolean(properties.get("filterLabelValueCharacters", "true"))

    def describe(self) -> list[Metric]:
        """Return nothing: which metrics there are is known when they are collected."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of now."""
        found: dict[str, Metric] = {}
        for each in self._collect():
            name = _valid(f"flink_{each.scope}_{each.name}")
            kind = "summary" if each.kind is MetricKind.HISTOGRAM else "gauge"
            metric = found.get(name)
            if metric is None:
                scope = _valid(each.scope)
                metric = found[name] = Metric(name, f"{each.name} (scope: {scope})", kind)
            if metric.type == kind:  # else a function has given one name to metrics of two kinds
                self._add(metric, each)
        return found.values()

    def _add(self, metric: Metric, sample: MetricSample) -> None:
        labels = {
            _valid(name): _valid(value) if self._filters else value
            for name, value in sample.variables.items()
        }
        value = sample.value
        if isinstance(value, int | float):
            metric.add_sample(metric.name, labels, _float(value))
            return
        for quantile, name in _QUANTILES:
            if name not in value:
                continue
            metric.add_sample(metric.name, {**labels, "quantile": quantile}, _float(value[name]))
        for name in ("count", "sum"):
            metric.add_sample(f"{metric.name}_{name}", labels, _float(value[name]))


def _float(value: float) -> float:
    """The number as Prometheus has it: one that is too large must not fail the whole scrape."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@lru_cache(maxsize=8192)  # labels of one job come again at every scrape
def _valid(text: str) -> str:
    return _INVALID.sub("_", text)
