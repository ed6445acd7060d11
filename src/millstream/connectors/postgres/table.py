"""A table of a PostgreSQL server: connecting, its columns, COPY into it, and its errors.

Columnar batches become CSV by Arrow's writer and go to the server by COPY, without a Python object
per value.  Lists become arrays where the column is one, and JSON text elsewhere, as do maps and
rows; times without a zone are UTC.
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv as pacsv

from millstream.connectors.commit_protocols.commit_table import (
    COMMIT_TABLE,
    REFUSED,
    dot_advice,
    identifier,
    match_columns,
    quoted,
    quoted_parts,
    record_text,
    table_parts,
)
from millstream.connectors.formats.json_format import json_column
from millstream.connectors.postgres.sessions import (
    driver,
    limit_waiting,
    limited_connection,
    lock_holders,
)
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import psycopg
    from psycopg.rows import TupleRow

    from millstream.types.types import TypeInformation

    #: A connection in autocommit mode; transactions are begun and ended by statements.
    Session = psycopg.Connection[TupleRow]

#: Classes of SQLSTATE about a record: data exception, integrity constraint violation, a
#: trigger's RAISE, a view's WITH CHECK OPTION.
_ABOUT_RECORDS: Final = frozenset({"22", "23", "P0", "44"})
#: Classes about the table or the statement: not supported, too many columns or too long a row for
#: an index, no such column or table or no right to it, no such schema.
_ABOUT_TABLES: Final = frozenset({"0A", "54", "42", "3F"})


#: Behind the name of a table, that of the table in which a sink stages rows.
STAGING: Final = "_millstream"
#: Connections that a sink needs beside those of its subtasks.
DRIVER_CONNECTIONS: Final = 2


@dataclass(frozen=True)
class PostgresTable:
    """Where a sink writes; pickled to the workers."""

    #: As libpq takes it: "postgresql://user@host/database" or "host=... dbname=...".
    #: It may hold a password.
    conninfo: str = field(repr=False)
    table: str
    #: The table's columns in the order of the records' fields; None: found by name.
    columns: Sequence[str] | None = None
    type_info: TypeInformation | None = None
    #: Seconds to wait for a connection, and for a lock that another transaction holds.
    connect_timeout: int = 10
    lock_timeout: float = 30.0
    #: Seconds to wait for the answer to a statement.
    timeout: float = 300.0

    def __post_init__(self) -> None:
        """Keep the columns as they are now."""
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))

    @property
    def target(self) -> str:
        """Table and server, for messages; without the password."""
        return f"table {self.table!r} of {server_of(self.conninfo)}"

    @property
    def quoted(self) -> str:
        """The table's name in SQL."""
        return quoted(self.table)

    @property
    def staging(self) -> str:
        """In SQL, the name of the table beside it in which a sink stages rows."""
        *schema, name = table_parts(self.table)
        return quoted_parts([*schema, f"{name}{STAGING}"])

    def connect(self, location: str, name: str = "millstream") -> Session:
        """A new connection.

        Args:
            location: who connects, for messages.
            name: how the server calls the session.

        Raises:
            SinkError: the server cannot be reached, or refuses.
        """
        psycopg = driver()
        try:
            session: Session = limited_connection().connect(
                self.conninfo,
                autocommit=True,
                connect_timeout=math.ceil(min(self.connect_timeout, self.timeout)),
                client_encoding="utf8",
                application_name=name,
                # Parameters are $1, $2: a % is a % wherever it stands, in a table's name, say.
                cursor_factory=psycopg.RawCursor,
            )
            limit_waiting(session, self.timeout)
            # The server gives up by itself as well: nobody waits for it any more.
            # A task that waits for its input with rows written is idle in its transaction.  If its
            # machine dies, the server finds out in a minute and a half, not in two hours, and
            # lets go of the locks.
            session.execute(
                f"SET TIME ZONE 'UTC'; SET lock_timeout = {int(self.lock_timeout * 1000)};"
                " SET idle_in_transaction_session_timeout = 0; SET tcp_keepalives_idle = 30;"
                " SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 6;"
                f" SET statement_timeout = {int(self.timeout * 1000)}"
            )
        except psycopg.Error as error:
            message = f"{location}: {no_connection(self.conninfo, error)}"
            raise SinkError(message) from error
        return session

    @contextlib.contextmanager
    def session(self, location: str) -> Iterator[Session]:
        """A connection that is closed at the end; errors of the server become SinkError."""
        with contextlib.closing(self.connect(location)) as session, self.errors(location):
            yield session

    @contextlib.contextmanager
    def errors(
        self, location: str, rows: pa.Table | None = None, advice: str = REFUSED
    ) -> Iterator[None]:
        """Turn the server's errors into SinkError.

        Args:
            location: who writes.
            rows: those that are copied; the one that is refused is named.
            advice: what to do about a refused record.
        """
        try:
            yield
        except driver().Error as error:
            raise self._sink_error(location, error, rows, advice) from error

    def _sink_error(
        self,
        location: str,
        error: Any,
        rows: pa.Table | None,
        advice: str,
    ) -> SinkError:
        psycopg, state = driver(), (error.sqlstate or "")[:2]
        refused = _refused_row(error, rows)
        what = ""
        if rows is not None and refused is not None:
            what = f" refuses record {record_text(rows, refused)}"
        message = f"{location}: {self.target}{what}: {error_text(error)}"
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return SinkError(f"{message}. {self._holders(location)}")
        if isinstance(error, psycopg.errors.AdminShutdown):
            message += ". A newer run of this job ends the sessions of older ones; or the server"
            return SinkError(f"{message} is being stopped")
        if state in _ABOUT_RECORDS:
            return PermanentSinkError(f"{message}. {advice}")
        if state in _ABOUT_TABLES:
            return PermanentSinkError(
                f"{message}. Check the table and what the user may do with it"
            )
        return SinkError(message)

    def _holders(self, location: str) -> str:
        """Who holds the locks that writers wait for; that nobody can tell hides no error."""
        tables = [self.quoted, self.staging, COMMIT_TABLE]
        try:
            with contextlib.closing(self.connect(location)) as session:
                return lock_holders(session, tables)
        except (driver().Error, SinkError) as error:
            return f"pg_locks shows who holds it; asking for that failed: {error}"

    def column_types(self, session: Session) -> dict[str, str]:
        """The columns that can be written, with their types; empty if there is no such table."""
        query = (
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"
            " AND attgenerated = '' ORDER BY attnum"
        )
        return dict(session.execute(query, (self.quoted,)).fetchall())

    def match(self, session: Session, given: Sequence[str]) -> dict[str, str]:
        """The table's columns for those of the records, with their types.

        Raises:
            SinkError: there is no such table, or a column is missing.
        """
        types = self.column_types(session)
        if not types:
            message = f"there is no {self.target}; create it before the job runs"
            message += dot_advice(self.table)
            raise SinkError(message)
        names = match_columns(given, list(types), self.columns, self.target)
        return {name: types[name] for name in names}

    def match_type(
        self, session: Session, type_info: TypeInformation, key: Sequence[str] = ()
    ) -> None:
        """Compare the table's columns with the fields of a type; nothing if it does not tell them.

        Args:
            session: to look with.
            type_info: of the records.
            key: columns that the records must have.

        Raises:
            SinkError: a column is missing, or a part of the key.
        """
        schema = type_info.arrow_schema
        if schema is not None:
            self.require_key(self.match(session, schema.names), key)

    def require_key(self, columns: Mapping[str, str], key: Sequence[str]) -> None:
        """Make sure that records with these columns have a key; raises SinkError if not."""
        missing = [name for name in key if name not in columns]
        if missing:
            message = f"{self.target}: the records lack {missing} of the key {list(key)}"
            raise PermanentSinkError(message)

    def require_connections(self, session: Session, parallelism: int) -> None:
        """Check that the server takes a connection of each subtask, and the driver's.

        Raises:
            SinkError: it does not, with the number to set.
        """
        query = (
            "SELECT current_setting('max_connections')::int,"
            " current_setting('superuser_reserved_connections')::int"
            " + coalesce(current_setting('reserved_connections', true), '0')::int"
        )
        row = session.execute(query).fetchone()
        allowed, reserved = row if row is not None else (0, 0)
        needed = parallelism + DRIVER_CONNECTIONS
        if allowed - reserved < needed:
            message = (
                f"{self.target}: max_connections of the server is {allowed}, of which {reserved}"
                f" are reserved; a sink with parallelism {parallelism} needs {needed}: one for each"
                f" subtask, and {DRIVER_CONNECTIONS} for the driver and for one that a failed try"
                f" left. Set max_connections to {needed + reserved} or more in postgresql.conf and"
                " restart the server, or lower the parallelism of the sink"
            )
            raise SinkError(message)

    def validate(self, session: Session) -> None:
        """Check table and columns.

        Raises:
            SinkError: something is missing.
        """
        if self.type_info is not None:
            self.match_type(session, self.type_info)
        if not self.column_types(session):
            self.match(session, [])


