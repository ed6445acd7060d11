"""PostgreSQL sinks: which one, in one place.

What it is: ``PostgresSink``, whose methods make the kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.postgres.changes import PostgresChangesSink
from millstream.connectors.postgres.commit_table import PostgresCommitTableSink
from millstream.connectors.postgres.table import PostgresTable, server_of
from millstream.connectors.postgres.two_phase import PostgresTwoPhaseSink
from millstream.connectors.postgres.upsert import PostgresUpsertSink
from millstream.connectors.postgres.waiting import driver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.types.types import TypeInformation


class PostgresSink:
    """Makes sinks that write to a table of a PostgreSQL server, which must exist.

    What the methods have in common:

    - ``conninfo``: as libpq takes it, "postgresql://user@host/database" or "host=... dbname=...".
      Passwords are better kept in ``~/.pgpass`` or ``PGPASSWORD`` than in the program.
    - ``table``: "table" or "schema.table".
    - ``columns``: the table's columns in the order of the records' fields; None: found by name.
    - ``type_info``: the type of the records, so that columns are compared at submit already.
    - ``lock_timeout``: seconds to wait for a lock that another transaction holds.
    - ``timeout``: seconds to wait for the server's answer to a statement.  Then the connection is
      given up: the epoch fails, or its commit is tried again.
    """

    @staticmethod
    def two_phase(
        conninfo: str,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        type_info: TypeInformation | None = None,
        lock_timeout: float = 30.0,
        timeout: float = 300.0,
    ) -> PostgresTwoPhaseSink:
        """Exactly-once by prepared transactions; the server must allow them.

        Raises:
            SinkError: psycopg is not installed, or ``conninfo`` is not a connection string.
        """
        return PostgresTwoPhaseSink(
            _table(conninfo, table, columns, type_info, lock_timeout, timeout)
        )

    @staticmethod
    def commit_table(
        conninfo: str,
        table: str,
        *,
        key: Sequence[str] = (),
        check_rows: bool = True,
        columns: Sequence[str] | None = None,
        type_info: TypeInformation | None = None,
        lock_timeout: float = 30.0,
        timeout: float = 300.0,
    ) -> PostgresCommitTableSink:
        """Exactly-once by a commit table; epochs are visible at once, over all subtasks.

        Args:
            conninfo: see the class, as the other arguments.
            table: the table.
            key: columns with a unique constraint, to upsert by; empty: rows are inserted.
            check_rows: try the rows before the epoch is published.  False saves a third of the
                work; a row that the table refuses then fails the commit, the job ends after three
                tries, and goes on when the table takes the row.
            columns: the table's columns.
            type_info: the type of the records.
            lock_timeout: seconds.
            timeout: seconds.

        Raises:
            SinkError: psycopg is not installed, or ``conninfo`` is not a connection string.
        """
        where = _table(conninfo, table, columns, type_info, lock_timeout, timeout)
        return PostgresCommitTableSink(where, key, check_rows=check_rows)

    @staticmethod
    def changes(
        conninfo: str,
        table: str,
        *,
        key: Sequence[str],
        check_rows: bool = True,
        columns: Sequence[str] | None = None,
        type_info: TypeInformation | None = None,
        lock_timeout: float = 30.0,
        timeout: float = 300.0,
    ) -> PostgresChangesSink:
        """A changelog, exactly-once by a commit table: rows are merged and deleted by key.

        Args:
            conninfo: see the class, as the other arguments.
            table: the table.
            key: columns with a unique constraint.
            check_rows: as of ``commit_table``.
            columns: the table's columns.
            type_info: the type of the records.
            lock_timeout: seconds.
            timeout: seconds.

        Raises:
            SinkError: psycopg is not installed, or ``conninfo`` is not a connection string.
        """
        where = _table(conninfo, table, columns, type_info, lock_timeout, timeout)
        return PostgresChangesSink(where, key, check_rows=check_rows)

    @staticmethod
    def upsert(
        conninfo: str,
        table: str,
        *,
        key: Sequence[str],
        epoch_column: str | None = None,
        columns: Sequence[str] | None = None,
        type_info: TypeInformation | None = None,
        lock_timeout: float = 30.0,
        timeout: float = 300.0,
    ) -> PostgresUpsertSink:
        """Idempotent by key: the cheapest, with rows visible before the checkpoint is complete.

        Args:
            conninfo: see the class, as the other arguments.
            table: the table.
            key: columns with a unique constraint.
            epoch_column: a BIGINT column for the epoch of each row, which fences overtaken runs.
            columns: the table's columns.
            type_info: the type of the records.
            lock_timeout: seconds.
            timeout: seconds.

        Raises:
            SinkError: psycopg is not installed, or ``conninfo`` is not a connection string.
        """
        where = _table(conninfo, table, columns, type_info, lock_timeout, timeout)
        return PostgresUpsertSink(where, key, epoch_column)


def _table(
    conninfo: str,
    table: str,
    columns: Sequence[str] | None,
    type_info: TypeInformation | None,
    lock_timeout: float,
    timeout: float,
) -> PostgresTable:
    driver()
    server_of(conninfo)
    chosen = None if columns is None else tuple(columns)
    return PostgresTable(
        conninfo, table, chosen, type_info, lock_timeout=lock_timeout, timeout=timeout
    )
