"""The types that ``from_elements`` infers of values, and the values that fit given types."""

from __future__ import annotations

import array
import datetime as dt
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.errors import ElementTypeError, ElementValueError, ProgramError
from millstream.sql.lowering.conversion import logical_type
from millstream.table.types import DataTypes, UserDefinedType
from millstream.types.logical_types import (
    ArrayType,
    BinaryType,
    CharType,
    DecimalType,
    DoubleType,
    IntegralType,
    LogicalType,
    MapType,
    MultisetType,
    NullType,
    RowField,
    RowType,
    VarBinaryType,
    VarCharType,
)
from millstream.types.row import Row
from millstream.types.structured_types import StructuredType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "fitted_rows",
    "infer_row",
    "infer_type",
    "merge_types",
    "stored_type",
    "values_of",
]

_SCALARS: Final[dict[type, LogicalType]] = {
    bool: DataTypes.BOOLEAN(),
    int: DataTypes.BIGINT(),
    float: DataTypes.DOUBLE(),
    str: DataTypes.STRING(),
    bytes: DataTypes.BYTES(),
    bytearray: DataTypes.BYTES(),
    Decimal: DataTypes.DECIMAL(38, 18),
    dt.date: DataTypes.DATE(),
    dt.time: DataTypes.TIME(6),
}
_WIDTHS: Final = {
    1: DataTypes.TINYINT(),
    2: DataTypes.SMALLINT(),
    4: DataTypes.INT(),
    8: DataTypes.BIGINT(),
}
_ARRAYS: Final = {"f": DataTypes.FLOAT(), "d": DataTypes.DOUBLE(), "u": DataTypes.CHAR(4)}
_SIGNED: Final = "bhilq"
#: Wide enough for any DECIMAL.
_EXACT: Final = Context(prec=100, rounding=ROUND_HALF_UP)


# -- inference -----------------------------------------------------------------------------------


def infer_row(elements: Sequence[Any], names: Sequence[str] | None = None) -> RowType:
    """The type of rows of a program.

    Args:
        elements: tuples, lists, rows, dicts or objects.
        names: of the columns; what they do not name is ``_1``, ``_2`` and so on.

    Raises:
        ValueError: there are no rows, or a column holds None alone.
        TypeError: a value has no type, or values of one column have different ones.
    """
    if not elements:
        message = "The schema cannot be inferred from no rows; give it as DataTypes.ROW([...])."
        raise ElementValueError(message)
    made = merged(_row_of(each, names) for each in elements)
    assert isinstance(made, RowType)  # noqa: S101 - of rows
    for each in made:
        if _has_null(each.type):
            message = (
                f"The type of column '{each.name}' cannot be inferred, since it holds None or "
                "empty collections alone; give the schema as DataTypes.ROW([...])."
            )
            raise ElementValueError(message)
    return made


def infer_type(value: Any) -> LogicalType:  # noqa: PLR0911 - a table
    """The type of a value.

    Raises:
        TypeError: it has none.
    """
    if value is None:
        return NullType()
    named = getattr(value, "__UDT__", None)
    if isinstance(named, UserDefinedType):
        return named
    known = _SCALARS.get(type(value))
    if known is not None:
        return known
    if isinstance(value, dict):
        keys = merged(infer_type(each) for each in value)
        return MapType(keys.not_null(), merged(map(infer_type, value.values())))
    if type(value) is list:
        return ArrayType(merged(map(infer_type, value)))
    if isinstance(value, array.array):
        return ArrayType(_type_of_code(value.typecode).not_null())
    if isinstance(value, tuple | Row):
        return _row_of(value, None)
    return _other_type(value)


def _other_type(value: Any) -> LogicalType:
    try:
        return logical_type(pa.array([value]).type)
    except (pa.ArrowException, ProgramError) as error:
        if hasattr(value, "__dict__"):
            return _row_of(value, None)
        message = f"A value of type {type(value).__name__} has no type in tables: {value!r:.100}"
        raise ElementTypeError(message) from error


def _type_of_code(code: str) -> LogicalType:
    known = _ARRAYS.get(code)
    # An integer without sign needs one bit more.
    width = array.array(code).itemsize * (1 if code in _SIGNED else 2)
    known = known or _WIDTHS.get(width)
    if known is None:
        message = f"An array of type code '{code}' has no type in tables; make a list of it."
        raise ElementTypeError(message)
    return known


