"""Stateless table operators: Calc, Expand, Unnest, changelog codes, and casts to a schema.

RowKinds stay as they are: where an update matches a condition before or after only, its -U or +U is
forwarded alone, as in Flink.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.errors import TypeMismatchError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_calculation
from millstream.runtime.columnar.array_utils import of_length
from millstream.runtime.operators.table.base import TableOperator, kinds_or_inserts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.operator import Operator, OperatorContext, Output, RestoreContext
    from millstream.errors import MillstreamError
    from millstream.expressions.nodes import Expression
    from millstream.types.logical_types import LogicalType, RowType


@dataclass(frozen=True)
class CalcFactory:
    """Filters rows, then computes columns of them.  Kinds of rows stay as they are."""

    input_type: RowType
    #: One per output column.
    projections: tuple[Expression, ...]
    #: BOOLEAN; rows stay for which it is true.  None: all do.
    condition: Expression | None = None
    #: Time zone, start of the query and parameters; the operator sets time.
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    #: Whether somebody after it reads the rows' timestamps, which no operator of tables does.
    keeps_times: bool = True
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return CalcOperator(self)


class CalcOperator(TableOperator):
    """Evaluates expressions."""

    def __init__(self, plan: CalcFactory) -> None:
        """Compile the expressions of ``plan``."""
        super().__init__()
        self._evaluation = plan.evaluation
        self._calculation = compile_calculation(plan.condition, plan.projections)
        self._keeps_times = plan.keeps_times
        self._watermark: int | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._evaluation = replace(self._evaluation, runtime=self.runtime_context)

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._watermark = None if restored.watermark == MIN_TIMESTAMP else restored.watermark

    def process_watermark(self, watermark: int) -> None:
        self._watermark = watermark
        super().process_watermark(watermark)

    def process_rows(self, batch: Batch) -> None:
        context = self._evaluation.at(self.processing_time, self._watermark)
        arrow = batch.arrow
        with self.evaluating():
            mask, columns = self._calculation.evaluate(arrow, context)
        rows = arrow.num_rows if mask is None else mask.true_count
        if not rows:
            return
        self.records_out += rows
        kinds = batch.row_kinds
        stamps = batch.raw_timestamps if self._keeps_times else None
        if mask is not None and kinds is not None:
            kinds = kinds[mask.to_numpy(zero_copy_only=False)]
        if mask is not None and stamps is not None:
            stamps = pa.array(batch.timestamp_array).filter(mask).to_numpy()
        made = self._named(columns)
        self.output.emit(
            Batch(self.context.output_type, arrow=made, timestamps=stamps, row_kinds=kinds)
        )


@dataclass(frozen=True)
class ExpandFactory:
    """Factory of expand operators.

    Args:
        keys: the columns that are keys of some set.
        sets: for each set, the columns that are its keys.
    """

    keys: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ExpandOperator(self)


class ExpandOperator(TableOperator):
    """Emits each row several times; kinds stay."""

    def __init__(self, plan: ExpandFactory) -> None:
        super().__init__()
        self._plan = plan

    def process_rows(self, batch: Batch) -> None:
        arrow = batch.arrow
        keys, sets = self._plan.keys, self._plan.sets
        # All sets of a row come together, so that changes of a row stay in order.
        rows = np.repeat(np.arange(len(batch)), len(sets))
        numbers = np.tile(np.arange(len(sets), dtype=np.int64), len(batch))
        taken = pa.array(rows)
        columns = [column.take(taken) for column in arrow.columns]
        for key in keys:
            here = np.array([key in part for part in sets])
            positions = pa.array(rows, mask=~here[numbers])
            columns.append(arrow.column(key).take(positions))
        columns.append(pa.array(numbers))
        kinds = batch.row_kinds
        self.emit_columns(columns, None if kinds is None else kinds[rows])


@dataclass(frozen=True)
class UnnestFactory:
    """Factory of unnest operators.

    Args:
        outer: whether a row without elements comes out once, with NULL.
        ordinality: whether the number of the element, from 1, stands after it.
        repeats: whether elements come as often as the value beside them says (multisets).
    """

    outer: bool
    ordinality: bool
    repeats: bool
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return UnnestOperator(self)


class UnnestOperator(TableOperator):
    """Emits each row once per element; kinds stay."""

    def __init__(self, plan: UnnestFactory) -> None:
        super().__init__()
        self._plan = plan

    def process_rows(self, batch: Batch) -> None:
        arrow = batch.arrow
        nested = arrow.column(arrow.num_columns - 1)
        counts = np.array([0 if each is None else len(each) for each in nested.to_pylist()])
        rows, places = self._places(counts)
        elements = self._elements(nested)
        if self._plan.repeats:
            *elements, often = elements
            times = often.to_numpy()
            again = np.where(places < 0, 1, times[np.maximum(places, 0)] if len(times) else 1)
            rows, places = np.repeat(rows, again), np.repeat(places, again)
        columns = [column.take(pa.array(rows)) for column in arrow.columns[:-1]]
        inner = pa.array(places, mask=places < 0)
        columns += [element.take(inner) for element in elements]
        if self._plan.ordinality:
            columns.append(_numbers(rows, inner))
        kinds = batch.row_kinds
        if len(rows):
            self.emit_columns(columns, None if kinds is None else kinds[rows])

    def _places(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each result its row, and its element; -1: there is none."""
        if not self._plan.outer:
            return np.repeat(np.arange(len(counts)), counts), np.arange(int(counts.sum()))
        shown = np.maximum(counts, 1)
        rows = np.repeat(np.arange(len(counts)), shown)
        empty = np.repeat(counts == 0, shown)
        places = np.cumsum(~empty) - 1
        return rows, np.where(empty, -1, places)

    @staticmethod
    def _elements(nested: pa.Array) -> list[pa.Array]:
        """The columns of all elements, in order."""
        if pa.types.is_map(nested.type):
            kept = nested.drop_null() if nested.null_count else nested
            first, last = kept.offsets[0].as_py(), kept.offsets[-1].as_py()
            return [kept.keys[first:last], kept.items[first:last]]
        flat = pc.list_flatten(nested)
        if pa.types.is_struct(flat.type):
            return list(flat.flatten())
        return [flat]


