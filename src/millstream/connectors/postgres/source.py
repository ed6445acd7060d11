"""The PostgreSQL source: a query, bounded, cut into ranges of a key and read by COPY.

Rows come in order of an integer, date or timestamp column.  The range of its values is looked up
once, when the job first starts, and cut into splits; an offset is a value of the key (days or
microseconds since 1970 for dates and timestamps), so that a task reads
``key >= start AND key < stop ORDER BY key``: an index range, at every reading the same.
"""

from __future__ import annotations

import csv
import io
import math
import re
import time
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.csv as pacsv

from millstream.connectors.commit_protocols.commit_table import identifier
from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.connectors.postgres.sessions import driver, limit_waiting, limited_connection
from millstream.connectors.postgres.table import error_text, no_connection, server_of
from millstream.contracts.source import (
    Boundedness,
    RangeCursor,
    Source,
    SourceBatch,
    Split,
    SplitCursor,
)
from millstream.errors import MalformedRecordError, SinkError, SourceError
from millstream.types.types import from_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from millstream.connectors.postgres.table import Session
    from millstream.contracts.source import KnownSplits
    from millstream.types.types import TypeInformation


#: Seconds that the server may send nothing: it may sort all rows first.
_SILENCE_LIMIT: Final = 600.0


class PostgresCursor(SplitCursor):
    """Reads one range of keys.

    Args:
        connect: makes a connection.
        statement: a COPY of CSV with all values quoted, whose first column is the integer of the
            key; rows whose key is not less than ``position``, in order of it.
        position: where to begin.
        end: of the range.
        to_columns: makes columns of lines without the first value.
        error: makes a SourceError of an error of psycopg.
    """

    def __init__(
        self,
        connect: Callable[[], Session],
        statement: str,
        position: int,
        end: int,
        to_columns: Callable[[list[bytes]], pa.RecordBatch],
        error: Callable[[Exception], SourceError],
    ) -> None:
        self.position = position
        self._connect = connect
        self._statement = statement
        self._end = end
        self._to_columns = to_columns
        self._error = error
        self._session: Session | None = None
        #: The server has begun to send rows, and has sent all of them.
        self._copying = self._complete = False
        #: Received and not handed out: lines, and the integers of their keys.
        self._lines: list[bytes] = []
        self._numbers: list[int] = []
        self._settled = True
        #: Monotonic seconds, when the server was heard.
        self._heard = 0.0

    @property
    def settled(self) -> bool:
        return self._settled

    @property
    def is_over(self) -> bool:
        return self.position >= self._end

    def extend(self, end: int, *, final: bool) -> None:
        """Nothing is new: the range is that of the split."""
        del end, final

    def poll(self, most: int) -> SourceBatch | None:
        if self.is_over:
            return None
        try:
            self._receive(most + 1)
        except driver().Error as error:
            raise self._error(error) from error
        if self._complete and len(self._lines) <= most:
            return self._hand_out(len(self._lines), self._end)
        numbers = self._numbers
        for count in range(min(most, len(numbers) - 1), 0, -1):
            if numbers[count] > numbers[count - 1]:
                return self._hand_out(count, numbers[count])
        if len(numbers) > most:  # all of them have one key
            return self._hand_out(most, None)
        return None

    def _hand_out(self, count: int, position: int | None) -> SourceBatch | None:
        """The next rows, which a position follows."""
        lines = self._lines[:count]
        del self._lines[:count], self._numbers[:count]
        self._settled = position is not None
        if position is not None:
            self.position = position
        if not lines:
            return None
        return SourceBatch(arrow=self._to_columns(lines), position=position)

    def _receive(self, most: int) -> None:
        """Take rows that have come until there are so many, without waiting."""
        if self._session is None:
            self._session = self._connect()
            self._session.pgconn.send_query(self._statement.encode())
            self._heard = time.monotonic()
        connection = self._session.pgconn
        if not self._copying:
            self._begin(connection)
        read = False
        while self._copying and not self._complete and len(self._lines) < most:
            size, line = connection.get_copy_data(1)
            if size > 0:
                self._take(bytes(line))
            elif size < 0:
                self._complete = True
                self._require_success(connection)
            elif read:
                break
            else:
                connection.consume_input()
                read = True
                continue
            read = False
            self._heard = time.monotonic()
        self._look_at_clock()

    def _begin(self, connection: Any) -> None:
        """See whether the server has begun to answer."""
        if connection.flush():
            return
        connection.consume_input()
        if connection.is_busy():
            return
        self._heard = time.monotonic()
        psycopg = driver()
        result = connection.get_result()
        if result.status != psycopg.pq.ExecStatus.COPY_OUT:
            raise psycopg.errors.error_from_result(result)
        self._copying = True

    def _require_success(self, connection: Any) -> None:
        psycopg = driver()
        result = connection.get_result()
        if result is not None and result.status != psycopg.pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result)

    def _take(self, line: bytes) -> None:
        behind = line.index(b'"', 1)
        self._numbers.append(int(line[1:behind]))
        self._lines.append(line[behind + 2 :])

    def _look_at_clock(self) -> None:
        silent = time.monotonic() - self._heard
        if silent > _SILENCE_LIMIT and not self._lines:
            message = f"no answer from the server for {silent:.0f} s"
            raise driver().OperationalError(message)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


