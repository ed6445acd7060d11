"""Factories of the operators of window table functions and window aggregates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.runtime.columnar.table_windows import WindowKind
from millstream.runtime.operators.table.aggregate_calls import can_be_partial
from millstream.runtime.operators.table.plans import (
    SessionFunctionPlan,
    WindowAggregatePlan,
    WindowFunctionPlan,
    session_rows_section,
)
from millstream.runtime.operators.table.session_windows import (
    SessionAggregateOperator,
    SessionFunctionOperator,
    SessionRowsAggregateOperator,
)
from millstream.runtime.operators.table.window_aggregate import (
    WindowAggregateOperator,
)
from millstream.runtime.operators.table.window_function import WindowFunctionOperator

if TYPE_CHECKING:
    from millstream.contracts.operator import Operator, StateSection


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
