"""JSON texts to values and back, as Jackson does for Flink.

What it is: ``parse``, which reads the first value of a text and passes over what is behind it, and
``serialise``, which sorts keys and writes no blanks.  Numbers with a point are Decimals, so that
their digits stay.
"""

from __future__ import annotations

import base64
import json
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn

from millstream.expressions.java.strings import from_units
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


_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and the like, which are Python's alone.

    Raises:
        ValueError: always.
    """
    message = f"no JSON: {name}"
    raise ValueError(message)


_DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=refuse_constant)


def parse(text: str, decoder: json.JSONDecoder = _DECODER) -> Any:
    """The first value of a JSON text.

    Args:
        text: the text.
        decoder: what makes values of it.

    Raises:
        ValueError: there is none.
    """
    match = _BLANKS.match(text)
    start = match.end() if match is not None else 0
    try:
        value, end = decoder.raw_decode(text, start)
    except RecursionError as error:
        message = "JSON is nested too deeply"
        raise ValueError(message) from error
    behind = text[end : end + 1]
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        if behind and behind not in " \t\r\n":
            message = f"no JSON: {text[start : end + 1]!r}"
            raise ValueError(message)
    elif not isinstance(value, str | list | dict) and (behind.isalnum() or behind in {"_", "$"}):
        message = f"no JSON: {text[start : end + 1]!r}"
        raise ValueError(message)
    return value


class JsonText:
    """A value that is JSON text already, to be written as it is."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Take the text."""
        self.text = text

    def __str__(self) -> str:
        return self.text


def is_scalar(value: Any) -> bool:
    """Whether a value is neither an array nor an object."""
    return not isinstance(value, list | dict)


def scalar_text(value: Any) -> str:
    """A scalar as Java's ``String.valueOf`` writes it, strings without quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return from_units(value) if isinstance(value, str) else str(value)


def serialise(value: Any) -> str:
    """The JSON text of a value, keys in order, without blanks."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_quoted(key)}:{serialise(value[key])}" for key in keys) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(serialise, value)) + "]"
    return _quoted(value) if isinstance(value, str) else scalar_text(value)


def _quoted(text: str) -> str:
    return '"' + _ESCAPED.sub(_escape, from_units(text)) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _ESCAPES.get(character) or f"\\u{ord(character):04X}"


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
