"""PyFlink's metrics of user functions: counters, gauges, meters, distributions; by name and group.

What is counted is reported with each epoch, and is part of it: an epoch that is aborted and
repeated counts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from millstream.contracts.metrics import Measure, counter, distribution, gauge, meter
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable


M = TypeVar("M", bound="Metric")


class Metric:
    """The base of all metrics."""

    __slots__ = ()

    def current(self) -> Measure | None:
        """Return what there is to report so far, None if nothing; from any thread."""
        raise NotImplementedError

    def take(self) -> Measure | None:
        """Return what there is to report, None if nothing, and start again."""
        raise NotImplementedError


def _whole(value: object, what: str) -> int:
    """A number of things, as Python's own int.

    Raises:
        ProgramError: it is not whole.
    """
    # numpy's numbers too: a manifest is JSON, which takes none but Python's.
    plain = value.item() if hasattr(value, "item") else value
    if not isinstance(plain, int):
        message = f"{what} must be a whole number, not {value!r}"
        raise ProgramError(message)
    return int(plain)


def _number(value: object, what: str) -> float:
    """Any number, as Python's own int or float.

    Raises:
        ProgramError: it is none.
    """
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        message = f"{what} a number, not {value!r}"
        raise ProgramError(message)
    return plain


class Counter(Metric):
    """A count that is summed over subtasks and epochs."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        """Start at zero."""
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Add ``n``."""
        self._count += n if type(n) is int else _whole(n, "what a counter is moved by")

    def dec(self, n: int = 1) -> None:
        """Take ``n`` away."""
        self._count -= n if type(n) is int else _whole(n, "what a counter is moved by")

    def get_count(self) -> int:
        """Return what was added in this epoch so far."""
        return self._count

    def current(self) -> Measure | None:
        return counter(self._count) if self._count else None

    def take(self) -> Measure | None:
        taken, self._count = self.current(), 0
        return taken


class Meter(Metric):
    """How many events there are per second."""

    __slots__ = ("_count", "_span")

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        """Take the time before now of which the rate is that."""
        self._span = time_span_in_seconds
        self._count = 0

    def mark_event(self, value: int = 1) -> None:
        """Count ``value`` events."""
        self._count += value if type(value) is int else _whole(value, "the events of a meter")

    def get_count(self) -> int:
        """The events of this epoch so far."""
        return self._count

    def current(self) -> Measure | None:
        return meter(self._count, self._span) if self._count else None

    def take(self) -> Measure | None:
        taken, self._count = self.current(), 0
        return taken


class Distribution(Metric):
    """Number, sum, least, greatest and mean of values."""

    __slots__ = ("_count", "_least", "_most", "_sum")

    def __init__(self) -> None:
        """Start without values."""
        self._count = 0
        self._sum: float = 0
        self._least: float = 0
        self._most: float = 0

    def update(self, value: float) -> None:
        """Take a value."""
        if type(value) is not float and type(value) is not int:
            value = _number(value, "a value of a distribution must be")
        if not self._count or value < self._least:
            self._least = value
        if not self._count or value > self._most:
            self._most = value
        self._count += 1
        self._sum += value

    def current(self) -> Measure | None:
        if not self._count:
            return None
        return distribution(self._count, self._sum, self._least, self._most)

    def take(self) -> Measure | None:
        taken = self.current()
        self._count = self._sum = 0
        return taken


class _Gauge(Metric):
    """A value that is read in the thread of its function."""

    __slots__ = ("_look", "_seen")

    def __init__(self, look: Callable[[], Any]) -> None:
        self._look = look
        self._seen: Measure | None = None

    def current(self) -> Measure | None:
        return self._seen

    def take(self) -> Measure | None:
        """Read the value.

        Raises:
            ProgramError: it is no number.
        """
        self._seen = gauge(_number(self._look(), "a gauge must return"))
        return self._seen


class MetricGroup:
    """Makes metrics; nested groups prefix their names with ``group.``."""

    __slots__ = ("_metrics", "_prefix")

    def __init__(self, prefix: str = "", metrics: dict[str, Metric] | None = None) -> None:
        """Make a group; nested groups share ``metrics``."""
        self._prefix = prefix
        self._metrics: dict[str, Metric] = {} if metrics is None else metrics

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a nested group."""
        inner = f"{name}.{extra}" if extra else name
        return MetricGroup(f"{self._prefix}{inner}.", self._metrics)

    def counter(self, name: str) -> Counter:
        """Return the counter called ``name``, made at the first call."""
        return self._made(name, Counter, Counter())

    def gauge(self, name: str, obj: Callable[[], float]) -> None:
        """Report what ``obj`` returns, a number, by subtask.

        It is called in the thread of the function: at each checkpoint, and about once a second
        while records are processed.
        """
        self._made(name, _Gauge, _Gauge(obj))

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Return the meter called ``name``, made at the first call.

        Args:
            name: shown after that of the operator.
            time_span_in_seconds: the rate is that of so long before the last epoch.

        Raises:
            ProgramError: the time is not positive.
        """
        if time_span_in_seconds < 1:
            message = f"meter {name!r}: the time span must be positive, not {time_span_in_seconds}"
            raise ProgramError(message)
        return self._made(name, Meter, Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        """Return the distribution called ``name``, made at the first call."""
        return self._made(name, Distribution, Distribution())

    def current(self) -> dict[str, Measure]:
        """Return what there is to report so far, without taking it; from any thread.

        Gauges have the value that ``read_gauges`` or ``take_all`` found last.
        """
        # A copy: a function may make a metric meanwhile.
        found = {name: each.current() for name, each in list(self._metrics.items())}
        return {name: value for name, value in found.items() if value is not None}

    def read_gauges(self) -> None:
        """Read the gauges, in the thread of the functions."""
        for each in self._metrics.values():
            if isinstance(each, _Gauge):
                each.take()

    def take_all(self) -> dict[str, Measure]:
        """Return what there is to report, and let all start again (the runtime calls this)."""
        taken = {name: metric.take() for name, metric in self._metrics.items()}
        return {name: value for name, value in taken.items() if value is not None}

    def _made(self, name: str, kind: type[M], made: M) -> M:
        found = self._metrics.setdefault(self._prefix + name, made)
        if not isinstance(found, kind):
            there, wanted = (each.__name__.strip("_").lower() for each in (type(found), kind))
            message = f"the metric {self._prefix + name!r} is a {there} and cannot be a {wanted}"
            raise ProgramError(message)
        return found
