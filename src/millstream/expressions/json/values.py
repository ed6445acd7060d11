"""SQL values as JSON values: what JSON_STRING, JSON_OBJECT and JSON_ARRAY write.

Read next: ``expressions/functions/json.py``.
"""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.json.texts import JsonText, parse
from millstream.types.bitmaps import VariantType
from millstream.types.logical_types import (
    ArrayType,
    LocalZonedTimestampType,
    MapType,
    RowType,
    TimestampType,
)
from millstream.types.text_values import double_text, timestamp_text
from millstream.types.type_roots import TypeFamily, TypeRoot
from millstream.types.variants import variant_json

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType

__all__ = ["json_of", "supports_json"]

_SCALARS: Final = frozenset({TypeRoot.BOOLEAN, TypeRoot.NULL})


def supports_json(type_: LogicalType) -> bool:
    """Whether Flink writes values of a type as JSON: not dates, times and intervals."""
    if isinstance(type_, MapType) and not type_.key.is_a(TypeFamily.CHARACTER_STRING):
        return False
    if isinstance(type_, ArrayType | MapType | RowType):
        return all(map(supports_json, type_.children))
    families = (
        TypeFamily.CHARACTER_STRING,
        TypeFamily.BINARY_STRING,
        TypeFamily.NUMERIC,
        TypeFamily.TIMESTAMP,
    )
    return (
        type_.root in _SCALARS or type_.root is TypeRoot.VARIANT or any(map(type_.is_a, families))
    )


def json_of(  # noqa: PLR0911 - a table
    value: Any, type_: LogicalType, *, raw: bool = False
) -> Any:
    """The JSON value, as ``texts.serialise`` takes it, of an SQL value.

    Args:
        value: a value, None for NULL.
        type_: its type.
        raw: whether it is JSON text, to be taken as what it stands for.
    """
    if value is None:
        return None
    if raw:
        return parse(value) if value.strip() else None
    if isinstance(type_, VariantType):
        return JsonText(variant_json(value))
    if isinstance(type_, ArrayType):
        return [json_of(element, type_.element) for element in value]
    if isinstance(type_, MapType):
        return {key: json_of(inner, type_.value) for key, inner in value.items()}
    if isinstance(type_, RowType):
        return {
            field.name: json_of(inner, field.type)
            for field, inner in zip(type_, value, strict=True)
        }
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        # Java goes by way of the text of a double, of a FLOAT too.
        return Decimal(double_text(value)) if math.isfinite(value) else double_text(value)
    if isinstance(type_, TimestampType | LocalZonedTimestampType):
        text = timestamp_text(value, 9).rstrip("0").rstrip(".").replace(" ", "T")
        return f"{text}Z" if isinstance(type_, LocalZonedTimestampType) else text
    return value