def _numbers(rows: NDArray[np.int64], inner: pa.Array) -> pa.Array:
    starts = np.r_[0, np.flatnonzero(np.diff(rows)) + 1] if len(rows) else np.array([], int)
    begin = np.zeros(len(rows), dtype=np.int64)
    begin[starts] = starts
    numbers = np.arange(len(rows)) - np.maximum.accumulate(begin) + 1
    missing = inner.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers.astype(np.int32), mask=missing)


# -- TO_CHANGELOG and FROM_CHANGELOG: RowKinds as codes in a column ---


@dataclass(frozen=True)
class ToChangelogFactory:
    """Factory of operators that emit the code of each change, then its row, as an insert.

    Args:
        codes: of the kinds of rows, by their numbers; a kind without a code is left out.
    """

    codes: tuple[tuple[int, str], ...]
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ToChangelogOperator(self)


class ToChangelogOperator(TableOperator):
    """Emits inserts alone."""

    def __init__(self, plan: ToChangelogFactory) -> None:
        super().__init__()
        codes = dict(plan.codes)
        self._codes = pa.array([codes.get(kind) for kind in range(4)], pa.string())

    def process_rows(self, batch: Batch) -> None:
        codes = self._codes.take(pa.array(kinds_or_inserts(batch)))
        columns = [codes, *batch.arrow.columns]
        if codes.null_count:
            taken = codes.is_valid()
            columns = [column.filter(taken) for column in columns]
        self.emit_columns(columns)


@dataclass(frozen=True)
class FromChangelogFactory:
    """Factory of operators that make the code of each row its RowKind, and emit the other columns.

    Args:
        column: of the codes.
        kinds: of the codes, by their numbers.
    """

    column: int
    kinds: tuple[tuple[str, int], ...]
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return FromChangelogOperator(self)


class FromChangelogOperator(TableOperator):
    """Emits changes."""

    def __init__(self, plan: FromChangelogFactory) -> None:
        super().__init__()
        self._column = plan.column
        self._kinds = dict(plan.kinds)

    def process_rows(self, batch: Batch) -> None:
        arrow = batch.arrow
        encoded = arrow.column(self._column).dictionary_encode()
        if encoded.null_count:
            message = (
                f"operator {self.context.name!r}: Received NULL op code. Every changelog row must "
                "carry an operation code."
            )
            raise TypeMismatchError(message)
        known = [self._kind_of(code) for code in encoded.dictionary.to_pylist()]
        kinds = np.array(known, dtype=np.int8)[encoded.indices.to_numpy()]
        columns = [each for at, each in enumerate(arrow.columns) if at != self._column]
        self.emit_columns(columns, kinds if kinds.any() else None)

    def _kind_of(self, code: str) -> int:
        if code not in self._kinds:
            message = (
                f"operator {self.context.name!r}: Received invalid op code '{code}'. Defined op "
                f"codes are: [{', '.join(self._kinds)}]."
            )
            raise TypeMismatchError(message)
        return self._kinds[code]


# -- the columns of sources and sinks, cast to the types of tables ---


