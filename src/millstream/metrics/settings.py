"""Options of metric reporters: which are started, and what each is given."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import options
from millstream.configuration.flink_options import say_once
from millstream.configuration.option import ConfigOption, parse_duration, parse_list, parse_map
from millstream.contracts.metrics import (
    METRIC_REPORTERS,
    TRACE_REPORTERS,
    MetricKind,
    MetricSample,
)
from millstream.errors import ConfigurationError
from millstream.metrics.definitions import SCOPE_FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from millstream.configuration.configuration import Configuration
    from millstream.contracts.metrics import Reporter
    from millstream.entry_points import Extensions
    from millstream.metrics.definitions import Scope
    from millstream.metrics.registry import Measurement

_PREFIX: Final = "metrics.reporter."
_TRACES: Final = "traces.reporter."
_CLASSES: Final = ("factory.class", "class")
#: Milliseconds.
_INTERVAL: Final = 10_000
#: The same; a thread that reports all the time takes the job's place on the processor.
_SHORTEST: Final = 100
#: The package of Flink's own reporters -> the name of the one here that does the same.
_FLINKS: Final = re.compile(r"org\.apache\.flink\.(?:metrics|traces)\.(\w+)\.(\w+?)(?:Factory)?")
_OF_FLINK: Final = {
    "PrometheusReporter": "prometheus",
    "PrometheusPushGatewayReporter": "promgateway",
    "StatsDReporter": "statsd",
    "OpenTelemetryMetricReporter": "otel",
    "OpenTelemetryTraceReporter": "otel",
}
_STATUS_KINDS: Final = {"STATE": "State", "CURRENT_TIME": "Time", "TOTAL_TIME": "TimeTotal"}
_VARIABLE: Final = re.compile(r"<(\w+)>")


@dataclass(frozen=True, slots=True)
class MetricFilter:
    """``<scope>[:<name>[,<name>][:<kind>[,<kind>]]]``, with ``*`` for any text."""

    scope: str
    names: tuple[str, ...]
    kinds: frozenset[MetricKind]

    def matches(self, scope: str, name: str, kind: MetricKind) -> bool:
        """Return whether a metric of this logical scope, name and kind is meant."""
        return (
            kind in self.kinds
            and _fits(scope, self.scope)
            and any(_fits(name, each) for each in self.names)
        )


def _fits(text: str, pattern: str) -> bool:
    # Only the star is special in Flink's filters.
    return fnmatchcase(text, re.sub(r"[\[\]?]", lambda each: f"[{each[0]}]", pattern))


def parse_filter(text: str) -> MetricFilter:
    """Read one filter.

    Raises:
        ValueError: it has too many parts, or a kind that there is not.
    """
    scope, names, kinds, *more = (*(each.strip() for each in text.split(":")), "", "")
    if any(more):
        message = f"must be a list of '<scope>:<names>:<kinds>', but one is {text!r}"
        raise ValueError(message)
    try:
        found = frozenset(MetricKind(each.strip().lower()) for each in kinds.split(",") if each)
    except ValueError:
        known = ", ".join(each.value for each in MetricKind)
        message = f"must have kinds of {known}, not {kinds!r}"
        raise ValueError(message) from None
    wanted = tuple(each.strip() for each in names.split(",") if each.strip()) or ("*",)
    return MetricFilter(scope or "*", wanted, found or frozenset(MetricKind))


def _parse_filters(value: object) -> tuple[MetricFilter, ...]:
    return tuple(map(parse_filter, parse_list(value)))


def _parse_interval(value: object) -> int:
    found = parse_duration(value)
    if found < _SHORTEST:
        message = f"must be at least {_SHORTEST} ms, not {found} ms"
        raise ValueError(message)
    return found


@dataclass(frozen=True, slots=True)
class ReporterSettings:
    """One reporter of a job and its options."""

    name: str
    make: Callable[[], Reporter[Any]]
    #: What is given to it.
    properties: Mapping[str, str]
    #: Seconds between two reports.
    interval: float
    #: By scope, of ``metrics.scope.*``.
    formats: Mapping[Scope, str] = field(default_factory=dict)
    delimiter: str = "."
    includes: tuple[MetricFilter, ...] = ()
    excludes: tuple[MetricFilter, ...] = ()
    #: Variables that it does not get, and further ones.
    without: frozenset[str] = frozenset()
    additional: Mapping[str, str] = field(default_factory=dict)
    #: "metric" or "trace".
    what: str = "metric"
    #: Endings of the names of metrics of a status that are not reported.
    without_status: tuple[str, ...] = ()

    def samples(self, measurements: Iterable[Measurement]) -> list[MetricSample]:
        """Return those of the measurements that the reporter gets, in its form."""
        return [self._sample(each) for each in measurements if self._takes(each)]

    def _takes(self, each: Measurement) -> bool:
        scope = ".".join((each.scope.value, *each.groups))

        def is_in(filters: tuple[MetricFilter, ...]) -> bool:
            return any(one.matches(scope, each.name, each.kind) for one in filters)

        if is_in(self.excludes) or (self.includes and not is_in(self.includes)):
            return False
        return not (_is_of_status(each.name) and each.name.endswith(self.without_status))

    def _sample(self, each: Measurement) -> MetricSample:
        kept = {name: value for name, value in each.variables.items() if name not in self.without}
        scope = ".".join((each.scope.value, *each.groups))
        formatted = _VARIABLE.sub(
            lambda found: each.variables.get(found[1], found[0]),
            self.formats[each.scope].replace(".", "\0"),
        )
        parts = formatted.split("\0")
        for group in each.groups:
            parts += [group, each.group_values[group]] if group in each.group_values else [group]
        parts.append(each.name)
        identifier = self.delimiter.join(parts)
        variables = {**kept, **self.additional}
        return MetricSample(identifier, scope, each.name, each.kind, each.value, variables)


def _is_of_status(name: str) -> bool:
    return name.endswith(("State", "Time", "TimeTotal")) and name.startswith(_STATUS_WORDS)


_STATUS_WORDS: Final = (
    *("initializing", "created", "running", "restarting", "cancelling", "failing"),
)


def reporters_of(configuration: Configuration) -> list[ReporterSettings]:
    """Return the reporters that options name, in order of their names.

    Raises:
        ConfigurationError: an option makes no sense, there is no such reporter, or a package that
            it needs is not installed.
    """
    made = [
        *(
            _reporter(name, given, configuration)
            for name, given in _named(configuration, _PREFIX, options.METRICS_REPORTERS)
        ),
        *(
            _trace_reporter(name, given)
            for name, given in _named(configuration, _TRACES, options.TRACES_REPORTERS)
        ),
    ]
    return [each for each in made if each is not None]


def _named(
    configuration: Configuration, prefix: str, chosen: ConfigOption[str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """The names of reporters, and the options of each."""
    properties: dict[str, dict[str, str]] = {}
    for key, value in sorted(configuration.to_dict().items()):
        if key.startswith(prefix):
            name, _, rest = key.removeprefix(prefix).partition(".")
            properties.setdefault(name, {})[rest] = value
    wanted = re.split(r"\s*[,;]\s*", configuration.get(chosen).strip())
    for name in [each for each in wanted if each] or sorted(properties):
        yield name, properties.get(name, {})


def _trace_reporter(name: str, given: dict[str, str]) -> ReporterSettings | None:
    make = _chosen(f"{_TRACES}{name}", "trace", name, given, TRACE_REPORTERS)
    if make is None:
        return None
    interval = _read(name, given, "interval", _parse_interval, _INTERVAL) / 1000
    return ReporterSettings(name, make, given, interval, what="trace")


def _reporter(
    name: str, given: dict[str, str], configuration: Configuration
) -> ReporterSettings | None:
    make = _chosen(f"{_PREFIX}{name}", "metric", name, given, METRIC_REPORTERS)
    if make is None:
        return None
    delimiter = configuration.get(options.METRICS_SCOPE_DELIMITER)
    return ReporterSettings(
        name=name,
        make=make,
        properties=given,
        interval=_read(name, given, "interval", _parse_interval, _INTERVAL) / 1000,
        formats={scope: configuration.get(option) for scope, option in SCOPE_FORMATS.items()},
        delimiter=given.get("scope.delimiter", delimiter),
        includes=_read(name, given, "filter.includes", _parse_filters, ()),
        excludes=_read(name, given, "filter.excludes", _parse_filters, ()),
        without=frozenset(_read(name, given, "scope.variables.excludes", parse_list, [])),
        additional=_read(name, given, "scope.variables.additional", parse_map, {}),
        without_status=_left_out(configuration),
    )


def _chosen(
    prefix: str,
    what: str,
    name: str,
    given: Mapping[str, str],
    known: Extensions[Callable[[], Any]],
) -> Callable[[], Reporter[Any]] | None:
    """What makes the reporter that options name; None if only Flink has it."""
    named = next((given[key] for key in _CLASSES if given.get(key)), name)
    of_flink = _FLINKS.fullmatch(named)
    short = named if of_flink is None else _OF_FLINK.get(of_flink[2], "")
    if of_flink is not None and short not in known:
        say_once(
            f"{prefix}.factory.class has no effect: there is no reporter of the"
            f" kind of {named}; there are {', '.join(sorted(known))}"
        )
        return None
    return _maker(f"{what} reporter '{name}'", short, known)


#: Short name -> the extra that has what it imports.
_EXTRAS: Final = {"otel": "otel"}


def _maker(
    who: str, short: str, known: Extensions[Callable[[], Any]]
) -> Callable[[], Reporter[Any]]:
    try:
        return known[short]
    except ConfigurationError as error:
        message = f"{who}: {error}"
        raise ConfigurationError(message) from None
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(short, "prometheus")
        message = f"{who} needs the package {error.name}: pip install 'millstream[{extra}]'"
        raise ConfigurationError(message) from error


def _read(
    name: str, given: Mapping[str, str], key: str, parse: Callable[[object], Any], default: Any
) -> Any:
    if key not in given:
        return default
    option = ConfigOption(f"{_PREFIX}{name}.{key}", parse, default, "")
    return option.read(given[key])


def _left_out(configuration: Configuration) -> tuple[str, ...]:
    option = options.METRICS_JOB_STATUS
    chosen = [each.strip().upper() for each in parse_list(configuration.get(option))]
    unknown = [each for each in chosen if each not in _STATUS_KINDS]
    if unknown:
        known = ", ".join(_STATUS_KINDS)
        message = f"{option.key} has {unknown[0]!r}; there are {known}"
        raise ConfigurationError(message)
    return tuple(ending for kind, ending in _STATUS_KINDS.items() if kind not in chosen)
