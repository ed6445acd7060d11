"""A table of a PostgreSQL server: connecting, its columns, COPY into it, and its errors.

What it is: what all PostgreSQL sinks share.  Columnar batches become CSV by Arrow's writer and go
to the server by COPY, without a Python object per value.  Lists become arrays where the column is
one, and JSON text elsewhere, as do maps and rows; times without a zone are UTC.

What it is not: a protocol; each sink has its own (``postgres_two_phase.py``,
``postgres_commit_table.py``, ``postgres_upsert.py``).

Read next: ``connectors/postgres_two_phase.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv as pacsv

from millstream.connectors.commit_notes import COMMIT_TABLE, CommitNotes
from millstream.connectors.json_text import json_column
from millstream.connectors.postgres_waiting import driver, limit_waiting, limited_connection
from millstream.connectors.table_rows import REFUSED, identifier, match_columns, quoted, record_text
from millstream.errors import MillstreamError, SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import psycopg
    from psycopg.rows import TupleRow

    from millstream.common.typeinfo import TypeInformation
    from millstream.connectors.sink import WriterContext

    #: A connection in autocommit mode; transactions are begun and ended by statements.
    Session = psycopg.Connection[TupleRow]

_LOCKED: Final = (
    "Another transaction holds it, perhaps a prepared one of a job that does not run any more:"
    " SELECT * FROM pg_prepared_xacts shows those, ROLLBACK PREPARED drops one"
)
#: Classes of SQLSTATE: data exception, integrity constraint violation.
_REFUSALS: Final = frozenset({"22", "23"})

__all__ = [
    "CommitterConnection",
    "PostgresTable",
    "copy_rows",
    "driver",
    "error_text",
    "exclusive",
    "generation_of",
    "make_commit_table",
    "no_connection",
    "output_name",
    "output_prefix",
    "place_of",
    "server_of",
]


#: Connections that a sink needs beside those of its subtasks.
DRIVER_CONNECTIONS: Final = 2


@dataclass(frozen=True)
class PostgresTable:
    """Where a sink writes; pickled to the workers."""

    #: As libpq takes it: "postgresql://user@host/database" or "host=... dbname=...".
    conninfo: str
    table: str
    #: The table's columns in the order of the records' fields; None: found by name.
    columns: tuple[str, ...] | None = None
    type_info: TypeInformation | None = None
    #: Seconds to wait for a connection, and for a lock that another transaction holds.
    connect_timeout: int = 10
    lock_timeout: float = 30.0
    #: Seconds to wait for the answer to a statement.
    timeout: float = 300.0

    @property
    def target(self) -> str:
        """Table and server, for messages; without the password."""
        return f"table {self.table!r} of {server_of(self.conninfo)}"

    @property
    def quoted(self) -> str:
        """The table's name in SQL."""
        return quoted(self.table)

    def connect(self, place: str) -> Session:
        """A new connection.

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
            message = f"{place}: {no_connection(self.conninfo, error)}"
            raise SinkError(message) from error
        return session

    @contextlib.contextmanager
    def session(self, place: str) -> Iterator[Session]:
        """A connection that is closed at the end; errors of the server become SinkError."""
        with contextlib.closing(self.connect(place)) as session, self.errors(place):
            yield session

    @contextlib.contextmanager
    def errors(self, place: str, rows: pa.Table | None = None) -> Iterator[None]:
        """Turn the server's errors into SinkError.

        Args:
            place: who writes.
            rows: those that are copied; the one that is refused is named.
        """
        try:
            yield
        except driver().Error as error:
            refused = None if rows is None else _refused_row(error, rows)
            what = "" if refused is None else f" refuses record {record_text(rows, refused)}"
            message = f"{place}: {self.target}{what}: {error_text(error)}"
            if (error.sqlstate or "")[:2] in _REFUSALS:
                message += f". {REFUSED}"
            if isinstance(error, driver().errors.LockNotAvailable):
                message += f". {_LOCKED}"
            raise SinkError(message) from error

    def column_types(self, session: Session) -> dict[str, str]:
        """The columns that can be written, with their types; empty if there is no such table."""
        query = (
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
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
            raise SinkError(message)
        names = match_columns(given, list(types), self.columns, self.target)
        return {name: types[name] for name in names}

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
        """Check table and columns, and make the commit table.

        Raises:
            SinkError: something is missing.
        """
        schema = None if self.type_info is None else self.type_info.arrow_schema
        if schema is not None:
            self.match(session, schema.names)
        elif not self.column_types(session):
            self.match(session, [])


def _refused_row(error: Any, rows: pa.Table | None) -> int | None:  # noqa: ANN401 - psycopg's
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
    """Host, port and database of a connection string, for messages."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts: Mapping[str, object] = conninfo_to_dict(conninfo)
    except ProgrammingError as error:
        message = f"not a PostgreSQL connection string: {error}"
        raise SinkError(message) from None
    host, port = parts.get("host", "localhost"), parts.get("port", 5432)
    return f"PostgreSQL {host}:{port}/{parts.get('dbname', '')}"


