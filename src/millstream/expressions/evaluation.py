"""What a compiled expression is made of: columns, constants, functions.

What it is: nodes that take a frame and give a column, or a scalar that stands for all rows.  A
function runs its kernel on columns; where there is none, or it gives NotImplemented, the
reference runs row by row, on distinct values only if it is costly.

What it is not: the special forms, which select rows (``expressions/special_forms.py``), or the
translation of expressions into nodes (``expressions/evaluator.py``).

Read next: ``expressions/special_forms.py``, ``expressions/evaluator.py``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.errors import ExpressionError, located
from millstream.expressions.context import EvaluationContext
from millstream.expressions.frames import Frame
from millstream.expressions.functions.definition import (
    NOT_CONSTANT,
    CallInfo,
    FunctionDefinition,
    NullBehaviour,
)
from millstream.expressions.nodes import Literal
from millstream.types.values import column_of, scalar_of, value_of, values_of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.expressions.nodes import Call
    from millstream.types.logical_types import LogicalType

__all__ = [
    "ColumnNode",
    "ConstantNode",
    "FoldedNode",
    "FunctionNode",
    "Node",
    "SharedNode",
    "as_column",
]

#: What plans, as Flink's, write beside a text.
_CHARACTER_SET: Final = re.compile(r"""_UTF-16LE(?=')|:\w+(\(\d+\))? CHARACTER SET "UTF-16LE\"""")

#: Below that many rows, looking for distinct values costs more than it saves.
_MIN_ROWS_FOR_DISTINCT: Final = 16
_MAX_DISTINCT_SHARE: Final = 0.5
_NO_CONTEXT: Final = EvaluationContext()


class Node(ABC):
    """A part of a compiled expression.

    ``is_total``: it neither fails nor costs much, so it may be evaluated on rows that need it not.
    """

    type: LogicalType
    is_total: bool = False

    @abstractmethod
    def run(self, frame: Frame) -> pa.Array | pa.Scalar:
        """The values on the rows of the frame; a scalar stands for all rows."""


def as_column(value: pa.Array | pa.Scalar, rows: int) -> pa.Array:
    """The column itself, or a scalar as often as there are rows."""
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


class ColumnNode(Node):
    """A column of the input."""

    is_total = True

    def __init__(self, index: int, type_: LogicalType) -> None:
        self.type = type_
        self._index = index

    def run(self, frame: Frame) -> pa.Array:
        return frame.column(self._index)


class ConstantNode(Node):
    """A literal."""

    is_total = True

    def __init__(self, value: object, type_: LogicalType) -> None:
        self.type = type_
        self.value = value
        self._scalar = scalar_of(value, type_)

    def run(self, frame: Frame) -> pa.Scalar:
        del frame
        return self._scalar


class FoldedNode(Node):
    """A call of constants: computed when first needed, since that may fail, and kept.

    What depends on the time zone is computed again for another one.
    """

    def __init__(self, inner: Node) -> None:
        self.type = inner.type
        self.is_total = inner.is_total
        self._inner = inner
        self._zone: str | None = None
        self._scalar: pa.Scalar | None = None

    def run(self, frame: Frame) -> pa.Scalar:
        zone = frame.context.time_zone
        if self._zone != zone:
            result = self._inner.run(Frame([], 1, frame.context))
            self._scalar = result if isinstance(result, pa.Scalar) else result[0]
            self._zone = zone
        return self._scalar


class SharedNode(Node):
    """An expression that occurs more than once: computed once per frame."""

    def __init__(self, inner: Node) -> None:
        self.type = inner.type
        self.is_total = inner.is_total
        self._inner = inner

    def run(self, frame: Frame) -> pa.Array | pa.Scalar:
        found = frame.memo.get(self)
        if found is None:
            found = self._inner.run(frame)
            frame.memo[self] = found
        return found


class FunctionNode(Node):
    """A call of a function with a kernel, a reference, or both."""

    def __init__(self, call: Call, definition: FunctionDefinition, arguments: list[Node]) -> None:
        self.type = call.type
        self.is_total = (
            not definition.can_fail
            and not definition.costly
            and definition.kernel is not None
            and all(argument.is_total for argument in arguments)
        )
        self._call = call
        self._definition = definition
        self._arguments = arguments
        self._kernel = definition.kernel
        self._info = CallInfo(
            tuple(argument.type for argument in arguments),
            call.type,
            tuple(
                argument.value if isinstance(argument, ConstantNode) else NOT_CONSTANT
                for argument in arguments
            ),
            _NO_CONTEXT,
        )

    def run(self, frame: Frame) -> pa.Array | pa.Scalar:
        columns = [argument.run(frame) for argument in self._arguments]
        if columns and all(isinstance(column, pa.Scalar) for column in columns):
            if not self._definition.deterministic:
                first = pa.repeat(columns[0], frame.rows)
                return self._apply(frame.context, frame.rows, [first, *columns[1:]])
            result = self._apply(frame.context, 1, [pa.repeat(columns[0], 1), *columns[1:]])
            return result if isinstance(result, pa.Scalar) else result[0]
        return self._apply(frame.context, frame.rows, columns)

    def _apply(
        self, context: EvaluationContext, rows: int, columns: list[Any]
    ) -> pa.Array | pa.Scalar:
        info = self._info
        info.context, info.rows = context, rows
        if self._definition.nulls is NullBehaviour.STRICT and any(map(_is_null, columns)):
            return pa.scalar(None, self.type.to_arrow())
        if self._kernel is not None:
            try:
                result = self._kernel(info, *columns)
            except (pa.ArrowException, ValueError, ArithmeticError) as error:
                if self._definition.reference is None:
                    raise self._failure(columns, error) from error
                # The reference says for which values, or knows how to do it.
                result = NotImplemented
            if result is not NotImplemented:
                return result
        distinct = self._distinct(columns)
        return self._rows(columns, rows) if distinct is None else distinct

    def _distinct(self, columns: list[Any]) -> pa.Array | None:
        """The result by the distinct values of the only column, if that is worth it."""
        definition = self._definition
        if not (definition.costly and definition.deterministic):
            return None
        positions = [i for i, column in enumerate(columns) if isinstance(column, pa.Array)]
        if len(positions) != 1 or len(columns[positions[0]]) < _MIN_ROWS_FOR_DISTINCT:
            return None
        position = positions[0]
        column = columns[position]
        if pa.types.is_nested(column.type):
            return None
        encoded = column.dictionary_encode("encode")
        if len(encoded.dictionary) > len(column) * _MAX_DISTINCT_SHARE:
            return None
        fewer = [*columns]
        fewer[position] = encoded.dictionary
        return self._rows(fewer, len(encoded.dictionary)).take(encoded.indices)

    def _rows(self, columns: list[Any], rows: int) -> pa.Array:
        """The reference on each row."""
        reference = self._bound_reference()
        values = [
            repeat(value_of(column, type_), rows)
            if isinstance(column, pa.Scalar)
            else values_of_column(column, type_)
            for column, type_ in zip(columns, self._info.argument_types, strict=True)
        ]
        try:
            strict = self._definition.nulls is NullBehaviour.STRICT
            results = _mapped(reference, values, rows, strict=strict)
            return column_of(results, self.type)
        except Exception as error:
            raise self._failure(columns, error) from error

    def _bound_reference(self) -> Callable[..., object]:
        reference = self._definition.reference
        if reference is None:
            message = f"{self._definition.name} does not take these types"
            raise NotImplementedError(message)
        if self._definition.contextual:
            info = self._info
            inner = reference
            return lambda *values: inner(info, *values)
        return reference

    # -- errors ---------------------------------------------------------------------------

    def _failure(self, columns: list[Any], error: Exception) -> ExpressionError:
        """The error with the expression and the values of the first row at which it fails."""
        if isinstance(error, ExpressionError):
            return error
        values = self._first_failing(columns)
        where = ""
        if values is not None:
            error, row = values
            shown = ", ".join(
                f"{_CHARACTER_SET.sub('', str(argument))} = {value!r}"
                for argument, value in zip(self._call.arguments, row, strict=True)
                if not isinstance(argument, Literal)
            )
            where = f" where {shown}" if shown else ""
        reason = str(error) or type(error).__name__
        failing = _CHARACTER_SET.sub("", f"{self._call}")
        return located(ExpressionError(f"{failing} fails{where}: {reason}"))

    def _first_failing(self, columns: list[Any]) -> tuple[Exception, tuple[Any, ...]] | None:
        """The error and the values of the first row that the reference refuses."""
        if self._definition.reference is None:
            return None
        reference = self._bound_reference()
        strict = self._definition.nulls is NullBehaviour.STRICT
        for row in self._each_row(columns):
            if strict and None in row:
                continue
            try:
                column_of([reference(*row)], self.type)
            except Exception as error:  # noqa: BLE001 - it is reported by the caller
                return error, row
        return None

    def _each_row(self, columns: list[Any]) -> Iterable[tuple[Any, ...]]:
        rows = max((len(column) for column in columns if isinstance(column, pa.Array)), default=1)
        values = [
            values_of_column(as_column(column, rows), type_)
            for column, type_ in zip(columns, self._info.argument_types, strict=True)
        ]
        return zip(*values, strict=True)


def _is_null(column: pa.Array | pa.Scalar) -> bool:
    return isinstance(column, pa.Scalar) and not column.is_valid


def _mapped(
    function: Callable[..., object], values: Sequence[Any], rows: int, *, strict: bool
) -> list[object]:
    if not values:
        return [function() for _ in range(rows)]
    if not strict:
        return list(map(function, *values))
    if len(values) == 1:
        return [None if value is None else function(value) for value in values[0]]
    return [
        None if any(value is None for value in row) else function(*row)
        for row in zip(*values, strict=False)
    ]
