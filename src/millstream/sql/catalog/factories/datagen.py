"""The ``datagen`` connector: random or sequential values per column.

The generator is seeded with the number of the row, so that a row can be read again after a failure.
"""

from __future__ import annotations

import datetime as dt
import random
import string
import time
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.basic.data_generator import DataGeneratorSource, GeneratorFunction
from millstream.connectors.formats.row_format import row_of_columns
from millstream.errors import ValidationError
from millstream.expressions.decimals import EXACT
from millstream.sql.catalog.connectors import FactoryContext, TableSink, TableSource
from millstream.sql.catalog.options import (
    IDLE_TIMEOUT,
    Option,
    Options,
    boolean,
    choice,
    duration,
    integer,
    number,
)
from millstream.sql.stream_types import stream_type
from millstream.types.logical_types import DecimalType, MapType, RowField, RowType
from millstream.types.type_roots import TypeRoot
from millstream.types.values import column_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.contracts.source import Source
    from millstream.types.logical_types import LogicalType


_LENGTH: Final = 100
_ENTRIES: Final = 3
#: What a length is of a type that has no limit of its own.
_UNLIMITED: Final = 2**31 - 1
_MOST_TIMES: Final = 10
_LONG: Final = 2**63
#: Whole numbers: the least and the largest, unless options say.
_INTEGERS: Final = {
    TypeRoot.TINYINT: (-(2**7), 2**7 - 1),
    TypeRoot.SMALLINT: (-(2**15), 2**15 - 1),
    TypeRoot.INTEGER: (-(2**31), 2**31 - 1),
    TypeRoot.BIGINT: (-_LONG, _LONG - 1),
    TypeRoot.INTERVAL_YEAR_MONTH: (0, 120_000),
    TypeRoot.INTERVAL_DAY_TIME: (-_LONG, _LONG - 1),
}
#: As in Flink the least is the least that is positive.
_NUMBERS: Final = {
    TypeRoot.FLOAT: (1.401298464324817e-45, 3.4028234663852886e38),
    TypeRoot.DOUBLE: (5e-324, 1.7976931348623157e308),
    TypeRoot.DECIMAL: (5e-324, 1.7976931348623157e308),
}
_FIXED: Final = frozenset({TypeRoot.CHAR, TypeRoot.BINARY})
_VARIABLE: Final = frozenset({TypeRoot.VARCHAR, TypeRoot.VARBINARY})
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BYTES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_TIMESTAMPS: Final = frozenset(
    {TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE, TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE}
)
_CLOCK: Final = frozenset({TypeRoot.DATE, TypeRoot.TIME_WITHOUT_TIME_ZONE})
_COLLECTIONS: Final = frozenset({TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.MULTISET})
_COUNTED: Final = frozenset(
    {
        *(TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT),
        *(*_NUMBERS, *_FIXED, *_VARIABLE),
    }
)
_DRAWN: Final = frozenset(
    {
        *(TypeRoot.BOOLEAN, TypeRoot.ROW),
        *(*_COUNTED, *_INTEGERS, *_TIMESTAMPS, *_CLOCK, *_COLLECTIONS),
    }
)
_HEX: Final = string.digits + "abcdef"
_EPOCH: Final = dt.date(1970, 1, 1)
_NANOS: Final = 1_000_000_000


