"""Rows of logical types as texts of JSON: columns at once where types are plain.

What it is: what Flink's JSON format writes.  Times have the digits that they need, bytes are
base64, decimals are numbers with all their digits, NaN and infinities are texts.
What it is not: reading (``connectors/formats/tables/json_rows.py``).
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.formats.json_text import json_column
from millstream.connectors.formats.tables.texts import time_text, timestamp_text
from millstream.types.logical_types import (
    ArrayType,
    BinaryType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
)
from millstream.types.text_values import double_text, float_text

if TYPE_CHECKING:
    from millstream.connectors.formats.tables.json_options import JsonOptions
    from millstream.types.logical_types import LogicalType

__all__ = ["plain_columns", "row_texts"]

_NESTED = (ArrayType, MapType, MultisetType, RowType)
_BY_VALUE = (*_NESTED, BinaryType, VarBinaryType, DayTimeIntervalType, TimeType)
_INSTANTS = (TimestampType, LocalZonedTimestampType)


def _has_not_finite(column: pa.Array) -> bool:
    return bool(pc.any(pc.invert(pc.is_finite(column))).as_py())


def plain_columns(columns: pa.RecordBatch, row: RowType, *, iso: bool = False) -> list[str] | None:
    """A JSON object per row, made column by column; None: a column has to be looked at by row."""
    pieces: list[Any] = []
    for index, each in enumerate(row.fields):
        kind, column = each.type, columns.column(index)
        if isinstance(kind, _BY_VALUE):
            return None
        if isinstance(kind, FloatType | DoubleType) and _has_not_finite(column):
            return None
        if isinstance(kind, _INSTANTS):
            column = _instants(column, iso=iso, zoned=isinstance(kind, LocalZonedTimestampType))
        opening = "{" if index == 0 else ","
        name = json.dumps(each.name, ensure_ascii=False)
        pieces.append(pa.scalar(f"{opening}{name}:", pa.large_string()))
        pieces.append(json_column(column))
    if not pieces:
        return ["{}"] * columns.num_rows
    pieces.append(pa.scalar("}", pa.large_string()))
    lines: list[str] = pc.binary_join_element_wise(
        *pieces,
        pa.scalar("", pa.large_string()),
        null_handling="replace",
        null_replacement="null",
    ).to_pylist()
    return lines


def _instants(column: pa.Array, *, iso: bool, zoned: bool) -> pa.Array:
    if zoned:
        column = column.cast(pa.timestamp(column.type.unit))
    texts = column.cast(pa.string())
    texts = pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+$", r"\1")
    texts = pc.replace_substring_regex(texts, r"\.$", "")
    if iso:
        texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(texts, pa.scalar("Z"), "") if zoned else texts


def row_texts(columns: pa.RecordBatch, row: RowType, options: JsonOptions) -> list[str]:
    """A JSON object per row."""
    writer = _Writer(options)
    values = [_values(columns.column(index), each.type) for index, each in enumerate(row.fields)]
    names = row.names
    return [writer.fields(names, cells, row.children) for cells in zip(*values, strict=True)]


def _values(column: pa.Array, kind: LogicalType) -> list[Any]:
    if isinstance(kind, DayTimeIntervalType):
        column = column.cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found


class _Writer:
    """Writes values as pyarrow gives them."""

    def __init__(self, options: JsonOptions) -> None:
        self._options = options

    def fields(self, names: Any, values: Any, kinds: Any) -> str:
        """An object of these fields."""
        parts = [
            f"{json.dumps(name, ensure_ascii=False)}:{self.text(value, kind)}"
            for name, value, kind in zip(names, values, kinds, strict=True)
            if value is not None or not self._options.ignore_null_fields
        ]
        return "{" + ",".join(parts) + "}"

    def text(self, value: Any, kind: LogicalType) -> str:  # noqa: C901, PLR0911 - a table
        """A value as JSON."""
        if value is None:
            return "null"
        if isinstance(kind, RowType):
            return self.fields(kind.names, [value[name] for name in kind.names], kind.children)
        if isinstance(kind, ArrayType):
            return "[" + ",".join(self.text(each, kind.element) for each in value) + "]"
        if isinstance(kind, MapType | MultisetType):
            return self._map(value, kind)
        if isinstance(kind, _INSTANTS):
            iso, zoned = bool(self._options.iso), isinstance(kind, LocalZonedTimestampType)
            return f'"{timestamp_text(value, iso=iso, zoned=zoned)}"'
        if isinstance(kind, TimeType):
            return f'"{time_text(value)}"'
        if isinstance(kind, DateType):
            return f'"{value.isoformat()}"'
        if isinstance(kind, BinaryType | VarBinaryType):
            return f'"{base64.b64encode(value).decode("ascii")}"'
        if isinstance(kind, DecimalType):
            return f"{Decimal(value):f}"
        if isinstance(kind, FloatType | DoubleType):
            return _real_text(value, kind)
        return json.dumps(value, ensure_ascii=False)

    def _map(self, value: Any, kind: MapType | MultisetType) -> str:
        values = kind.value if isinstance(kind, MapType) else None
        parts: dict[str, str] = {}
        for key, each in value:
            name = key
            if key is None:
                if self._options.map_null_key == "DROP":
                    continue
                if self._options.map_null_key == "FAIL":
                    message = (
                        "JSON format doesn't support to serialize map data with null keys. You "
                        "can drop null key entries or encode null in literals by specifying "
                        "map-null-key.mode option."
                    )
                    raise ValueError(message)
                name = self._options.map_null_literal
            text = str(each) if values is None else self.text(each, values)
            parts[json.dumps(name, ensure_ascii=False)] = text
        return "{" + ",".join(f"{name}:{text}" for name, text in parts.items()) + "}"


def _real_text(value: float, kind: LogicalType) -> str:
    text = float_text(value) if isinstance(kind, FloatType) else double_text(value)
    return f'"{text}"' if text.lstrip("-") in {"NaN", "Infinity"} else text
