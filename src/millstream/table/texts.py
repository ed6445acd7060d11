"""Values of results as Flink's tableau shows them, and how wide their columns are.

Values are written as a cast to STRING writes them, but bytes in hexadecimal and NULL as
``<NULL>``; a TIMESTAMP_LTZ is on the clocks of the session's time zone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.expressions.casts.texts import text_function
from millstream.types.external_values import from_external
from millstream.types.row import RowKind
from millstream.types.type_roots import TypeRoot
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.contracts.batch import Batch
    from millstream.types.logical_types import LogicalType, RowType

__all__ = ["cell_texts", "column_width", "row_texts"]

_NULL: Final = "<NULL>"
_KINDS: Final = tuple(RowKind)
_WIDTHS: Final = {
    TypeRoot.BOOLEAN: 5,
    TypeRoot.TINYINT: 4,
    TypeRoot.SMALLINT: 6,
    TypeRoot.INTEGER: 11,
    TypeRoot.BIGINT: 20,
    TypeRoot.DATE: 10,
}
_TIMESTAMPS: Final = {
    TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE,
    TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE,
}


def column_width(name: str, kind: LogicalType, widest: int = 30) -> int:
    """Return how many characters a column of a type has; as many as its name at least.

    Args:
        name: of the column.
        kind: of its values.
        widest: that of types whose values may be of any length, ``CHAR(3)`` among them.
    """
    root = kind.root
    if root in _WIDTHS:
        width = _WIDTHS[root]
    elif root is TypeRoot.DECIMAL:
        width = kind.precision + 2  # type: ignore[attr-defined]
    elif root in _TIMESTAMPS:
        digits: int = kind.precision  # type: ignore[attr-defined]
        width = 19 if digits == 0 else 20 + math.ceil(digits / 3) * 3
    elif root is TypeRoot.TIME_WITHOUT_TIME_ZONE:
        digits = kind.precision  # type: ignore[attr-defined]
        width = 8 if digits == 0 else 9 + digits
    else:
        width = widest
    return max(width, len(name), len(_NULL))


def row_texts(
    row: RowType, zone: str
) -> Callable[[Batch], Iterator[tuple[RowKind, tuple[str, ...]]]]:
    """Return a function that gives the changes of a batch: their kinds and texts of their columns.

    Args:
        row: of the batches, whose columns are of its Arrow types.
        zone: the session's time zone.
    """
    writers = [_cell_writer(each, zone) for each in row.children]

    def write(batch: Batch) -> Iterator[tuple[RowKind, tuple[str, ...]]]:
        columns = [
            map(writer, values_of_column(column, kind))
            for writer, column, kind in zip(writers, batch.arrow.columns, row.children, strict=True)
        ]
        kinds = np.zeros(len(batch), np.int8) if batch.row_kinds is None else batch.row_kinds
        for kind, *texts in zip(map(_KINDS.__getitem__, kinds.tolist()), *columns, strict=True):
            yield kind, tuple(texts)

    return write


def cell_texts(types: Sequence[LogicalType]) -> Callable[[Iterable[Any]], tuple[str, ...]]:
    """Return a function that gives the texts of a row of values that statements give.

    Args:
        types: of the values; none of them depends on a time zone.
    """
    writers = [(from_external(each), _cell_writer(each, "UTC")) for each in types]

    def write(row: Iterable[Any]) -> tuple[str, ...]:
        pairs = zip(writers, row, strict=True)
        return tuple(writer(convert(value)) for (convert, writer), value in pairs)

    return write


def _cell_writer(kind: LogicalType, zone: str) -> Callable[[Any], str]:
    write = text_function(kind, zone, printing=True)
    return lambda value: _NULL if value is None else write(value)
