"""TableResult: the rows of a statement, and the job that produces them."""

from __future__ import annotations

import shutil
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.datastream.collecting import CloseableIterator
from millstream.datastream.running_jobs import note_reader, wait_for
from millstream.errors import ProgramError
from millstream.execution.job_client import collected_records
from millstream.expressions.casts import PRINTED_STYLE, text_function
from millstream.sql.catalog.schema import PhysicalColumn, ResolvedSchema, TableSchema
from millstream.sql.statements.session import JobResult, QueryResult, RowsResult
from millstream.table.tableau import NULL, print_changes, print_ok, print_rows, print_submitted
from millstream.types.columns import as_key
from millstream.types.external_values import from_external
from millstream.types.logical_types import FloatType, MapType, MultisetType, RowType
from millstream.types.row import Row, RowKind, row_class
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.contracts.batch import Batch
    from millstream.execution.job_client import JobClient
    from millstream.types.logical_types import LogicalType


_KINDS: Final = tuple(RowKind)


def row_texts(
    row: RowType, zone: str
) -> Callable[[Batch], Iterator[tuple[RowKind, tuple[str, ...]]]]:
    """Return a function that gives the changes of a batch: their kinds and texts of their columns.

    Args:
        row: of the batches, whose columns are of its Arrow types.
        zone: the session's time zone.
    """
    writers = [_cell_writer(each, zone) for each in row.children]

    def write(batch: Batch) -> Iterator[tuple[RowKind, tuple[str, ...]]]:
        columns = [
            map(writer, values_of_column(column, kind))
            for writer, column, kind in zip(writers, batch.arrow.columns, row.children, strict=True)
        ]
        kinds = np.zeros(len(batch), np.int8) if batch.row_kinds is None else batch.row_kinds
        for kind, *texts in zip(map(_KINDS.__getitem__, kinds.tolist()), *columns, strict=True):
            yield kind, tuple(texts)

    return write


def cell_texts(types: Sequence[LogicalType]) -> Callable[[Iterable[Any]], tuple[str, ...]]:
    """Return a function that gives the texts of a row of values that statements give.

    Args:
        types: of the values; none of them depends on a time zone.
    """
    writers = [(from_external(each), _cell_writer(each, "UTC")) for each in types]

    def write(row: Iterable[Any]) -> tuple[str, ...]:
        pairs = zip(writers, row, strict=True)
        return tuple(writer(convert(value)) for (convert, writer), value in pairs)

    return write


def _cell_writer(kind: LogicalType, zone: str) -> Callable[[Any], str]:
    write = text_function(kind, zone, PRINTED_STYLE)
    return lambda value: NULL if value is None else write(value)


class ResultKind(Enum):
    """The kind of rows that ``collect`` gives."""

    #: One row that says OK.
    SUCCESS = 0
    #: Rows of interest.
    SUCCESS_WITH_CONTENT = 1

    def __str__(self) -> str:
        """The name alone."""
        return self.name


