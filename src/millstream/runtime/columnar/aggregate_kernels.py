"""Which kernel computes which aggregate of SQL.

What it is: the table of aggregates, and the refusal of those that are not in it.

What it is not: the kernels (``changelog_aggregates.py``, ``collecting_aggregates.py``,
``listed_aggregates.py``, ``bitmap_aggregates.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.runtime.columnar.changelog_aggregates import (
    Average,
    Count,
    Edge,
    Extreme,
    NumericExtreme,
    SingleValue,
    Sum,
    SumOrZero,
    Variance,
)
from millstream.runtime.columnar.collecting_aggregates import (
    ArrayAgg,
    Collect,
    CountedExtreme,
    KeptEdge,
    ListAgg,
)
from millstream.runtime.columnar.listed_aggregates import (
    JsonArrayAgg,
    JsonObjectAgg,
    Lag,
    Percentile,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.runtime.columnar.changelog_aggregates import Kernel

__all__ = ["SUPPORTED_AGGREGATES", "make_kernel"]


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
    from millstream.runtime.columnar.bitmap_aggregates import BITMAP_KERNELS

    return BITMAP_KERNELS[operation](call.result, retracts=call.retracts)


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
    "BITMAP_BUILD_AGG": partial(_bitmaps, operation="BUILD"),
    "BITMAP_BUILD_CARDINALITY_AGG": partial(_bitmaps, operation="BUILD"),
    "BITMAP_AND_AGG": partial(_bitmaps, operation="AND"),
    "BITMAP_AND_CARDINALITY_AGG": partial(_bitmaps, operation="AND"),
    "BITMAP_OR_AGG": partial(_bitmaps, operation="OR"),
    "BITMAP_OR_CARDINALITY_AGG": partial(_bitmaps, operation="OR"),
    "BITMAP_XOR_AGG": partial(_bitmaps, operation="XOR"),
    "BITMAP_XOR_CARDINALITY_AGG": partial(_bitmaps, operation="XOR"),
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
        retracts: whether rows may be taken back.
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
