"""Texts of changes of tables: ``+I[1, a, 2024-01-01T12:00]``.

What it is: what Flink's ``print`` writes, whose values are Java's.
What it is not: the tableau of results (``table/table_result.py``).

Read next: ``connectors/basic/print_sink.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.types.bitmaps import BitmapType, VariantType, bitmap_text
from millstream.types.logical_types import (
    ArrayType,
    DateType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
    TimestampType,
    TimeType,
)
from millstream.types.row import RowKind
from millstream.types.text_values import (
    NANOS_PER_DAY,
    NANOS_PER_SECOND,
    date_text,
    double_text,
    float_text,
)
from millstream.types.values import values_of_column
from millstream.types.variants import variant_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.contracts.batch import Batch
    from millstream.types.logical_types import LogicalType

__all__ = ["RowTexts", "java_text"]

_KINDS: Final = tuple(RowKind)


class RowTexts:
    """The texts of rows with their kinds; pickled to the workers.

    Args:
        row: of the table.
    """

    def __init__(self, row: RowType) -> None:
        self._row = row

    def __call__(self, batch: Batch) -> Sequence[str]:
        columns = [
            [java_text(value, kind) for value in values_of_column(column, kind)]
            for column, kind in zip(batch.arrow.columns, self._row.children, strict=True)
        ]
        kinds = [0] * len(batch) if batch.row_kinds is None else batch.row_kinds.tolist()
        rows = zip(*columns, strict=True)
        return [f"{_KINDS[kind]}[{', '.join(row)}]" for kind, row in zip(kinds, rows, strict=True)]


def java_text(value: Any, kind: LogicalType) -> str:  # noqa: PLR0911 - a table
    """The text of a value as SQL's functions have it: what Java's ``toString`` says of Flink's."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(kind, FloatType | DoubleType):
        return float_text(value) if isinstance(kind, FloatType) else double_text(value)
    if isinstance(kind, BitmapType):
        return bitmap_text(value)
    if isinstance(kind, VariantType):
        return variant_json(value)
    if isinstance(value, bytes):
        return _listed(str(each - 256 if each > 127 else each) for each in value)  # noqa: PLR2004
    if isinstance(kind, RowType):
        parts = zip(value, kind.children, strict=True)
        return f"+I{_listed(java_text(each, child) for each, child in parts)}"
    if isinstance(kind, ArrayType):
        return _listed(java_text(each, kind.element) for each in value)
    if isinstance(kind, MapType | MultisetType):
        one, other = kind.children if isinstance(kind, MapType) else (kind.element, IntType())
        pairs = (f"{java_text(key, one)}={java_text(each, other)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    return _time_text(value, kind)


def _time_text(value: Any, kind: LogicalType) -> str:
    if isinstance(kind, DateType):
        return date_text(value)
    if isinstance(kind, TimeType):
        return _clock_text(value, whole=False)
    if isinstance(kind, TimestampType | LocalZonedTimestampType):
        zoned = isinstance(kind, LocalZonedTimestampType)
        days, of_day = divmod(value, NANOS_PER_DAY)
        return f"{date_text(days)}T{_clock_text(of_day, whole=zoned)}{'Z' if zoned else ''}"
    return str(value)


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def _clock_text(of_day: int, *, whole: bool) -> str:
    """``13:05``, with seconds if there are any or ``whole``, and 3, 6 or 9 digits of them."""
    seconds, nanos = divmod(of_day, NANOS_PER_SECOND)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if whole or seconds % 60 or nanos:
        text += f":{seconds % 60:02d}"
    if not nanos:
        return text
    digits = 9 if nanos % 1000 else 6 if nanos % 1_000_000 else 3
    return f"{text}.{nanos:09d}"[: len(text) + 1 + digits]
