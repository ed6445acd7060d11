"""Texts of changes of tables: ``+I[1, a, 2024-01-01T12:00]``.

What it is: what Flink's ``print`` writes, whose values are Java's.
What it is not: the tableau of results (``table/table_result.py``).

Read next: ``connectors/basic/print_sink.py``.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

from millstream.types.bitmaps import bitmap_text
from millstream.types.extension_types import BitmapType, VariantType
from millstream.types.logical_types import (
    ArrayType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
)
from millstream.types.row import RowKind
from millstream.types.value_texts import double_text, float_text
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
            [java_text(value, kind) for value in column.to_pylist()]
            for column, kind in zip(batch.arrow.columns, self._row.children, strict=True)
        ]
        kinds = [0] * len(batch) if batch.row_kinds is None else batch.row_kinds.tolist()
        rows = zip(*columns, strict=True)
        return [f"{_KINDS[kind]}[{', '.join(row)}]" for kind, row in zip(kinds, rows, strict=True)]


def java_text(value: Any, kind: LogicalType) -> str:  # noqa: C901, PLR0911 - a table
    """The text of a value as pyarrow gives it: what Java's ``toString`` says of Flink's."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(kind, FloatType | DoubleType):
        return float_text(value) if isinstance(kind, FloatType) else double_text(value)
    if isinstance(value, dt.datetime):
        zoned = isinstance(kind, LocalZonedTimestampType)
        clock = _clock_text(value, whole=zoned)
        return f"{value.date().isoformat()}T{clock}{'Z' if zoned else ''}"
    if isinstance(value, dt.time):
        return _clock_text(value, whole=False)
    if isinstance(kind, BitmapType):
        return bitmap_text(value)
    if isinstance(kind, VariantType):
        return variant_json(value)
    if isinstance(value, bytes):
        return _listed(str(each - 256 if each > 127 else each) for each in value)  # noqa: PLR2004
    if isinstance(kind, RowType):
        return f"+I{_listed(java_text(value[each.name], each.type) for each in kind.fields)}"
    if isinstance(kind, ArrayType):
        return _listed(java_text(each, kind.element) for each in value)
    if isinstance(kind, MapType | MultisetType):
        one, other = kind.children if isinstance(kind, MapType) else (kind.element, IntType())
        pairs = (f"{java_text(name, one)}={java_text(each, other)}" for name, each in value)
        return "{" + ", ".join(pairs) + "}"
    return str(value)


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def _clock_text(value: dt.datetime | dt.time, *, whole: bool) -> str:
    """``13:05``, with seconds if there are any or ``whole``, and 3, 6 or 9 digits of them."""
    nanos = value.microsecond * 1000 + int(getattr(value, "nanosecond", 0))
    text = f"{value.hour:02d}:{value.minute:02d}"
    if whole or value.second or nanos:
        text += f":{value.second:02d}"
    if not nanos:
        return text
    digits = 9 if nanos % 1000 else 6 if nanos % 1_000_000 else 3
    return f"{text}.{nanos:09d}"[: len(text) + 1 + digits]
