"""Changes of packed rows: what operators emit that look at rows one by one.

What it is: a list of packed rows with their kinds, which becomes columns at once.

What it is not: for operators that compute whole columns (``group_aggregate.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.byte_runs import cut_by_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.runtime.columnar.row_codec import RowCodec

__all__ = ["RowChanges"]


class _Emitter(Protocol):
    def emit_columns(
        self, columns: Sequence[pa.Array], kinds: NDArray[np.int8] | None = None
    ) -> None: ...


class RowChanges:
    """Changes in the order in which they are to be emitted."""

    __slots__ = ("kinds", "numbers", "rows")

    def __init__(self) -> None:
        """Have none."""
        self.kinds: list[int] = []
        self.rows: list[bytes] = []
        #: What stands behind each row, if there is such a column.
        self.numbers: list[int] = []

    def add(self, kind: int, row: bytes) -> None:
        """Add a change."""
        self.kinds.append(kind)
        self.rows.append(row)

    def emit(self, operator: _Emitter, codec: RowCodec) -> None:
        """Emit all of them."""
        kinds = np.array(self.kinds, dtype=np.int8)
        for run in cut_by_bytes(np.fromiter(map(len, self.rows), np.int64, len(self.rows))):
            columns = codec.unpack(self.rows[run])
            if self.numbers:
                columns.append(pa.array(self.numbers[run], pa.int64()))
            kind = kinds[run]
            operator.emit_columns(columns, kind if kind.any() else None)
