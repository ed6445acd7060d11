"""Special forms: CASE, AND, OR, COALESCE and their like, which evaluate parts only on some rows.

What it is: where all parts are total (they neither fail nor cost much), whole columns are computed
and combined.  Otherwise each part is computed on the rows that reach it, and the results are put
together in order, so that ``CASE WHEN b <> 0 THEN a / b END`` divides by no zero.

What it is not: functions that merely treat NULL in a way of their own; those have kernels.

Read next: ``expressions/evaluator.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.evaluation import Node, as_column

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from millstream.expressions.frames import Frame
    from millstream.types.logical_types import LogicalType

__all__ = ["SPECIAL_FORMS"]

_TRUE: Final = pa.scalar(True)  # noqa: FBT003
_FALSE: Final = pa.scalar(False)  # noqa: FBT003


class _Gathered:
    """Results of several selections of rows, put back in order."""

    def __init__(self, type_: LogicalType, rows: int) -> None:
        self._arrow_type = type_.to_arrow()
        self._rows = rows
        self._parts: list[pa.Array] = []
        self._positions: list[NDArray[np.int64]] = []

    def add(self, positions: NDArray[np.int64], node: Node | None, frame: Frame) -> None:
        """The node's values at these positions; NULL where there is no node."""
        count = len(positions)
        if count == 0:
            return
        if node is None:
            part = pa.nulls(count, self._arrow_type)
        elif count == self._rows:
            part = as_column(node.run(frame), count)
        else:
            part = as_column(node.run(frame.take(pa.array(positions))), count)
        self._parts.append(part)
        self._positions.append(positions)

    def add_known(self, positions: NDArray[np.int64], column: pa.Array) -> None:
        """What a column of all rows has at these positions."""
        self._parts.append(column.take(pa.array(positions)))
        self._positions.append(positions)

    def column(self) -> pa.Array:
        """All rows in order."""
        if len(self._parts) == 1:
            return self._parts[0]
        if not self._parts:
            return pa.nulls(0, self._arrow_type)
        order = np.empty(self._rows, dtype=np.int64)
        order[np.concatenate(self._positions)] = np.arange(self._rows)
        return pa.concat_arrays(self._parts).take(pa.array(order))


def _is_true(mask: pa.Array | pa.Scalar, rows: int) -> NDArray[np.bool_]:
    """Where a condition is TRUE: not FALSE, not UNKNOWN."""
    column = as_column(mask, rows)
    if column.null_count:
        column = column.fill_null(_FALSE)
    as_bool: NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return as_bool


class _Case(Node):
    """CASE(condition, value, condition, value, ..., otherwise)."""

    def __init__(self, type_: LogicalType, arguments: list[Node]) -> None:
        self.type = type_
        self._conditions = arguments[0:-1:2]
        self._values = arguments[1:-1:2]
        self._otherwise = arguments[-1]
        self._later_are_total = all(
            node.is_total for node in [*self._conditions[1:], *self._values, self._otherwise]
        )
        self.is_total = self._later_are_total and self._conditions[0].is_total

    def run(self, frame: Frame) -> pa.Array | pa.Scalar:
        if self._later_are_total:
            return self._all_rows(frame)
        gathered = _Gathered(self.type, frame.rows)
        remaining: NDArray[np.int64] = np.arange(frame.rows, dtype=np.int64)
        inner = frame
        for condition, value in zip(self._conditions, self._values, strict=True):
            if len(remaining) == 0:
                break
            if len(remaining) < inner.rows:
                inner = frame.take(pa.array(remaining))
            hit = _is_true(condition.run(inner), len(remaining))
            gathered.add(remaining[hit], value, frame)
            remaining = remaining[~hit]
        gathered.add(remaining, self._otherwise, frame)
        return gathered.column()

    def _all_rows(self, frame: Frame) -> pa.Array | pa.Scalar:
        result = self._otherwise.run(frame)
        pairs = list(zip(self._conditions, self._values, strict=True))
        for condition, value in reversed(pairs):
            mask = condition.run(frame)
            if isinstance(mask, pa.Scalar):
                result = value.run(frame) if mask.as_py() else result
                continue
            if mask.null_count:
                mask = mask.fill_null(_FALSE)
            result = pc.if_else(mask, value.run(frame), result)
        return result


class _Junction(Node):
    """AND, OR: a part is evaluated where those before have not decided."""

    def __init__(self, type_: LogicalType, arguments: list[Node], *, is_and: bool) -> None:
        self.type = type_
        self.is_total = all(node.is_total for node in arguments)
        self._parts = arguments
        self._combine = pc.and_kleene if is_and else pc.or_kleene
        self._deciding = _FALSE if is_and else _TRUE

    def run(self, frame: Frame) -> pa.Array | pa.Scalar:
        result = self._parts[0].run(frame)
        for part in self._parts[1:]:
            if part.is_total:
                result = self._combine(result, part.run(frame))
            else:
                result = self._where_open(as_column(result, frame.rows), part, frame)
        return result

    def _where_open(self, result: pa.Array, part: Node, frame: Frame) -> pa.Array:
        """The result after ``part``, which runs on the rows that are not decided yet."""
        decided = _is_true(pc.equal(result, self._deciding), frame.rows)
        positions = np.flatnonzero(~decided)
        if len(positions) == 0:
            return result
        if len(positions) == frame.rows:
            return self._combine(result, part.run(frame))
        indices = pa.array(positions)
        values = as_column(part.run(frame.take(indices)), len(positions))
        combined = self._combine(result.take(indices), values)
        return pc.replace_with_mask(result, pa.array(~decided), combined)


class _Coalesce(Node):
    """COALESCE: a part is evaluated where all before are NULL."""

    def __init__(self, type_: LogicalType, arguments: list[Node]) -> None:
        self.type = type_
        self.is_total = all(node.is_total for node in arguments)
        self._parts = arguments

    def run(self, frame: Frame) -> pa.Array | pa.Scalar:
        result = as_column(self._parts[0].run(frame), frame.rows)
        for part in self._parts[1:]:
            if result.null_count == 0:
                break
            if part.is_total:
                result = pc.coalesce(result, part.run(frame))
                continue
            open_rows = result.is_null().to_numpy(zero_copy_only=False)
            gathered = _Gathered(self.type, frame.rows)
            gathered.add_known(np.flatnonzero(~open_rows), result)
            gathered.add(np.flatnonzero(open_rows), part, frame)
            result = gathered.column()
        return result


def _and(type_: LogicalType, arguments: list[Node]) -> Node:
    return _Junction(type_, arguments, is_and=True)


def _or(type_: LogicalType, arguments: list[Node]) -> Node:
    return _Junction(type_, arguments, is_and=False)


#: By the name of the function; IF is a CASE of one condition.
SPECIAL_FORMS: Final[dict[str, Callable[[LogicalType, list[Node]], Node]]] = {
    "CASE": _Case,
    "IF": _Case,
    "AND": _and,
    "OR": _or,
    "COALESCE": _Coalesce,
    "IFNULL": _Coalesce,
}
