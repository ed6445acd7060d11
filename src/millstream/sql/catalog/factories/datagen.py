"""Generated tables: ``'connector' = 'datagen'``.

What it is: random or counted values per column, drawn from a generator that is seeded with the
number of the row, so that a row can be read again.
What it is not: skewed, or like real data.

Read next: ``sql/catalog/factories/datagen_values.py``.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.connectors.basic.data_generator import DataGeneratorSource, GeneratorFunction
from millstream.connectors.formats.tables.codec import row_of_columns
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import FactoryContext, TableSink, TableSource
from millstream.sql.catalog.factories.datagen_values import drawn_values, options_of
from millstream.sql.catalog.options import IDLE_TIMEOUT, Options, integer
from millstream.sql.lowering.stream_types import stream_type
from millstream.types.logical_types import RowField, RowType
from millstream.types.values import column_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.contracts.source import Source
    from millstream.sql.catalog.factories.datagen_values import DrawnValues

__all__ = ["OPTIONS", "Rows", "sink", "source"]

_TABLE: Final = (
    integer("rows-per-second", 10_000),
    integer("number-of-rows"),
    IDLE_TIMEOUT,
)
#: Connector -> its options, without those of columns.
OPTIONS: Final = {"datagen": _TABLE}


class Rows(GeneratorFunction):
    """Makes rows from their numbers.

    Args:
        row: the table.
        values: how those of its columns are made.
        begun: the time that counts as now, in nanoseconds since 1970.
        read: places of the columns that are read; None: all.
    """

    def __init__(
        self,
        row: RowType,
        values: Sequence[DrawnValues],
        begun: int,
        read: Sequence[int] | None = None,
    ) -> None:
        self._row, self._values, self._begun = row, values, begun
        self._read = range(len(row)) if read is None else read
        #: Values are drawn in the order of columns: those ahead of one that is read count.
        self._drawn = values[: self._read[-1] + 1]
        self._produced = RowType(tuple(row.fields[each] for each in self._read), nullable=False)

    def narrowed(self, read: Sequence[int]) -> Rows:
        """The same rows, with some of their columns."""
        return Rows(self._row, self._values, self._begun, read)

    def map(self, value: int) -> object:
        drawn = random.Random(value)  # noqa: S311 - not for secrets
        row = [each.value(drawn, value, self._begun) for each in self._drawn]
        return tuple(row[each] for each in self._read)

    def map_batch(self, indices: NDArray[np.int64]) -> pa.RecordBatch | None:
        rows = [self.map(number) for number in indices.tolist()]
        columns = [
            column_of([row[i] for row in rows], field.type)  # type: ignore[index]
            for i, field in enumerate(self._produced.fields)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._produced.to_arrow_schema())


class _Generated(TableSource):
    def __init__(
        self,
        options: Options,
        row: RowType,
        values: Sequence[DrawnValues],
        read: Sequence[int] | None = None,
    ) -> None:
        self._options = options
        self._row = row
        self._values = values
        #: Places of the columns that are read.
        self._read = range(len(row)) if read is None else read

    def with_columns(self, names: Collection[str]) -> TableSource:
        read = [place for place, name in enumerate(self._row.names) if name in names]
        return _Generated(self._options, self._row, self._values, read or [0])

    def create(self) -> Source:
        counts = [each.count for each in self._values if each.count is not None]
        rows = self._options["number-of-rows"]
        count = min([*counts, *([] if rows is None else [rows])], default=None)
        function = Rows(self._row, self._values, time.time_ns(), self._read)
        rate = float(self._options["rows-per-second"])
        kind = stream_type(row_of_columns(self._row, [self._row.names[e] for e in self._read]))
        return DataGeneratorSource(function, count, rate, kind, splits=1 if counts else 4)


def source(context: FactoryContext) -> TableSource:
    """Rows that are made up."""
    columns = list(context.physical)
    own = [option for each in columns for option in options_of(each.name, each.type)]
    options = Options(context.owner, context.options, [*_TABLE, *own])
    values = [drawn_values(options, each.name, each.type) for each in columns]
    row = RowType(tuple(RowField(each.name, each.type) for each in columns), nullable=False)
    return _Generated(options, row, values)


def sink(context: FactoryContext) -> TableSink:
    """Refused."""
    message = f"{context.owner} cannot be written; it is a source."
    raise ValidationError(message)
