"""Avro schemas: as PyFlink's programs give them, and as Arrow's, so that records are typed rows.

What it is: the mapping for what both can say.  What it is not: complete.  Unions of several types,
schemas that contain themselves and UUIDs have no counterpart; such records stay dicts.

Read next: ``connectors/formats/message_formats.py``, ``connectors/formats/schema.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from millstream.errors import ConfigurationError
from millstream.types.type_information import PickledBytesTypeInfo

__all__ = [
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
    "arrow_schema_of_avro",
    "parsed_avro_schema",
]

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


def parsed_avro_schema(text: str) -> Any:
    """A schema of records as fastavro wants it.

    Raises:
        ConfigurationError: it is none, or fastavro is not installed.
    """
    try:
        import fastavro
    except ImportError as error:
        message = "Avro needs the package fastavro: pip install 'millstream[kafka]'"
        raise ConfigurationError(message) from error
    try:
        schema: Any = json.loads(text)
        parsed: Any = fastavro.parse_schema(schema)
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        message = f"this is not an Avro schema: {error}"
        raise ConfigurationError(message) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        message = "the Avro schema must be that of a record"
        raise ConfigurationError(message)
    return parsed


class AvroSchema:
    """An Avro schema, as PyFlink's; made by ``parse_string`` or ``parse_file``.

    Args:
        json_schema: the schema of a record, as JSON.

    Raises:
        ConfigurationError: it is none.
    """

    def __init__(self, json_schema: str) -> None:
        self._text = json_schema
        #: The schema as fastavro wants it.
        self.parsed = parsed_avro_schema(json_schema)

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """The schema that a text holds; raises ConfigurationError if it is none."""
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """The schema that a file holds; raises ConfigurationError if it cannot be read."""
        try:
            return AvroSchema(Path(file_path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            message = f"the Avro schema {file_path} cannot be read: {error}"
            raise ConfigurationError(message) from error

    @property
    def columns(self) -> pa.Schema:
        """The Arrow columns of the records.

        Raises:
            ConfigurationError: a field has no counterpart in Arrow.
        """
        columns = arrow_schema_of_avro(self.parsed)
        if columns is None:
            message = "the Avro schema has fields that no column can hold, or none at all"
            raise ConfigurationError(message)
        return columns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and json.loads(self._text) == json.loads(other._text)

    def __hash__(self) -> int:
        return hash(json.dumps(json.loads(self._text), sort_keys=True))

    def __str__(self) -> str:
        return json.dumps(json.loads(self._text), separators=(",", ":"))


class GenericRecordAvroTypeInfo(PickledBytesTypeInfo):
    """Records of an Avro schema, which are dicts in Python; they travel pickled.

    Args:
        schema: of the records.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema

    def __str__(self) -> str:
        return f"GenericRecordAvroTypeInfo({self.schema})"
