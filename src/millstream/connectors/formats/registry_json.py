"""JSON objects in messages whose JSON Schema is in a schema registry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.json_messages import JsonRowDecoder, JsonRowEncoder
from millstream.connectors.formats.row_format import RowDecoder, RowEncoder
from millstream.connectors.formats.schema_registry import (
    HEADER_SIZE,
    RegisteredSchema,
    SchemaRegistryClient,
    header_of,
    schema_id,
)
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from millstream.connectors.formats.json_messages import JsonOptions


_TITLE: Final = "Record"
_INTEGERS: Final = (lt.TinyIntType, lt.SmallIntType, lt.IntType, lt.BigIntType)
_NUMBERS: Final = (lt.DecimalType, lt.FloatType, lt.DoubleType)


def json_schema_of(row: lt.RowType) -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of a table's rows, as ``JsonRowEncoder`` writes them."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": _TITLE,
        **_plain(row),
    }


def _schema(kind: lt.LogicalType) -> dict[str, Any]:
    plain = _plain(kind)
    return {"oneOf": [{"type": "null"}, plain]} if kind.is_nullable else plain


def _plain(kind: lt.LogicalType) -> dict[str, Any]:  # noqa: PLR0911 - a table
    if isinstance(kind, lt.RowType):
        return {
            "type": "object",
            "properties": {each.name: _schema(each.type) for each in kind.fields},
            "required": [each.name for each in kind.fields if not each.type.is_nullable],
        }
    if isinstance(kind, lt.ArrayType):
        return {"type": "array", "items": _schema(kind.element)}
    if isinstance(kind, lt.MapType):
        return {"type": "object", "additionalProperties": _schema(kind.value)}
    if isinstance(kind, lt.MultisetType):
        return {"type": "object", "additionalProperties": {"type": "integer"}}
    if isinstance(kind, lt.BooleanType):
        return {"type": "boolean"}
    if isinstance(kind, _INTEGERS):
        return {"type": "integer"}
    if isinstance(kind, _NUMBERS):
        return {"type": "number"}
    if isinstance(kind, lt.BinaryType | lt.VarBinaryType):
        return {"type": "string", "contentEncoding": "base64"}
    return {"type": "string"}


class RegistryJsonDecoder(RowDecoder):
    """One JSON object per message, after the id of its schema.

    Args:
        objects: reads the objects.
        client: of the registry.
    """

    def __init__(self, objects: JsonRowDecoder, client: SchemaRegistryClient) -> None:
        super().__init__(objects.row)
        self._objects, self._client = objects, client
        self._known: set[int] = set()

    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        if message is None:
            return []
        try:
            self._check(message)
        except ValueError:
            if self._objects.options.ignore_parse_errors:
                return []
            raise
        return self._objects.decode(message[HEADER_SIZE:])

    def columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        try:
            for header in {each[:HEADER_SIZE] for each in messages}:
                self._check(header)
        except ValueError:
            return None
        return self._objects.columns([each[HEADER_SIZE:] for each in messages])

    def narrowed(self, row: lt.RowType) -> RowDecoder | None:
        """Those fields alone, unless each has to be there."""
        objects = self._objects.narrowed(row)
        if not isinstance(objects, JsonRowDecoder):
            return None
        return RegistryJsonDecoder(objects, self._client)

    def _check(self, message: bytes) -> None:
        """Raise ValueError unless a message names a JSON Schema of the registry."""
        identifier = schema_id(message)
        if identifier in self._known:
            return
        kind = self._client.schema(identifier).kind
        if kind != "JSON":
            reason = f"schema id {identifier} is a schema of {kind}, not of JSON"
            raise ValueError(reason)
        self._known.add(identifier)


class RegistryJsonEncoder(RowEncoder):
    """One JSON object per row, after the id of its schema.

    Args:
        row: the table.
        options: of JSON.
        client: of the registry.
        subject: where the schema is registered; ``{record}`` in it is the schema's title.
        schema: a JSON Schema; None: that of the row.

    Raises:
        ValidationError: JSON holds no values of a column's type.
        ValueError: the schema is no JSON object.
    """

    def __init__(
        self,
        row: lt.RowType,
        options: JsonOptions,
        client: SchemaRegistryClient,
        subject: str,
        schema: str | None = None,
    ) -> None:
        super().__init__(row)
        self._objects, self._client = JsonRowEncoder(row, options), client
        self._text = json.dumps(json_schema_of(row)) if schema is None else schema
        self._subject = subject.replace("{record}", json.loads(self._text).get("title", _TITLE))

    def validate(self) -> None:
        self._identifier()

    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        header = header_of(self._identifier())
        written = self._objects.encode(columns, kinds)
        return [None if each is None else header + each for each in written]

    def _identifier(self) -> int:
        return self._client.register(self._subject, RegisteredSchema(self._text, "JSON"))
