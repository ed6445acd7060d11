"""Text of values, in Flink's formats: casts to text, and results that are printed.

A function from value to text for each type; arrays, maps and rows call those of their parts:
``[1, NULL]``, ``{a=1}``, ``(1, x)``.

Read next: ``expressions/casts/values.py``.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.expressions.java.time_zones import zone_of
from millstream.types.bitmaps import bitmap_text
from millstream.types.logical_types import (
    ArrayType,
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    MapType,
    MultisetType,
    RowType,
    TimestampType,
    TimeType,
)
from millstream.types.structured_types import StructuredType
from millstream.types.text_values import (
    date_text,
    day_time_text,
    decimal_text,
    double_text,
    float_text,
    time_text,
    timestamp_text,
    year_month_text,
)
from millstream.types.type_roots import TypeRoot
from millstream.types.variants import variant_json

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["text_function"]

_NULL: Final = "NULL"


def text_function(  # noqa: C901, PLR0911 - a table
    type_: LogicalType, zone: str, *, printing: bool = False
) -> Callable[[Any], str]:
    """Return a function that writes values of that type.

    Args:
        type_: the type of the values.
        zone: the session's time zone.
        printing: write what a person reads, where bytes are ``x'0aff'``; a cast decodes them.

    Returns:
        A function of one value that is not NULL.

    Raises:
        ProgramError: values of the type have no text.
    """
    if printing and type_.root in _PRINTED:
        return _PRINTED[type_.root]
    plain = _PLAIN.get(type_.root)
    if plain is not None:
        return plain
    if isinstance(type_, TimeType):
        return lambda value: time_text(value, type_.precision)
    if isinstance(type_, TimestampType):
        return lambda value: timestamp_text(value, type_.precision)
    if isinstance(type_, LocalZonedTimestampType):
        to_local = zone_of(zone).to_local
        return lambda value: timestamp_text(to_local(value), type_.precision)

    def part(kind: LogicalType) -> Callable[[Any], str]:
        inner = text_function(kind, zone, printing=printing)
        return lambda value: _NULL if value is None else inner(value)

    if isinstance(type_, ArrayType):
        item = part(type_.element)
        return lambda value: f"[{', '.join(map(item, value))}]"
    if isinstance(type_, MapType | MultisetType):
        key, other = type_.children[0], IntType()
        return _map_text(part(key), part(type_.value if isinstance(type_, MapType) else other))
    if isinstance(type_, StructuredType):
        fields = [(each.name, part(each.type)) for each in type_]
        return lambda value: (
            f"({', '.join(f'{n}={f(item)}' for (n, f), item in zip(fields, value, strict=True))})"
        )
    if isinstance(type_, RowType):
        items = [part(child) for child in type_.children]
        return lambda value: (
            f"({', '.join(write(item) for write, item in zip(items, value, strict=True))})"
        )
    message = f"values of type {type_.as_summary_string()} have no text"
    raise ProgramError(message)


def _map_text(key: Callable[[Any], str], item: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: f"{{{', '.join(f'{key(k)}={item(v)}' for k, v in value.items())}}}"


def _boolean_text(value: bool) -> str:  # noqa: FBT001 - a truth value
    return "TRUE" if value else "FALSE"


def _bytes_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _hex_text(value: bytes) -> str:
    return f"x'{value.hex()}'"


def _object_text(value: bytes) -> str:
    # A result of a job of this program.
    return str(pickle.loads(value))


def _null_text(value: object) -> str:
    del value
    return _NULL


_PLAIN: Final[dict[TypeRoot, Callable[[Any], str]]] = {
    TypeRoot.NULL: _null_text,
    TypeRoot.CHAR: str,
    TypeRoot.VARCHAR: str,
    TypeRoot.BOOLEAN: _boolean_text,
    TypeRoot.BINARY: _bytes_text,
    TypeRoot.VARBINARY: _bytes_text,
    TypeRoot.BITMAP: bitmap_text,
    TypeRoot.VARIANT: variant_json,
    TypeRoot.DECIMAL: decimal_text,
    TypeRoot.TINYINT: str,
    TypeRoot.SMALLINT: str,
    TypeRoot.INTEGER: str,
    TypeRoot.BIGINT: str,
    TypeRoot.FLOAT: float_text,
    TypeRoot.DOUBLE: double_text,
    TypeRoot.DATE: date_text,
    TypeRoot.INTERVAL_YEAR_MONTH: year_month_text,
    TypeRoot.INTERVAL_DAY_TIME: day_time_text,
}
#: What is written differently, or only there, when results are printed.
_PRINTED: Final[dict[TypeRoot, Callable[[Any], str]]] = {
    TypeRoot.BINARY: _hex_text,
    TypeRoot.VARBINARY: _hex_text,
    TypeRoot.RAW: _object_text,
}