@dataclass(frozen=True)
class ConformFactory:
    """Factory of conform operators.

    Args:
        columns: for each column of the output, the name of the input's; None: by position.
        not_null: positions of output columns that must not hold NULL.
        drop: whether a row that breaks that is dropped instead of failing.
        table: how errors name the table.
        lengths: columns of a length, to which values are cut and filled up.
        with_time: whether a further column, after the others, has the timestamps of the records.
        time_column: the column of the input that becomes the timestamps; empty: they stay.
    """

    columns: tuple[str, ...] | None = None
    not_null: tuple[int, ...] = ()
    drop: bool = False
    table: str = ""
    with_time: bool = False
    time_column: str = ""
    lengths: tuple[tuple[int, LogicalType], ...] = ()
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ConformOperator(self)


class ConformOperator(TableOperator):
    """Casts columns; kinds and timestamps stay."""

    def __init__(self, plan: ConformFactory) -> None:
        super().__init__()
        self._plan = plan

    def process_rows(self, batch: Batch) -> None:
        if self._plan.not_null:
            batch = self._checked(batch)
        self.records_out += len(batch)
        arrow = batch.arrow
        wanted = self.context.output_type.arrow_schema
        assert wanted is not None  # noqa: S101 - tables have columns
        read = list(wanted)[: len(wanted) - self._plan.with_time]
        columns = [self._cast(arrow, position, field) for position, field in enumerate(read)]
        for position, kind in self._plan.lengths:
            columns[position] = of_length(columns[position], kind)
        if self._plan.with_time:
            columns.append(self._times(batch, wanted.field(len(read)).type))
        made = pa.RecordBatch.from_arrays(columns, schema=wanted)
        times = batch.raw_timestamps
        if self._plan.time_column:
            times = self._times_in(arrow.column(self._plan.time_column))
        self.output.emit(
            Batch(self.context.output_type, arrow=made, timestamps=times, row_kinds=batch.row_kinds)
        )

    def _times_in(self, column: pa.Array) -> np.ndarray:
        if column.null_count:
            message = (
                f"Column '{self._plan.time_column}' of {self._plan.table} becomes the timestamp of "
                "its row and is NULL in one; filter such rows before."
            )
            raise TypeMismatchError(message)
        milliseconds = pa.timestamp("ms", column.type.tz)
        times: np.ndarray = column.cast(milliseconds, safe=False).cast(pa.int64()).to_numpy()
        return times

    def _times(self, batch: Batch, kind: pa.DataType) -> pa.Array:
        times = batch.raw_timestamps
        if times is None or (len(times) and min(times) == MIN_TIMESTAMP):
            message = (
                f"Could not find timestamp in a record of {self._plan.table}. Make sure that "
                "timestamps have been assigned before, as by assign_timestamps_and_watermarks()."
            )
            raise TypeMismatchError(message)
        return pa.array(times, pa.int64()).cast(pa.timestamp("ms", kind.tz)).cast(kind)

    def _cast(self, arrow: pa.RecordBatch, position: int, field: pa.Field) -> pa.Array:
        names = self._plan.columns
        column = arrow.column(position if names is None else names[position])
        if pa.types.is_dictionary(column.type) and column.type != field.type:
            column = column.dictionary_decode()
        owner = self._plan.table or self.context.name
        return conformed(column, field, owner, TypeMismatchError)

    def _checked(self, batch: Batch) -> Batch:
        arrow = batch.arrow
        for position in self._plan.not_null:
            column = arrow.column(position)
            if not column.null_count:
                continue
            if self._plan.drop:
                mask = column.is_valid()
                return self._checked(batch.filter(mask.to_pylist()))
            name = arrow.schema.names[position]
            row = arrow.filter(column.is_null()).slice(0, 1).to_pylist()[0]
            message = (
                f"Column '{name}' of {self._plan.table} is NOT NULL, however, a null value is "
                f"being written into it by the row {row}. You can set "
                "'table.exec.sink.not-null-enforcer'='DROP' to suppress this exception and drop "
                "such records silently."
            )
            raise TypeMismatchError(message)
        return batch


def conformed(
    column: pa.Array, wanted: pa.Field, owner: str, refuse: type[MillstreamError]
) -> pa.Array:
    """A column in the type of a field.

    Raises:
        MillstreamError: it does not fit: a ``refuse``, which says whose it is.
    """
    if column.type == wanted.type:
        return column
    try:
        return _converted(column, wanted.type)
    except pa.ArrowException as error:
        message = (
            f"column '{wanted.name}' of {owner} is {column.type} and does not fit {wanted.type}: "
            f"{error}"
        )
        raise refuse(message) from error


def _converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A cast that cuts digits of seconds, as a reader of TIMESTAMP(3) does, and nothing else."""
    is_time = pa.types.is_temporal(column.type) and pa.types.is_temporal(wanted)
    stamps = pa.types.is_timestamp(column.type) and pa.types.is_timestamp(wanted)
    if stamps and (column.type.tz is None) != (wanted.tz is None):
        # A reader's time without a zone is one of UTC.
        column = column.cast(pa.timestamp(column.type.unit, tz=wanted.tz))
    return column.cast(wanted, safe=not is_time)
