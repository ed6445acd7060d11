"""User-defined scalar and table functions as function definitions.

*general* functions see one row at a time, as programs see values (``types/external_values.py``);
*async* the same, many rows at once; *pandas* and *arrow* see columns.  A table function gives an
array of rows, which the binder unnests.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from millstream.errors import ProgramError, TypeMismatchError
from millstream.expressions.functions.definition import (
    FunctionDefinition,
    FunctionKind,
    Nullability,
    NullBehaviour,
    Signature,
    any_type,
    exactly,
    signature,
)
from millstream.types.external_values import from_external, to_external
from millstream.types.logical_types import ArrayType, RowField, RowType
from millstream.types.row import Row
from millstream.types.values import column_of, values_of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.expressions.context import AsyncCalls
    from millstream.expressions.functions.definition import CallInfo
    from millstream.functions.functions import RuntimeContext
    from millstream.functions.metric_group import MetricGroup
    from millstream.types.logical_types import LogicalType


def to_pandas(array: pa.Array, kind: LogicalType, *, is_whole: bool = False) -> Any:
    """Return a Series; of rows a DataFrame.

    Args:
        array: the column.
        kind: its type.
        is_whole: whether it is all columns of a table as one; then the fields of columns that are
            rows themselves are columns of the DataFrame, as in PyFlink.
    """
    if not isinstance(kind, RowType):
        return array.to_pandas()
    import pandas as pd

    fields: list[Any] = []
    for column, each in zip(array.flatten(), kind.fields, strict=True):
        if is_whole and isinstance(each.type, RowType):
            fields.append(to_pandas(column, each.type))
        else:
            fields.append(column.to_pandas().rename(each.name))
    return pd.concat(fields, axis=1)


def pandas_column(result: Any, kind: LogicalType) -> pa.Array:
    """The column of a Series, or of a DataFrame whose columns are the fields of rows.

    Raises:
        ValueError: it has other fields than the type.
    """
    import pandas as pd

    target = kind.to_arrow()
    if not isinstance(result, pd.DataFrame):
        for each in result if _has_rows(kind) else ():
            _check_names(each, kind)
        return pa.Array.from_pandas(result, type=target)
    if not isinstance(kind, RowType) or len(result.columns) != len(kind):
        message = (
            f"the function gives a DataFrame of {len(result.columns)} columns, not "
            f"{kind.as_summary_string()}"
        )
        raise ValueError(message)
    columns = [
        pa.Array.from_pandas(result.iloc[:, place], type=field.type)
        for place, field in enumerate(target)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(target))


def _has_rows(kind: LogicalType) -> bool:
    return isinstance(kind, RowType) or (isinstance(kind, ArrayType) and _has_rows(kind.element))


def _check_names(value: Any, kind: LogicalType) -> None:
    """Raise ValueError for a dict in the place of a row that has a field which the row has not."""
    if isinstance(kind, ArrayType):
        for each in value if value is not None else ():
            _check_names(each, kind.element)
    elif isinstance(kind, RowType) and isinstance(value, dict):
        unknown = [name for name in value if name not in kind.names]
        if unknown:
            message = f"{kind.as_summary_string()} has no field {unknown[0]!r}"
            raise ValueError(message)
        for field in kind.fields:
            _check_names(value.get(field.name), field.type)


def arrow_column(result: pa.Array, kind: LogicalType) -> pa.Array:
    """The column with the type: rows whose fields have other names are taken by place.

    Raises:
        ValueError: rows have more fields, or fewer.
    """
    target = kind.to_arrow()
    return _by_place(result, target).cast(target)


def _by_place(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Arrow casts by names, and makes nulls of fields that it does not find."""
    kind = array.type
    if pa.types.is_struct(kind) and pa.types.is_struct(target):
        if {field.name for field in kind} == {field.name for field in target}:
            return array
        if kind.num_fields != target.num_fields:
            message = f"the function gives {kind}, not {target}"
            raise ValueError(message)
        pairs = zip(array.flatten(), target, strict=True)
        fields = [_by_place(column, field.type) for column, field in pairs]
        names = [field.name for field in target]
        return pa.StructArray.from_arrays(fields, names=names, mask=array.is_null())
    nested = pa.types.is_list(kind) and pa.types.is_list(target)
    if nested and pa.types.is_struct(target.value_type):
        offsets = array.offsets
        missing = array.is_null() if array.null_count else None
        values = _by_place(array.values, target.value_type)
        return pa.ListArray.from_arrays(offsets, values, mask=missing)
    return array


KINDS: Final = ("general", "async", "pandas", "arrow")
_NO_ROW: Final = "the function gives None, but map() takes a row of each row"


