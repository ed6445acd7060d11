"""Types and rows of results as JSON, as Flink's SQL Gateway writes them.

The format is that of Flink's ``LogicalTypeJsonSerializer`` and ``ResultInfoSerializer``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.json_messages import JsonOptions, cells_as_json
from millstream.expressions.casts import PRINTED_STYLE, text_function
from millstream.sql.catalog.schema import PhysicalColumn, ResolvedSchema
from millstream.table.table_result import row_texts
from millstream.types import logical_types as lt
from millstream.types.row import RowKind
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from millstream.contracts.batch import Batch

ROW_FORMATS: Final = ("JSON", "PLAIN_TEXT")

_JSON: Final = JsonOptions(iso=True, map_null_key="LITERAL", map_null_literal="null")
_TEXT: Final = lt.VarCharType()
#: Types that the protocol describes; values of others (intervals, VARIANT) go as text.
_DESCRIBED: Final = (
    lt.NullType,
    lt.BooleanType,
    lt.NumericType,
    lt.CharType,
    lt.VarCharType,
    lt.BinaryType,
    lt.VarBinaryType,
    lt.DateType,
    lt.TimeType,
    lt.TimestampType,
    lt.LocalZonedTimestampType,
)

#: Flink's name of a type -> its class.
_BY_ROOT: Final[dict[str, type[lt.LogicalType]]] = {
    kind.root.name: kind
    for kind in (
        lt.NullType,
        lt.BooleanType,
        lt.TinyIntType,
        lt.SmallIntType,
        lt.IntType,
        lt.BigIntType,
        lt.FloatType,
        lt.DoubleType,
        lt.DecimalType,
        lt.CharType,
        lt.VarCharType,
        lt.BinaryType,
        lt.VarBinaryType,
        lt.DateType,
        lt.TimeType,
        lt.TimestampType,
        lt.LocalZonedTimestampType,
        lt.ArrayType,
        lt.MapType,
        lt.MultisetType,
        lt.RowType,
    )
}


def described_type(kind: lt.LogicalType) -> lt.LogicalType:
    """Return the type under which the values of a column are sent.

    Args:
        kind: the column's type.

    Returns:
        The same, or VARCHAR if Flink's protocol has no description of it (intervals, VARIANT).
    """
    if not _is_described(kind):
        return _TEXT.with_nullability(kind.is_nullable)
    return kind


def _is_described(kind: lt.LogicalType) -> bool:
    if isinstance(kind, lt.ArrayType | lt.MapType | lt.MultisetType | lt.RowType):
        return all(map(_is_described, kind.children))
    return isinstance(kind, _DESCRIBED)


def type_as_json(kind: lt.LogicalType) -> dict[str, Any]:
    """Return Flink's JSON of a logical type.

    Args:
        kind: the type; one that ``described_type`` returned.
    """
    if isinstance(kind, lt.NullType):
        return {"type": "NULL"}
    node: dict[str, Any] = {"type": kind.root.name, "nullable": kind.is_nullable}
    if isinstance(kind, lt.CharType | lt.VarCharType | lt.BinaryType | lt.VarBinaryType):
        node["length"] = kind.length
    elif isinstance(kind, lt.DecimalType):
        node |= {"precision": kind.precision, "scale": kind.scale}
    elif isinstance(kind, lt.TimeType | lt.TimestampType | lt.LocalZonedTimestampType):
        node["precision"] = kind.precision
    elif isinstance(kind, lt.MapType):
        node |= {"keyType": type_as_json(kind.key), "valueType": type_as_json(kind.value)}
    elif isinstance(kind, lt.ArrayType | lt.MultisetType):
        node["elementType"] = type_as_json(kind.element)
    elif isinstance(kind, lt.RowType):
        node["fields"] = [_field_as_json(each) for each in kind.fields]
    return node


def _field_as_json(field: lt.RowField) -> dict[str, Any]:
    node = {"name": field.name, "fieldType": type_as_json(field.type)}
    if field.description is not None:
        node["description"] = field.description
    return node


def type_from_json(node: Mapping[str, Any]) -> lt.LogicalType:
    """Return the type that ``type_as_json``, or Flink, has written.

    Args:
        node: Flink's JSON of a logical type. One that has no counterpart here is VARCHAR.
    """
    nullable = bool(node.get("nullable", True))
    kind = _BY_ROOT.get(str(node.get("type")))
    if kind is None:
        return _TEXT.with_nullability(nullable)
    given: dict[str, Any] = {
        key: node[key] for key in ("length", "precision", "scale") if key in node
    }
    if issubclass(kind, lt.MapType):
        given = {
            "key_type": type_from_json(node["keyType"]),
            "value_type": type_from_json(node["valueType"]),
        }
    elif issubclass(kind, lt.ArrayType | lt.MultisetType):
        given = {"element_type": type_from_json(node["elementType"])}
    elif issubclass(kind, lt.RowType):
        given = {
            "fields": [
                lt.RowField(
                    each["name"], type_from_json(each["fieldType"]), each.get("description")
                )
                for each in node["fields"]
            ]
        }
    return kind(**given).with_nullability(nullable)


def columns_from_json(columns: Iterable[Mapping[str, Any]]) -> ResolvedSchema:
    """Return the columns of a result that ``columns_as_json``, or Flink, has written."""
    return ResolvedSchema(
        tuple(PhysicalColumn(each["name"], type_from_json(each["logicalType"])) for each in columns)
    )


def columns_as_json(schema: ResolvedSchema) -> list[dict[str, Any]]:
    """Return name, type and comment of each column of a result."""
    return [
        {
            "name": column.name,
            "logicalType": type_as_json(described_type(column.type)),
            "comment": column.comment,
        }
        for column in schema.columns
    ]


def batch_writer(row: lt.RowType, zone: str, row_format: str) -> Callable[[Batch], list[str]]:
    """Return a function that writes the changes of a batch, each as a JSON object.

    Args:
        row: of the batches, whose columns are of its Arrow types.
        zone: the session's time zone, for texts.
        row_format: ``JSON`` or ``PLAIN_TEXT``.
    """
    if row_format == "PLAIN_TEXT":
        write = row_texts(row, zone)
        return lambda batch: [
            _change(kind, (json.dumps(each, ensure_ascii=False) for each in texts))
            for kind, texts in write(batch)
        ]
    return lambda batch: _json_changes(batch, row, zone)


def _json_changes(batch: Batch, row: lt.RowType, zone: str) -> list[str]:
    kinds = [RowKind.INSERT] * len(batch)
    if batch.row_kinds is not None:
        every = tuple(RowKind)
        kinds = [every[each] for each in batch.row_kinds.tolist()]
    columns = [
        _json_column(column, kind, zone)
        for column, kind in zip(batch.arrow.columns, row.children, strict=True)
    ]
    return [
        _change(kind, cells) for kind, cells in zip(kinds, zip(*columns, strict=True), strict=True)
    ]


def _json_column(column: pa.Array, kind: lt.LogicalType, zone: str) -> list[str]:
    if described_type(kind) == kind:
        return cells_as_json(column, kind, _JSON)
    write = text_function(kind, zone, PRINTED_STYLE)
    return [
        "null" if value is None else json.dumps(write(value), ensure_ascii=False)
        for value in values_of_column(column, kind)
    ]


def row_as_json(cells: Sequence[object]) -> str:
    """Return an inserted row of plain values (text, numbers, booleans, None) as a JSON object."""
    return _change(RowKind.INSERT, (json.dumps(each, ensure_ascii=False) for each in cells))


def _change(kind: RowKind, cells: Any) -> str:
    return f'{{"kind":"{kind.name}","fields":[{",".join(cells)}]}}'
