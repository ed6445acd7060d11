"""Parameters of the operators of window table functions and window aggregates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.contracts.operator import StateSection
from millstream.runtime.operators.table.specs import calls_text, columns_text

if TYPE_CHECKING:
    from millstream.runtime.columnar.table_windows import WindowSpec
    from millstream.runtime.operators.table.specs import (
        AggregateCall,
    )
    from millstream.types.logical_types import RowType


@dataclass(frozen=True)
class WindowFunctionPlan:
    """TUMBLE, HOP or CUMULATE by itself.

    Gives the input's columns, then window_start and window_end (TIMESTAMP(3)) and window_time (of
    the kind of the time attribute, with precision 3).
    """

    input_type: RowType
    window: WindowSpec
    #: The column of the time attribute.
    time: int
    #: Whether that is event time; else it is processing time, and its values do not count.
    is_rowtime: bool = True
    #: Whose clock windows over TIMESTAMP_LTZ go by.
    time_zone: str = "UTC"
    keyed: ClassVar[bool] = False


@dataclass(frozen=True)
class SessionFunctionPlan:
    """SESSION by itself.  Gives each row when its session is over, columns as of the others.

    Rows keep their kinds: a session of a changelog is of all changes.
    """

    input_type: RowType
    window: WindowSpec
    time: int
    #: Rows of one session have the same values in these columns.
    keys: tuple[int, ...]
    is_rowtime: bool = True
    time_zone: str = "UTC"
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [session_rows_section(self.input_type, self.window)]


def session_rows_section(input_type: RowType, window: WindowSpec) -> StateSection:
    """Return what operators keep that have the rows of sessions."""
    details = {"columns": columns_text(input_type), "windows": str(window)}
    return StateSection("sessions", "packed rows by key and session", details=details)


@dataclass(frozen=True)
class WindowAggregatePlan:
    """GROUP BY a window and keys.  Gives the keys, the aggregates, then ``properties``."""

    input_type: RowType
    window: WindowSpec
    time: int
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    #: Of window_start, window_end, window_time, in any order.
    properties: tuple[str, ...]
    is_rowtime: bool = True
    #: Columns of the input that have start and end of each row's window already.
    attached: tuple[int, int] | None = None
    retracts: bool = False
    time_zone: str = "UTC"
    #: Whether the input is partial aggregates of LocalWindowAggregateFactory.
    merges: bool = False
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {
            "aggregates": calls_text(self.aggregates),
            "windows": str(self.window),
            "attached": str(self.attached is not None).lower(),
        }
        layout = "packed accumulators by key and window"
        return [StateSection("windows", layout, details=details)]

    @property
    def _is_sliced(self) -> bool:
        return self.attached is None and self.window.shares_slices

    @property
    def _goes_by_arrival(self) -> bool:
        return any(call.goes_by_arrival for call in self.aggregates)

    @property
    def shares_slices(self) -> bool:
        """Return whether windows are merged from slices, if aggregates can be merged."""
        return self._is_sliced and not self._goes_by_arrival

    @property
    def has_local_half(self) -> bool:
        """Return whether slices, or windows, may be aggregated before the exchange.

        The other half sees no rows: it treats what arrives as whole slices or windows.
        """
        apart = self.window.is_tumbling or self.attached is not None
        return self.is_rowtime and (apart or self.shares_slices)
