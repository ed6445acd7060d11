"""Partial aggregates by key and pane.

What it is: what the combiner before the exchange and the built-in window operators behind it add
to ``runtime/columnar/partial_aggregates.py``: which pane a record is in, and the merging of panes.
What a *pane* is says ``runtime/operators/windows/panes.py``.

What it is not: time or storage (``runtime/operators/combiner.py``, ``columnar.py``).

The partials of a combiner also have ``__flush``, which changes where the next flush begins: the
exchange may put several into one batch, and only within a flush no key has a pane twice.

A table of them has the columns ``key`` (``runtime/columnar/row_groups.py``), ``window_start``
(start of the pane), ``__records`` and the partial columns.

Read next: ``runtime/operators/combiner.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.partial_aggregates import TIME, PartialAggregates, concatenated
from millstream.runtime.columnar.row_groups import KEY, key_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext
    from millstream.runtime.columnar.aggregates import BuiltInAggregate
    from millstream.runtime.operators.keyed import KeyExtractor
    from millstream.runtime.operators.windows.panes import Panes

__all__ = ["FLUSH", "POSITION", "START", "Partials"]

START: Final = "window_start"
FLUSH: Final = "__flush"
POSITION: Final = "__position"

_PANE: Final = "__pane"


class Partials(PartialAggregates):
    """Turns batches into raw tables of keys and panes, and merges partials pane by pane."""

    def __init__(
        self,
        panes: Panes | None,
        aggregates: dict[str, BuiltInAggregate],
        extractor: KeyExtractor,
    ) -> None:
        """Take what the window was declared with; None: windows that are not cut into panes."""
        super().__init__(aggregates)
        self._panes = panes
        self._extractor = extractor
        #: Those of the key selector, to be opened.
        self.functions = extractor.functions

    def raw(self, batch: Batch, context: OperatorContext) -> list[pa.Table]:
        """Return tables of key, pane start, time and the fields that are aggregated.

        Without panes there are time and position in the batch.
        Most batches give one table; keys of several types give one per form of the key column.
        Records that fall between windows are left out.
        """
        timestamps = batch.timestamp_array
        columns: dict[str, pa.Array] = {}
        inside: NDArray[np.bool_] | None = None
        if self._panes is not None:
            panes = self._panes.numbers(timestamps)
            columns[START] = pa.array(self._panes.starts(panes))
            if self._panes.per_window < self._panes.per_slide:
                inside = self._panes.last_windows(panes) >= self._panes.first_windows(panes)
        else:
            columns[POSITION] = pa.array(np.arange(len(batch)))
            columns[TIME] = pa.array(timestamps)
        columns |= self.inputs(batch, context)
        tables = []
        for positions, keys in key_columns(self._extractor, batch, context):
            table = (
                pa.table({KEY: keys, **columns})
                if (positions is None)
                else pa.table({name: c.take(positions) for name, c in columns.items()}).add_column(
                    0, KEY, keys
                )
            )
            if inside is not None:
                kept = inside if positions is None else inside[positions.to_numpy()]
                table = table.filter(pa.array(kept))
            tables.append(table)
        return tables

    def merge_pane(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge tables of key and partial columns, all of one pane, in the order they came.

        No table has a key twice.
        """
        if len(tables) == 1:
            return tables[0]
        return self.merge(concatenated(tables), [KEY])

    def merge_panes(self, panes: dict[int, list[pa.Table]]) -> dict[int, pa.Table]:
        """Merge the tables of many panes at once, as ``merge_pane`` does one by one."""
        merged = {pane: tables[0] for pane, tables in panes.items() if len(tables) == 1}
        others = {pane: tables for pane, tables in panes.items() if len(tables) > 1}
        if not others:
            return merged
        counts = [sum(table.num_rows for table in tables) for tables in others.values()]
        table = concatenated([table for tables in others.values() for table in tables])
        numbers = pa.array(np.repeat(np.arange(len(others)), counts))
        table = self.merge(table.append_column(_PANE, numbers), [_PANE, KEY])
        found = table.column(_PANE).to_numpy()
        table = table.drop_columns([_PANE]).take(pa.array(np.argsort(found, kind="stable")))
        ends = np.cumsum(np.bincount(found, minlength=len(others))).tolist()
        for pane, start, end in zip(others, [0, *ends], ends, strict=False):
            merged[pane] = table.slice(start, end - start)
        return merged
