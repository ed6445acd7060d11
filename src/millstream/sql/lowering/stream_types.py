"""The types of streams that are tables.

What it is: a logical row as type information, whose columns have exactly the Arrow types that the
logical types say.
What it is not: the types of DataStream programs, to which ``sql/lowering/conversion.py`` converts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.types.typeinfo import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from millstream.types.logical_types import RowType

__all__ = ["stream_type"]


def stream_type(row: RowType) -> RowTypeInfo:
    """The type of a stream of such rows."""
    types = [ArrowTypeInfo(field.type.to_arrow()) for field in row.fields]
    return RowTypeInfo(types, list(row.names))
