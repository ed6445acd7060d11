"""Results: pages of the rows of a statement, read ahead by a bounded amount."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.sql_gateway.serialization import batch_writer, columns_as_json, row_as_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.contracts.batch import Batch
    from millstream.sql.catalog.schema import ResolvedSchema
    from millstream.table.table_result import TableResult

#: Most rows of a page, as in Flink.
PAGE_ROWS: Final = 5000
#: Bytes of columns that a page has at most, unless one row alone has more.
PAGE_BYTES: Final = 4 << 20
#: Pages that are read ahead of the client.
_PAGES_AHEAD: Final = 2


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a result, as a client is given it."""

    #: JSON objects of changes.
    changes: Sequence[str]
    #: The token of the next page; None: there is none.
    next_token: int | None


@dataclass(frozen=True, slots=True)
class ResultDescription:
    """What a client is told of a result beside its rows."""

    schema: ResolvedSchema
    kind: str
    is_query: bool
    job_id: str | None

    def as_json(self, row_format: str) -> dict[str, Any]:
        """Return the fields of Flink's response, and ``results`` without its data."""
        node: dict[str, Any] = {"isQueryResult": self.is_query}
        if self.job_id is not None:
            node["jobID"] = self.job_id
        node["resultKind"] = self.kind
        node["results"] = {"columns": columns_as_json(self.schema), "rowFormat": row_format}
        return node


class Result:
    """The rows of a statement, by page and token.

    A token numbers a page. A client may ask for the page that is next, and again for the one before
    it, whose response it may have lost.
    """

    def __init__(self, description: ResultDescription) -> None:
        self.description = description
        self._lock = threading.Lock()
        #: Invariant: the token of the page that has not been given yet.
        self._token = 0

    def fetch(self, token: int, row_format: str) -> Page:
        """Return a page.

        Args:
            token: the token of the page.
            row_format: ``JSON`` or ``PLAIN_TEXT``.

        Raises:
            ValueError: it is neither the next page nor the one before.
            MillstreamError: the query failed.
        """
        with self._lock:
            if token == self._token:
                if self._is_over():
                    return Page([], None)
                self._token += 1
                self._advance()
            elif token != self._token - 1 or token < 0:
                known = f"{self._token} or {self._token - 1}" if self._token else "0"
                message = f"Expecting token to be {known}, but found {token}."
                raise ValueError(message)
            return Page(self._current(row_format), self._token)

    def is_ready(self, token: int) -> bool:
        """Return whether ``fetch`` has something to give without rows still to come."""
        del token
        return True

    def close(self) -> None:
        """End what produces the rows."""

    @property
    def is_live(self) -> bool:
        """Whether a job still produces rows."""
        return False

    def _is_over(self) -> bool:
        raise NotImplementedError

    def _advance(self) -> None:
        raise NotImplementedError

    def _current(self, row_format: str) -> Sequence[str]:
        raise NotImplementedError


class RowsAtHand(Result):
    """Rows of a statement that is done."""

    def __init__(self, description: ResultDescription, rows: Sequence[Sequence[object]]) -> None:
        super().__init__(description)
        self._rows = rows

    def _is_over(self) -> bool:
        return self._token > 0

    def _advance(self) -> None:
        """There is one page."""

    def _current(self, row_format: str) -> Sequence[str]:
        if row_format == "PLAIN_TEXT":
            return [row_as_json([_plain(each) for each in row]) for row in self._rows]
        return [row_as_json(row) for row in self._rows]


def _plain(value: object) -> str:
    if value is None:
        return "<NULL>"
    return str(value).upper() if isinstance(value, bool) else str(value)


class QueryRows(Result):
    """Rows of a query, read ahead by a thread.

    The thread stops reading while ``_PAGES_AHEAD`` pages wait, and the rest stays in files of the
    collect sink.  These grow until the query is fetched, cancelled, or its session is closed.
    """

    def __init__(self, description: ResultDescription, result: TableResult) -> None:
        super().__init__(description)
        query = result.query
        assert query is not None  # noqa: S101 - made for queries alone
        self._row, self._zone = query.row, query.time_zone
        self._job = query.client.job
        self._batches = result.iterate_batches()
        self._changed = threading.Condition()
        #: Pages read ahead. Invariant: at most ``_PAGES_AHEAD``.
        self._ahead: deque[Batch] = deque()
        self._page: Batch | None = None
        self._ended = False
        self._closed = False
        self._error: Exception | None = None
        name = f"sql-gateway-result-{description.job_id}"
        self._reader = threading.Thread(target=self._read, name=name, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for batch in self._batches:
                for page in _pages(batch):
                    self._put(page)
                if self._closed:
                    break
        except Exception as error:  # noqa: BLE001 - the client is told by ``fetch``
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, page: Batch) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._ahead) < _PAGES_AHEAD)
            if not self._closed:
                self._ahead.append(page)
                self._changed.notify_all()

    def is_ready(self, token: int) -> bool:
        return token != self._token or bool(self._ahead) or self._ended

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._ahead.clear()
            self._changed.notify_all()
        self._batches.close()
        self._reader.join()

    @property
    def is_live(self) -> bool:
        return not self._ended or bool(self._ahead)

    def _is_over(self) -> bool:
        if not self._ended or self._ahead:
            return False
        if self._error is not None and not self._closed:
            raise self._error
        return True

    def _advance(self) -> None:
        with self._changed:
            self._page = self._ahead.popleft() if self._ahead else None
            self._changed.notify_all()

    def _current(self, row_format: str) -> Sequence[str]:
        if self._page is None:
            return []
        return batch_writer(self._row, self._zone, row_format)(self._page)


def _pages(batch: Batch) -> Iterator[Batch]:
    """Split a batch into pages."""
    count = len(batch)
    if count == 0:
        return
    row_bytes = max(batch.arrow.nbytes // count, 1)
    rows = max(min(PAGE_ROWS, PAGE_BYTES // row_bytes), 1)
    for start in range(0, count, rows):
        yield batch.slice(start, min(start + rows, count))
