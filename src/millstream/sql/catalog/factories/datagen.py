"""Generated tables: ``'connector' = 'datagen'``.

What it is: random or counted values per column, drawn from a generator that is seeded with the
number of the row, so that a row can be read again.
What it is not: skewed, or like real data.
"""

from __future__ import annotations

import random
import string
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.basic.data_generator import DataGeneratorSource, GeneratorFunction
from millstream.connectors.formats.tables.codec import row_of_columns
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import FactoryContext, TableSink, TableSource
from millstream.sql.catalog.options import (
    Option,
    Options,
    choice,
    duration,
    integer,
    number,
    text,
)
from millstream.sql.lowering.stream_types import stream_type
from millstream.types.logical_types import RowField, RowType
from millstream.types.type_roots import TypeRoot
from millstream.types.values import column_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.contracts.source import Source
    from millstream.sql.catalog.schema import Column
    from millstream.types.logical_types import LogicalType

__all__ = ["sink", "source"]

_RATE: Final = 10_000
_LENGTH: Final = 100
_INTEGERS: Final = {
    TypeRoot.TINYINT: 8,
    TypeRoot.SMALLINT: 16,
    TypeRoot.INTEGER: 32,
    TypeRoot.BIGINT: 64,
}
_TIMES: Final = {
    TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE,
    TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE,
}
_TEXTS: Final = {TypeRoot.CHAR, TypeRoot.VARCHAR}
_NUMBERS: Final = {TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DECIMAL}
_HEX: Final = string.digits + "abcdef"


def _known(columns: list[Column]) -> list[Option]:
    found = [
        integer("rows-per-second", _RATE),
        integer("number-of-rows"),
        integer("scan.parallelism"),
    ]
    for column in columns:
        base = f"fields.{column.name}."
        found += [
            choice(base + "kind", ("random", "sequence"), "random"),
            text(base + "min"),
            text(base + "max"),
            duration(base + "max-past", 0),
            integer(base + "length", _LENGTH),
            number(base + "null-rate", 0.0),
            integer(base + "start"),
            integer(base + "end"),
        ]
    return found


class _Rows(GeneratorFunction):
    """Makes rows from their numbers."""

    def __init__(
        self, row: RowType, settings: list[dict[str, Any]], begun: int, read: Sequence[int]
    ) -> None:
        #: Values are drawn in the order of columns: those ahead of one that is read count.
        self._drawn = list(zip(row.fields[: read[-1] + 1], settings, strict=False))
        self._read = read
        self._produced = RowType(tuple(row.fields[each] for each in read), nullable=False)
        #: Nanoseconds since 1970.
        self._begun = begun

    def map(self, value: int) -> object:
        drawn = random.Random(value)  # noqa: S311 - not for secrets
        row = [self._value(field.type, setting, drawn, value) for field, setting in self._drawn]
        return tuple(row[each] for each in self._read)

    def map_batch(self, indices: NDArray[np.int64]) -> pa.RecordBatch | None:
        rows = [self.map(number_) for number_ in indices.tolist()]
        columns = [
            column_of([row[i] for row in rows], field.type)  # type: ignore[index]
            for i, field in enumerate(self._produced.fields)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._produced.to_arrow_schema())

    def _value(  # noqa: PLR0911 - a table
        self, kind: LogicalType, setting: dict[str, Any], drawn: random.Random, row: int
    ) -> object:
        if setting["kind"] == "sequence":
            value = setting["start"] + row
            return str(value) if kind.root in _TEXTS else value
        if drawn.random() < setting["null-rate"]:
            return None
        if kind.root in _INTEGERS:
            return drawn.randint(setting["min"], setting["max"])
        if kind.root is TypeRoot.BOOLEAN:
            return drawn.random() < 0.5  # noqa: PLR2004 - a coin has two sides
        if kind.root in _TEXTS:
            return "".join(drawn.choices(_HEX, k=setting["length"]))
        if kind.root in _TIMES:
            past = drawn.randint(0, setting["max-past"]) if setting["max-past"] else 0
            return (self._begun // 1_000_000 - past) * 1_000_000
        return _fraction(kind, setting, drawn)


def _fraction(kind: LogicalType, setting: dict[str, Any], drawn: random.Random) -> object:
    value = drawn.uniform(setting["min"], setting["max"])
    if kind.root is TypeRoot.DECIMAL:
        from decimal import Decimal

        from millstream.expressions.decimals import EXACT

        step = Decimal(1).scaleb(-kind.scale)  # type: ignore[attr-defined]
        return Decimal(value).quantize(step, context=EXACT)
    return value


def _setting(context: FactoryContext, options: Options, column: Column) -> dict[str, Any]:
    base = f"fields.{column.name}."
    root = column.type.root
    if root not in {*_INTEGERS, *_TIMES, *_TEXTS, *_NUMBERS, TypeRoot.BOOLEAN}:
        message = (
            f"{context.owner} cannot make values of column '{column.name}', which is "
            f"{column.type.as_summary_string()}."
        )
        raise ValidationError(message)
    found = {
        name: options[base + name]
        for name in ("kind", "min", "max", "max-past", "length", "null-rate", "start", "end")
    }
    if found["kind"] == "sequence" and (found["start"] is None or found["end"] is None):
        message = f"{context.owner} needs '{base}start' and '{base}end' for a sequence."
        raise ValidationError(message)
    if root in _INTEGERS:
        most = 2 ** (_INTEGERS[root] - 1)
        found["min"] = -most if found["min"] is None else int(found["min"])
        found["max"] = most - 1 if found["max"] is None else int(found["max"])
    elif root in _NUMBERS:
        found["min"] = 0.0 if found["min"] is None else float(found["min"])
        found["max"] = 1e6 if found["max"] is None else float(found["max"])
    return found


class _Generated(TableSource):
    def __init__(
        self,
        options: Options,
        row: RowType,
        settings: list[dict[str, Any]],
        read: Sequence[int] | None = None,
    ) -> None:
        self._options = options
        self._row = row
        self._settings = settings
        #: Places of the columns that are read.
        self._read = range(len(row)) if read is None else read

    def with_columns(self, names: Collection[str]) -> TableSource:
        read = [place for place, name in enumerate(self._row.names) if name in names]
        return _Generated(self._options, self._row, self._settings, read or [0])

    def create(self) -> Source:
        counts = [
            each["end"] - each["start"] + 1 for each in self._settings if each["kind"] == "sequence"
        ]
        rows = self._options["number-of-rows"]
        count = min([*counts, *([] if rows is None else [rows])], default=None)
        function = _Rows(self._row, self._settings, time.time_ns(), self._read)
        rate = float(self._options["rows-per-second"])
        kind = stream_type(row_of_columns(self._row, [self._row.names[e] for e in self._read]))
        return DataGeneratorSource(function, count, rate, kind, splits=1 if counts else 4)


def source(context: FactoryContext) -> TableSource:
    """Rows that are made up."""
    columns = list(context.physical)
    options = Options(context.owner, context.options, _known(columns))
    settings = [_setting(context, options, column) for column in columns]
    row = RowType(tuple(RowField(each.name, each.type) for each in columns), nullable=False)
    return _Generated(options, row, settings)


def sink(context: FactoryContext) -> TableSink:
    """Refused."""
    message = f"{context.owner} cannot be written; it is a source."
    raise ValidationError(message)