def _row_of(value: Any, names: Sequence[str] | None) -> RowType:
    return RowType([RowField(name, infer_type(each)) for name, each in _named(value, names)])


def _named(value: Any, names: Sequence[str] | None) -> list[tuple[str, Any]]:
    """The fields of a record with their names."""
    if isinstance(value, dict):
        return [(name, value.get(name)) for name in names or sorted(value)]
    own = getattr(value, "_fields", None)
    if isinstance(value, Row | tuple | list):
        given = list(names or own or ())
        given += [f"_{at + 1}" for at in range(len(given), len(value))]
        if len(given) != len(value):
            message = f"from_elements(): a row has {len(value)} values, but {len(given)} names."
            raise ElementValueError(message)
        return list(zip(given, value, strict=True))
    if type(value) in _SCALARS or not hasattr(value, "__dict__"):
        return _named((value,), names)
    return [(name, vars(value).get(name)) for name in names or sorted(vars(value))]


def merged(kinds: Iterable[LogicalType]) -> LogicalType:
    """The type of all of several values."""
    made: LogicalType = NullType()
    for each in kinds:
        made = merge_types(made, each)
    return made


def merge_types(one: LogicalType, other: LogicalType, where: str = "") -> LogicalType:
    """The type of values of which some are of one type and some of another.

    Raises:
        TypeError: there is none.
    """
    if isinstance(one, NullType):
        return other
    if isinstance(other, NullType) or one == other:
        return one
    if {type(one), type(other)} <= {type(DataTypes.BIGINT()), DoubleType}:
        return DoubleType()
    if isinstance(one, RowType) and isinstance(other, RowType):
        return _merged_rows(one, other, where)
    if type(one) is type(other) and isinstance(one, ArrayType | MultisetType | MapType):
        pairs = zip(one.children, other.children, strict=True)
        parts = [merge_types(a, b, where) for a, b in pairs]
        if isinstance(one, MapType):
            return MapType(parts[0], parts[1])
        return ArrayType(parts[0]) if isinstance(one, ArrayType) else MultisetType(parts[0])
    names = (each.as_summary_string() for each in (one, other))
    message = f"{f'{where}: ' if where else ''}values are of different types, {' and '.join(names)}"
    raise ElementTypeError(message)


def _merged_rows(one: RowType, other: RowType, where: str) -> RowType:
    if one.names != other.names:
        message = f"{where}: " if where else ""
        message += f"rows have different columns, {one.names} and {other.names}"
        raise ElementTypeError(message)
    return RowType(
        [
            RowField(
                a.name, merge_types(a.type, b.type, f"field {a.name}{where and f' in {where}'}")
            )
            for a, b in zip(one, other, strict=True)
        ]
    )


def _has_null(kind: LogicalType) -> bool:
    return isinstance(kind, NullType) or any(map(_has_null, kind.children))


# -- values --------------------------------------------------------------------------------------


def stored_type(kind: LogicalType) -> LogicalType:
    """The type that values are kept as: user-defined types are replaced by theirs."""
    if isinstance(kind, UserDefinedType):
        return stored_type(kind.sql_type()).with_nullability(kind.is_nullable)
    if isinstance(kind, RowType):
        fields = [RowField(each.name, stored_type(each.type), each.description) for each in kind]
        return kind.with_parameters(members=tuple(fields))
    if isinstance(kind, ArrayType | MultisetType):
        return kind.with_parameters(element=stored_type(kind.element))
    if isinstance(kind, MapType):
        return kind.with_parameters(key=stored_type(kind.key), value=stored_type(kind.value))
    return kind


def fitted_rows(elements: Sequence[Any], row: RowType) -> list[tuple[Any, ...]]:
    """The rows with values that fit the types: decimals are rounded, objects serialized.

    As in Flink, a decimal that has too many digits before the point is NULL.

    Raises:
        TypeError: a value is of another type.
        ValueError: a value is None in a column without NULL, or there are too few or too many.
    """
    convert = _fitter(row, "")
    return [convert(each) for each in elements]


