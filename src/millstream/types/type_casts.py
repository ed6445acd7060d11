"""Which type may be cast to which: implicitly by the planner, explicitly by CAST.

What it is: two tables by root, after Flink's matrix, and the recursion into arrays, maps and rows.

What it is not: how values are converted; that is ``expressions/casts/``.

Read next: ``types/type_derivation.py``.
"""

from __future__ import annotations

from typing import Final

from millstream.types.logical_types import (
    DayTimeIntervalType,
    LogicalType,
    RowType,
    YearMonthIntervalType,
)
from millstream.types.type_roots import TypeFamily, TypeRoot

__all__ = ["is_single_field", "needs_no_cast", "supports_explicit_cast", "supports_implicit_cast"]

_R: Final = TypeRoot
_STRINGS: Final = frozenset({_R.CHAR, _R.VARCHAR})
_BYTES: Final = frozenset({_R.BINARY, _R.VARBINARY})
_INTEGERS: Final = frozenset({_R.TINYINT, _R.SMALLINT, _R.INTEGER, _R.BIGINT})
_EXACT: Final = _INTEGERS | {_R.DECIMAL}
_NUMBERS: Final = _EXACT | {_R.FLOAT, _R.DOUBLE}
_TIMESTAMPS: Final = frozenset({_R.TIMESTAMP_WITHOUT_TIME_ZONE, _R.TIMESTAMP_WITH_LOCAL_TIME_ZONE})
_DATETIMES: Final = _TIMESTAMPS | {_R.DATE, _R.TIME_WITHOUT_TIME_ZONE}
_INTERVALS: Final = frozenset({_R.INTERVAL_YEAR_MONTH, _R.INTERVAL_DAY_TIME})
_COLLECTIONS: Final = frozenset({_R.ARRAY, _R.MAP, _R.MULTISET, _R.ROW})
#: What has a text; of a variant JSON_STRING gives it.
_ANY: Final = frozenset(_R) - {_R.SYMBOL, _R.NULL, _R.VARIANT}

#: Target -> sources that the planner may cast without being asked.
_IMPLICIT: Final[dict[TypeRoot, frozenset[TypeRoot]]] = {
    _R.VARCHAR: _STRINGS,
    _R.VARBINARY: _BYTES,
    _R.SMALLINT: frozenset({_R.TINYINT}),
    _R.INTEGER: frozenset({_R.TINYINT, _R.SMALLINT}),
    _R.BIGINT: frozenset({_R.TINYINT, _R.SMALLINT, _R.INTEGER}),
    _R.DECIMAL: _NUMBERS,
    _R.FLOAT: _EXACT,
    _R.DOUBLE: _NUMBERS,
    _R.DATE: frozenset({_R.TIMESTAMP_WITHOUT_TIME_ZONE}),
    _R.TIME_WITHOUT_TIME_ZONE: frozenset({_R.TIMESTAMP_WITHOUT_TIME_ZONE}),
    _R.TIMESTAMP_WITHOUT_TIME_ZONE: frozenset({_R.TIMESTAMP_WITH_LOCAL_TIME_ZONE}),
    _R.TIMESTAMP_WITH_LOCAL_TIME_ZONE: frozenset({_R.TIMESTAMP_WITHOUT_TIME_ZONE}),
}

_TO_NUMBER: Final = _NUMBERS | _STRINGS | {_R.BOOLEAN}
#: Target -> sources that CAST takes besides.
_EXPLICIT: Final[dict[TypeRoot, frozenset[TypeRoot]]] = {
    _R.CHAR: _ANY,
    _R.VARCHAR: _ANY,
    _R.BOOLEAN: _STRINGS | _INTEGERS,
    _R.BINARY: _STRINGS | _BYTES,
    _R.VARBINARY: _STRINGS | _BYTES,
    _R.DECIMAL: _TO_NUMBER | _INTERVALS,
    _R.TINYINT: _TO_NUMBER | _INTERVALS,
    _R.SMALLINT: _TO_NUMBER | _INTERVALS,
    _R.INTEGER: _TO_NUMBER | _INTERVALS,
    _R.BIGINT: _TO_NUMBER | _INTERVALS,
    _R.FLOAT: _TO_NUMBER,
    _R.DOUBLE: _TO_NUMBER,
    _R.DATE: _TIMESTAMPS | _STRINGS,
    _R.TIME_WITHOUT_TIME_ZONE: _TIMESTAMPS | _STRINGS,
    _R.TIMESTAMP_WITHOUT_TIME_ZONE: _DATETIMES | _STRINGS,
    _R.TIMESTAMP_WITH_LOCAL_TIME_ZONE: _DATETIMES | _STRINGS,
    _R.INTERVAL_YEAR_MONTH: _EXACT,
    _R.INTERVAL_DAY_TIME: _EXACT,
}


def supports_implicit_cast(source: LogicalType, target: LogicalType) -> bool:
    """Whether the planner may put a cast from ``source`` to ``target`` by itself."""
    return _supports(source, target, explicit=False)


def supports_explicit_cast(source: LogicalType, target: LogicalType) -> bool:
    """Whether a program may write CAST from ``source`` to ``target``."""
    return _supports(source, target, explicit=True)


def _supports(  # noqa: PLR0911 - a table
    source: LogicalType, target: LogicalType, *, explicit: bool
) -> bool:
    if source.is_nullable and not target.is_nullable and not explicit:
        return False
    if source.with_nullability(True) == target.with_nullability(True):  # noqa: FBT003
        return True
    if source.root is TypeRoot.NULL:
        return True
    if target.root in _COLLECTIONS or (source.root in _COLLECTIONS and not explicit):
        return source.root is target.root and _children(source, target, explicit=explicit)
    if source.is_a(TypeFamily.INTERVAL) and target.is_a(TypeFamily.EXACT_NUMERIC):
        return explicit and is_single_field(source)
    if source.is_a(TypeFamily.EXACT_NUMERIC) and target.is_a(TypeFamily.INTERVAL):
        return explicit and is_single_field(target)
    if source.root is target.root:
        return target.root is not TypeRoot.RAW
    if source.root in _IMPLICIT.get(target.root, ()):
        return True
    return explicit and source.root in _EXPLICIT.get(target.root, ())


def _children(source: LogicalType, target: LogicalType, *, explicit: bool) -> bool:
    if len(source.children) != len(target.children):
        return False
    pairs = zip(source.children, target.children, strict=True)
    return all(_supports(inner, outer, explicit=explicit) for inner, outer in pairs)


def is_single_field(interval: LogicalType) -> bool:
    """Whether an interval counts one unit only, so that a number can stand for it."""
    assert isinstance(interval, YearMonthIntervalType | DayTimeIntervalType)  # noqa: S101
    return " TO " not in interval.units


def needs_no_cast(source: LogicalType, target: LogicalType) -> bool:
    """Whether each value of ``source`` is one of ``target`` as it is.

    Text and bytes fit a longer variable type; a row fits one with other names.
    """
    if source.is_nullable and not target.is_nullable:
        return False
    pairs = {TypeRoot.VARCHAR: _STRINGS, TypeRoot.VARBINARY: _BYTES}
    if source.root in pairs.get(target.root, ()):
        return bool(source.length <= target.length)  # type: ignore[attr-defined]
    if source.root is not target.root:
        return False
    if not source.children:
        return source.with_nullability(target.is_nullable) == target
    if isinstance(source, RowType) and len(source.children) != len(target.children):
        return False
    return all(map(needs_no_cast, source.children, target.children))
