"""Reading the rows of a query on and on, in a task that lives on.

What it is: one connection and one COPY from the position to the end of the split, in order of the
key.  The server sorts once, and sends no faster than rows are taken.  Each row comes with the
integer of its key, so the position is exact wherever the key changes.

What it is not: the query (``connectors/postgres/source.py``).

Read next: ``contracts/source.py``, ``connectors/postgres/source.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.postgres.waiting import driver
from millstream.contracts.source import SourceBatch, SplitCursor

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from millstream.connectors.postgres.table import Session
    from millstream.errors import SourceError

__all__ = ["PostgresCursor"]

#: Seconds that the server may send nothing: it may sort all rows first.
_PATIENCE: Final = 600.0


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
        """The next rows, behind which is a position."""
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
        if silent > _PATIENCE and not self._lines:
            message = f"no answer from the server for {silent:.0f} s"
            raise driver().OperationalError(message)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
