"""The connectors of databases: ``jdbc`` (PostgreSQL), ``sqlite`` and ``duckdb``.

They have bounded scans, lookups, and append or upsert sinks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import (
    identifier,
    quoted_parts,
    table_parts,
)
from millstream.connectors.postgres.table import connection_parts
from millstream.errors import SinkError, ValidationError
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
    choice,
    duration,
    integer,
    text,
)
from millstream.sql.stream_types import stream_type
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.lookup import LookupSource
    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source
    from millstream.types.types import TypeInformation


_JDBC: Final = (
    text("url", required=True),
    text("table-name", required=True),
    text("driver"),
    text("username"),
    text("password"),
    text("scan.partition.column"),
    integer("scan.partition.num", 4),
    IDLE_TIMEOUT,
    choice("sink.delivery-guarantee", ("exactly-once",), "exactly-once"),
    integer("sink.parallelism"),
    *LOOKUP_OPTIONS,
)
_FILE: Final = (
    text("path", required=True),
    text("table-name", required=True),
    IDLE_TIMEOUT,
    duration("sink.lock-timeout", 60_000),
    integer("sink.parallelism"),
    *LOOKUP_OPTIONS,
)
#: Connector -> its options.
OPTIONS: Final = {"jdbc": _JDBC, "sqlite": _FILE, "duckdb": _FILE}
_URL: Final = re.compile(r"jdbc:postgresql:(?://([^/?]*)/)?([^/?]*)(?:\?(.*))?")
#: Names of the driver of Java's -> of libpq.
_PARAMETERS: Final = {"user": "user", "password": "password", "sslmode": "sslmode"}
_UNREADABLE: Final = (lt.ArrayType, lt.MapType, lt.MultisetType, lt.RowType, lt.TimeType)


def connection_string(options: Options) -> str:
    """Return what libpq takes, of a URL of JDBC's or PostgreSQL's own.

    Raises:
        ValidationError: the URL is of another database, or says what libpq does not know.
    """
    url = options["url"]
    user, password = options["username"], options["password"]
    if (user is None) != (password is None):
        message = f"{options.owner}: 'username' and 'password' go together."
        raise ValidationError(message)
    if options["driver"] not in {None, "org.postgresql.Driver"}:
        message = f"{options.owner}: 'driver' is 'org.postgresql.Driver' or not set."
        raise ValidationError(message)
    parts: dict[str, str] = {}
    if url.startswith(("postgresql://", "postgres://")):
        try:
            parts = connection_parts(url)
        except SinkError as error:
            message = f"{options.owner}: 'url' is {error}."
            raise ValidationError(message) from None
    else:
        found = _URL.fullmatch(url)
        if found is None:
            kind = "jdbc:postgresql://host:port/database"
            message = (
                f"{options.owner}: 'url' is as '{kind}': other databases are not in this release."
            )
            raise ValidationError(message)
        if "@" in (found[1] or "") + found[2]:
            message = (
                f"{options.owner}: 'url' has an '@'; give user and password by 'username' and "
                "'password'."
            )
            raise ValidationError(message)
        parts |= _place(found[1] or "localhost")
        parts["dbname"] = found[2]
        for key, each in parse_qsl(found[3] or ""):
            if key not in _PARAMETERS:
                message = f"{options.owner}: 'url' has the parameter '{key}', which is not known."
                raise ValidationError(message)
            parts[_PARAMETERS[key]] = each
    if user is not None:
        parts |= {"user": user, "password": password}
    from psycopg.conninfo import make_conninfo

    return make_conninfo(**parts)


def _place(hosts: str) -> dict[str, str]:
    pairs = [
        each.rpartition(":") if ":" in each else (each, "", "5432") for each in hosts.split(",")
    ]
    return {
        "host": ",".join(host for host, _, _ in pairs),
        "port": ",".join(port for _, _, port in pairs),
    }


class _JdbcTable(TableSource):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._context = context
        self._options = options
        self._conninfo = connection_string(options)
        self._caching = caching_of(options)
        self._key = options["scan.partition.column"]
        names = [each.name for each in context.physical]
        if self._key is not None and self._key not in names:
            message = f"{context.owner}: 'scan.partition.column' is no column: '{self._key}'."
            raise ValidationError(message)
        if self._key is None:
            keys = context.table.schema.key_columns
            self._key = keys[0] if keys else None

    def create(self) -> Source:
        from millstream.connectors.postgres.source import PostgresSource

        context = self._context
        if self._key is None:
            message = (
                f"{context.owner}: to read '{context.identifier.as_summary_string()}' it needs a "
                "PRIMARY KEY or 'scan.partition.column', by which rows are read in an order."
            )
            raise ValidationError(message)
        table = quoted_parts(table_parts(self._options["table-name"]))
        columns = []
        for each in context.physical:
            name = identifier(each.name)
            if isinstance(each.type, _UNREADABLE):
                message = (
                    f"{context.owner}: column '{each.name}' is {each.type.as_summary_string()}, "
                    "which cannot be read in this release."
                )
                raise ValidationError(message)
            if isinstance(each.type, lt.DecimalType):
                kind = f"numeric({each.type.precision}, {each.type.scale})"
                name = f"CAST({name} AS {kind}) AS {name}"
            columns.append(name)
        query = f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608 - quoted names
        number = self._options["scan.partition.num"]
        texts = [each.name for each in context.physical if each.type.to_arrow() == pa.string()]
        return PostgresSource(self._conninfo, query, key=self._key, splits=number, texts=texts)

    def lookup(self, keys: Sequence[str]) -> TableLookup:
        from millstream.connectors.postgres.lookup import PostgresLookup, postgres_type

        fields = [pa.field(each.name, each.type.to_arrow()) for each in self._context.physical]
        for field in fields:
            if postgres_type(field.type) is None:
                message = (
                    f"{self._context.owner}: column '{field.name}' is {field.type}, which cannot "
                    "be looked up in this release."
                )
                raise ValidationError(message)
        made = PostgresLookup(
            self._conninfo, self._options["table-name"], pa.schema(fields), tuple(keys)
        )
        return TableLookup(made, self._caching, self._options["lookup.max-retries"])


class _JdbcTableSink(KeyedTableSink):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        super().__init__(context)
        self._context = context
        self._options = options
        self._conninfo = connection_string(options)
        self.parallelism = options["sink.parallelism"]

    def stream_type(self, declared: TypeInformation) -> TypeInformation:
        del declared
        fields = (lt.RowField(each.name, each.type) for each in self._context.physical)
        return stream_type(lt.RowType(tuple(fields), nullable=False))

    def create(self) -> Sink:
        from millstream.connectors.postgres.sink import PostgresSink

        table = self._options["table-name"]
        names = [each.name for each in self._context.physical]
        if self.key:
            return PostgresSink.changes(self._conninfo, table, key=self.key, columns=names)
        return PostgresSink.commit_table(self._conninfo, table, columns=names)


# -- databases in a file ---------------------------------------------------------------------------


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
            from millstream.connectors.embedded.sqlite import SqliteSink

            return SqliteSink(path, table, columns=self._columns, key=self.key, timeout=timeout)
        from millstream.connectors.embedded.duckdb import DuckDbSink

        return DuckDbSink(path, table, columns=self._columns, key=self.key, timeout=timeout)


class _EmbeddedRows(TableSource):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._options = options
        self._is_sqlite = context.table.options["connector"] == "sqlite"
        self._schema = pa.schema([(each.name, each.type.to_arrow()) for each in context.physical])
        self._caching = caching_of(options)

    def create(self) -> Source:
        from millstream.connectors.embedded.duckdb import DuckDbSource
        from millstream.connectors.embedded.sqlite import SqliteSource

        made = SqliteSource if self._is_sqlite else DuckDbSource
        return made(self._options["path"], self._options["table-name"], self._schema)

    def lookup(self, keys: Sequence[str]) -> TableLookup:
        path, table, columns = self._options["path"], self._options["table-name"], tuple(keys)
        made: LookupSource
        if self._is_sqlite:
            from millstream.connectors.embedded.sqlite import SqliteLookup

            made = SqliteLookup(path, table, self._schema, columns)
        else:
            from millstream.connectors.embedded.duckdb import DuckDbLookup

            made = DuckDbLookup(path, table, self._schema, columns)
        # DuckDB answers one question by threads of its own.
        retries = self._options["lookup.max-retries"]
        return TableLookup(made, self._caching, retries, has_connections=self._is_sqlite)


def source(context: FactoryContext) -> TableSource:
    """The rows of a table as they are when the job starts, or by keys."""
    connector = context.table.options["connector"]
    options = Options(context.owner, context.options, OPTIONS[connector])
    return (_JdbcTable if connector == "jdbc" else _EmbeddedRows)(context, options)


def sink(context: FactoryContext) -> TableSink:
    """Rows that are added to an existing table, or its changes, exactly once."""
    connector = context.table.options["connector"]
    options = Options(context.owner, context.options, OPTIONS[connector])
    return (_JdbcTableSink if connector == "jdbc" else _EmbeddedTable)(context, options)
