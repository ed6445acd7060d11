"""Values as the tableau shows them, and how wide their columns are.

What it is: Flink's texts: NULL for None, digits of seconds by precision, and its widths by type.
What it is not: a format to be read back.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.types.bitmaps import bitmap_text, is_bitmap
from millstream.types.row import Row
from millstream.types.structured_types import StructuredType
from millstream.types.time import Instant
from millstream.types.type_roots import TypeRoot
from millstream.types.value_texts import double_text, float_text

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType

__all__ = ["cell_text", "column_width"]

_WIDTHS: Final = {
    TypeRoot.BOOLEAN: 5,
    TypeRoot.TINYINT: 4,
    TypeRoot.SMALLINT: 6,
    TypeRoot.INTEGER: 11,
    TypeRoot.BIGINT: 20,
    TypeRoot.DATE: 10,
}
#: What NULL takes.
_LEAST_WIDTH: Final = 6
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
    return max(width, len(name), _LEAST_WIDTH)


def cell_text(value: Any, kind: LogicalType | None) -> str:  # noqa: C901, PLR0911 - a table
    """The text of a value of a type."""
    if value is None:
        return "<NULL>"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return float_text(value) if _is(kind, TypeRoot.FLOAT) else double_text(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, Instant):
        moment = dt.datetime.fromtimestamp(value.seconds, dt.UTC).replace(tzinfo=None)
        value = moment.replace(microsecond=value.nanos // 1000)
    if isinstance(value, dt.datetime):
        digits = getattr(kind, "precision", 6)
        whole = value.strftime("%Y-%m-%d %H:%M:%S")
        fraction = f"{value.microsecond:06d}000"[:digits]
        return f"{whole}.{fraction}" if digits else whole
    if isinstance(value, bytes | bytearray):
        return f"x'{value.hex()}'"
    if is_bitmap(value):
        return bitmap_text(value)
    children = () if kind is None else kind.children
    if isinstance(kind, StructuredType):
        return _object_text(value, kind)
    if isinstance(value, Row | tuple):
        types = children or (None,) * len(value)
        return (
            f"({', '.join(cell_text(each, one) for each, one in zip(value, types, strict=False))})"
        )
    if isinstance(value, list):
        element = children[0] if children else None
        return f"[{', '.join(cell_text(each, element) for each in value)}]"
    if isinstance(value, dict):
        one, other = children if len(children) == 2 else (None, None)  # noqa: PLR2004 - key, value
        entries = (f"{cell_text(k, one)}={cell_text(v, other)}" for k, v in value.items())
        return "{" + ", ".join(entries) + "}"
    return str(value)


def _object_text(value: Any, kind: StructuredType) -> str:
    """``(name=value, ...)``, whether it is an object of the class or a row."""
    if not isinstance(value, Row | tuple):
        value = [getattr(value, name) for name in kind.names]
    fields = zip(kind.fields, value, strict=True)
    return f"({', '.join(f'{one.name}={cell_text(each, one.type)}' for one, each in fields)})"


def _is(kind: LogicalType | None, root: TypeRoot) -> bool:
    return kind is not None and kind.root is root
