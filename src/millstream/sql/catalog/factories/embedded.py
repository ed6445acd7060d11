"""The ``sqlite`` and ``duckdb`` connectors: bounded scans, lookups, and append or upsert sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.sql.catalog.connectors import (
    FactoryContext,
    KeyedTableSink,
    TableLookup,
    TableSink,
    TableSource,
)
from millstream.sql.catalog.options import (
    IDLE_TIMEOUT,
    LOOKUP_OPTIONS,
    Options,
    caching_of,
    duration,
    integer,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.lookup import LookupSource
    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source


_OPTIONS: Final = (
    text("path", required=True),
    text("table-name", required=True),
    IDLE_TIMEOUT,
    duration("sink.lock-timeout", 60_000),
    integer("sink.parallelism"),
    *LOOKUP_OPTIONS,
)
#: Connector -> its options.
OPTIONS: Final = {"sqlite": _OPTIONS, "duckdb": _OPTIONS}


class _EmbeddedTable(KeyedTableSink):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        super().__init__(context)
        self._options = options
        self._columns = [column.name for column in context.physical]
        self._is_sqlite = context.table.options["connector"] == "sqlite"
        self.parallelism = options["sink.parallelism"]

    def create(self) -> Sink:
        path, table = self._options["path"], self._options["table-name"]
        timeout = self._options["sink.lock-timeout"] / 1000
        if self._is_sqlite:
            from millstream.connectors.embedded.databases import SqliteSink

            return SqliteSink(path, table, columns=self._columns, key=self.key, timeout=timeout)
        from millstream.connectors.embedded.databases import DuckDbSink

        return DuckDbSink(path, table, columns=self._columns, key=self.key, timeout=timeout)


class _EmbeddedRows(TableSource):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._options = options
        self._is_sqlite = context.table.options["connector"] == "sqlite"
        self._schema = pa.schema([(each.name, each.type.to_arrow()) for each in context.physical])
        self._caching = caching_of(options)

    def create(self) -> Source:
        from millstream.connectors.embedded.databases import DuckDbSource, SqliteSource

        made = SqliteSource if self._is_sqlite else DuckDbSource
        return made(self._options["path"], self._options["table-name"], self._schema)

    def lookup(self, keys: Sequence[str]) -> TableLookup:
        path, table, columns = self._options["path"], self._options["table-name"], tuple(keys)
        made: LookupSource
        if self._is_sqlite:
            from millstream.connectors.lookups.sqlite_rows import SqliteLookup

            made = SqliteLookup(path, table, self._schema, columns)
        else:
            from millstream.connectors.lookups.duckdb_rows import DuckDbLookup

            made = DuckDbLookup(path, table, self._schema, columns)
        # DuckDB answers one question by threads of its own.
        retries = self._options["lookup.max-retries"]
        return TableLookup(made, self._caching, retries, has_connections=self._is_sqlite)


def source(context: FactoryContext) -> TableSource:
    """Rows of a table of the database: those that are there, or by keys."""
    return _EmbeddedRows(context, Options(context.owner, context.options, _OPTIONS))


def sink(context: FactoryContext) -> TableSink:
    """Rows that are added to an existing table of the database, or its changes, exactly once."""
    return _EmbeddedTable(context, Options(context.owner, context.options, _OPTIONS))