def _fitter(kind: LogicalType, where: str) -> Callable[[Any], Any]:
    inner = _fitter_of_value(kind, where)

    def fit(value: Any) -> Any:
        if value is not None:
            return inner(value)
        if not kind.is_nullable and where:
            message = f"{where}: This field is not nullable, but got None"
            raise ElementValueError(message)
        return None

    return fit


def _fitter_of_value(kind: LogicalType, where: str) -> Callable[[Any], Any]:  # noqa: PLR0911 - a table
    if isinstance(kind, UserDefinedType):
        return _serializer(kind, where)
    if isinstance(kind, DecimalType):
        return lambda value: _rounded(value, kind)
    if isinstance(kind, RowType) and not isinstance(kind, StructuredType):
        return _fitter_of_rows(kind, where)
    if isinstance(kind, ArrayType):
        element = _fitter(kind.element, f"element in array {where}")
        return lambda value: (
            list(map(element, value)) if isinstance(value, list | tuple | array.array) else value
        )
    if isinstance(kind, MapType):
        key = _fitter(kind.key, f"key of map in {where}")
        item = _fitter(kind.value, f"value of map in {where}")
        return lambda value: (
            {key(k): item(v) for k, v in value.items()} if isinstance(value, dict) else value
        )
    if isinstance(kind, IntegralType):
        return lambda value: _in_range(value, kind, where)
    if isinstance(kind, CharType | VarCharType | BinaryType | VarBinaryType):
        return lambda value: _of_length(value, kind, where)
    return lambda value: value


def _fitter_of_rows(kind: RowType, where: str) -> Callable[[Any], Any]:
    inside = f" in {where}" if where else ""
    parts = [_fitter(each.type, f"field {each.name}{inside}") for each in kind]

    def fit(value: Any) -> Any:
        given = values_of(value, kind)
        if len(given) != len(parts):
            message = (
                f"{where or 'from_elements()'}: a row has {len(given)} values, and there are "
                f"{len(parts)} fields"
            )
            raise ElementValueError(message)
        return tuple(part(each) for part, each in zip(parts, given, strict=True))

    return fit


def values_of(value: Any, kind: RowType) -> list[Any]:
    """Return the values of a record for the fields of a row, by name where it has names."""
    own = getattr(value, "_fields", None) if isinstance(value, Row) else None
    if own and set(kind.names) <= set(own):
        return [value[name] for name in kind.names]
    if isinstance(value, dict):
        return [value.get(name) for name in kind.names]
    if isinstance(value, Row | tuple | list):
        return list(value)
    if hasattr(value, "__dict__") and type(value) not in _SCALARS:
        return [vars(value).get(name) for name in kind.names]
    return [value]


def _serializer(kind: UserDefinedType, where: str) -> Callable[[Any], Any]:
    stored = _fitter(kind.sql_type(), where)

    def fit(value: Any) -> Any:
        if getattr(value, "__UDT__", None) != kind:
            message = f"{where}: {value!r:.100} is no value of {type(kind).__name__}"
            raise ElementValueError(message)
        return stored(kind.serialize(value))

    return fit


def _rounded(value: Any, kind: DecimalType) -> Any:
    if not isinstance(value, Decimal) or not value.is_finite():
        return value
    made = value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    return made if abs(made) < Decimal(10) ** (kind.precision - kind.scale) else None


def _of_length(
    value: Any, kind: CharType | VarCharType | BinaryType | VarBinaryType, where: str
) -> Any:
    if isinstance(value, str | bytes | bytearray):
        exact = isinstance(kind, CharType | BinaryType)
        if len(value) != kind.length if exact else len(value) > kind.length:
            wrong = "is not" if exact else "exceeds"
            message = (
                f"{where}: length of object ({value!r:.100}) of {kind.type_name()} {wrong}: "
                f"{kind.length}"
            )
            raise ElementValueError(message)
    return value


def _in_range(value: Any, kind: LogicalType, where: str) -> Any:
    if isinstance(value, int):
        half = 1 << (kind.to_arrow().bit_width - 1)
        if not -half <= value < half:
            message = f"{where}: object of {kind.type_name()} out of range, got: {value}"
            raise ElementValueError(message)
    return value
