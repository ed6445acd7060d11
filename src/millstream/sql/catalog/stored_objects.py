"""Tables, views, functions and databases as JSON texts, and back.

What it is: the format of the file catalog, with a version.  Types and expressions are SQL.
What it is not: where the texts are kept (``sql/catalog/file_catalog.py``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import CatalogError, MillstreamError
from millstream.sql.catalog.objects import (
    CatalogDatabase,
    CatalogFunction,
    CatalogTable,
    CatalogView,
)
from millstream.sql.catalog.schema import (
    Column,
    ColumnKind,
    PrimaryKey,
    ResolvedSchema,
    WatermarkSpec,
)
from millstream.sql.parser.parser import parse_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.sql.catalog.objects import CatalogBaseTable

__all__ = ["VERSION", "read_object", "text_of"]

#: Of the format; others are refused.
VERSION: Final = 1


def text_of(stored: CatalogBaseTable | CatalogFunction | CatalogDatabase, name: str) -> str:
    """An object as text.

    Raises:
        CatalogError: it is made of objects of the program, which no text says.
    """
    return json.dumps({"version": VERSION, **_content(stored, name)}, indent=2) + "\n"


def _content(stored: Any, name: str) -> dict[str, Any]:
    if isinstance(stored, CatalogDatabase):
        return {
            "kind": "database",
            "properties": dict(stored.properties),
            "comment": stored.comment,
        }
    if isinstance(stored, CatalogFunction):
        if not isinstance(stored.implementation, str):
            message = (
                f"Function '{name}' is an object of the program and cannot be kept in files; name "
                "it by CREATE FUNCTION ... AS 'module.name' LANGUAGE PYTHON, or make it temporary."
            )
            raise CatalogError(message)
        return {
            "kind": "function",
            "implementation": stored.implementation,
            "language": stored.language,
        }
    if type(stored) not in {CatalogTable, CatalogView}:
        message = f"'{name}' is made of objects of the program and cannot be kept in files."
        raise CatalogError(message)
    shared = {"comment": stored.comment, **_schema(stored.schema, name)}
    if isinstance(stored, CatalogView):
        queries = {"original": stored.original_query, "expanded": stored.expanded_query}
        return {"kind": "view", **shared, "query": queries}
    return {
        "kind": "table",
        **shared,
        "options": dict(stored.options),
        "partitioned_by": list(stored.partition_keys),
    }


def _schema(schema: ResolvedSchema, name: str) -> dict[str, Any]:
    key, watermark = schema.primary_key, schema.watermark
    return {
        "columns": [_column(each, name) for each in schema.columns],
        "watermark": None
        if watermark is None
        else {"column": watermark.rowtime, "expression": watermark.expression},
        "primary_key": None if key is None else {"name": key.name, "columns": list(key.columns)},
    }


def _column(column: Column, name: str) -> dict[str, Any]:
    kind = column.type.as_serializable_string()
    try:
        parse_type(kind)
    except MillstreamError as error:
        message = f"column '{column.name}' of '{name}' is {kind}, which cannot be kept in files."
        raise CatalogError(message) from error
    return {
        "name": column.name,
        "type": kind,
        "kind": column.kind.value,
        "expression": column.expression,
        "metadata_key": column.metadata_key,
        "virtual": column.is_virtual,
        "comment": column.comment,
    }


def read_object(text: str, place: str) -> Any:
    """The object that a text says.

    Args:
        text: as ``text_of`` made it.
        place: where it was, for errors.

    Raises:
        CatalogError: it is none, or of a version that is not known.
    """
    try:
        content = json.loads(text)
        version = content["version"]
        if version != VERSION:
            message = f"{place} is of version {version}; this release reads version {VERSION}."
            raise CatalogError(message)
        return _READERS[content["kind"]](content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{place} does not describe an object of a catalog: {error!r}"
        raise CatalogError(message) from error


def _read_schema(content: Mapping[str, Any]) -> ResolvedSchema:
    columns = tuple(
        Column(
            each["name"],
            parse_type(each["type"]),
            ColumnKind(each["kind"]),
            each["expression"],
            each["metadata_key"],
            each["virtual"],
            each["comment"],
        )
        for each in content["columns"]
    )
    watermark, key = content["watermark"], content["primary_key"]
    return ResolvedSchema(
        columns,
        None if watermark is None else WatermarkSpec(watermark["column"], watermark["expression"]),
        None if key is None else PrimaryKey(key["name"], tuple(key["columns"])),
    )


def _read_table(content: Mapping[str, Any]) -> CatalogTable:
    return CatalogTable(
        schema=_read_schema(content),
        comment=content["comment"],
        options=dict(content["options"]),
        partition_keys=tuple(content["partitioned_by"]),
    )


def _read_view(content: Mapping[str, Any]) -> CatalogView:
    return CatalogView(
        schema=_read_schema(content),
        comment=content["comment"],
        original_query=content["query"]["original"],
        expanded_query=content["query"]["expanded"],
    )


def _read_function(content: Mapping[str, Any]) -> CatalogFunction:
    return CatalogFunction(implementation=content["implementation"], language=content["language"])


def _read_database(content: Mapping[str, Any]) -> CatalogDatabase:
    return CatalogDatabase(properties=content["properties"], comment=content["comment"])


_READERS: Final = {
    "table": _read_table,
    "view": _read_view,
    "function": _read_function,
    "database": _read_database,
}
