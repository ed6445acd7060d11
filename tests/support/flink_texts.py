"""Values of SQL written as the tables of Flink's results have them.

What it is: ``flink_text``: strings in quotes with all but printable ASCII escaped by UTF-16 units,
times as ``java.time`` writes them, maps in the order of their texts.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

from millstream.types.logical_types import (
    ArrayType,
    DateType,
    FloatType,
    LocalZonedTimestampType,
    LogicalType,
    MapType,
    RowType,
    TimestampType,
    TimeType,
)
from millstream.types.text_values import (
    date_text,
    double_text,
    float_text,
    time_text,
    timestamp_text,
)

__all__ = ["flink_text"]


def flink_text(value: Any, type_: LogicalType) -> str:  # noqa: PLR0911 - a table
    """The text of a value, as functions see it, of a type."""
    if value is None:
        return "NULL"
    if isinstance(type_, ArrayType):
        return "[" + ", ".join(flink_text(one, type_.element) for one in value) + "]"
    if isinstance(type_, MapType):
        entries = (
            f"{flink_text(key, type_.key)}: {flink_text(one, type_.value)}"
            for key, one in value.items()
        )
        return "{" + ", ".join(sorted(entries)) + "}"
    if isinstance(type_, RowType):
        parts = (flink_text(one, field.type) for one, field in zip(value, type_, strict=True))
        return "(" + ", ".join(parts) + ")"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return float_text(value) if isinstance(type_, FloatType) else double_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    return _time(value, type_)


def _quoted(text: str) -> str:
    raw = text.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(raw) // 2}H", raw)
    return '"' + "".join(map(_unit, units)) + '"'


def _unit(unit: int) -> str:
    if not 32 <= unit <= 126:
        return f"\\u{unit:04x}"
    return f"\\{chr(unit)}" if chr(unit) in '"\\' else chr(unit)


def _time(value: int, type_: LogicalType) -> str:
    if isinstance(type_, DateType):
        return date_text(value)
    if isinstance(type_, TimeType):
        return _clock(time_text(value, 9), instant=False)
    if isinstance(type_, LocalZonedTimestampType):
        return _clock(timestamp_text(value, 9), instant=True).replace(" ", "T") + "Z"
    if isinstance(type_, TimestampType):
        return _clock(timestamp_text(value, 9), instant=False).replace(" ", "T")
    return str(value)


def _clock(text: str, *, instant: bool) -> str:
    head, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0")
    if fraction:
        return head + "." + fraction.ljust(-(-len(fraction) // 3) * 3, "0")
    return head if instant or not head.endswith(":00") else head[:-3]
