"""Changes of packed rows: what operators emit that look at rows one by one.

What it is: a list of packed rows with their kinds, which becomes columns at once.

What it is not: for operators that compute whole columns (``group_aggregate.py``).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.array_utils import cut_by_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.runtime.columnar.row_codec import RowCodec

__all__ = ["RowChanges"]

#: As in ``base.py``.
UPDATE_BEFORE: Final = 1
UPDATE_AFTER: Final = 2
#: What is added of a few rows, to be copied.
_UPDATES: Final = [UPDATE_BEFORE, UPDATE_AFTER] * 200
_NUMBERS: Final = [number for number in range(201) for _ in range(2)]


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

    def add_updates(self, before: list[bytes], after: list[bytes], number: int) -> None:
        """Add -U and +U of rows that change, numbered from ``number`` on."""
        count = 2 * len(before)
        pairs = before * 2
        pairs[::2], pairs[1::2] = before, after
        self.rows += pairs
        if count <= len(_UPDATES) and 2 * number + count <= len(_NUMBERS):
            self.kinds += _UPDATES[:count]
            self.numbers += _NUMBERS[2 * number : 2 * number + count]
        else:
            self.kinds += (UPDATE_BEFORE, UPDATE_AFTER) * len(before)
            numbers = range(number, number + len(before))
            self.numbers += chain.from_iterable(zip(numbers, numbers, strict=True))

    def add_afters(self, after: list[bytes], number: int) -> None:
        """Add +U alone of rows that change, numbered from ``number`` on."""
        self.rows += after
        self.kinds += [UPDATE_AFTER] * len(after)
        self.numbers += range(number, number + len(after))

    def emit(self, operator: _Emitter, codec: RowCodec) -> None:
        """Emit all of them."""
        kinds = np.array(self.kinds, dtype=np.int8)
        for run in cut_by_bytes(np.fromiter(map(len, self.rows), np.int64, len(self.rows))):
            columns = codec.unpack(self.rows[run])
            if self.numbers:
                columns.append(pa.array(self.numbers[run], pa.int64()))
            kind = kinds[run]
            operator.emit_columns(columns, kind if kind.any() else None)