class FunctionContext:
    """The context of a function that is opened: metrics, files, parameters."""

    def __init__(
        self, job_parameters: Mapping[str, str], runtime: RuntimeContext | None = None
    ) -> None:
        """Take the parameters of the job, and the task."""
        self._job_parameters = job_parameters
        self._runtime = runtime

    @property
    def _task(self) -> RuntimeContext:
        if self._runtime is None:
            message = (
                "conditions of joins and patterns do not give functions their task; compute the "
                "function in SELECT before"
            )
            raise ProgramError(message)
        return self._runtime

    def get_metric_group(self) -> MetricGroup:
        """Where the function's own metrics go."""
        return self._task.get_metrics_group()

    def get_task_name(self) -> str:
        """The name of the operator."""
        return self._task.get_task_name()

    def get_task_name_with_subtasks(self) -> str:
        """The name of the operator with the number of this subtask, from 1, and how many."""
        return self._task.get_task_name_with_subtasks()

    def get_number_of_parallel_subtasks(self) -> int:
        """How many subtasks there are."""
        return self._task.get_number_of_parallel_subtasks()

    def get_max_number_of_parallel_subtasks(self) -> int:
        """How many subtasks there can be: the number of key groups."""
        return self._task.get_max_number_of_parallel_subtasks()

    def get_index_of_this_subtask(self) -> int:
        """Which subtask this is, from 0."""
        return self._task.get_index_of_this_subtask()

    def get_attempt_number(self) -> int:
        """The number of this attempt, from 0."""
        return self._task.get_attempt_number()

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """The global parameter of the job of that name, or the default."""
        return self._job_parameters.get(key, default_value)


class _Opened:
    """A function that was opened, with the way of its arguments and results."""

    def __init__(self, function: Any, info: CallInfo) -> None:
        self.call = getattr(function, "eval", function)
        open_ = getattr(function, "open", None)
        if open_ is not None:
            open_(FunctionContext(info.context.job_parameters, info.context.runtime))
        close = getattr(function, "close", None)
        if close is not None:
            # An evaluator has no end of its own: it is there as long as its operator.
            weakref.finalize(self, close)
        self.arguments = [to_external(type_) for type_ in info.argument_types]
        self.result = from_external(info.result_type)

    def external(self, values: Sequence[Any]) -> list[Any]:
        return [convert(value) for convert, value in zip(self.arguments, values, strict=True)]


@dataclass(frozen=True, eq=False)
class _Code:
    """The callable for the evaluator: picklable, and opened where it runs."""

    function: Any

    def opened(self, info: CallInfo) -> _Opened:
        found: _Opened | None = info.state.get("opened")
        if found is None:
            found = info.state["opened"] = _Opened(self.function, info)
        return found


class _General(_Code):
    def __call__(self, info: CallInfo, *values: Any) -> Any:
        opened = self.opened(info)
        return opened.result(opened.call(*opened.external(values)))


class _Rows(_Code):
    """The rows of a table function for one row: what it yields, one by one."""

    def __call__(self, info: CallInfo, *values: Any) -> Any:
        opened = self.opened(info)
        found = opened.call(*opened.external(values))
        if found is None:
            return ()
        # A row of one column may be given as its value.
        rows = [row if isinstance(row, tuple | list | Row) else (row,) for row in found]
        return opened.result(rows)


class _OneRow(_Code):
    """The row that a scalar function gives for one row, as the only one of a table function."""

    def __call__(self, info: CallInfo, *values: Any) -> Any:
        opened = self.opened(info)
        row = opened.call(*opened.external(values))
        if row is None:
            raise TypeMismatchError(_NO_ROW)
        return opened.result([row if isinstance(row, tuple | list | Row) else (row,)])


@dataclass(frozen=True, eq=False)
class _OneRowOfColumns:
    """The rows of a function of columns, each as the only one of a table function."""

    columns: _Columns
    #: What the function gives: rows, or values of the only column.
    result: LogicalType
    row: RowType

    def __call__(self, info: CallInfo, *columns: Any) -> Any:
        found = self.columns(replace(info, result_type=self.result), *columns)
        if not isinstance(self.result, RowType):
            found = pa.StructArray.from_arrays([found], fields=list(self.row.to_arrow()))
        elif found.null_count:
            raise TypeMismatchError(_NO_ROW)
        return pa.ListArray.from_arrays(pa.array(range(len(found) + 1), pa.int32()), found)