class TableResult:
    """The result of one statement."""

    def __init__(self, result: RowsResult | JobResult | QueryResult) -> None:
        """Made by TableEnvironment; waits for the job of a result that says so.

        Raises:
            JobError: it failed.
        """
        self._result = result
        self._iterator: CloseableIterator | None = None
        self._records: CloseableIterator | None = None
        if isinstance(result, JobResult) and result.waits:
            self.wait()

    def get_job_client(self) -> JobClient | None:
        """The job behind the result; None if there is none."""
        return None if isinstance(self._result, RowsResult) else self._result.client

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait for the job: of INSERT until it has ended, of a query until its first row is there.

        Args:
            timeout_ms: milliseconds; not taken in this release.

        Raises:
            JobError: the job failed.
        """
        if timeout_ms is not None:
            message = "TableResult.wait(timeout_ms) is not in this release; wait() is."
            raise ProgramError(message)
        if isinstance(self._result, JobResult):
            wait_for(self._result.client)

    def get_table_schema(self) -> TableSchema:
        """The names and types of the columns, as Flink's older class has them."""
        return TableSchema.from_resolved_schema(self.get_resolved_schema())

    def get_resolved_schema(self) -> ResolvedSchema:
        """The names and types of the columns."""
        if isinstance(self._result, JobResult):
            from millstream.types.logical_types import BigIntType

            return ResolvedSchema(
                tuple(PhysicalColumn(name, BigIntType()) for name in self._result.targets)
            )
        fields = self._result.row.fields
        return ResolvedSchema(tuple(PhysicalColumn(each.name, each.type) for each in fields))

    def get_result_kind(self) -> ResultKind:
        """Return whether there are rows of interest."""
        if isinstance(self._result, RowsResult) and self._result.is_ok:
            return ResultKind.SUCCESS
        return ResultKind.SUCCESS_WITH_CONTENT

    def collect(self) -> CloseableIterator:
        """Return the rows, each with its RowKind; close it, or use ``with``, to end the query.

        As in PyFlink, rows have no field names, and neither have rows within them, so
        ``row == Row(1, "x")``; ``get_resolved_schema()`` has the names.  A FLOAT is the number with
        its fewest digits.
        """
        if self._iterator is None:
            self._iterator = self._open()
        return self._iterator

    def _open(self) -> CloseableIterator:
        result = self._result
        if isinstance(result, QueryResult):
            records, plain = self._collected(), _as_collected(result.row)
            rows = (plain(row) for each in records for row in each.batch().values)
            return CloseableIterator(rows, records.close)
        if isinstance(result, JobResult):
            return CloseableIterator(iter([Row(*[-1] * len(result.targets))]), _nothing)
        given = [Row(*each) for each in result.rows]
        return CloseableIterator(iter(given), _nothing)

    def collect_texts(self) -> CloseableIterator:
        """Return each change as its RowKind and the texts of its columns, as ``print`` shows them.

        It shares the rows with ``collect``: what one has given, the other does not.
        """
        result = self._result
        if isinstance(result, QueryResult):
            write = row_texts(result.row, result.time_zone)
            records = self._collected()
            changes = (one for each in records for one in write(each.batch()))
            return CloseableIterator(changes, records.close)
        cells = cell_texts(self.get_resolved_schema().types)
        rows: Any = self.collect()
        return CloseableIterator(((_kind(row), cells(row)) for row in rows), rows.close)

    def collect_batches(self) -> list[Batch]:
        """Return the changes of a query as columns, once it has ended."""
        with self.iterate_batches() as batches:
            return list(batches)

    def iterate_batches(self) -> Any:
        """Return an iterator over the changes of a query as columns, as they are committed.

        It shares the rows with ``collect``; close it to end the query.
        """
        records = self._collected()
        return CloseableIterator((each.batch() for each in records), records.close)

    @property
    def is_query(self) -> bool:
        """Whether a query produces the rows."""
        return isinstance(self._result, QueryResult)

    @property
    def query(self) -> QueryResult | None:
        """The query whose rows are collected; None of other statements."""
        return self._result if isinstance(self._result, QueryResult) else None

    def _collected(self) -> Any:
        """Return what the query's job collects; opened once."""
        if self._records is None:
            assert isinstance(self._result, QueryResult)  # noqa: S101 - callers check
            client, directory = self._result.client, self._result.directory
            note_reader(client)

            def close() -> None:
                if not client.job.get_job_status().is_terminal_state():
                    client.job.cancel()
                shutil.rmtree(directory, ignore_errors=True)

            records = self._until_end(collected_records(client, directory), close)
            self._records = CloseableIterator(records, close)
        return self._records

    @staticmethod
    def _until_end(records: Iterator[object], close: Any) -> Iterator[object]:
        yield from records
        close()

    def print(self) -> None:
        """Print the rows as Flink's tableau; of a query with the kind of each row in ``op``."""
        if isinstance(self._result, RowsResult) and self._result.is_ok:
            print_ok()
            return
        if isinstance(self._result, QueryResult) and not self._result.is_batch:
            rows: Any
            with self.collect_texts() as rows:
                print_changes(self.get_resolved_schema(), rows, self._result.max_column_width)
            return
        with self.collect_texts() as rows:
            cells = [texts for _, texts in rows]
        if isinstance(self._result, JobResult):
            print_submitted(self._result.client.get_job_id())
            return
        schema = self.get_resolved_schema()
        if isinstance(self._result, QueryResult):
            print_rows(schema, cells, self._result.max_column_width)
        else:
            print_rows(schema, cells)


def _kind(row: object) -> RowKind:
    return row.get_row_kind() if isinstance(row, Row) else RowKind.INSERT


def _nothing() -> None:
    """There is no job to end."""


def _as_collected(row: RowType) -> Callable[[Any], Row]:
    """Return what makes a row of a query the one that programs are given.

    As in PyFlink rows have no field names, and a FLOAT is the number with its fewest digits: 0.1
    instead of 0.10000000149011612.
    """
    fields = list(map(_conversion, row.children))
    if not any(fields):
        return lambda each: row_class(None, _kind(each))(each)
    whole = [convert or _itself for convert in fields]
    return lambda each: row_class(None, _kind(each))(
        convert(value) for convert, value in zip(whole, each, strict=True)
    )


def _conversion(kind: LogicalType) -> Callable[[Any], Any] | None:
    """Return the same for a value of a type; None: it is given as it is."""
    if isinstance(kind, FloatType):
        return lambda value: None if value is None else float(str(np.float32(value)))
    if isinstance(kind, RowType):
        convert = _as_collected(kind)
        return lambda value: convert(value) if isinstance(value, Row) else value
    parts = list(map(_conversion, kind.children))
    if not any(parts):
        return None
    if isinstance(kind, MapType | MultisetType):
        key, item = (part or _itself for part in (*parts, None)[:2])
        return lambda value: (
            None if value is None else {as_key(key(k)): item(v) for k, v in value.items()}
        )
    element = parts[0] or _itself
    return lambda value: None if value is None else [element(each) for each in value]


def _itself(value: Any) -> Any:
    return value
