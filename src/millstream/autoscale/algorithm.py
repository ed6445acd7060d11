"""The parallelism that each vertex of a job should have: a pure function of figures of a window.

The rules are those of the autoscaler of Flink's Kubernetes operator.  A vertex is a chain of
operators.  Its *true processing rate* is what it would process if it were busy all the time; its
*target rate* is what comes to it if everything upstream keeps up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FULL: Final = 1000.0
#: Less busy than so many milliseconds per second, a rate says nothing.
_LEAST_BUSY: Final = 1.0


@dataclass(frozen=True, slots=True)
class VertexFigures:
    """What is known of a vertex over a window."""

    parallelism: int
    #: Number of key groups, which is the most that its parallelism can be.
    max_parallelism: int
    #: Records per second, over all subtasks.
    records_in: float
    records_out: float
    #: Milliseconds per second that a subtask was at work, on average.
    busy: float
    #: Records that a source has not read, and by how many per second they grow.
    lag: float = 0.0
    lag_growth: float = 0.0
    #: Vertices that it reads.
    inputs: tuple[str, ...] = ()
    #: Whether all that they emit comes to it; else some goes elsewhere, or is combined before.
    reads_all: bool = True
    #: Whether it must stay as it is.
    is_fixed: bool = False

    @property
    def true_rate(self) -> float:
        """Records per second that it would process if it were busy all the time."""
        if self.busy < _LEAST_BUSY:
            return math.inf
        return self.records_in * _FULL / self.busy

    @property
    def selectivity(self) -> float:
        """Records that it emits for one that comes."""
        return self.records_out / self.records_in if self.records_in > 0 else 1.0


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """The options ``job.autoscaler.*``; times in seconds."""

    target: float = 0.7
    #: Utilizations at which a job is scaled down and up.
    least: float = 0.4
    most: float = 1.0
    #: By how much a parallelism may change at once, as a part of itself.
    up_factor: float = 100_000.0
    down_factor: float = 0.6
    least_parallelism: int = 1
    most_parallelism: int = 200
    catch_up: float = 1800.0
    restart: float = 300.0
    detects_ineffective: bool = False
    effectiveness: float = 0.1
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PastScaling:
    """The last scaling of a vertex, for what it has brought."""

    before: int
    after: int
    #: The true rate before it, and the one that was expected of it.
    rate: float
    expected: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was computed of a vertex."""

    parallelism: int
    recommended: int
    true_rate: float
    target_rate: float
    #: What is needed at the target utilization, to catch up, and for what comes in a restart.
    capacity: float
    #: Whether the utilization is outside of its bounds.
    is_out_of_bounds: bool
    #: Why the parallelism stays although another was computed; empty: it does not.
    reason: str = ""


def target_rates(vertices: Mapping[str, VertexFigures]) -> dict[str, tuple[float, float]]:
    """Return the rate of records and of backlog that comes to each vertex if all keep up.

    Args:
        vertices: inputs before those that read them.
    """
    found: dict[str, tuple[float, float]] = {}
    for name, each in vertices.items():
        if not each.inputs:
            rate = max(0.0, each.records_in + each.lag_growth)
            found[name] = rate, each.lag
            continue
        rate = backlog = 0.0
        offered = sum(vertices[above].records_out for above in each.inputs)
        # Measured only where it must be: of a vertex that falls behind less has come than was sent.
        is_measured = offered > 0 and not each.reads_all
        share = min(1.0, each.records_in / offered) if is_measured else 1.0
        for above in each.inputs:
            upstream, lag = found[above]
            passed = vertices[above].selectivity * share
            rate, backlog = rate + upstream * passed, backlog + lag * passed
        found[name] = rate, backlog
    return found


def required_capacity(
    rate: float, backlog: float, utilization: float, settings: ScalingSettings, restart: float
) -> float:
    """Return the records per second that a vertex has to be able to process.

    Args:
        rate: what comes, in records per second.
        backlog: records that wait for it.
        utilization: that it should have with this rate, without the backlog.
        settings: of the job.
        restart: seconds of records that come while the job restarts; 0: it does not.
    """
    capacity = rate / utilization
    if settings.catch_up > 0:
        capacity += (backlog + rate * restart) / settings.catch_up
    return capacity


