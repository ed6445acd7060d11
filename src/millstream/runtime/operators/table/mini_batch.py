"""The changes of a batch folded: at most one row of each key goes, and one comes.

What it is: what Flink's mini-batch join does to the records that it has gathered.  Where rows have
a unique key, only what its row was before the batch and what it is behind it counts; else a row
that comes and goes within the batch does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.contracts.batch import Batch
from millstream.runtime.columnar.row_groups import codes_of, group_codes
from millstream.runtime.operators.table.base import DELETE, INSERT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def folded(batch: Batch, key: Sequence[int] | None) -> Batch:
    """Return a batch with the same effect and as few rows as may be.

    Args:
        batch: of a changelog, which has rows.
        key: the columns by which rows are unique; None: whole rows are compared.
    """
    kinds = batch.row_kinds
    if kinds is None:
        return batch
    takes_back = (kinds & 1).astype(np.bool_)
    if key is None and not takes_back.any():
        return batch
    arrow = batch.arrow
    columns = arrow.columns if key is None else [arrow.column(index) for index in key]
    parts = [codes_of(column) for column in columns] or [(np.zeros(len(batch), np.int64), [0])]
    order, starts, counts = group_codes([(codes, len(values)) for codes, values in parts])
    if len(starts) == len(batch):
        return batch
    if key is None:
        kept = _net(order, starts, counts, takes_back)
    else:
        kinds, kept = _edges(order, starts, counts, kinds)
    if kept.all():
        return batch
    rows = np.flatnonzero(kept)
    return Batch(batch.type_info, arrow=arrow.take(rows), row_kinds=kinds[rows])


def _edges(
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    kinds: NDArray[np.int8],
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """What each key's row was before and is afterwards: kinds of rows, and which are kept."""
    first, last = order[starts], order[starts + counts - 1]
    came, goes = (kinds[first] & 1) == 0, (kinds[last] & 1) == 1
    kept = np.zeros(len(kinds), dtype=np.bool_)
    kept[last[~goes]] = True
    kept[first[~came]] = True
    # +U of what may have been there before, or not: another join key had it.  Both hold then.
    unsure = goes & came & (kinds[first] != INSERT)
    kept[last[unsure]] = True
    kept[order[starts + counts - 2][unsure]] = True
    kinds = kinds.copy()
    kinds[first[goes & ~came]] = DELETE
    # Whether it was there before, whatever was in between.
    kinds[last[~goes & came]] = kinds[first[~goes & came]]
    return kinds, kept


def _net(
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    takes_back: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Which rows are kept so that equal ones come, or go, only as often as is left of them."""
    signs = np.where(takes_back, -1, 1)[order]
    net = np.add.reduceat(signs, starts)
    of_net, goes = np.repeat(net, counts), signs < 0
    # Of those that come too often the last are kept, of those that go the first.
    begins = np.repeat(starts, counts)
    coming: NDArray[np.int64] = np.cumsum(~goes)
    going: NDArray[np.int64] = np.cumsum(goes)
    comes_so_far = coming - (coming - ~goes)[begins]
    goes_so_far = going - (going - goes)[begins]
    all_come = np.repeat(np.add.reduceat((~goes).astype(np.int64), starts), counts)
    kept_in_order = (~goes & (comes_so_far > all_come - of_net)) | (goes & (goes_so_far <= -of_net))
    kept = np.zeros(len(order), dtype=np.bool_)
    kept[order] = kept_in_order
    return kept
