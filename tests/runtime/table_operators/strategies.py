"""Changelogs and cuts for hypothesis.

What it is: consistent changelogs (nothing is taken back that is not there), and plans of how they
are cut into batches and where snapshots are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from tests.runtime.table_operators.model import UA, UB, D, I

if TYPE_CHECKING:
    from tests.runtime.table_operators.model import Change, Row

__all__ = ["appends", "batches", "changelogs", "cuts"]


@st.composite
def appends(draw: Any, rows: Any, most: int = 40) -> list[Change]:
    return [(I, row) for row in draw(st.lists(rows, max_size=most))]


@st.composite
def changelogs(
    draw: Any, rows: Any, most: int = 40, *, key: tuple[int, ...] | None = None
) -> list[Change]:
    """Inserts, updates and deletions of rows that are there.

    With ``key``, rows have that key: an insert of one that is there becomes an update of it.
    """
    there: list[Row] = []
    changes: list[Change] = []
    for row in draw(st.lists(rows, max_size=most)):
        same = _of_key(there, row, key)
        step = draw(st.integers(0, 3))
        if same is not None:
            if step == 0:
                there.remove(same)
                changes.append((D, same))
            else:
                there[there.index(same)] = row
                changes += [(UB, same), (UA, row)]
        elif step <= 1 or not there:
            there.append(row)
            changes.append((I, row))
        else:
            old = there.pop(draw(st.integers(0, len(there) - 1)))
            if step == 2 or key is not None:
                changes.append((D, old))
            else:
                there.append(row)
                changes += [(UB, old), (UA, row)]
    return changes


def _of_key(there: list[Row], row: Row, key: tuple[int, ...] | None) -> Row | None:
    if key is None:
        return None
    wanted = [row[index] for index in key]
    return next((old for old in there if [old[index] for index in key] == wanted), None)


def cuts() -> Any:
    """How many changes each batch has, and whether a snapshot follows it."""
    return st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=8)


def batches(changes: list[Change], plan: list[tuple[int, bool]]) -> list[tuple[list[Change], bool]]:
    found, at, turn = [], 0, 0
    while at < len(changes):
        length, snapshot = plan[turn % len(plan)]
        found.append((changes[at : at + length], snapshot))
        at, turn = at + length, turn + 1
    return found
