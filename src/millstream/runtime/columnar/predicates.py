"""Predicates over whole batches: which records a filter of a built-in aggregate selects.

What it is: evaluation of Arrow expressions and of callables on a record batch.

What it is not: ``DataStream.filter``, which calls a function per record.

Read next: ``runtime/columnar/aggregates.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from millstream.runtime.columnar.aggregates import Predicate

__all__ = ["selected"]


def selected(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return one boolean per record; a null counts as False for whoever takes it as a mask.

    Args:
        predicate: an Arrow expression over the columns, or a callable that gets the batch.
        batch: the records.

    Raises:
        TypeError: the result is not boolean.
        ValueError: it has another length than the batch.
    """
    if isinstance(predicate, pc.Expression):
        # Not at the top: it imports pandas, for most of a second, and few programs come here.
        from pyarrow import acero

        table = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
        project = acero.ProjectNodeOptions([predicate], ["selected"])
        plan = acero.Declaration.from_sequence(
            [acero.Declaration("table_source", table), acero.Declaration("project", project)]
        )
        found = plan.to_table(use_threads=False).column("selected")
    else:
        found = predicate(batch)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    if not isinstance(found, pa.Array):
        found = pa.array(np.asarray(found))
    if not pa.types.is_boolean(found.type):
        message = f"the predicate must give booleans, not {found.type}"
        raise TypeError(message)
    if len(found) != batch.num_rows:
        message = f"the predicate gave {len(found)} booleans for {batch.num_rows} records"
        raise ValueError(message)
    return found.fill_null(False)  # noqa: FBT003 - the value to fill with