#: A type of keys -> the integer of a key, and the key of an integer, in SQL.
_ORDERED: Final = {
    "int2": ("{0}::bigint", "{0}"),
    "int4": ("{0}::bigint", "{0}"),
    "int8": ("{0}", "{0}"),
    "date": ("({0} - date '1970-01-01')::bigint", "date '1970-01-01' + {0}"),
    "timestamp": (
        "(extract(epoch from {0}) * 1000000)::bigint",
        "timestamp '1970-01-01' + {0} * interval '1 microsecond'",
    ),
    "timestamptz": (
        "(extract(epoch from {0}) * 1000000)::bigint",
        "timestamptz '1970-01-01 00:00+00' + {0} * interval '1 microsecond'",
    ),
}
#: So many bits of a UUID, or of the hash of a text, make its integer.
_BITS: Final = 60
_UUID_NUMBER: Final = "('x' || left(replace({0}::text, '-', ''), 15))::bit(60)::bigint"
_TEXT_NUMBER: Final = "('x' || left(md5({0}::text), 15))::bit(60)::bigint"
_TEXTS: Final = frozenset({"text", "varchar", "bpchar", "name"})
#: For messages.
KEY_TYPES: Final = "an integer, a date, a timestamp, a UUID or a text"
#: Selects the rows without a key.
NO_KEY: Final = "{0} IS NULL"


def key_number(key: str, kind: str) -> str | None:
    """SQL for the integer of a key; None if keys of this type have none.

    Args:
        key: the column.
        kind: the name of its type.
    """
    if kind in _ORDERED:
        return _ORDERED[kind][0].format(identifier(key))
    if kind == "uuid":
        return _UUID_NUMBER.format(identifier(key))
    return _TEXT_NUMBER.format(identifier(key)) if kind in _TEXTS else None


def key_range(key: str, kind: str, start: int, stop: int) -> str:
    """SQL for the rows whose integers are in ``[start, stop)``."""
    if kind in _TEXTS:
        number = _TEXT_NUMBER.format(identifier(key))
        return f"{number} >= {start} AND {number} < {stop}"
    column, most = identifier(key), 1 << _BITS
    if kind != "uuid":
        to_key = _ORDERED[kind][1]
        return f"{column} >= {to_key.format(start)} AND {column} < {to_key.format(stop)}"
    # Behind the last UUID there is none.
    below = "" if stop >= most else f" AND {column} < '{_uuid(stop)}'::uuid"
    return f"{column} >= '{_uuid(start)}'::uuid{below}"


