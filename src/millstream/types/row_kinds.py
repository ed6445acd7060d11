"""Kinds of rows as numbers: one int8 per record, None where every record is an insert.

What it is: how a changelog says of many records at once which of +I, -U, +U, -D each is, and how
that is put into rows, taken out of them, and carried as a column.

What it is not: the kind of one row; that is ``RowKind`` in ``types/row.py``.

Read next: ``contracts/batch.py``, which carries them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.errors import TypeMismatchError
from millstream.types.row import Row, RowKind, row_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "ROW_KIND_COLUMN",
    "kinds_of",
    "set_kinds",
    "with_kind_column",
    "with_kinds",
    "without_kind_column",
]

#: An additional column, only in batches that hold a row whose kind is not INSERT.
ROW_KIND_COLUMN: Final = "$row_kind"
_KINDS: Final = tuple(RowKind)


def kinds_of(values: Sequence[object]) -> NDArray[np.int8] | None:
    """What rows say of themselves; values that are no rows are inserts.

    A row's kind is held by its class, so that inserts cost one look at the classes.
    """
    rows = (kind for kind in set(map(type, values)) if issubclass(kind, Row))
    if all(kind._kind is RowKind.INSERT for kind in rows):  # noqa: SLF001 - of this package
        return None
    numbers = (value._kind.value if isinstance(value, Row) else 0 for value in values)  # noqa: SLF001
    return np.fromiter(numbers, dtype=np.int8, count=len(values))


def set_kinds(rows: Sequence[object], kinds: NDArray[np.int8]) -> None:
    """Give inserts that nobody else holds their kinds; what is no row stays as it is."""
    for position in np.flatnonzero(kinds).tolist():
        row = rows[position]
        if isinstance(row, Row):
            row.set_row_kind(_KINDS[kinds[position]])


def with_kinds(values: list[Any], kinds: NDArray[np.int8]) -> list[Any]:
    """The values with copies of those rows that are of another kind."""
    return [
        row_class(value._fields, _KINDS[kind])(value)
        if isinstance(value, Row) and value.get_row_kind().value != kind
        else value
        for value, kind in zip(values, kinds.tolist(), strict=True)
    ]


def with_kind_column(columns: pa.RecordBatch, kinds: NDArray[np.int8]) -> pa.RecordBatch:
    """The columns, and the kinds behind them."""
    return columns.append_column(ROW_KIND_COLUMN, pa.array(kinds, pa.int8()))


def without_kind_column(
    columns: pa.RecordBatch,
) -> tuple[pa.RecordBatch, NDArray[np.int8] | None]:
    """The columns, and the kinds; None if there is no column of them, or all are inserts.

    Raises:
        TypeMismatchError: a kind is not the value of a ``RowKind``.
    """
    position = columns.schema.get_field_index(ROW_KIND_COLUMN)
    if position < 0:
        return columns, None
    column = columns.column(position)
    try:
        kinds: NDArray[np.int8] = column.cast(pa.int8()).to_numpy()
    except (pa.ArrowException, ValueError) as error:
        message = f"the column {ROW_KIND_COLUMN} holds no kinds of rows: {error}"
        raise TypeMismatchError(message) from error
    if len(kinds) and not (kinds.min() >= 0 and kinds.max() < len(_KINDS)):
        message = f"the column {ROW_KIND_COLUMN} holds kinds of rows, from 0 to {len(_KINDS) - 1}"
        raise TypeMismatchError(message)
    return columns.remove_column(position), kinds if kinds.any() else None
