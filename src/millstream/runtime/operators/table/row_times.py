"""The times of rows by which they are in windows: of a column, as the windows' clock shows them.

What it is: what aggregates of windows and their local halves begin a batch with.

What it is not: the windows (``runtime/columnar/table_windows.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.runtime.columnar.array_utils import milliseconds_of
from millstream.runtime.columnar.table_windows import LocalClock
from millstream.runtime.operators.table.window_function import has_zone

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from millstream.types.logical_types import RowType

__all__ = ["RowTimes"]


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
