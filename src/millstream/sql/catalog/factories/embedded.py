"""Tables in database files: ``'connector' = 'sqlite'`` and ``'connector' = 'duckdb'``.

What it is: SqliteSink and DuckDbSink behind a table whose rows are only added.
What it is not: a source; read such files with a query of their own and ``from_pandas``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import INSERT_ONLY, FactoryContext, TableSink, TableSource
from millstream.sql.catalog.options import Options, duration, integer, text

if TYPE_CHECKING:
    from millstream.contracts.sink import Sink

__all__ = ["sink", "source"]

_OPTIONS: Final = (
    text("path", required=True),
    text("table-name", required=True),
    duration("sink.lock-timeout", 60_000),
    integer("sink.parallelism"),
)


class _EmbeddedTable(TableSink):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._options = options
        self._columns = [column.name for column in context.physical]
        self._is_sqlite = context.table.options["connector"] == "sqlite"
        self.parallelism = options["sink.parallelism"]

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        del given
        return INSERT_ONLY

    def create(self) -> Sink:
        path, table = self._options["path"], self._options["table-name"]
        timeout = self._options["sink.lock-timeout"] / 1000
        if self._is_sqlite:
            from millstream.connectors.embedded.sqlite import SqliteSink

            return SqliteSink(path, table, columns=self._columns, timeout=timeout)
        from millstream.connectors.embedded.duckdb import DuckDbSink

        return DuckDbSink(path, table, columns=self._columns, timeout=timeout)


def source(context: FactoryContext) -> TableSource:
    """Refused."""
    message = f"{context.owner} cannot be read in this release; it is a sink."
    raise ValidationError(message)


def sink(context: FactoryContext) -> TableSink:
    """Rows that are added to an existing table of the database, exactly once."""
    return _EmbeddedTable(context, Options(context.owner, context.options, _OPTIONS))
