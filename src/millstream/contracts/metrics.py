"""Metrics of operators: what a task reports of an epoch, what a job makes of it, and reporters.

A number is what an operator counts by itself; it adds up over subtasks and epochs.  A counter,
gauge, meter or distribution of a user function is a *measure*, a dict of JSON with its kind, which
``added`` puts together and ``shown`` makes readable.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from millstream.entry_points import Extensions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


Measure: TypeAlias = dict[str, Any]
MetricValue: TypeAlias = int | Measure

#: Milliseconds.  A meter remembers its events in spans of this length, as Flink looks at it every
#: five seconds.
_BUCKET: Final = 5000
_SECOND: Final = 1000


def counter(count: int) -> Measure:
    """Make the report of a function's counter: what was added in an epoch."""
    return {"kind": "counter", "count": count}


def gauge(value: float) -> Measure:
    """Make the report of a gauge's value at the end of an epoch."""
    return {"kind": "gauge", "value": value}


def meter(count: int, span: int) -> Measure:
    """The events of an epoch; their rate is that of the last ``span`` seconds."""
    return {"kind": "meter", "count": count, "span": span}


def distribution(count: int, total: float, least: float, most: float) -> Measure:
    """The values of an epoch."""
    return {"kind": "distribution", "count": count, "sum": total, "min": least, "max": most}


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the value that a part of some values do not exceed, between two by their distance.

    It is that of Flink's histograms and REST API: the value at position ``part * (n + 1)`` of n,
    counted from 1.

    Args:
        ordered: the values, at least one, in ascending order.
        part: above 0, at most 1.
    """
    fraction, position = math.modf(part * (len(ordered) + 1))
    if position < 1 or position >= len(ordered):
        return float(ordered[0 if position < 1 else -1])
    lower, upper = ordered[int(position) - 1 : int(position) + 1]
    return lower + fraction * (upper - lower)


def added(so_far: Measure | None, measure: Measure, subtask: int, now: int) -> Measure:
    """A measure of the job after one more report.

    Args:
        so_far: what the reports before made; None, or of another kind, if this is the first.
        measure: the report.
        subtask: whose it is.
        now: milliseconds since 1970, when its epoch began.
    """
    kind = measure["kind"]
    before = so_far if so_far is not None and so_far["kind"] == kind else None
    if kind == "gauge":
        values = {} if before is None else before["values"]
        return {"kind": kind, "values": {**values, str(subtask): measure["value"]}}
    if before is None:
        before = {"kind": kind, "count": 0}
    count = before["count"] + measure["count"]
    if kind == "counter":
        return {"kind": kind, "count": count}
    if kind == "meter":
        recent = _recent(before, measure["span"], now)
        bucket = now // _BUCKET
        if recent and recent[-1][0] == bucket:
            recent = [*recent[:-1], [bucket, recent[-1][1] + measure["count"]]]
        else:
            recent = [*recent, [bucket, measure["count"]]]
        return {"kind": kind, "count": count, "span": measure["span"], "recent": recent}
    return {
        "kind": kind,
        "count": count,
        "sum": before.get("sum", 0) + measure["sum"],
        "min": min(before.get("min", measure["min"]), measure["min"]),
        "max": max(before.get("max", measure["max"]), measure["max"]),
    }


def together(earlier: MetricValue, later: MetricValue) -> MetricValue:
    """Return what one subtask reports of two epochs, as if they had been one.

    Args:
        earlier: the report of the first.
        later: that of the second; if it is of another kind, the function has changed its mind, and
            it counts alone.
    """
    if isinstance(earlier, int) and isinstance(later, int):
        return earlier + later
    if isinstance(earlier, int) or isinstance(later, int) or earlier["kind"] != later["kind"]:
        return later
    if later["kind"] == "gauge":
        return later
    if later["kind"] == "counter":
        return counter(earlier["count"] + later["count"])
    if later["kind"] == "meter":
        return meter(earlier["count"] + later["count"], later["span"])
    return distribution(
        earlier["count"] + later["count"],
        earlier["sum"] + later["sum"],
        min(earlier["min"], later["min"]),
        max(earlier["max"], later["max"]),
    )


def all_together(
    earlier: Mapping[str, MetricValue], later: Mapping[str, MetricValue]
) -> dict[str, MetricValue]:
    """Return the metrics of two epochs, by name, as if they had been one."""
    found = {**earlier, **later}
    for name in earlier.keys() & later.keys():
        found[name] = together(earlier[name], later[name])
    return found


def shown(measure: Measure, now: int) -> int | dict[str, Any]:
    """A measure of the job for people.

    Args:
        measure: as ``added`` makes it.
        now: milliseconds since 1970; a rate is that of the time before.

    Returns:
        A counter's number, a gauge's values by subtask (``"0"``), a meter's ``count`` and ``rate``
        (events per second), a distribution's ``count``, ``sum``, ``min``, ``max`` and ``mean``.
    """
    if measure["kind"] == "counter":
        return int(measure["count"])
    if measure["kind"] == "gauge":
        return dict(measure["values"])
    if measure["kind"] == "meter":
        events = sum(count for _, count in _recent(measure, measure["span"], now))
        return {"count": measure["count"], "rate": events / measure["span"]}
    values = {name: measure[name] for name in ("count", "sum", "min", "max")}
    return {**values, "mean": measure["sum"] / measure["count"]}


def _recent(measure: Measure, span: int, now: int) -> list[list[int]]:
    """The events of a meter by bucket, those longer ago than its span left out."""
    oldest = (now - span * _SECOND) // _BUCKET
    return [entry for entry in measure.get("recent", ()) if entry[0] > oldest]


#: The gauge of an operator that has the bytes of its keyed state as Python objects.
STATE_OBJECTS: Final = "stateObjectsSize"


@dataclass(frozen=True, slots=True)
class InstanceFigures:
    """What the process of a task knows of it, and no checkpoint has."""

    #: Changes with every instance of the task: counts begin again with it.
    instance: str
    #: Since the instance was made, by "uid.metric".
    counts: dict[str, int]
    #: Of now, by "uid.metric".
    gauges: dict[str, float]
    #: (operator uid, source uid, subtask of the source) -> statistics of latency in milliseconds;
    #: "" and -1 where it is not told apart by them.
    latencies: dict[tuple[str, str, int], dict[str, float]] = field(default_factory=dict)


# -- reporters -------------------------------------------------------------------------------------


class MetricKind(Enum):
    """The four kinds of metrics that Flink has."""

    #: A number that adds up; a function may also count down.
    COUNTER = "counter"
    #: A value of now.
    GAUGE = "gauge"
    #: Events per second.
    METER = "meter"
    #: Many values, as ``count``, ``sum``, ``min``, ``max`` and ``mean``.
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricSample:
    """The value of one metric at one moment."""

    #: ``host.taskmanager.tm.job.operator.0.numRecordsIn``, by the options ``metrics.scope.*``.
    identifier: str
    #: Flink's logical scope, the same for all jobs: ``taskmanager.job.task.operator``.
    scope: str
    name: str
    kind: MetricKind
    #: A mapping if it is a histogram.
    value: float | Mapping[str, float]
    #: Flink's variables: ``job_name``, ``operator_name``, ``subtask_index`` and others.
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Span:
    """Something in the life of a job that took some time, for a tracing system."""

    #: Where Flink makes such spans: the name of its class.
    scope: str
    name: str
    #: Milliseconds since 1970.
    start: int
    end: int
    attributes: Mapping[str, str | int | float]
    children: tuple[Span, ...] = ()


_T = TypeVar("_T")


class Reporter(ABC, Generic[_T]):
    """Sends metrics or spans of a job somewhere.

    Contract:
      1. ``open`` is called until it succeeds, then ``report`` any number of times, then ``close``,
         all in one thread of the driver, which no other reporter shares.  (the runtime)
      2. A call that fails raises.  The job continues, the failure is logged once, and the next
         interval tries again.  (the runtime)
      3. A call may take long: it delays the reporter itself, and at its end the job for at most a
         few seconds.  (the runtime)
      4. What ``open`` has acquired when it raises is released by itself.  (the reporter)
    """

    #: Whether ``report`` is called each ``interval``; else the reporter is asked from outside.
    is_scheduled: bool = True

    @abstractmethod
    def open(self, properties: Mapping[str, str]) -> None:
        """Take the reporter's options, by the keys without the prefix that has its name."""

    def serve(self, collect: Callable[[], Sequence[_T]]) -> None:
        """Take the function that returns what is to be reported as it is now, from any thread.

        Called before ``open``; for reporters that are asked from outside.
        """

    @abstractmethod
    def report(self, samples: Sequence[_T]) -> None:
        """Send the metrics of the job as they are now, or spans since the last call."""

    @abstractmethod
    def close(self) -> None:
        """Send what is left and release what is held."""