def _refused_row(error: Any, rows: pa.Table | None) -> int | None:
    """The position of the record that a COPY stopped at, by the line that the server names."""
    found = re.match(r"COPY .*, line (\d+)", error.diag.context or "")
    if found is None or rows is None:
        return None
    line = 0
    for index in range(rows.num_rows):
        text = csv_text(rows.slice(index, 1), [""] * rows.num_columns).to_pybytes()
        line += text.count(b"\n")  # texts may hold line breaks, which the server counts
        if line >= int(found[1]):
            return index
    return None


def server_of(conninfo: str) -> str:
    """Host, port and database of a connection string, for messages.

    Raises:
        SinkError: it is none; the message holds no part of it.
    """
    parts = connection_parts(conninfo)
    host, port = parts.get("host", "localhost"), parts.get("port", "5432")
    return f"PostgreSQL {host}:{port}/{parts.get('dbname', '')}"


def connection_parts(conninfo: str) -> dict[str, str]:
    """Split a connection string into libpq's parameters.

    Raises:
        SinkError: it is none, or a character of its password takes it apart elsewhere; the message
            holds no part of it, for any part may be of the password.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = {key: str(each) for key, each in conninfo_to_dict(conninfo).items()}
    except ProgrammingError as error:
        # libpq quotes the part that it does not understand, in which a password may be.
        raise _no_conninfo(re.sub(r'".*"', '"..."', str(error).strip(), flags=re.DOTALL)) from None
    address = conninfo.partition("?")[0]
    ambiguous = "@" in parts.get("host", "") or ("://" in address and address.count("@") > 1)
    if ambiguous or re.fullmatch(r"[\d,]*", parts.get("port", "")) is None:
        what = "host or port make no sense"
        raise _no_conninfo(what)
    return parts


def _no_conninfo(what: str) -> SinkError:
    return SinkError(
        f"not a PostgreSQL connection string: {what}. Write postgresql://user@host/database, in"
        " which : / @ and % of a user or password are %3A %2F %40 %25, or host=... dbname=..."
    )


def no_connection(conninfo: str, error: Exception) -> str:
    """That a server cannot be reached or refuses, and what to do; without the password."""
    return (
        f"cannot connect to {server_of(conninfo)}: {error_text(error)}. Check host, port, database,"
        " user and password, and that the server runs and can be reached from this machine"
    )


def error_text(error: Exception) -> str:
    """Return the message of the server, with the record or key where it names one."""
    diagnosis = getattr(error, "diag", None)
    parts = [" ".join(str(getattr(diagnosis, "message_primary", None) or error).split())]
    for name in ("message_detail", "context", "message_hint"):
        more = getattr(diagnosis, name, None)
        if more:
            parts.append(str(more).splitlines()[0])
    return "; ".join(part.rstrip(".?") for part in parts)


# -- COPY ----------------------------------------------------------------------------------------


def copy_rows(session: Session, into: str, columns: Mapping[str, str], rows: pa.Table) -> None:
    """COPY rows into a table.

    Args:
        session: within a transaction.
        into: the table in SQL.
        columns: its columns in the order of those of ``rows``, with their types.
        rows: what to write.
    """
    names = ", ".join(map(identifier, columns))
    statement = f"COPY {into} ({names}) FROM STDIN (FORMAT csv)"
    with session.cursor().copy(statement) as copy:
        copy.write(csv_text(rows, list(columns.values())))


def csv_text(rows: pa.Table, types: Sequence[str]) -> pa.Buffer:
    """Rows as CSV for COPY: nulls are empty, empty strings are quoted."""
    columns = [
        pa.chunked_array([_csv_column(chunk, kind) for chunk in column.chunks], _csv_type(column))
        for column, kind in zip(rows.columns, types, strict=True)
    ]
    table = pa.Table.from_arrays(columns, names=[str(i) for i in range(len(columns))])
    stream = pa.BufferOutputStream()
    options = pacsv.WriteOptions(include_header=False, quoting_style="needed")
    pacsv.write_csv(table, stream, options)
    return stream.getvalue()


def _is_plain(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_date32(kind)
        or types.is_string(kind)
    )


def _csv_type(column: pa.ChunkedArray) -> pa.DataType:
    return column.type if _is_plain(column.type) else pa.string()


def _csv_column(column: pa.Array, target: str) -> pa.Array:
    kind, types = column.type, pa.types
    if _is_plain(kind):
        return column
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        texts = [None if value is None else "\\x" + value.hex() for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    if types.is_list(kind) and target.endswith("[]"):
        return pa.array([_array_text(value) for value in column.to_pylist()], pa.string())
    if types.is_nested(kind):
        return json_column(column).cast(pa.string())
    return column.cast(pa.string())


def _array_text(value: object) -> str | None:
    """A value within a PostgreSQL array, or the array itself."""
    if value is None:
        return None
    if isinstance(value, list):
        return "{" + ",".join("NULL" if v is None else str(_array_text(v)) for v in value) + "}"
    if isinstance(value, bool | int | float):
        return str(value)
    text = "\\x" + value.hex() if isinstance(value, bytes) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