@dataclass(frozen=True)
class DrawnValues:
    """How the values of a column, or of a part of one, are made; pickled to the workers."""

    type: LogicalType
    #: By the names of options.
    setting: Mapping[str, Any]
    #: The element; the key and the value; or the fields.
    parts: tuple[DrawnValues, ...] = ()

    @property
    def count(self) -> int | None:
        """How many there are; None: no end."""
        if not self.is_counted:
            return None
        return int(self.setting["end"] - self.setting["start"] + 1)

    @property
    def is_counted(self) -> bool:
        """Whether each is one more than the one before it."""
        return self.setting.get("kind") == "sequence"

    def value(  # noqa: PLR0911 - a table
        self, drawn: random.Random, row: int, begun: int
    ) -> object:
        """The value of a row.

        Args:
            drawn: what is random about it.
            row: its number.
            begun: the time that counts as now, in nanoseconds since 1970.
        """
        if self.is_counted:
            return _counted(self.type, self.setting["start"] + row)
        if drawn.random() < self.setting["null-rate"]:
            return None
        root = self.type.root
        if root in _INTEGERS:
            return drawn.randint(self.setting["min"], self.setting["max"])
        if root in _NUMBERS:
            return self._fraction(drawn)
        if root in _TIMESTAMPS:
            most = self.setting["max-past"]
            past = drawn.randint(0, most) if most else 0
            return (begun // 1_000_000 - past) * 1_000_000
        if root in _CLOCK:
            return _now(root, begun)
        if root is TypeRoot.BOOLEAN:
            return drawn.random() < 0.5  # noqa: PLR2004 - a coin has two sides
        if root is TypeRoot.ROW:
            return tuple(part.value(drawn, row, begun) for part in self.parts)
        return self._sized(drawn, row, begun)

    def _fraction(self, drawn: random.Random) -> float | Decimal:
        share = drawn.random()
        # Their difference may be more than a double holds.
        value = self.setting["min"] * (1 - share) + self.setting["max"] * share
        if not isinstance(self.type, DecimalType):
            return float(value)
        step = Decimal(1).scaleb(-self.type.scale)
        return Decimal(value).quantize(step, rounding=ROUND_DOWN, context=EXACT)

    def _sized(self, drawn: random.Random, row: int, begun: int) -> object:
        root, length = self.type.root, self.setting["length"]
        if self.setting.get("var-len") and length > 1:
            length = drawn.randrange(1, length)
        if root in _TEXTS:
            return "".join(drawn.choices(_HEX, k=length))
        if root in _BYTES:
            return drawn.randbytes(length)
        rows = [[part.value(drawn, row, begun) for part in self.parts] for _ in range(length)]
        if root is TypeRoot.ARRAY:
            return tuple(element for (element,) in rows)
        if root is TypeRoot.MULTISET:
            made: dict[Any, Any] = {each: drawn.randint(1, _MOST_TIMES) for (each,) in rows}
        else:
            made = dict(rows)  # type: ignore[arg-type]
        # Keys of Arrow's maps are never NULL.
        return {key: value for key, value in made.items() if key is not None}


def _counted(kind: LogicalType, value: int) -> object:
    if kind.root in _TEXTS:
        return str(value)
    return value.to_bytes(8, "big", signed=True) if kind.root in _BYTES else value


def _now(root: TypeRoot, begun: int) -> int:
    """The date or time of day of this machine, as SQL's values are."""
    here = dt.datetime.fromtimestamp(begun // _NANOS).astimezone()
    if root is TypeRoot.DATE:
        return (here.date() - _EPOCH).days
    seconds = here.hour * 3600 + here.minute * 60 + here.second
    return seconds * _NANOS + begun % _NANOS // 1_000_000 * 1_000_000


# -- options ---------------------------------------------------------------------------------------


def _parts(kind: LogicalType) -> Iterator[tuple[str, LogicalType]]:
    """The parts of a type, by the names that options have for them."""
    if isinstance(kind, RowType):
        yield from ((field.name, field.type) for field in kind.fields)
    elif isinstance(kind, MapType):
        yield from (("key", kind.key), ("value", kind.value))
    elif kind.root in _COLLECTIONS:
        yield "element", kind.children[0]


def options_of(path: str, kind: LogicalType, *, inside: bool = False) -> list[Option]:
    """The options of a column, and those of its parts.

    Args:
        path: its name, that of a part behind it.
        kind: its type.
        inside: whether it is a part; parts are random.
    """
    base, root = f"fields.{path}.", kind.root
    found = [number(base + "null-rate", 0.0)]
    if not inside:
        found.append(choice(base + "kind", ("random", "sequence"), "random"))
        found += [integer(base + "start"), integer(base + "end")]
    if root in _INTEGERS:
        found += [integer(base + "min"), integer(base + "max")]
    elif root in _NUMBERS:
        found += [number(base + "min"), number(base + "max")]
    elif root in _TIMESTAMPS:
        found.append(duration(base + "max-past", 0))
    elif root in _VARIABLE:
        found += [integer(base + "length"), boolean(base + "var-len", default=False)]
    elif root in _COLLECTIONS:
        found.append(integer(base + "length", _ENTRIES))
    for name, part in _parts(kind):
        found += options_of(f"{path}.{name}", part, inside=True)
    return found


def drawn_values(
    options: Options, path: str, kind: LogicalType, *, inside: bool = False
) -> DrawnValues:
    """How values are made, by the options of a table; arguments as of ``options_of``.

    Raises:
        ValidationError: nothing is made of the type, or the options make no sense.
    """
    if kind.root not in _DRAWN:
        shown = kind.as_summary_string()
        message = f"{options.owner} cannot make values of column '{path}', which is {shown}."
        raise ValidationError(message)
    base = f"fields.{path}."
    own = [each.key.removeprefix(base) for each in options_of(path, kind, inside=inside)]
    setting = {name: options[base + name] for name in own if "." not in name}
    _check_sequence(options, base, kind, setting)
    if kind.root in _INTEGERS or kind.root in _NUMBERS:
        setting |= _bounds(options, base, kind, setting)
    if kind.root in _FIXED or kind.root in _VARIABLE:
        setting["length"] = _length(options, base, kind, setting.get("length"))
    if setting.get("length", 0) < 0:
        message = f"{options.owner}: '{base}length' is less than 0."
        raise ValidationError(message)
    parts = tuple(
        drawn_values(options, f"{path}.{name}", part, inside=True) for name, part in _parts(kind)
    )
    return DrawnValues(kind, setting, parts)


def _check_sequence(
    options: Options, base: str, kind: LogicalType, setting: Mapping[str, Any]
) -> None:
    if setting.get("kind") != "sequence":
        return
    if kind.root not in _COUNTED:
        shown = kind.as_summary_string()
        message = f"{options.owner}: '{base}kind' is not 'sequence' of a column that is {shown}."
        raise ValidationError(message)
    if setting["start"] is None or setting["end"] is None:
        message = f"{options.owner} needs '{base}start' and '{base}end' for a sequence."
        raise ValidationError(message)
    if setting["start"] > setting["end"]:
        message = f"{options.owner}: '{base}start' is more than '{base}end'."
        raise ValidationError(message)


def _bounds(
    options: Options, base: str, kind: LogicalType, setting: Mapping[str, Any]
) -> dict[str, Any]:
    known: Any = _INTEGERS.get(kind.root) or _NUMBERS[kind.root]
    least = known[0] if setting["min"] is None else setting["min"]
    most = known[1] if setting["max"] is None else setting["max"]
    if isinstance(kind, DecimalType):
        limit = float(10 ** (kind.precision - kind.scale)) - 10.0**-kind.scale
        least, most = max(least, -limit), min(most, limit)
    elif kind.root in _INTEGERS and kind.root is not TypeRoot.INTERVAL_YEAR_MONTH:
        for name, each in (("min", least), ("max", most)):
            if not known[0] <= each <= known[1]:
                shown = kind.as_summary_string()
                message = f"{options.owner}: '{base}{name}' is {each}, which is no {shown}."
                raise ValidationError(message)
    if least > most:
        message = f"{options.owner}: '{base}min' is more than '{base}max'."
        raise ValidationError(message)
    return {"min": least, "max": most}


def _length(options: Options, base: str, kind: LogicalType, given: int | None) -> int:
    most: int = kind.length  # type: ignore[attr-defined]
    if given is None:
        return _LENGTH if most == _UNLIMITED else most
    if given > most:
        message = (
            f"{options.owner}: '{base}length' is {given}, but the column is "
            f"{kind.as_summary_string()}."
        )
        raise ValidationError(message)
    return given


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