def evaluate(
    vertices: Mapping[str, VertexFigures],
    settings: ScalingSettings,
    past: Mapping[str, PastScaling] | None = None,
) -> dict[str, Evaluation]:
    """Evaluate all vertices of a job.

    Args:
        vertices: by name, inputs before those that read them.
        settings: of the job.
        past: what was done before, for the detection of what does not help.
    """
    rates = target_rates(vertices)
    return {
        name: _evaluate(name, each, *rates[name], settings, (past or {}).get(name))
        for name, each in vertices.items()
    }


def _evaluate(
    name: str,
    figures: VertexFigures,
    rate: float,
    backlog: float,
    settings: ScalingSettings,
    past: PastScaling | None,
) -> Evaluation:
    true_rate, current = figures.true_rate, figures.parallelism
    capacity = required_capacity(rate, backlog, settings.target, settings, settings.restart)
    # Whether it keeps up is judged without a restart, which it may not need.
    low = required_capacity(rate, backlog, settings.most, settings, 0.0)
    high = required_capacity(rate, backlog, settings.least, settings, 0.0)
    out = true_rate < low or true_rate > high
    if figures.is_fixed or name in settings.excluded:
        return Evaluation(current, current, true_rate, rate, capacity, is_out_of_bounds=False)
    wanted = _parallelism(figures, capacity / true_rate if true_rate > 0 else 1.0, settings)
    reason = ""
    if (
        wanted > current
        and settings.detects_ineffective
        and _was_ineffective(figures, past, settings.effectiveness)
    ):
        reason = "scaling up before has not helped"
    recommended = current if reason else wanted
    return Evaluation(current, recommended, true_rate, rate, capacity, out, reason)


def _was_ineffective(figures: VertexFigures, past: PastScaling | None, least: float) -> bool:
    """Return whether the last step up has brought less than a part of what was expected."""
    if past is None or past.after <= past.before or figures.parallelism != past.after:
        return False
    expected = past.expected - past.rate
    return expected > 0 and figures.true_rate - past.rate < least * expected


def _parallelism(figures: VertexFigures, factor: float, settings: ScalingSettings) -> int:
    """Return the parallelism for so many times the capacity, within the limits."""
    factor = min(1 + settings.up_factor, max(1 - settings.down_factor, factor))
    highest = min(figures.max_parallelism, settings.most_parallelism)
    lowest = min(settings.least_parallelism, highest)
    wanted = math.ceil(round(factor * figures.parallelism, 9))
    return divisor_above(max(lowest, min(highest, wanted)), highest, figures.max_parallelism)


def divisor_above(wanted: int, highest: int, groups: int) -> int:
    """Return the lowest parallelism from ``wanted`` on that gives all subtasks as many key groups.

    Args:
        wanted: what was computed.
        highest: what it may be.
        groups: the number of key groups; above half of it there is no such parallelism but itself.

    Returns:
        ``wanted`` where there is none.
    """
    for each in range(wanted, min(groups // 2, highest) + 1):
        if groups % each == 0:
            return each
    return wanted


@dataclass(slots=True)
class Decision:
    """What is to be done about a job."""

    evaluations: dict[str, Evaluation] = field(default_factory=dict)

    @property
    def changes(self) -> dict[str, int]:
        """The new parallelism of each vertex that gets one; empty if all are within bounds."""
        if not any(each.is_out_of_bounds for each in self.evaluations.values()):
            return {}
        return {
            name: each.recommended
            for name, each in self.evaluations.items()
            if each.recommended != each.parallelism
        }


def grouped(decision: Decision, groups: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the changes where vertices of a group have one parallelism: the highest of them."""
    changes = decision.changes
    if not changes:
        return {}
    found = {}
    for group in groups:
        highest = max(decision.evaluations[name].recommended for name in group)
        for name in group:
            if decision.evaluations[name].parallelism != highest:
                found[name] = highest
    return found
