"""The factories of operators over changelogs: what a plan of a query is lowered to.

What it is: each plan with the operator that carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.runtime.columnar.table_windows import WindowKind
from millstream.runtime.operators.table.aggregate_calls import can_be_partial
from millstream.runtime.operators.table.calc import CalcOperator
from millstream.runtime.operators.table.deduplicate import (
    ChangelogNormalizeOperator,
    DeduplicateOperator,
)
from millstream.runtime.operators.table.group_aggregate import (
    GroupAggregateOperator,
    LocalGroupAggregateOperator,
)
from millstream.runtime.operators.table.interval_join import TableIntervalJoinOperator
from millstream.runtime.operators.table.join import JoinOperator
from millstream.runtime.operators.table.match import MatchOperator
from millstream.runtime.operators.table.over import OverOperator
from millstream.runtime.operators.table.plans import (
    CalcPlan,
    ChangelogNormalizePlan,
    DeduplicatePlan,
    DropUpdateBeforePlan,
    GroupAggregatePlan,
    IntervalJoinPlan,
    JoinPlan,
    LocalGroupAggregatePlan,
    LocalWindowAggregatePlan,
    MatchPlan,
    OverPlan,
    SessionFunctionPlan,
    SinkMaterializerPlan,
    TemporalJoinPlan,
    TopNPlan,
    UpdatingOverPlan,
    WindowAggregatePlan,
    WindowFunctionPlan,
    WindowRankPlan,
    session_rows_section,
)
from millstream.runtime.operators.table.session_windows import (
    SessionAggregateOperator,
    SessionFunctionOperator,
    SessionRowsAggregateOperator,
)
from millstream.runtime.operators.table.sink_materializer import (
    DropUpdateBeforeOperator,
    SinkMaterializerOperator,
)
from millstream.runtime.operators.table.temporal_join import TemporalJoinOperator
from millstream.runtime.operators.table.top_n import TopNOperator, WindowRankOperator
from millstream.runtime.operators.table.updating_over import UpdatingOverOperator
from millstream.runtime.operators.table.window_aggregate import (
    LocalWindowAggregateOperator,
    WindowAggregateOperator,
)
from millstream.runtime.operators.table.window_function import WindowFunctionOperator

if TYPE_CHECKING:
    from millstream.contracts.operator import Operator, StateSection


@dataclass(frozen=True)
class CalcFactory(CalcPlan):
    """Filters rows, then computes columns of them.  Kinds of rows stay as they are."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return CalcOperator(self)


@dataclass(frozen=True)
class DropUpdateBeforeFactory(DropUpdateBeforePlan):
    """Drops -U: behind it, +U replaces the row of its key."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return DropUpdateBeforeOperator(self)


@dataclass(frozen=True)
class GroupAggregateFactory(GroupAggregatePlan):
    """GROUP BY without windows.  Gives the key columns, then the aggregates."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return GroupAggregateOperator(self)


@dataclass(frozen=True)
class LocalGroupAggregateFactory(LocalGroupAggregatePlan):
    """Partial aggregates per batch, ahead of the exchange; for mini-batches."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return LocalGroupAggregateOperator(self)


@dataclass(frozen=True)
class DeduplicateFactory(DeduplicatePlan):
    """The first or the last row per key, by arrival or by a time attribute.  Columns stay."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return DeduplicateOperator(self)


@dataclass(frozen=True)
class TopNFactory(TopNPlan):
    """ROW_NUMBER() OVER (PARTITION BY keys ORDER BY order) BETWEEN start AND end."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return TopNOperator(self)


@dataclass(frozen=True)
class JoinFactory(JoinPlan):
    """A regular join of two changelogs.  Gives the left columns, then the right ones."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return JoinOperator(self)


@dataclass(frozen=True)
class ChangelogNormalizeFactory(ChangelogNormalizePlan):
    """Makes a full changelog of upserts (+I/+U and -D by key).  Columns stay."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ChangelogNormalizeOperator(self)


@dataclass(frozen=True)
class SinkMaterializerFactory(SinkMaterializerPlan):
    """Brings a changelog whose key is not that of the sink in an order that the sink can take."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return SinkMaterializerOperator(self)


@dataclass(frozen=True)
class OverFactory(OverPlan):
    """Aggregates over the rows in front of each row.  Gives the input's columns, then these."""

    @property
    def waits_for_watermarks(self) -> bool:
        """Whether rows are given by event time."""
        return self.rowtime is not None

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return OverOperator(self)


@dataclass(frozen=True)
class UpdatingOverFactory(UpdatingOverPlan):
    """Aggregates over the rows in front of each row of a changelog."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return UpdatingOverOperator(self)


@dataclass(frozen=True)
class MatchFactory(MatchPlan):
    """MATCH_RECOGNIZE with one row per match.  Gives the key columns, then the measures."""

    @property
    def waits_for_watermarks(self) -> bool:
        """Whether rows are given by event time."""
        return self.rowtime is not None

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return MatchOperator(self)


@dataclass(frozen=True)
class WindowFunctionFactory(WindowFunctionPlan):
    """TUMBLE, HOP or CUMULATE by itself."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return WindowFunctionOperator(self)


@dataclass(frozen=True)
class SessionFunctionFactory(SessionFunctionPlan):
    """SESSION by itself."""

    @property
    def waits_for_watermarks(self) -> bool:
        """Whether rows are given by event time."""
        return self.is_rowtime

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return SessionFunctionOperator(self)


@dataclass(frozen=True)
class WindowAggregateFactory(WindowAggregatePlan):
    """GROUP BY a window and keys."""

    @property
    def _is_session(self) -> bool:
        return self.window.kind is WindowKind.SESSION and self.attached is None

    @property
    def _keeps_rows(self) -> bool:
        """Whether accumulators of sessions that join cannot be put together."""
        return self._is_session and (
            any(call.goes_by_arrival for call in self.aggregates)
            or not can_be_partial(self.aggregates, self.input_type, retracts=self.retracts)
        )

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        if self._keeps_rows:
            return [session_rows_section(self.input_type, self.window)]
        return super().state_sections()

    @property
    def waits_for_watermarks(self) -> bool:
        """Whether rows are given by event time."""
        return self.is_rowtime

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        if self._keeps_rows:
            return SessionRowsAggregateOperator(self)
        return SessionAggregateOperator(self) if self._is_session else WindowAggregateOperator(self)


@dataclass(frozen=True)
class LocalWindowAggregateFactory(LocalWindowAggregatePlan):
    """Partial aggregates of slices of windows, ahead of the exchange."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return LocalWindowAggregateOperator(self)


@dataclass(frozen=True)
class IntervalJoinFactory(IntervalJoinPlan):
    """A join of inserts whose times are near each other."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return TableIntervalJoinOperator(self)


@dataclass(frozen=True)
class TemporalJoinFactory(TemporalJoinPlan):
    """Each left row with the version of the right at its event time."""

    waits_for_watermarks: ClassVar[bool] = True

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return TemporalJoinOperator(self)


@dataclass(frozen=True)
class WindowRankFactory(WindowRankPlan):
    """The rows numbered START to END of each key and window."""

    waits_for_watermarks: ClassVar[bool] = True

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return WindowRankOperator(self)
