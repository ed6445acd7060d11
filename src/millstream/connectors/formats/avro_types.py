"""The Arrow schema of an Avro schema, so that its records are rows with typed fields.

What it is: the mapping for what both can say.  What it is not: complete.  Unions of several types,
schemas that contain themselves and UUIDs have no counterpart; such records stay dicts.

Read next: ``connectors/formats/message_formats.py``, ``connectors/formats/schema.py``.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

__all__ = ["arrow_schema_of_avro"]

_PRIMITIVE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
#: What fastavro gives dates and times as: instants have the zone UTC.
_LOGICAL: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_MAX_PRECISION: Final = 38


class _NoCounterpartError(Exception):
    """Arrow cannot say it."""


def arrow_schema_of_avro(record: dict[str, Any]) -> pa.Schema | None:
    """The fields of an Avro record.

    Args:
        record: the schema, as ``fastavro.parse_schema`` gives it.

    Returns:
        None: a field has no counterpart in Arrow, or there are no fields.
    """
    try:
        fields = list(_type_of(record, {}))
    except _NoCounterpartError:
        return None
    return pa.schema(fields) if fields else None


def _type_of(avro: Any, known: dict[str, pa.DataType]) -> pa.DataType:
    """The type; ``known`` has the named ones that are complete."""
    if isinstance(avro, list):
        others = [branch for branch in avro if branch != "null"]
        if len(others) != 1:
            raise _NoCounterpartError
        return _type_of(others[0], known)
    if isinstance(avro, str):
        found = _PRIMITIVE.get(avro) or known.get(avro)
        if found is None:
            raise _NoCounterpartError
        return found
    made = _complex(avro, known)
    if "name" in avro:
        known[avro["name"]] = made
    return made


def _complex(avro: dict[str, Any], known: dict[str, pa.DataType]) -> pa.DataType:
    kind, logical = avro["type"], avro.get("logicalType")
    if logical == "decimal":
        if avro["precision"] > _MAX_PRECISION:
            raise _NoCounterpartError
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    if logical is not None:
        if logical not in _LOGICAL:
            raise _NoCounterpartError
        return _LOGICAL[logical]
    if kind == "record":
        return pa.struct([(each["name"], _type_of(each["type"], known)) for each in avro["fields"]])
    if kind == "array":
        return pa.list_(_type_of(avro["items"], known))
    if kind == "map":
        return pa.map_(pa.string(), _type_of(avro["values"], known))
    return _type_of(kind, known)
