"""Lookup of rows of a PostgreSQL table: one query per batch of keys, which are arrays in it.

Each task has a connection, which is opened again when it breaks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import (
    identifier,
    quoted_parts,
    table_parts,
)
from millstream.connectors.postgres.sessions import driver, limit_waiting, limited_connection
from millstream.contracts.lookup import FoundRows, LookupReader, LookupSource, some_fields
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


_PLAIN: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
}
#: Types whose values are texts to PostgreSQL.
_TEXTS: Final = frozenset({"text", "character varying", "character", "name"})
#: Types whose texts are another server's, session's or reader's.
_NO_TEXTS: Final = frozenset(
    {
        "bytea",
        "double precision",
        "real",
        "timestamp without time zone",
        "timestamp with time zone",
        "time with time zone",
    }
)
#: How the server writes a UUID.
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def postgres_type(kind: pa.DataType) -> str | None:
    """PostgreSQL's type for a column; None: it is not looked up."""
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    return _PLAIN.get(kind)


@dataclass(frozen=True)
class PostgresLookup(LookupSource):
    """A table or view of a server.

    Args:
        conninfo: as libpq takes it.
        table: its name.
        schema: the columns to read, all of which have a ``postgres_type``.
        keys: names of those that rows are found by.
        timeout: seconds that the server may be silent.
    """

    conninfo: str
    table: str
    schema: pa.Schema
    keys: tuple[str, ...]
    timeout: float = 60.0

    def open(self) -> LookupReader:
        return _PostgresReader(self)

    def with_columns(self, names: Collection[str]) -> LookupSource:
        return replace(self, schema=some_fields(self.schema, names))


class _PostgresReader(LookupReader):
    def __init__(self, source: PostgresLookup) -> None:
        self._source = source
        psycopg = driver()
        self._errors = psycopg.Error
        try:
            self._connection = limited_connection().connect(
                source.conninfo, autocommit=True, application_name="millstream lookup"
            )
        except psycopg.Error as error:
            raise self._failed(error) from error
        limit_waiting(self._connection, source.timeout)
        #: Columns that are declared as texts, and are none there -> their type.
        self._as_texts = self._read_as_texts()
        self._query = _query(source, self._as_texts)

    def _read_as_texts(self) -> dict[str, str]:
        source = self._source
        texts = {field.name for field in source.schema if field.type == pa.string()}
        query = (
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        )
        table = quoted_parts(table_parts(source.table))
        try:
            types: dict[str, str] = dict(self._connection.execute(query, [table]).fetchall())
        except self._errors as error:
            raise self._failed(error) from error
        found = {name: types[name] for name in sorted(texts & types.keys())}
        found = {name: kind for name, kind in found.items() if kind not in _TEXTS}
        for name, kind in found.items():
            if kind in _NO_TEXTS:
                message = (
                    f"PostgreSQL table {source.table}: column {name!r} is {kind}, which is not "
                    "looked up as STRING; declare it as the type that it is"
                )
                raise SourceError(message)
        return found

    def _failed(self, error: Exception) -> SourceError:
        return SourceError(f"PostgreSQL table {self._source.table}: {error}")

    def lookup(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        del now
        source = self._source
        values = [list(range(keys.num_rows))]
        values += [self._keys(name, keys.column(name)) for name in source.keys]
        try:
            rows = self._connection.execute(self._query, values).fetchall()
        except self._errors as error:
            raise self._failed(error) from error
        numbers = np.array([row[0] for row in rows], dtype=np.int64)
        try:
            arrays = [
                pa.array([row[at] for row in rows], _read_as(field.type))
                for at, field in enumerate(source.schema, 1)
            ]
        except (pa.ArrowException, OverflowError) as error:
            raise self._failed(error) from error
        return FoundRows(numbers, pa.Table.from_arrays(arrays, names=source.schema.names))

    def _keys(self, name: str, column: pa.Array) -> list[Any]:
        values = _values(column)
        if self._as_texts.get(name) != "uuid":
            return values
        # Another text is that of no UUID; cast to one, it would fail.
        return [each if each is not None and _UUID.fullmatch(each) else None for each in values]

    def close(self) -> None:
        self._connection.close()


def _query(source: PostgresLookup, as_texts: Mapping[str, str]) -> str:
    columns = []
    for field in source.schema:
        name = f"t.{_named(field.name)}"
        is_cast = pa.types.is_decimal(field.type) or field.name in as_texts
        columns.append(f"CAST({name} AS {postgres_type(field.type)})" if is_cast else name)
    kinds = [postgres_type(source.schema.field(name).type) for name in source.keys]
    arrays = ", ".join(["%s::bigint[]", *(f"%s::{kind}[]" for kind in kinds)])
    names = ", ".join(f"k{number}" for number in range(len(kinds)))
    same = " AND ".join(
        _equal(f"t.{_named(name)}", f"k.k{number}", as_texts.get(name))
        for number, name in enumerate(source.keys)
    )
    table = quoted_parts(table_parts(source.table)).replace("%", "%%")
    return (
        f"SELECT k.n, {', '.join(columns)} FROM unnest({arrays}) AS k (n, {names}) "
        f"JOIN {table} AS t ON {same}"
    )


def _equal(column: str, key: str, kind: str | None) -> str:
    """Return whether a column has the key; ``kind`` is its type if its text is compared."""
    if kind is None:
        return f"{column} = {key}"
    if kind == "uuid":  # as such: there may be an index
        return f"{column} = CAST({key} AS uuid)"
    return f"CAST({column} AS text) = {key}"


def _named(name: str) -> str:
    """A quoted name in a query with values: a percent sign in it is none of a value."""
    return identifier(name).replace("%", "%%")


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return list(column.to_pylist())


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Times come in microseconds; the join cuts them."""
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind
