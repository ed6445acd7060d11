"""Columns whose type has a length: CHAR(3), VARCHAR(3), BINARY(3), VARBINARY(3).

What it is: which columns of a table these are, and their values cut, and filled up, to it.
What it is not: CAST, which does the same, by the same functions, to the values of a query
(``expressions/casts``); values within rows, arrays and maps, which stay as they are, as in Flink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.expressions.casts.columns import text_of_length
from millstream.expressions.casts.values import sized_bytes
from millstream.types.logical_types import BinaryType, CharType, VarBinaryType, VarCharType

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType, RowType

__all__ = ["limited", "of_length"]


def limited(table: RowType) -> tuple[tuple[int, LogicalType], ...]:
    """The positions and types of the columns of a length."""
    unlimited = {VarCharType().length, VarBinaryType().length}
    return tuple(
        (position, each.type)
        for position, each in enumerate(table.fields)
        if isinstance(each.type, CharType | VarCharType | BinaryType | VarBinaryType)
        and each.type.length not in unlimited
    )


def of_length(column: pa.Array, kind: LogicalType) -> pa.Array:
    """Values cut to the length of a type, and CHAR and BINARY filled up with blanks and zeros."""
    if isinstance(kind, CharType | VarCharType):
        return text_of_length(column, kind)
    assert isinstance(kind, BinaryType | VarBinaryType)  # noqa: S101 - there are no others
    sized = sized_bytes(kind)
    values = column.to_pylist()
    return pa.array([None if each is None else sized(each) for each in values], column.type)
