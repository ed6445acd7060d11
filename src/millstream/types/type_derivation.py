"""Result types of operations: common types, arithmetic, aggregates, by Flink's rules.

The common type is the least restrictive one that holds the values of each; decimals follow SQL
Server's rules, with Hive's choice of what to lose where 38 digits do not suffice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.types import logical_types as lt
from millstream.types.structured_types import StructuredType
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def supports_implicit_cast(source: lt.LogicalType, target: lt.LogicalType) -> bool:
    """Return whether the planner may put a cast from ``source`` to ``target`` by itself."""
    return _supports(source, target, explicit=False)


def supports_explicit_cast(source: lt.LogicalType, target: lt.LogicalType) -> bool:
    """Return whether a program may write CAST from ``source`` to ``target``."""
    return _supports(source, target, explicit=True)


def _supports(  # noqa: PLR0911 - a table
    source: lt.LogicalType, target: lt.LogicalType, *, explicit: bool
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


def _children(source: lt.LogicalType, target: lt.LogicalType, *, explicit: bool) -> bool:
    if len(source.children) != len(target.children):
        return False
    pairs = zip(source.children, target.children, strict=True)
    return all(_supports(inner, outer, explicit=explicit) for inner, outer in pairs)


def is_single_field(interval: lt.LogicalType) -> bool:
    """Return whether an interval counts one unit only, so that a number can stand for it."""
    assert isinstance(interval, lt.YearMonthIntervalType | lt.DayTimeIntervalType)  # noqa: S101
    return " TO " not in interval.units


def needs_no_cast(source: lt.LogicalType, target: lt.LogicalType) -> bool:
    """Return whether each value of ``source`` is one of ``target`` as it is.

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
    if isinstance(source, lt.RowType) and len(source.children) != len(target.children):
        return False
    return all(map(needs_no_cast, source.children, target.children))


_MIN_KEPT_SCALE: Final = 6
#: Digits of the integers of each width, in the order of their widths.
_INTEGER_DIGITS: Final = {
    TypeRoot.TINYINT: 3,
    TypeRoot.SMALLINT: 5,
    TypeRoot.INTEGER: 10,
    TypeRoot.BIGINT: 19,
}


# -- the common type of several ---------------------------------------------------------------


def common_type(types: Sequence[lt.LogicalType]) -> lt.LogicalType | None:
    """The least restrictive type that values of all these can be cast to, nullable if one is.

    ``[INT, BIGINT, DECIMAL(2, 2)]`` gives ``DECIMAL(21, 2)``.  None if there is none, or all are
    NULL.
    """
    nullable = any(type_.is_nullable for type_ in types)
    plain = [type_.with_nullability(True) for type_ in types]  # noqa: FBT003
    found = _merge_all(plain) or _castable(plain)
    if found is None or found.root is TypeRoot.NULL:
        return None
    return without_time_attribute(found).with_nullability(nullable)


def _castable(types: list[lt.LogicalType]) -> lt.LogicalType | None:
    if len({_class_of(each) for each in types if isinstance(each, lt.RowType)}) > 1:
        return None
    result = types[0]
    for type_ in types:
        if type_.root is TypeRoot.NULL:
            continue
        if supports_implicit_cast(result, type_):
            result = type_
        elif not supports_implicit_cast(type_, result):
            return None
    return result


def _merge_all(types: list[lt.LogicalType]) -> lt.LogicalType | None:
    if any(type_.root is TypeRoot.RAW for type_ in types):
        return types[0] if all(type_ == types[0] for type_ in types) else None
    result: lt.LogicalType | None = None
    for type_ in types:
        if type_.root is TypeRoot.NULL:
            continue
        result = type_ if result is None else _merge(result, type_)
        if result is None:
            return None
    return result or lt.NullType()


