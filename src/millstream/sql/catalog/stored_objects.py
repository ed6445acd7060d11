"""Tables, what is known of them, views, functions and databases as JSON texts, and back.

What it is: the format of the file catalog, with a version.  Types and expressions are SQL.
What it is not: where the texts are kept (``sql/catalog/file_catalog.py``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import CatalogError, MillstreamError, SqlParserError
from millstream.sql.catalog.columns import Column, ComputedColumn, MetadataColumn, PhysicalColumn
from millstream.sql.catalog.identifiers import CatalogPartitionSpec
from millstream.sql.catalog.objects import (
    CatalogDatabase,
    CatalogFunction,
    CatalogPartition,
    CatalogTable,
    CatalogView,
)
from millstream.sql.catalog.schema import PrimaryKey, ResolvedSchema, WatermarkSpec
from millstream.sql.catalog.statistics import CatalogColumnStatistics, CatalogTableStatistics
from millstream.sql.catalog.table_facts import TableFacts
from millstream.sql.parser.parser import parse_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.sql.catalog.objects import CatalogBaseTable

__all__ = ["VERSION", "read_object", "text_of"]

#: Of the format; others are refused.
VERSION: Final = 1
_KINDS: Final[dict[type[Column], str]] = {
    PhysicalColumn: "physical",
    ComputedColumn: "computed",
    MetadataColumn: "metadata",
}


def text_of(
    stored: CatalogBaseTable | CatalogFunction | CatalogDatabase | TableFacts, name: str
) -> str:
    """An object as text.

    Raises:
        CatalogError: it is made of objects of the program, which no text says.
    """
    try:
        return json.dumps({"version": VERSION, **_content(stored, name)}, indent=2) + "\n"
    except TypeError as error:
        message = f"What is said of '{name}' cannot be kept in files: {error}"
        raise CatalogError(message) from error


def _content(stored: Any, name: str) -> dict[str, Any]:
    if isinstance(stored, TableFacts):
        return {"kind": "facts", **_facts(stored)}
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


def _facts(facts: TableFacts) -> dict[str, Any]:
    kinds = (facts.partitions, facts.partition_statistics, facts.partition_columns)
    specs = {spec: None for kind in kinds for spec in kind}
    return {
        "statistics": _of_rows(facts.statistics),
        "columns": _of_columns(facts.columns),
        "partitions": [
            {
                "spec": dict(spec.values),
                "said": _of_partition(facts.partitions.get(spec)),
                "statistics": _of_rows(facts.partition_statistics.get(spec)),
                "columns": _of_columns(facts.partition_columns.get(spec)),
            }
            for spec in specs
        ],
    }


def _of_partition(said: CatalogPartition | None) -> dict[str, Any] | None:
    if said is None:
        return None
    return {"properties": said.get_properties(), "comment": said.comment}


def _of_rows(said: CatalogTableStatistics | None) -> dict[str, Any] | None:
    if said is None:
        return None
    return {
        "rows": said.row_count,
        "files": said.field_count,
        "size": said.total_size,
        "raw_size": said.raw_data_size,
        "properties": said.get_properties(),
    }


def _of_columns(said: CatalogColumnStatistics | None) -> dict[str, Any] | None:
    if said is None:
        return None
    return {"columns": said.get_column_statistics_data(), "properties": said.get_properties()}


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
        "kind": _KINDS[type(column)],
        "expression": column.expression if isinstance(column, ComputedColumn) else None,
        "metadata_key": column.metadata_key if isinstance(column, MetadataColumn) else None,
        "virtual": isinstance(column, MetadataColumn) and column.virtual,
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
    except SqlParserError as error:
        message = f"{place} says a type that this release does not know: {error}"
        raise CatalogError(message) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{place} does not describe an object of a catalog: {error!r}"
        raise CatalogError(message) from error


def _read_column(said: Mapping[str, Any]) -> Column:
    name, kind, comment = said["name"], parse_type(said["type"]), said["comment"]
    made: dict[str, Column] = {
        "physical": PhysicalColumn(name, kind, comment=comment),
        "computed": ComputedColumn(name, kind, said["expression"], comment=comment),
        "metadata": MetadataColumn(
            name, kind, said["metadata_key"], virtual=said["virtual"], comment=comment
        ),
    }
    return made[said["kind"]]


def _read_schema(content: Mapping[str, Any]) -> ResolvedSchema:
    columns = [_read_column(each) for each in content["columns"]]
    watermark, key = content["watermark"], content["primary_key"]
    return ResolvedSchema(
        columns,
        [] if watermark is None else [WatermarkSpec(watermark["column"], watermark["expression"])],
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


def _read_facts(content: Mapping[str, Any]) -> TableFacts:
    listed = [(CatalogPartitionSpec(each["spec"]), each) for each in content["partitions"]]
    said = {spec: each["said"] for spec, each in listed if each["said"] is not None}
    rows = {spec: _read_rows(each["statistics"]) for spec, each in listed}
    columns = {spec: _read_columns(each["columns"]) for spec, each in listed}
    return TableFacts(
        _read_rows(content["statistics"]),
        _read_columns(content["columns"]),
        {
            spec: CatalogPartition(properties=each["properties"], comment=each["comment"])
            for spec, each in said.items()
        },
        {spec: each for spec, each in rows.items() if each is not None},
        {spec: each for spec, each in columns.items() if each is not None},
    )


def _read_rows(said: Mapping[str, Any] | None) -> CatalogTableStatistics | None:
    if said is None:
        return None
    return CatalogTableStatistics(
        said["rows"], said["files"], said["size"], said["raw_size"], said["properties"] or None
    )


def _read_columns(said: Mapping[str, Any] | None) -> CatalogColumnStatistics | None:
    return (
        None
        if said is None
        else CatalogColumnStatistics(said["columns"] or None, said["properties"] or None)
    )


_READERS: Final = {
    "facts": _read_facts,
    "table": _read_table,
    "view": _read_view,
    "function": _read_function,
    "database": _read_database,
}
