"""The first or the last row of each key by time, for whole batches of inserts.

What it is: which rows of a batch take the place of the row that their key has, found by running
maxima over the keys, and the changes that come of it, as positions in columns.

What it is not: state, or rows by arrival; that is ``deduplicate.py``.

Read next: ``runtime/columnar/row_groups.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.runtime.columnar.row_groups import RowGroups

__all__ = ["Replaced", "changes_of", "replaced"]

_MOST: Final = 2**62
#: As in ``base.py``.
_INSERT: Final = 0
_UPDATE_BEFORE: Final = 1
_UPDATE_AFTER: Final = 2


@dataclass(frozen=True, slots=True)
class Replaced:
    """The rows that took a place, by group and in each group as they came.

    Rows are positions in the batch; from its length on, in what was kept; -1 is no row.
    """

    rows: NDArray[np.int64]
    #: What each of them took the place of.
    before: NDArray[np.int64]
    group: NDArray[np.int64]

    def of_batch(self) -> Replaced:
        """The difference that the whole batch makes: the last rows, and what was kept before."""
        starts, last = _is_first(self.group), _is_first(self.group[::-1])[::-1]
        by_first = np.argsort(self.rows[starts], kind="stable")
        return Replaced(
            self.rows[last][by_first],
            self.before[starts][by_first],
            self.group[last][by_first],
        )

    def as_they_came(self) -> Replaced:
        """The same in the order of the batch."""
        by_row = np.argsort(self.rows, kind="stable")
        return self.at(by_row)

    def at(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> Replaced:
        """Some of them."""
        return Replaced(self.rows[which], self.before[which], self.group[which])


def replaced(
    groups: RowGroups,
    times: NDArray[np.int64],
    kept: NDArray[np.int64],
    kept_times: NDArray[np.int64],
    *,
    keep_last: bool,
) -> Replaced | None:
    """Find which rows of a batch take a place.

    Args:
        groups: the rows of the batch by key.
        times: of these rows.
        kept: per group the number of its row among those that were kept, -1 if it has none.
        kept_times: of the rows that were kept.
        keep_last: whether a row takes the place of an earlier one or of one of the same time;
            else only that of a later one.

    Returns:
        None: times are so far apart that rows have to be looked at one by one.
    """
    every = np.concatenate([times, kept_times])
    least, most = int(every.min()), int(every.max())
    span = most - least + 1
    if span * len(groups) >= _MOST:
        return None
    group = groups.group_of_sorted
    # Numbers that are greater in a later group, and in one group where a row goes before others.
    base = group * span
    ahead = (times - least if keep_last else most - times)[groups.order]
    there = kept >= 0
    of_kept = kept_times[kept[there]]
    bars = np.full(len(groups), -1, dtype=np.int64)
    bars[there] = np.flatnonzero(there) * span + (of_kept - least if keep_last else most - of_kept)
    rank = base + ahead
    highest = rank.copy()
    highest[groups.starts] = np.maximum(rank[groups.starts], bars)
    np.maximum.accumulate(highest, out=highest)
    bar = np.empty_like(rank)
    bar[1:] = highest[:-1]
    bar[groups.starts] = bars
    taken = np.flatnonzero(rank >= bar if keep_last else rank > bar)
    rows, group = groups.order[taken].astype(np.int64), group[taken]
    before = np.empty_like(rows)
    before[1:] = rows[:-1]
    firsts = np.flatnonzero(_is_first(group))
    of_first = kept[group[firsts]]
    before[firsts] = np.where(of_first >= 0, of_first + len(times), -1)
    return Replaced(rows, before, group)


def _is_first(group: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a row is the first of its group, of rows that are sorted by group."""
    found = np.ones(len(group), dtype=np.bool_)
    found[1:] = group[1:] != group[:-1]
    return found


def changes_of(
    found: Replaced, *, update_before: bool, inserts: bool
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The changes that rows make, in their order.

    Args:
        found: the rows.
        update_before: whether -U comes ahead of +U.
        inserts: whether the first row of a key is +I; +U otherwise.

    Returns:
        The position of each change's row, and its kind.
    """
    updates = found.before >= 0
    kinds = np.where(updates, _UPDATE_AFTER, _INSERT if inserts else _UPDATE_AFTER).astype(np.int8)
    if not update_before:
        return found.rows, kinds
    at = np.arange(len(updates)) + np.cumsum(updates)
    positions = np.empty(len(updates) + int(updates.sum()), dtype=np.int64)
    every = np.full(len(positions), _UPDATE_BEFORE, dtype=np.int8)
    positions[at], every[at] = found.rows, kinds
    positions[at[updates] - 1] = found.before[updates]
    return positions, every
