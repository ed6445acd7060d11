"""Window table functions: each row with the windows that it is in.

What it is: TUMBLE, HOP and CUMULATE by themselves.  Behind the columns of a row stand window_start,
window_end and window_time; a row in several windows is given as often.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.array_utils import milliseconds_of, timestamps_of
from millstream.runtime.columnar.table_windows import LocalClock, Windows
from millstream.runtime.operators.table.base import TableOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.runtime.columnar.table_windows import TableWindow
    from millstream.types.logical_types import RowType


@dataclass(frozen=True)
class WindowParameters:
    """The windows of an operator, and the time that they go by."""

    input_type: RowType
    window: TableWindow
    #: The column of the time attribute.
    time: int
    #: Whether that is event time; else it is processing time, and its values do not count.
    is_rowtime: bool = field(default=True, kw_only=True)
    #: Whose clock windows over TIMESTAMP_LTZ go by.
    time_zone: str = field(default="UTC", kw_only=True)


@dataclass(frozen=True)
class KeyedWindowParameters(WindowParameters):
    """The same, of rows by keys."""

    #: Rows of one session, or of one result, have the same values in these columns.
    keys: tuple[int, ...]
    keyed: ClassVar[bool] = True


@dataclass(frozen=True)
class WindowFunctionFactory(WindowParameters):
    """TUMBLE, HOP or CUMULATE by itself.

    Gives the input's columns, then window_start, window_end (TIMESTAMP(3)) and window_time (of
    the kind of the time attribute, with precision 3).
    """

    keyed: ClassVar[bool] = False

    def create(self) -> WindowFunctionOperator:
        """Make a new, unopened instance."""
        return WindowFunctionOperator(self)


def has_zone(kind: pa.DataType) -> bool:
    """Return whether windows over such a column go by the clock of a time zone."""
    return pa.types.is_timestamp(kind) and kind.tz is not None


def window_columns(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    clock: LocalClock | None,
    time_type: pa.DataType,
) -> dict[str, pa.Array]:
    """Return window_start, window_end and window_time, the last moment of the window."""
    plain = pa.timestamp("ms")
    last = ends - 1
    return {
        "window_start": timestamps_of(starts, plain),
        "window_end": timestamps_of(ends, plain),
        "window_time": timestamps_of(last if clock is None else clock.absolute(last), time_type),
    }


class WindowFunctionOperator(TableOperator):
    """Assigns windows."""

    counted: ClassVar[Mapping[str, str]] = {
        **TableOperator.counted,
        "numNullRowTimeRecordsDropped": "without_time",
    }

    def __init__(self, plan: WindowFunctionFactory) -> None:
        """Take the windows, and the time that they go by."""
        super().__init__()
        self._plan = plan
        self._times = RowTimes(plan.input_type, plan.time, plan.time_zone)
        self._time_type = pa.timestamp("ms", self._times.type.tz)
        self.without_time = 0

    def process_rows(self, batch: Batch) -> None:
        arrow, kinds = batch.arrow, batch.row_kinds
        if not self._plan.is_rowtime:
            times = self._times.shown(np.full(len(batch), self.processing_time, dtype=np.int64))
        else:
            arrow, kept, times = self._times.of(arrow, self.label)
            self.without_time += len(batch) - len(times)
            if kinds is not None and kept is not None:
                kinds = kinds[kept]
        if not len(times):
            return
        found = Windows.of(times, self._plan.window)
        rows = pa.array(found.rows)
        columns = [each.take(rows) for each in arrow.columns]
        made = window_columns(found.starts, found.ends, self._times.clock, self._time_type)
        self.emit_columns([*columns, *made.values()], None if kinds is None else kinds[found.rows])


class RowTimes:
    """The times of one column."""

    def __init__(self, input_type: RowType, time: int, time_zone: str) -> None:
        """Take the column, and whose clock windows over TIMESTAMP_LTZ go by."""
        self._time = time
        #: The type of the column.
        self.type = input_type.to_arrow_schema().field(time).type
        #: None: the column's values are what the clock shows.
        self.clock = LocalClock(time_zone) if has_zone(self.type) else None

    def of(
        self, arrow: pa.RecordBatch, operator: str
    ) -> tuple[pa.RecordBatch, NDArray[np.int64] | None, NDArray[np.int64]]:
        """Return the rows with a time, their positions (None: all have one), and their times.

        Args:
            arrow: the rows.
            operator: how errors name whose they are.
        """
        column = arrow.column(self._time)
        kept = None
        if column.null_count:  # Flink drops and counts them
            valid = column.is_valid()
            kept = np.flatnonzero(valid.to_numpy(zero_copy_only=False))
            arrow, column = arrow.filter(valid), column.filter(valid)
        return arrow, kept, self.shown(milliseconds_of(column, operator))

    def shown(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what the clock shows at these times."""
        return times if self.clock is None or not len(times) else self.clock.local(times)