class _Columns(_Code):
    """The kernel of kinds that see columns; a constant is repeated for all rows."""

    kind: ClassVar[str]

    @property
    def title(self) -> str:
        """Kind and name of the function, for errors."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"{self.kind} UDF '{name}'"

    def __call__(self, info: CallInfo, *columns: Any) -> Any:
        opened = self.opened(info)
        arrays = [
            pa.repeat(column, info.rows) if isinstance(column, pa.Scalar) else column
            for column in columns
        ]
        try:
            result = self.result_of(opened, info, arrays)
        except Exception as error:
            # The evaluator adds the expression to what it expects of a kernel.
            message = f"{type(error).__name__}: {error}"
            raise ValueError(message) from error
        if len(result) != info.rows:
            message = (
                f"The result length '{len(result)}' of {self.title} is not equal to the input "
                f"length '{info.rows}'"
            )
            raise ValueError(message)
        return result

    def result_of(self, opened: _Opened, info: CallInfo, arrays: list[Any]) -> Any:
        raise NotImplementedError


class _Arrow(_Columns):
    kind = "Arrow"

    def result_of(self, opened: _Opened, info: CallInfo, arrays: list[Any]) -> Any:
        result = opened.call(*arrays)
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if not isinstance(result, pa.Array):
            message = f"the function gives {type(result).__name__}, no pyarrow.Array"
            raise TypeMismatchError(message)
        return arrow_column(result, info.result_type)


@dataclass(frozen=True, eq=False)
class _Pandas(_Columns):
    kind: ClassVar[str] = "Pandas"
    #: Whether its argument is all columns of a table.
    is_whole: bool = False

    def result_of(self, opened: _Opened, info: CallInfo, arrays: list[Any]) -> Any:
        pairs = zip(arrays, info.argument_types, strict=True)
        whole = self.is_whole
        result = opened.call(*(to_pandas(array, kind, is_whole=whole) for array, kind in pairs))
        if not hasattr(result, "__len__") or isinstance(result, str):
            message = (
                f"The result type of {self.title} must be pandas.Series or pandas.DataFrame, got "
                f"{type(result)}"
            )
            raise TypeMismatchError(message)
        return pandas_column(result, info.result_type)


class _Async(_Columns):
    kind = "Async"

    def result_of(self, opened: _Opened, info: CallInfo, arrays: list[Any]) -> Any:
        import asyncio  # it takes a tenth of the time in which a statement begins

        columns = [
            values_of_column(array, type_)
            for array, type_ in zip(arrays, info.argument_types, strict=True)
        ]
        rows = zip(*columns, strict=True) if columns else ((),) * info.rows
        calls = _gathered(opened, [opened.external(row) for row in rows], info.context.async_calls)
        found = asyncio.run(calls)
        return column_of([opened.result(value) for value in found], info.result_type)


async def _gathered(opened: _Opened, rows: list[list[Any]], calls: AsyncCalls) -> list[Any]:
    import asyncio

    limit = asyncio.Semaphore(calls.concurrency)

    async def one(row: list[Any]) -> Any:
        async with limit:
            try:
                async with asyncio.timeout(calls.timeout / 1000):
                    return await _repeated(opened, row, calls)
            except TimeoutError as error:
                if str(error):  # the function's own
                    raise
                message = (
                    f"Async function call has timed out for input: {row!r:.200}; it has "
                    f"{calls.timeout} ms (table.exec.async-scalar.timeout)"
                )
                raise TimeoutError(message) from error

    return await asyncio.gather(*map(one, rows))


async def _repeated(opened: _Opened, row: list[Any], calls: AsyncCalls) -> Any:
    """The result of a call, which is repeated where it raises, as in Flink: whatever it raises."""
    import asyncio

    for _ in range(calls.retries):
        try:
            return await opened.call(*row)
        except Exception:  # noqa: BLE001 - the last attempt raises
            await asyncio.sleep(calls.retry_delay / 1000)
    return await opened.call(*row)


_KERNELS: Final[dict[str, type[_Columns]]] = {"async": _Async, "pandas": _Pandas, "arrow": _Arrow}


def definition_of(
    name: str,
    function: Callable[..., Any] | Any,
    result_type: LogicalType,
    *,
    input_types: Sequence[LogicalType] | None = None,
    deterministic: bool = True,
    kind: str = "general",
) -> FunctionDefinition:
    """The table entry of a user's function.

    Args:
        name: for plans and errors.
        function: a Python function, or an object with ``eval`` and, if it wants, ``open`` and
            ``close``.
        result_type: the type of its results.
        input_types: what arguments are cast to; None: any number of any types.
        deterministic: whether equal arguments give equal results.
        kind: one of ``KINDS``.

    Returns:
        The entry.  NULLs come as None, and the result may be NULL if its type is nullable.
    """
    columns = _KERNELS.get(kind)
    return FunctionDefinition(
        name,
        "user",
        signatures=(user_signature(input_types, result_type),),
        nulls=NullBehaviour.CALLED,
        reference=_General(function) if columns is None else None,
        kernel=None if columns is None else columns(function),
        contextual=True,
        deterministic=deterministic,
    )


def one_row_definition(
    definition: FunctionDefinition, *, is_whole: bool = False
) -> FunctionDefinition:
    """A scalar function as a table function that gives one row: it is called once for all columns.

    ``is_whole``: its argument is all columns of a table.
    """
    (declared,) = definition.signatures
    given = declared.result((), ())
    result = given if isinstance(given, RowType) else RowType((RowField("_c0", given),))
    code: Any = definition.reference
    kernel: Any = definition.kernel
    if is_whole and isinstance(kernel, _Pandas):
        kernel = replace(kernel, is_whole=True)
    return replace(
        definition,
        kind=FunctionKind.TABLE,
        signatures=(
            signature(
                *declared.arguments,
                result=ArrayType(result),
                repeats=declared.repeats,
                optional=declared.optional,
                nullability=Nullability.RULE,
            ),
        ),
        reference=_OneRow(code.function) if kernel is None else None,
        kernel=None if kernel is None else _OneRowOfColumns(kernel, given, result),
    )


def user_signature(input_types: Sequence[LogicalType] | None, result: LogicalType) -> Signature:
    """Return what a function of a user takes and gives; None: any number of any types."""
    if input_types is None:
        arguments, repeats = [any_type()], True
    else:
        arguments = [exactly(f"arg{at}", type_) for at, type_ in enumerate(input_types)]
        repeats = False
    return signature(
        *arguments,
        result=result,
        repeats=repeats,
        optional=int(repeats),
        nullability=Nullability.RULE,
    )


def table_definition_of(
    name: str,
    function: Callable[..., Any] | Any,
    result_types: Sequence[LogicalType],
    *,
    names: Sequence[str] | None = None,
    input_types: Sequence[LogicalType] | None = None,
    deterministic: bool = True,
) -> FunctionDefinition:
    """The table entry of a user's table function.

    Args:
        name: for plans and errors.
        function: gives an iterable of rows, or None for none.
        result_types: the types of the columns.
        names: of the columns; None: f0, f1 and so on.
        input_types: what arguments are cast to; None: any number of any types.
        deterministic: whether equal arguments give equal rows.

    Returns:
        The entry; to the evaluator it gives an array of rows.
    """
    names = [f"f{at}" for at in range(len(result_types))] if names is None else names
    fields = tuple(map(RowField, names, result_types))
    return FunctionDefinition(
        name,
        "user",
        FunctionKind.TABLE,
        signatures=(user_signature(input_types, ArrayType(RowType(fields))),),
        nulls=NullBehaviour.CALLED,
        reference=_Rows(function),
        contextual=True,
        deterministic=deterministic,
    )


#: What an object that aggregates to a value needs.
AGGREGATE_METHODS: Final = ("create_accumulator", "accumulate", "get_value")


@dataclass(frozen=True, eq=False)
class UserAggregate:
    """An aggregate function of a user; compared by identity."""

    name: str
    #: With ``AGGREGATE_METHODS``; of kind pandas these take Series, or it is a function of Series.
    function: Any
    #: general or pandas.
    kind: str
    #: Whether it gives several rows.
    gives_rows: bool
    deterministic: bool
    #: Whether its argument is all columns of a table.
    is_whole: bool = False
    #: Of the job, for ``open``.
    job_parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def retracts(self) -> bool:
        """Return whether rows can be taken back from it."""
        return self.kind == "pandas" or _has_own(self.function, "retract")

    @property
    def merges(self) -> bool:
        """Return whether two accumulators can be put together."""
        return self.kind == "pandas" or _has_own(self.function, "merge")


def _has_own(function: object, name: str) -> bool:
    """Return whether a class has said what a method does that the base class refuses."""
    found = getattr(type(function), name, None)
    return found is not None and not getattr(found, "is_missing", False)


def aggregate_definition_of(
    aggregate: UserAggregate,
    result_type: LogicalType,
    *,
    input_types: Sequence[LogicalType] | None = None,
) -> FunctionDefinition:
    """The table entry of a user's aggregate function; its result is an array if it gives rows."""
    return FunctionDefinition(
        aggregate.name,
        "user",
        FunctionKind.AGGREGATE,
        signatures=(user_signature(input_types, result_type),),
        nulls=NullBehaviour.CALLED,
        reference=aggregate,  # type: ignore[arg-type] # never called by the evaluator
        deterministic=aggregate.deterministic,
    )


def user_aggregate(definition: FunctionDefinition) -> UserAggregate:
    """The function of an entry that ``aggregate_definition_of`` has made."""
    found: Any = definition.reference
    assert isinstance(found, UserAggregate)  # noqa: S101 - its only maker
    return found
