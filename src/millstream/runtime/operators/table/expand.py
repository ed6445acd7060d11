"""Expand: each row once per grouping set, with NULL for the keys that are not in the set.

What it is: what stands before the aggregation of GROUPING SETS, ROLLUP and CUBE.  It gives the
input's columns, copies of the keys (NULL where a set has them not), and the number of the set.
What it is not: stateful.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from millstream.runtime.operators.table.base import TableOperator

if TYPE_CHECKING:
    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator

__all__ = ["ExpandFactory"]


@dataclass(frozen=True)
class ExpandFactory:
    """Makes expand operators.

    Args:
        keys: the columns that are keys of some set.
        sets: for each set, the columns that are its keys.
    """

    keys: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ExpandOperator(self)


class ExpandOperator(TableOperator):
    """Gives each row several times; kinds stay."""

    def __init__(self, plan: ExpandFactory) -> None:
        super().__init__()
        self._plan = plan

    def process_rows(self, batch: Batch) -> None:
        arrow = batch.arrow
        keys, sets = self._plan.keys, self._plan.sets
        # All sets of a row come together, so that changes of a row stay in order.
        rows = np.repeat(np.arange(len(batch)), len(sets))
        numbers = np.tile(np.arange(len(sets), dtype=np.int64), len(batch))
        taken = pa.array(rows)
        columns = [column.take(taken) for column in arrow.columns]
        for key in keys:
            here = np.array([key in part for part in sets])
            positions = pa.array(rows, mask=~here[numbers])
            columns.append(arrow.column(key).take(positions))
        columns.append(pa.array(numbers))
        kinds = batch.row_kinds
        self.emit_columns(columns, None if kinds is None else kinds[rows])