def key_order(key: str, kind: str) -> str:
    """SQL for the order in which ranges follow each other."""
    column = identifier(key)
    return f"{_TEXT_NUMBER.format(column)}, {column}" if kind in _TEXTS else column


def _uuid(number: int) -> str:
    """The first UUID with this integer."""
    return f"{number:015x}" + "0" * 17


#: Rows that the first epoch reads, about.
_FIRST_ROWS: Final = 200_000
#: Bytes of text after which a batch is full.
_BATCH_BYTES: Final = 64 << 20
#: Seconds that the driver waits for the range of the key; as long as an epoch may take.
_PATIENCE: Final = 600.0
#: A type's name in PostgreSQL -> its Arrow type.  Everything else is read as text.
ARROW_TYPES: Final = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "bytea": pa.binary(),
}
#: A class of SQLSTATE -> what to do.
_ADVICE: Final = {
    "22": ". Correct the row, or cast it in the query so that every row can be read",
    "42": ". Check the query, and that the tables it reads are there",
}


class PostgresSource(Source):
    """The rows of a query as a bounded stream of ROWs.

    ::

        PostgresSource("postgresql://me@db.example/shop", "SELECT id, total FROM orders", key="id")

    The types of the fields are those of the result's columns: booleans, numbers, dates, timestamps
    and bytes as such, ``numeric(p, s)`` as DECIMAL, everything else as its text.  They are looked
    up when the stream is made.

    Args:
        conninfo: as libpq takes it.
        query: a SELECT, without ORDER BY.
        key: a column of its result, best with an index: integer, date, timestamp, UUID or text.
        splits: how many ranges can be read side by side.
        texts: columns of which a ``numeric`` without a precision is read as its text.

    Raises:
        SourceError: ``splits`` is less than 1, psycopg is not installed, or ``conninfo`` is not a
            connection string.
    """

    def __init__(
        self,
        conninfo: str,
        query: str,
        *,
        key: str,
        splits: int = 4,
        texts: Collection[str] = (),
    ) -> None:
        if splits < 1:
            message = f"splits={splits} must be at least 1"
            raise SourceError(message)
        try:
            driver()
            server_of(conninfo)
        except SinkError as error:  # the module is shared with the sinks
            raise SourceError(str(error)) from error
        self.conninfo = conninfo
        self.query = query.rstrip().rstrip(";")
        self.key = key
        self.splits = splits
        self.texts = frozenset(texts)
        self._columns: dict[str, tuple[str, pa.DataType]] | None = None

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        fields = [(name, arrow) for name, (_, arrow) in self._described().items()]
        return from_arrow_schema(pa.schema(fields))

    def validate(self) -> None:
        """Check the query and its key.

        Raises:
            SourceError: the server cannot be reached, refuses the query, or the key does not fit.
        """
        self._key_kind()

    def discover(self, known: KnownSplits) -> list[Split]:
        """The ranges of the key, looked up once in the life of the job."""
        if known:
            return []
        number = key_number(self.key, self._key_kind())
        counts = f"min({number}), max({number}), count(*), count({identifier(self.key)})"
        statement = f"SELECT {counts} FROM ({self.query}) AS q"
        lowest, highest, rows, keys = self._rows(statement)[0]
        without = [Split("without-key", {"first": 0, "end": 1, "without": True})]
        if not keys:
            return without if rows else []
        span = highest - lowest + 1
        first_limit = max(1, span * _FIRST_ROWS // keys)
        cuts = [lowest + span * i // self.splits for i in range(self.splits + 1)]
        pairs = [(cuts[i], cuts[i + 1]) for i in range(self.splits) if cuts[i + 1] > cuts[i]]
        ranges = [
            Split(f"range-{number}", {"first": first, "end": end, "first_limit": first_limit})
            for number, (first, end) in enumerate(pairs)
        ]
        return ranges + (without if rows > keys else [])

    def first_limit(self, splits: Sequence[Split]) -> int:
        """As far as some 200,000 keys go, which may be close to each other or far apart."""
        limits = [int(str(split.properties.get("first_limit", 0))) for split in splits]
        return max(limits, default=0) or self.initial_limit

    def start_offset(self, split: Split) -> int:
        """The first key of the range."""
        return cast("int", split.properties["first"])

    def end_offset(self, split: Split) -> int:
        return cast("int", split.properties["end"])

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """The rows whose keys are in ``[start, stop)``, in order of the key."""
        stop = min(stop, self.end_offset(split))
        if start >= stop:
            return
        statement = self._statement(split, start, stop)
        session = self._connect()
        try:
            with session.cursor().copy(statement) as copy:
                lines: list[bytes] = []
                size = 0
                for line in copy:  # a row each
                    lines.append(bytes(line))
                    size += len(line)
                    if len(lines) == BATCH_SIZE or size > _BATCH_BYTES:
                        yield SourceBatch(arrow=self._checked_batch(lines))
                        lines, size = [], 0
                if lines:
                    yield SourceBatch(arrow=self._checked_batch(lines))
        except driver().Error as error:
            raise self._error(error) from error
        finally:
            session.close()

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        """Read the range on and on with one statement.

        The rows without a key have no order among them: their positions are the begin and the end.
        """
        if split.properties.get("without"):
            return RangeCursor(self, split, position)
        end = self.end_offset(split)
        return PostgresCursor(
            self._connect,
            self._statement(split, position, end, numbered=True),
            position,
            end,
            self._checked_batch,
            self._error,
        )

    def _statement(self, split: Split, start: int, stop: int, *, numbered: bool = False) -> str:
        """The COPY of a range, if wanted with the integer of the key as its first column."""
        kind, columns = self._key_kind(), self._described()
        fields = [_selected(name, kind) for name, (kind, _) in columns.items()]
        if numbered:
            # Under a name of its own: else it would be that of the key, for the order, too.
            fields.insert(0, f'{key_number(self.key, kind)} AS "number of the key"')
        # All columns break ties, so that rows with equal keys come in one order.
        others = [f"{identifier(name)}::text" for name in columns if name != self.key]
        if split.properties.get("without"):
            wanted, order = NO_KEY.format(identifier(self.key)), ", ".join(others or ["1"])
        else:
            wanted = key_range(self.key, kind, start, stop)
            order = ", ".join([key_order(self.key, kind), *others])
        return (
            f"COPY (SELECT {', '.join(fields)} FROM ({self.query}) AS q"
            f" WHERE {wanted} ORDER BY {order}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
        )

    def _checked_batch(self, lines: list[bytes]) -> pa.RecordBatch:
        """The rows as columns.

        Raises:
            MalformedRecordError: a row has a value that Arrow cannot hold (the date "infinity",
                say); names it.
        """
        try:
            return self._batch(lines)
        except pa.ArrowException as error:
            message = f"{self._location}: {self._unreadable(lines) or error_text(error)}"
            raise MalformedRecordError(message) from error

    def _unreadable(self, lines: list[bytes]) -> str:
        """Return what is wrong with the first row that cannot be read by itself; empty if none."""
        names = list(self._described())
        for line in lines:
            try:
                self._batch([line])
            except pa.ArrowException as error:
                values = next(csv.reader(io.StringIO(line.decode())))
                found = re.search(r"column #(\d+)", str(error))
                column = f"column {names[int(found[1])]!r}" if found else "a column"
                return (
                    f"{column} of row {dict(zip(names, values, strict=False))!r:.500} cannot be"
                    f" read: {str(error).rpartition(': ')[2]}. Correct the row, or cast the column"
                    " to text in the query"
                )
        return ""

    def _batch(self, lines: list[bytes]) -> pa.RecordBatch:
        columns = self._described()
        text = {pa.binary(): pa.string(), pa.timestamp("us", "UTC"): pa.timestamp("us")}
        content = b"".join(lines)
        table = pacsv.read_csv(
            io.BytesIO(content),
            # One block: a row must not lie in more than two.
            read_options=pacsv.ReadOptions(
                column_names=list(columns), use_threads=False, block_size=len(content) + 1
            ),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                column_types={name: text.get(kind, kind) for name, (_, kind) in columns.items()},
                null_values=[""],
                true_values=["t"],
                false_values=["f"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        arrays = []
        for column, (_, kind) in zip(table.columns, columns.values(), strict=True):
            array = column.combine_chunks()
            if kind == pa.binary():
                raw = [None if v is None else bytes.fromhex(v) for v in array.to_pylist()]
                array = pa.array(raw, pa.binary())
            arrays.append(array.cast(kind))
        schema = self.produced_type.arrow_schema
        return self.produced_type.conform(
            pa.RecordBatch.from_arrays(
                arrays, names=list(columns) if schema is None else schema.names
            )
        )

    # -- the server ------------------------------------------------------------------------------

    @property
    def _location(self) -> str:
        return f"query {self.query!r:.200} to {server_of(self.conninfo)}"

    def _error(self, error: Exception) -> SourceError:
        state = getattr(error, "sqlstate", None) or ""
        advice = _ADVICE.get(state[:2], "")
        return SourceError(f"{self._location}: {error_text(error)}{advice}")

    def _connect(self, patience: float = math.inf) -> Session:
        """A connection that waits so many seconds for an answer; reading has the epoch's limit."""
        kind = driver().Connection if math.isinf(patience) else limited_connection()
        try:
            session: Session = kind.connect(self.conninfo, autocommit=True, connect_timeout=10)
            if not math.isinf(patience):
                limit_waiting(session, patience)
            session.execute("SET TIME ZONE 'UTC'")
            session.execute("SET DateStyle = 'ISO'")
        except driver().Error as error:
            message = f"query {self.query!r:.200}: {no_connection(self.conninfo, error)}"
            raise SourceError(message) from error
        return session

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        session = self._connect(_PATIENCE)
        try:
            return session.execute(statement).fetchall()
        except driver().Error as error:
            raise self._error(error) from error
        finally:
            session.close()

    def _described(self) -> dict[str, tuple[str, pa.DataType]]:
        """Column -> its type's name in PostgreSQL, and in Arrow."""
        if self._columns is None:
            session = self._connect(_PATIENCE)
            try:
                cursor = session.execute(f"SELECT * FROM ({self.query}) AS q LIMIT 0")
                self._columns = {
                    column.name: self._typed(session, column) for column in cursor.description or ()
                }
            except driver().Error as error:
                raise self._error(error) from error
            finally:
                session.close()
        return self._columns

    def _typed(self, session: Session, column: Any) -> tuple[str, pa.DataType]:
        info = session.adapters.types.get(column.type_code)
        name = "text" if info is None or column.type_code == info.array_oid else info.name
        if name != "numeric":
            return name, ARROW_TYPES.get(name, pa.string())
        if column.precision is None and column.name in self.texts:
            return name, pa.string()
        if column.precision is None:
            message = (
                f"{self._location}: column {column.name!r} is numeric without a precision; cast it"
                f" in the query, for example to numeric(20, 4) or float8"
            )
            raise SourceError(message)
        return name, pa.decimal128(column.precision, column.scale)

    def _key_kind(self) -> str:
        """The name of the key's type; raises SourceError if it cannot be one."""
        columns = self._described()
        if self.key not in columns:
            message = f"{self._location} has no column {self.key!r}; it has {list(columns)}"
            raise SourceError(message)
        kind = columns[self.key][0]
        if key_number(self.key, kind) is None:
            message = (
                f"{self._location}: key {self.key!r} is of type {kind}; it must be {KEY_TYPES}"
            )
            raise SourceError(message)
        return kind


def _selected(name: str, kind: str) -> str:
    column = identifier(name)
    if kind == "bytea":
        return f"encode({column}, 'hex')"
    if kind == "timestamptz":
        return f"{column} AT TIME ZONE 'UTC'"
    return column