def no_connection(conninfo: str, error: Exception) -> str:
    """That a server cannot be reached or refuses, and what to do; without the password."""
    return (
        f"cannot connect to {server_of(conninfo)}: {error_text(error)}. Check host, port, database,"
        " user and password, and that the server runs and can be reached from this machine"
    )


def error_text(error: Exception) -> str:
    """What the server says, with the record or key where it names one."""
    diagnosis = getattr(error, "diag", None)
    parts = [" ".join(str(getattr(diagnosis, "message_primary", None) or error).split())]
    for name in ("message_detail", "context", "message_hint"):
        more = getattr(diagnosis, name, None)
        if more:
            parts.append(str(more).splitlines()[0])
    return "; ".join(part.rstrip(".?") for part in parts)


def place_of(context: WriterContext) -> str:
    """Sink, epoch and subtask, for messages."""
    return context.place


# -- names of what is pre-committed --------------------------------------------------------------


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def output_prefix(job_id: str, sink_uid: str) -> str:
    """How the names of all output of a sink of a job begin."""
    return f"millstream-{_hashed(job_id)}-{_hashed(sink_uid)}-"


def output_name(context: WriterContext, unique: str) -> str:
    """A name for the output of one attempt, made of its place and ``unique``."""
    prefix = output_prefix(context.job_id, context.sink_uid)
    return f"{prefix}g{context.generation}-e{context.epoch}-s{context.subtask}-{unique}"


def generation_of(name: str, prefix: str) -> int:
    """The generation in a name.

    Raises:
        SinkError: the name is not of this release's making.
    """
    text = name.removeprefix(prefix).partition("-")[0].removeprefix("g")
    if not text.isdigit():
        message = f"{name!r} is not a name of Millstream's; it has no generation"
        raise SinkError(message)
    return int(text)


def make_commit_table(session: Session) -> None:
    """Make the commit table; two that make it at a time are put in order."""
    found = session.execute("SELECT to_regclass(%s)", (COMMIT_TABLE,)).fetchone()
    if found is None or found[0] is None:
        with exclusive(session, COMMIT_TABLE):
            session.execute(CommitNotes.CREATE)


@contextlib.contextmanager
def exclusive(session: Session, name: str) -> Iterator[None]:
    """A transaction that excludes others with the same name."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
    session.execute("BEGIN")
    try:
        session.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
        yield
        session.execute("COMMIT")
    except (driver().Error, MillstreamError):
        # A connection that is gone has rolled back by itself.
        with contextlib.suppress(driver().Error):
            session.execute("ROLLBACK")
        raise


class CommitterConnection:
    """The connection that a committer keeps between epochs.

    Args:
        table: what it writes.
        prepare: run on each new connection.
    """

    def __init__(self, table: PostgresTable, prepare: Callable[[Session], None]) -> None:
        self._table = table
        self._prepare = prepare
        self._session: Session | None = None
        #: Seconds that one use may take, over all its statements.
        self.timeout = table.timeout

    @contextlib.contextmanager
    def use(self, place: str) -> Iterator[Session]:
        """The connection, made anew if it was cut meanwhile; errors become SinkError.

        A use that takes too long is cut off from the server.  What it had sent may be done by
        the server all the same, later.  That changes nothing: a transaction is prepared once and
        its name is never used again, and the commit table is locked by who looks into it.  Its
        own transaction is rolled back by the server when it stays idle as long.
        """
        end = time.monotonic() + self.timeout
        with self._table.errors(place):
            try:
                if self._session is not None:
                    limit_waiting(self._session, self._table.timeout, end)
                if self._session is None or not self._is_alive(self._session):
                    self._session = self._connect(place, end)
                yield self._session
            except driver().Error:
                self.close()
                raise

    def close(self) -> None:
        """Close it, if it is open."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _connect(self, place: str, end: float) -> Session:
        session = self._table.connect(place)
        try:
            limit_waiting(session, self._table.timeout, end)
            idle = int(self.timeout * 1000)
            session.execute(f"SET idle_in_transaction_session_timeout = {idle}")
            self._prepare(session)
        except BaseException:
            session.close()
            raise
        return session

    def _is_alive(self, session: Session) -> bool:
        try:
            session.execute("SELECT 1")
        except driver().OperationalError:  # cut while nothing was under way
            self.close()
            return False
        return True


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