class MetricReporter(Reporter[MetricSample]):
    """Sends the metrics of a job somewhere; its options are ``metrics.reporter.NAME.*``."""


class TraceReporter(Reporter[Span]):
    """Sends the spans of a job somewhere; its options are ``traces.reporter.NAME.*``."""


#: By the names that configuration has for them: callables that make a reporter.
METRIC_REPORTERS: Final[Extensions[Callable[[], MetricReporter]]] = Extensions(
    "millstream.metric_reporters",
    "metric reporter",
    {
        "otel": "millstream.metrics.opentelemetry_reporter:OpenTelemetryMetricReporter",
        "jsonl": "millstream.metrics.json_lines_reporter:JsonLinesReporter",
        "prometheus": "millstream.metrics.prometheus_reporter:PrometheusReporter",
        "promgateway": "millstream.metrics.push_gateway_reporter:PushGatewayReporter",
        "statsd": "millstream.metrics.statsd_reporter:StatsDReporter",
    },
    ("__call__",),
)

#: By the names that configuration has for them: callables that make a reporter of spans.
TRACE_REPORTERS: Final[Extensions[Callable[[], TraceReporter]]] = Extensions(
    "millstream.trace_reporters",
    "trace reporter",
    {"otel": "millstream.metrics.opentelemetry_reporter:OpenTelemetryTraceReporter"},
    ("__call__",),
)
