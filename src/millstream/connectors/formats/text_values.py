"""Values as text, as Flink's ``print`` and simple string encoder write them."""

from __future__ import annotations

import datetime as dt
from itertools import repeat
from typing import TYPE_CHECKING, Any

from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.row import Row
from millstream.types.text_values import (
    NANOS_PER_SECOND,
    double_text,
    float_text,
    timestamp_text,
)
from millstream.types.time import Instant
from millstream.types.types import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    Types,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.contracts.batch import Batch
    from millstream.types.types import TypeInformation


_SEQUENCES = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)


def text_function(kind: TypeInformation) -> Callable[[Any], str]:
    """Return the function that writes a value of a type as Java's ``toString`` does.

    The type tells what the Python value does not: a FLOAT has fewer digits than a DOUBLE.
    """
    if isinstance(kind, CompositeTypeInfo):
        fields = [text_function(each) for each in kind.types]
        return lambda value: _composite_text(value, fields)
    if isinstance(kind, _SEQUENCES):
        element = text_function(kind.elem_type)
        return lambda value: _sequence_text(value, element)
    if isinstance(kind, MapTypeInfo):
        key, item = text_function(kind.key_type_info), text_function(kind.value_type_info)
        return lambda value: _map_text(value, key, item)
    if kind == Types.FLOAT():
        return lambda value: "null" if value is None else float_text(value)
    return text_of


def texts_of_batch(batch: Batch) -> list[str]:
    """Return the text of each record; records of untyped streams as Python's ``str`` has them."""
    if batch.type_info.arrow_schema is None:
        return [str(value) for value in batch.values]
    return list(map(text_function(batch.type_info), batch.values))


def _composite_text(value: Any, fields: Iterable[Callable[[Any], str]]) -> str:
    if not isinstance(value, Row | tuple):
        return text_of(value)
    texts = [field(each) for field, each in zip(fields, value, strict=False)]
    if isinstance(value, Row):
        return f"{value.get_row_kind()}[{', '.join(texts)}]"
    return f"({','.join(texts)})"


def _sequence_text(value: Any, element: Callable[[Any], str]) -> str:
    if value is None or isinstance(value, bytes | bytearray):
        return text_of(value)
    return f"[{', '.join(map(element, value))}]"


def _map_text(value: Any, key: Callable[[Any], str], item: Callable[[Any], str]) -> str:
    if value is None:
        return "null"
    entries = (f"{key(each)}={item(other)}" for each, other in value.items())
    return "{" + ", ".join(entries) + "}"


def text_of(value: object) -> str:  # noqa: C901, PLR0911 - one return per kind of value
    """Return the text of a value whose type says no more than the value does."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, bytes | bytearray):
        # Java's bytes have a sign.
        return str([byte - 256 if byte > 127 else byte for byte in value])  # noqa: PLR2004
    if isinstance(value, dt.datetime):
        return _timestamp_text(value)
    if isinstance(value, dt.time):
        return value.isoformat("seconds")  # as java.sql.Time, which has no fraction
    if isinstance(value, Instant):
        return _instant_text(value)
    if isinstance(value, Row | tuple):
        return _composite_text(value, repeat(text_of))
    if isinstance(value, list):
        return _sequence_text(value, text_of)
    if isinstance(value, dict):
        return _map_text(value, text_of, text_of)
    return str(value)


def _timestamp_text(value: dt.datetime) -> str:
    """As java.sql.Timestamp, or as Instant for a timestamp with a time zone."""
    text = value.replace(tzinfo=None).isoformat(" ", "microseconds").rstrip("0")
    if value.tzinfo is None:
        return f"{text}0" if text.endswith(".") else text
    seconds, micros = divmod((value - _EPOCH) // _MICROSECOND, 1_000_000)
    return _instant_text(Instant(seconds, micros * 1000))


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def _instant_text(value: Instant) -> str:
    """As Java's Instant: no fraction, or three, six or nine digits of it."""
    digits = 0
    while value.nanos % 10 ** (9 - digits):
        digits += 3
    nanos = value.seconds * NANOS_PER_SECOND + value.nanos
    return timestamp_text(nanos, digits).replace(" ", "T") + "Z"
