"""Aggregate functions of SQL by name, and the kernels of user-defined aggregate functions."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.errors import ProgramError, UserFunctionError
from millstream.expressions.user_functions import AGGREGATE_METHODS, FunctionContext, to_pandas
from millstream.runtime.columnar.changelog_aggregates import (
    Average,
    Count,
    Edge,
    Extreme,
    Kernel,
    NumericExtreme,
    SingleValue,
    Sum,
    SumOrZero,
    Variance,
)
from millstream.runtime.columnar.collecting_aggregates import (
    ArrayAgg,
    BitmapKernel,
    Collect,
    CountedExtreme,
    JsonArrayAgg,
    JsonObjectAgg,
    KeptEdge,
    Lag,
    ListAgg,
    Percentile,
    RowKernel,
    retract_value,
)
from millstream.types.external_values import from_external, to_external
from millstream.types.logical_types import ArrayType
from millstream.types.pickling import dumps, loads
from millstream.types.row import Row
from millstream.types.values import column_of, values_of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.user_functions import UserAggregate
    from millstream.functions.functions import RuntimeContext
    from millstream.runtime.columnar.changelog_aggregates import Rows, Scan
    from millstream.types.logical_types import LogicalType


@dataclass(frozen=True)
class _Call:
    """What decides which kernel computes an aggregate."""

    arguments: Sequence[pa.DataType]
    result: pa.DataType
    retracts: bool
    ignore_nulls: bool


def _extreme(call: _Call, *, is_max: bool) -> Kernel:
    kind = call.arguments[0]
    if call.retracts:
        return CountedExtreme(kind, is_max=is_max)
    types = pa.types
    if types.is_primitive(kind) and not types.is_decimal(kind) and not types.is_boolean(kind):
        return NumericExtreme(kind, is_max=is_max)
    return Extreme(kind, is_max=is_max)


def _edge(call: _Call, *, is_last: bool) -> Kernel:
    made = KeptEdge if call.retracts else Edge
    return made(call.arguments[0], is_last=is_last)


def _variance(call: _Call, *, sample: bool, root: bool) -> Kernel:
    return Variance(call.result, sample=sample, root=root)


def _array(call: _Call) -> Kernel:
    return ArrayAgg(call.arguments[0], call.result, keeps_nulls=not call.ignore_nulls)


def _bitmaps(call: _Call, *, operation: str) -> Kernel:
    return BitmapKernel(operation, call.result, retracts=call.retracts)


_MAKERS: Final[dict[str, Callable[[_Call], Kernel]]] = {
    "COUNT": lambda call: Count(call.result),
    "SUM": lambda call: Sum(call.arguments[0], call.result),
    "$SUM0": lambda call: SumOrZero(call.arguments[0], call.result),
    "AVG": lambda call: Average(call.arguments[0], call.result),
    "MIN": partial(_extreme, is_max=False),
    "MAX": partial(_extreme, is_max=True),
    "BOOL_AND": partial(_extreme, is_max=False),
    "BOOL_OR": partial(_extreme, is_max=True),
    "FIRST_VALUE": partial(_edge, is_last=False),
    "LAST_VALUE": partial(_edge, is_last=True),
    "STDDEV_POP": partial(_variance, sample=False, root=True),
    "STDDEV_SAMP": partial(_variance, sample=True, root=True),
    "VAR_POP": partial(_variance, sample=False, root=False),
    "VAR_SAMP": partial(_variance, sample=True, root=False),
    "LISTAGG": lambda call: ListAgg(call.result),
    "COLLECT": lambda call: Collect(call.result),
    "ARRAY_AGG": _array,
    "PERCENTILE": lambda call: Percentile(call.result),
    "JSON_ARRAYAGG_NULL_ON_NULL": lambda call: JsonArrayAgg(call.result, absent=False),
    "JSON_ARRAYAGG_ABSENT_ON_NULL": lambda call: JsonArrayAgg(call.result, absent=True),
    "JSON_OBJECTAGG_NULL_ON_NULL": lambda call: JsonObjectAgg(call.result, absent=False),
    "JSON_OBJECTAGG_ABSENT_ON_NULL": lambda call: JsonObjectAgg(call.result, absent=True),
    "LAG": lambda call: Lag(call.result),
    **{
        f"BITMAP_{operation}{cardinality}_AGG": partial(_bitmaps, operation=operation)
        for operation in ("BUILD", "AND", "OR", "XOR")
        for cardinality in ("", "_CARDINALITY")
    },
    "SINGLE_VALUE": lambda call: SingleValue(call.arguments[0]),
}
SUPPORTED_AGGREGATES: Final = frozenset(_MAKERS)


def make_kernel(
    function: str,
    arguments: Sequence[pa.DataType],
    result: pa.DataType,
    *,
    retracts: bool,
    ignore_nulls: bool = False,
) -> Kernel:
    """Make the kernel of an aggregate.

    Args:
        function: its name, in capitals.
        arguments: types of its arguments.
        result: type of its result.
        retracts: whether rows may be retracted.
        ignore_nulls: ARRAY_AGG: whether nulls are left out.

    Raises:
        ProgramError: there is no such aggregate.
    """
    maker = _MAKERS.get(function)
    if maker is None:
        known = ", ".join(sorted(SUPPORTED_AGGREGATES))
        message = f"there is no aggregate {function}; there are {known}"
        raise ProgramError(message)
    return maker(_Call(arguments, result, retracts, ignore_nulls))


def check_user_aggregate(aggregate: UserAggregate, *, retracts: bool, merges: bool) -> None:
    """Refuse a function that lacks what it is wanted for.

    Args:
        aggregate: the function.
        retracts: whether rows may be retracted.
        merges: whether accumulators are put together.

    Raises:
        ProgramError: it has no ``retract``, or no ``merge``.
    """
    if retracts and not aggregate.retracts:
        message = f"{aggregate.name} aggregates rows that are retracted, so it needs retract()"
        raise ProgramError(message)
    if merges and not aggregate.merges:
        message = f"{aggregate.name} aggregates session windows, which join: it needs merge()"
        raise ProgramError(message)


def user_kernel(
    aggregate: UserAggregate, arguments: Sequence[LogicalType], result: LogicalType
) -> UserKernel:
    """Make the kernel of a function.

    Args:
        aggregate: the function.
        arguments: types of its arguments.
        result: type of its result.
    """
    made = _PandasKernel if aggregate.kind == "pandas" else UserKernel
    return made(aggregate, arguments, result)


class UserKernel(RowKernel):
    """An object with ``create_accumulator``, ``accumulate`` and ``get_value``."""

    fresh = (None,)

    def __init__(
        self, aggregate: UserAggregate, arguments: Sequence[LogicalType], result: LogicalType
    ) -> None:
        super().__init__(pa.binary(), result.to_arrow())
        self.is_partial = aggregate.merges
        self._aggregate = aggregate
        self._types = arguments
        self._type = result
        self._external = [to_external(each) for each in arguments]
        self._internal = from_external(result)
        self._opened: Any = None
        #: Of the task; set before the function is opened.
        self.runtime: RuntimeContext | None = None

    # -- the function ----------------------------------------------------------------------------

    @property
    def function(self) -> Any:
        """The function, opened before its first use."""
        if self._opened is None:
            self._opened = self._aggregate.function
            open_ = getattr(self._opened, "open", None)
            if open_ is not None:
                open_(FunctionContext(self._aggregate.job_parameters, self.runtime))
            close = getattr(self._opened, "close", None)
            if close is not None:
                # A kernel has no end of its own: it is there as long as its operator.
                weakref.finalize(self, close)
        return self._opened

    def create(self) -> Any:
        """An accumulator of no rows."""
        return self.function.create_accumulator()

    def change(self, accumulator: Any, weight: int, values: tuple[Any, ...]) -> None:
        """Add a row or retract it."""
        external = [make(value) for make, value in zip(self._external, values, strict=True)]
        method = self.function.accumulate if weight > 0 else self.function.retract
        method(accumulator, *external)

    def merge(self, accumulator: Any, others: list[Any]) -> None:
        """Put other accumulators into one."""
        self.function.merge(accumulator, others)

    def value(self, accumulator: Any) -> Any:
        """The result of an accumulator, as tables have it."""
        if not self._aggregate.gives_rows:
            return self._internal(self.function.get_value(accumulator))
        rows = self.function.emit_value(accumulator) or ()
        assert isinstance(self._type, ArrayType)  # noqa: S101 - made so
        return self._internal(
            [row if isinstance(row, tuple | list | Row) else (row,) for row in rows]
        )

    # -- the kernel ------------------------------------------------------------------------------

    def lift(self, rows: Rows) -> list[Any]:
        columns = [
            values_of_column(column, kind)
            for column, kind in zip(rows.arguments, self._types, strict=True)
        ]
        values = zip(*columns, strict=True) if columns else iter([()] * len(rows.weights))
        weights = zip(rows.counted.tolist(), rows.weights.tolist(), strict=True)
        return [
            [
                (weight, value) if counted else None
                for (counted, weight), value in zip(weights, values, strict=True)
            ]
        ]

    def run(self, lifted: list[Any], scan: Scan) -> tuple[pa.Array, list[pa.Array]]:
        steps = lifted[0]
        if isinstance(steps, pa.Array):  # accumulators, which are merged
            steps = [None if each is None else (0, each) for each in steps.to_pylist()]
        return super().run([steps], scan)

    def decoded(self, stored: Any) -> Any:
        return self.create() if stored is None else loads(stored)

    def encoded(self, value: Any) -> Any:
        return dumps(value)

    def add(self, value: Any, weight: int, row: Any) -> None:
        if weight:
            self._guarded(self.change, value, weight, row)
        else:
            self._guarded(self.merge, value, [loads(row)])

    def result_of(self, value: Any) -> Any:
        return self._guarded(self.value, value)

    def _guarded(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:
            message = f"aggregate function {self._aggregate.name}: {type(error).__name__}: {error}"
            raise UserFunctionError(message) from error

    def results(self, states: list[pa.Array]) -> pa.Array:
        found = [
            None if kept is None else self._guarded(self.value, loads(kept))
            for kept in states[0].to_pylist()
        ]
        return self.column(found)

    def column(self, results: list[Any]) -> pa.Array:
        return column_of(results, self._type)


class _PandasKernel(UserKernel):
    """A function of Series, and of DataFrames of rows; what is kept is all rows.

    An AggregateFunction is given them all at once, and an accumulator of its own for each result.
    """

    def _called(self, series: list[Any]) -> Any:
        function = self.function
        if not all(hasattr(function, each) for each in AGGREGATE_METHODS):
            return getattr(function, "eval", function)(*series)
        accumulator = function.create_accumulator()
        function.accumulate(accumulator, *series)
        return function.get_value(accumulator)

    def create(self) -> Any:
        return []

    def change(self, accumulator: Any, weight: int, values: tuple[Any, ...]) -> None:
        if weight > 0:
            accumulator.append(values)
        else:
            retract_value(accumulator, values)

    def merge(self, accumulator: Any, others: list[Any]) -> None:
        for each in others:
            accumulator.extend(each)

    def value(self, accumulator: Any) -> Any:
        columns = zip(*accumulator, strict=True) if accumulator else [()] * len(self._types)
        series = [
            to_pandas(column_of(list(column), kind), kind, is_whole=self._aggregate.is_whole)
            for column, kind in zip(columns, self._types, strict=True)
        ]
        found = self._called(series)
        item = getattr(found, "item", None)
        value = found if item is None else item()
        # Pandas' NaN of no values is NULL, as where functions of Series are scalar.
        return None if isinstance(value, float) and math.isnan(value) else self._internal(value)