def _merge(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType | None:
    if left == right:
        return without_time_attribute(left)
    shifted = _shifted_time(left, right)
    if shifted is not None:
        return shifted
    for family, merge in _BY_FAMILY:
        if left.is_a(family) and right.is_a(family):
            return merge(left, right)
    if left.root is not right.root:
        return None
    return _merge_same_root(left, right)


def _shifted_time(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType | None:
    """A point in time with an interval, or with a number of days."""
    for time, other in ((left, right), (right, left)):
        if time.is_a(TypeFamily.DATETIME) and other.is_a(TypeFamily.INTERVAL):
            return time
        has_days = time.is_a(TypeFamily.TIMESTAMP) or time.root is TypeRoot.DATE
        if has_days and other.is_a(TypeFamily.EXACT_NUMERIC):
            return time
    return None


def without_time_attribute(type_: lt.LogicalType) -> lt.LogicalType:
    """The type of a value that is computed: a time attribute becomes an ordinary point in time."""
    if isinstance(type_, lt.TimestampType | lt.LocalZonedTimestampType) and type_.is_time_attribute:
        return type_.with_parameters(kind=lt.TimestampKind.REGULAR)
    return type_


def _merge_sized(left: Any, right: Any) -> lt.LogicalType:
    """Text or bytes: fixed lengths that differ become a variable one, so nothing is padded."""
    length = max(left.length, right.length)
    alike = type(left) is type(right) and left.length == right.length
    if alike and isinstance(left, lt.CharType | lt.BinaryType):
        return type(left)(length)
    return (lt.VarCharType if isinstance(left, lt.CharType | lt.VarCharType) else lt.VarBinaryType)(
        length
    )


def _merge_numbers(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType:
    approximate = TypeFamily.APPROXIMATE_NUMERIC
    if not left.is_a(approximate) and not right.is_a(approximate):
        return _merge_exact(left, right)
    if TypeRoot.DOUBLE in {left.root, right.root} or TypeRoot.DECIMAL in {left.root, right.root}:
        # Flink keeps FLOAT where it stands behind a DECIMAL, by an oversight of its order.
        keeps_float = left.root is TypeRoot.DECIMAL and right.root is TypeRoot.FLOAT
        return right if keeps_float else lt.DoubleType()
    return left if left.is_a(approximate) else right


def _merge_exact(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType:
    digits = _INTEGER_DIGITS
    if left.root in digits and right.root in digits:
        return right if digits[right.root] > digits[left.root] else left
    one, other = decimal_of(left), decimal_of(right)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    scale = min(max(one.scale, other.scale), lt.MAX_DECIMAL_PRECISION - whole)
    return lt.DecimalType(whole + scale, scale)


def _merge_times(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType:
    assert isinstance(left, lt.TimeType)  # noqa: S101
    assert isinstance(right, lt.TimeType)  # noqa: S101
    return lt.TimeType(max(left.precision, right.precision))


def _merge_timestamps(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType:
    assert isinstance(left, lt.TimestampType | lt.LocalZonedTimestampType)  # noqa: S101
    assert isinstance(right, lt.TimestampType | lt.LocalZonedTimestampType)  # noqa: S101
    precision = max(left.precision, right.precision)
    zoned = isinstance(left, lt.LocalZonedTimestampType) or isinstance(
        right, lt.LocalZonedTimestampType
    )
    return lt.LocalZonedTimestampType(precision) if zoned else lt.TimestampType(precision)


_BY_FAMILY: Final = (
    (TypeFamily.CHARACTER_STRING, _merge_sized),
    (TypeFamily.BINARY_STRING, _merge_sized),
    (TypeFamily.NUMERIC, _merge_numbers),
    (TypeFamily.TIME, _merge_times),
    (TypeFamily.TIMESTAMP, _merge_timestamps),
)


def _merge_same_root(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType | None:
    if isinstance(left, lt.DayTimeIntervalType) and isinstance(right, lt.DayTimeIntervalType):
        return lt.DayTimeIntervalType(
            _merge_resolutions(left.units, right.units),
            max(left.day_precision, right.day_precision),
            max(left.fractional_precision, right.fractional_precision),
        )
    if isinstance(left, lt.YearMonthIntervalType) and isinstance(right, lt.YearMonthIntervalType):
        resolution = _merge_resolutions(left.units, right.units)
        return lt.YearMonthIntervalType(resolution, max(left.precision, right.precision))
    if left.children and len(left.children) == len(right.children):
        return _merge_children(left, right)
    return None


_UNITS: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def _merge_resolutions(left: str, right: str) -> str:
    positions = [_UNITS.index(unit) for text in (left, right) for unit in text.split(" TO ")]
    first, last = _UNITS[min(positions)], _UNITS[max(positions)]
    return first if first == last else f"{first} TO {last}"


def _merge_children(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType | None:
    merged = [common_type(pair) for pair in zip(left.children, right.children, strict=True)]
    children = [child for child in merged if child is not None]
    if len(children) < len(merged):
        return None
    if isinstance(left, lt.ArrayType):
        return lt.ArrayType(children[0])
    if isinstance(left, lt.MultisetType):
        return lt.MultisetType(children[0])
    if isinstance(left, lt.MapType):
        return lt.MapType(children[0], children[1])
    assert isinstance(left, lt.RowType)  # noqa: S101
    made = tuple(
        replace(each, data_type=of) for each, of in zip(left.fields, children, strict=True)
    )
    if isinstance(left, StructuredType) or isinstance(right, StructuredType):
        alike = _class_of(left) == _class_of(right)
        return left.nullable().with_parameters(members=made) if alike else None
    return lt.RowType(made)


def _class_of(type_: lt.LogicalType) -> tuple[str, ...] | None:
    """The class and its attributes, which go by their names; None of rows, which go by places."""
    return (type_.class_name, *type_.names) if isinstance(type_, StructuredType) else None


# -- arithmetic -------------------------------------------------------------------------------


def decimal_of(type_: lt.LogicalType) -> lt.DecimalType:
    """The DECIMAL that holds all values of an exact number type."""
    if isinstance(type_, lt.DecimalType):
        return type_
    return lt.DecimalType(_INTEGER_DIGITS[type_.root], 0, nullable=type_.is_nullable)


def _arithmetic(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType | None:
    """The result's type where no DECIMAL takes part; else None."""
    decimal = TypeRoot.DECIMAL in {left.root, right.root}
    approximate = TypeFamily.APPROXIMATE_NUMERIC
    if left.is_a(approximate) or right.is_a(approximate):
        return lt.DoubleType() if decimal else _merge_numbers(left, right)
    return None if decimal else _merge_exact(left, right)


def _nullable(
    result: lt.LogicalType, left: lt.LogicalType, right: lt.LogicalType
) -> lt.LogicalType:
    return result.with_nullability(left.is_nullable or right.is_nullable)


def add_types(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType:
    """The type of the sum or difference of two numbers."""
    plain = _arithmetic(left, right)
    if plain is None:
        one, other = decimal_of(left), decimal_of(right)
        scale = max(one.scale, other.scale)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        plain = _adjusted(whole + scale + 1, scale)
    return _nullable(plain, left, right)


def multiply_types(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType:
    """The type of the product of two numbers."""
    plain = _arithmetic(left, right)
    if plain is None:
        one, other = decimal_of(left), decimal_of(right)
        plain = _adjusted(one.precision + other.precision + 1, one.scale + other.scale)
    return _nullable(plain, left, right)


def divide_types(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType:
    """The type of the quotient of two numbers; integers give an integer."""
    plain = _arithmetic(left, right)
    if plain is None:
        plain = _divided(decimal_of(left), decimal_of(right))
    return _nullable(plain, left, right)


def _divided(one: lt.DecimalType, other: lt.DecimalType) -> lt.DecimalType:
    scale = max(_MIN_KEPT_SCALE, one.scale + other.precision + 1)
    return _adjusted(one.precision - one.scale + other.scale + scale, scale)


def modulo_types(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType:
    """The type of the remainder of a division of two numbers; of whole ones the divisor's."""
    plain = _arithmetic(left, right)
    if plain is None:
        plain = _decimal_modulo(left, right)
    elif plain.is_a(TypeFamily.INTEGER_NUMERIC):
        plain = right
    return _nullable(plain, left, right)


def _decimal_modulo(left: lt.LogicalType, right: lt.LogicalType) -> lt.LogicalType:
    one, other = decimal_of(left), decimal_of(right)
    scale = max(one.scale, other.scale)
    if scale == 0:
        return right
    whole = min(one.precision - one.scale, other.precision - other.scale)
    return _adjusted(whole + scale, scale)


def _adjusted(precision: int, scale: int) -> lt.DecimalType:
    """At most 38 digits: digits after the point are given up first, but for six."""
    if precision <= lt.MAX_DECIMAL_PRECISION:
        return lt.DecimalType(precision, scale)
    whole = precision - scale
    kept = max(lt.MAX_DECIMAL_PRECISION - whole, min(scale, _MIN_KEPT_SCALE))
    return lt.DecimalType(lt.MAX_DECIMAL_PRECISION, kept)


def round_type(type_: lt.LogicalType, digits: int) -> lt.LogicalType:
    """The type of a number rounded to ``digits`` behind the point; negative: before it."""
    if not isinstance(type_, lt.DecimalType) or digits >= type_.scale:
        return type_
    whole = 1 + type_.precision - type_.scale
    scale = max(digits, 0)
    precision = min(lt.MAX_DECIMAL_PRECISION, whole + scale)
    return lt.DecimalType(precision, scale, nullable=type_.is_nullable)


# -- aggregates -------------------------------------------------------------------------------


def sum_type(type_: lt.LogicalType) -> lt.LogicalType:
    """The type of SUM: the argument's, DECIMAL(38, s) for decimals."""
    if isinstance(type_, lt.DecimalType):
        return type_.with_parameters(precision=lt.MAX_DECIMAL_PRECISION)
    return type_


def average_type(type_: lt.LogicalType) -> lt.LogicalType:
    """The type of AVG: the argument's, DECIMAL(38, max(6, s)) for decimals."""
    if isinstance(type_, lt.DecimalType):
        count = lt.DecimalType(20, 0)
        whole = lt.DecimalType(lt.MAX_DECIMAL_PRECISION, type_.scale)
        return _divided(whole, count).with_nullability(type_.is_nullable)
    return type_


#: The type of COUNT.
COUNT_TYPE: Final = lt.BigIntType(nullable=False)
