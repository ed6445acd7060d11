"""Runs of rows that together hold not too many bytes: what may become one batch.

What it is: for operators whose output repeats rows, as joins do.  A column of texts, of bytes or of
lists holds at most 2 GB in one batch (Arrow counts them in 32 bits), and rows that are repeated
come there soon: ten thousand pairs of a row with a megabyte.  Batches are cut far below that, for
they are in memory as a whole.

What it is not: a limit for one row.

Read next: ``runtime/operators/table/join.py``, ``runtime/operators/table/join_pairs.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["byte_runs", "cut_by_bytes"]

#: Bytes of the values without a fixed width, in one batch.
MOST_BYTES: Final = 128 << 20


def byte_runs(
    *parts: tuple[Sequence[pa.Array], NDArray[np.int64]],
) -> Iterator[slice]:
    """Yield runs of rows, each of at least one row, with no more bytes than a batch may have.

    Args:
        parts: columns, and of which of their rows the rows are made; below 0: of none.
    """
    count = len(parts[0][1])
    sizes: NDArray[np.int64] | None = None
    for columns, positions in parts:
        found = _row_sizes(columns)
        if found is None or not len(found) or int(found.max()) * count <= MOST_BYTES // len(parts):
            continue
        taken = np.where(positions < 0, 0, found[positions])
        sizes = taken if sizes is None else sizes + taken
    if sizes is None:
        if count:
            yield slice(0, count)
        return
    yield from cut_by_bytes(sizes)


def cut_by_bytes(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Yield runs of rows of these sizes."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + MOST_BYTES, side="right")))
        yield slice(start, stop)
        start = stop


def _row_sizes(columns: Sequence[pa.Array]) -> NDArray[np.int64] | None:
    """The bytes of each row in columns without a fixed width; None: there are none."""
    found: NDArray[np.int64] | None = None
    for column in columns:
        sizes = _sizes(column)
        if sizes is not None:
            found = sizes if found is None else found + sizes
    return found


def _sizes(column: pa.Array) -> NDArray[np.int64] | None:
    """The bytes of each value; None: all have the same."""
    kind, types = column.type, pa.types
    if types.is_string(kind) or types.is_binary(kind):
        offsets = np.frombuffer(column.buffers()[1], np.int32)
        return np.diff(offsets[column.offset : column.offset + len(column) + 1]).astype(np.int64)
    if types.is_struct(kind):
        return _row_sizes([column.field(index) for index in range(kind.num_fields)])
    if types.is_map(kind):
        return _of_lists(column, [column.keys, column.items])
    if types.is_list(kind):
        return _of_lists(column, [column.values])
    return None


def _of_lists(column: pa.Array, children: list[pa.Array]) -> NDArray[np.int64]:
    offsets = column.offsets.to_numpy().astype(np.int64)
    width = sum(_width(child.type) for child in children)
    found: NDArray[np.int64] = np.diff(offsets) * width
    sizes = _row_sizes(children)
    if sizes is not None:
        ends = np.concatenate([[0], np.cumsum(sizes)])
        found = found + ends[offsets[1:]] - ends[offsets[:-1]]
    return found


def _width(kind: pa.DataType) -> int:
    return kind.bit_width // 8 + 1 if pa.types.is_primitive(kind) else 4
