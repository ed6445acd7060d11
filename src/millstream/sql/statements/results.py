"""Results of statements: rows at hand, or a job and the rows that it collects.

What it is: what a statement gives back, whatever asked for it.
What it is not: the layout of tables for people (``table/table_result.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.sql.planner.logical import row_of
from millstream.types.logical_types import VarCharType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.execution.job_client import JobClient
    from millstream.types.logical_types import RowType

__all__ = ["OK", "JobResult", "QueryResult", "RowsResult", "texts"]


@dataclass(frozen=True)
class RowsResult:
    """Rows that are at hand."""

    row: RowType
    rows: Sequence[tuple[object, ...]] = field(default=())
    #: Whether the statement only says that it is done.
    is_ok: bool = False


@dataclass(frozen=True)
class JobResult:
    """A job that writes tables."""

    client: JobClient
    #: The tables it writes, in full.
    targets: tuple[str, ...]
    #: Whether the statement is done only when the job has ended.
    waits: bool = False


@dataclass(frozen=True)
class QueryResult:
    """A job that collects the rows of a query."""

    client: JobClient
    row: RowType
    #: Of the collect sink, which keeps columns.
    directory: str
    #: In which TIMESTAMP_LTZ is shown.
    time_zone: str
    #: Whether there are only the rows that are there at the end.
    is_batch: bool = False
    #: Most characters of a column that is printed.
    max_column_width: int = 30


def texts(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> RowsResult:
    """Rows of texts."""
    row = row_of(names, [VarCharType()] * len(names))
    return RowsResult(row, [tuple(each) for each in rows])


#: What DDL gives.
OK = RowsResult(row_of(["result"], [VarCharType()]), [("OK",)], is_ok=True)
