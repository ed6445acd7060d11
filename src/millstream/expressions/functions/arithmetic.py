"""Arithmetic: operators, rounding, powers, logarithms, angles, random numbers, number bases.

Results are Java's: integers wrap, their division truncates and fails for zero, decimals are rounded
HALF_UP and NULL where they overflow, floating-point numbers are IEEE's, undefined results are NaN.
Kernels are Arrow's, which call the C library as Python does: numpy's results differ from it, and
from machine to machine, in the last digit.
"""

from __future__ import annotations

import math
import secrets
import uuid
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.decimals import (
    EXACT,
    QUOTIENT,
    combine_columns,
    divide_columns,
    fit,
    fit_column,
    is_integer,
    wrap,
    wrapped,
)
from millstream.expressions.functions import temporal
from millstream.expressions.functions.definition import (
    DOUBLE,
    INT,
    NOT_CONSTANT,
    STRING,
    CallInfo,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    Signature,
    of_first,
    on_columns,
    same_as,
    signature,
)
from millstream.expressions.functions.temporal import ROUNDED_TIME, ceil_to, floor_to
from millstream.types.logical_types import CharType, DecimalType, LogicalType
from millstream.types.type_derivation import (
    add_types,
    decimal_of,
    divide_types,
    modulo_types,
    multiply_types,
    round_type,
)
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


functions: Final = FunctionGroup("arithmetic")

_DIVISION_BY_ZERO: Final = "division by zero"
#: Powers of ten up to there, and whole numbers up to there, are exact in 64 bits; the error of a
#: product of them is far less than what is taken for unclear.
_MAX_EXACT_POWER: Final = 22
_MAX_SCALED: Final = 1e9
_UNCLEAR: Final = 1e-5


def _numeric_operator(derive: Callable[[LogicalType, LogicalType], LogicalType]) -> Signature:
    """Two numbers: decimals keep their types, others are cast to that of the result."""

    def unify(types: Sequence[LogicalType]) -> tuple[LogicalType, ...]:
        result = derive(types[0], types[1])
        if isinstance(result, DecimalType):
            return decimal_of(types[0]), decimal_of(types[1])
        if result.is_a(TypeFamily.INTEGER_NUMERIC) and derive is modulo_types:
            # The remainder has the divisor's type, but is computed in the wider one.
            if isinstance(types[0], DecimalType):
                return types[0], types[1]
            wider = add_types(types[0], types[1])
            return wider.with_nullability(types[0].is_nullable), types[1]
        return tuple(result.with_nullability(type_.is_nullable) for type_ in types)

    return signature(
        "numeric numeric1, numeric numeric2", result=lambda types, _: derive(*types), unify=unify
    )


# -- the five operators -----------------------------------------------------------------------


def _plain(operation: str) -> Callable[..., Any]:
    """The kernel of +, - and *: Arrow's wrap integers as Java's do."""
    function = getattr(pc, operation)

    def kernel(info: CallInfo, left: Any, right: Any) -> Any:
        type_ = info.result_type
        if isinstance(type_, DecimalType):
            return combine_columns(operation, left, right, type_)
        if type_.is_a(TypeFamily.NUMERIC):
            return function(left, right)
        return temporal.operator_kernel(operation, info, left, right)

    return kernel


def _computed(
    operation: str,
    on_decimals: Callable[[Decimal, Decimal], Decimal],
    on_numbers: Callable[[Any, Any], Any],
) -> Callable[..., object]:
    """The reference of +, - and *."""

    def reference(info: CallInfo, left: Any, right: Any) -> object:
        type_ = info.result_type
        if isinstance(type_, DecimalType):
            return fit(on_decimals(left, right), type_)
        if type_.is_a(TypeFamily.NUMERIC):
            return wrapped(on_numbers(left, right), type_)
        return temporal.operator_value(operation, info, left, right)

    return reference


def _divide(info: CallInfo, left: Any, right: Any) -> Any:
    if isinstance(info.result_type, DecimalType):
        return divide_columns(left, right, info.result_type)
    if not is_integer(info.result_type):
        return pc.divide(left, right)
    return _quotient(left, right)


def _quotient(left: Any, right: Any) -> Any:
    """The truncated quotient; fails for zero."""
    if isinstance(right, pa.Scalar):
        return pc.negate(left) if right.as_py() == -1 else pc.divide(left, right)
    quotient = pc.divide(left, right)
    # Arrow gives 0 for the least integer by -1, Java the least integer.
    by_minus_one = pc.equal(right, pa.scalar(-1, right.type))
    if not pc.any(by_minus_one).as_py():
        return quotient
    return pc.if_else(by_minus_one, pc.negate(left), quotient)


def _divided(info: CallInfo, left: Any, right: Any) -> object:
    """The quotient of two numbers; integers give an integer, cut towards zero."""
    type_ = info.result_type
    if isinstance(type_, DecimalType):
        if not right:
            raise ZeroDivisionError(_DIVISION_BY_ZERO)
        return fit(QUOTIENT.divide(left, right), type_)
    if not is_integer(type_):
        return _float_quotient(left, right)
    return wrapped(_truncated(left, right), type_)


def _truncated(left: int, right: int) -> int:
    if right == 0:
        raise ZeroDivisionError(_DIVISION_BY_ZERO)
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _float_quotient(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    negative = math.copysign(1.0, left) != math.copysign(1.0, right)
    return -math.inf if negative else math.inf


def _modulo(info: CallInfo, left: Any, right: Any) -> Any:
    if isinstance(info.argument_types[0], DecimalType):
        return NotImplemented
    if not is_integer(info.result_type):
        return _on_arrays(np.fmod, left, right)
    right = pc.cast(right, left.type)
    rest = _low_bits(left, right)
    if rest is None:
        rest = pc.subtract(left, pc.multiply(_quotient(left, right), right))
    return pc.cast(rest, info.result_type.to_arrow(), safe=False)


def _low_bits(left: Any, right: Any) -> Any:
    """The remainder by a power of two, if no number is negative; None else: then divide.

    A division takes tens of cycles a number, this less than one.
    """
    divisor = right.as_py() if isinstance(right, pa.Scalar) else None
    if divisor is None or divisor <= 0 or divisor & (divisor - 1) or isinstance(left, pa.Scalar):
        return None
    least = pc.min(left).as_py()
    if least is not None and least < 0:
        return None
    return pc.bit_wise_and(left, pa.scalar(divisor - 1, left.type))


def _remainder(info: CallInfo, left: Any, right: Any) -> object:
    """The remainder of a division; negative only if numeric1 is."""
    type_ = info.result_type
    if isinstance(left, Decimal):
        if not right:
            raise ZeroDivisionError(_DIVISION_BY_ZERO)
        rest = EXACT.remainder(left, Decimal(right))
        return fit(rest, type_) if isinstance(type_, DecimalType) else int(rest)
    if not is_integer(type_):
        undefined = right == 0 or math.isinf(left) or math.isnan(left) or math.isnan(right)
        return math.nan if undefined else math.fmod(left, right)
    return wrapped(left - _truncated(left, right) * right, type_)


def _list_operators() -> None:
    functions.scalar(
        "+",
        _numeric_operator(add_types),
        *temporal.PLUS,
        kernel=_plain("add"),
        contextual=True,
        can_fail=False,
        syntax="numeric1 + numeric2",
        documentation="The sum of two numbers; a time with an interval added; two intervals.",
        examples=[("1 + 2", "3"), ("1.5 + 2", "3.5")],
    )(_computed("add", EXACT.add, lambda left, right: left + right))
    functions.scalar(
        "-",
        _numeric_operator(add_types),
        *temporal.MINUS,
        _NEGATED,
        kernel=_subtract_or_negate,
        contextual=True,
        can_fail=False,
        syntax="numeric1 - numeric2, - numeric",
        documentation="The difference of two numbers; with one argument, its negative.",
        examples=[("1 - 2", "-1"), ("- (1.5)", "-1.5")],
    )(_difference)
    functions.scalar(
        "*",
        _numeric_operator(multiply_types),
        *temporal.TIMES,
        kernel=_plain("multiply"),
        contextual=True,
        can_fail=False,
        syntax="numeric1 * numeric2",
        documentation="The product of two numbers, or of an interval and a number.",
        examples=[("2 * 3", "6"), ("1.5 * 1.5", "2.25")],
    )(_computed("multiply", EXACT.multiply, lambda left, right: left * right))
    functions.scalar(
        "/",
        _numeric_operator(divide_types),
        *temporal.DIVIDED,
        kernel=_divide_any,
        contextual=True,
        syntax="numeric1 / numeric2",
        examples=[("7 / 2", "3"), ("7.0 / 2", "3.500000000000")],
        documentation=_divided.__doc__ or "",
    )(_divided_any)
    functions.scalar(
        "%",
        _numeric_operator(modulo_types),
        aliases=["MOD"],
        kernel=_modulo,
        contextual=True,
        syntax="numeric1 % numeric2",
        examples=[("-7 % 2", "-1"), ("MOD(29, 3)", "2")],
        documentation=_remainder.__doc__ or "",
    )(_remainder)


def _divide_any(info: CallInfo, left: Any, right: Any) -> Any:
    if info.result_type.is_a(TypeFamily.INTERVAL):
        return NotImplemented
    return _divide(info, left, right)


def _divided_any(info: CallInfo, left: Any, right: Any) -> object:
    if info.result_type.is_a(TypeFamily.INTERVAL):
        return temporal.operator_value("divide", info, left, right)
    return _divided(info, left, right)


_NEGATED: Final = signature("numeric", result=same_as(0))
_subtract: Final = _plain("subtract")
_subtracted: Final = _computed("subtract", EXACT.subtract, lambda left, right: left - right)


def _subtract_or_negate(info: CallInfo, left: Any, *right: Any) -> Any:
    return _subtract(info, left, right[0]) if right else pc.negate(left)


def _difference(info: CallInfo, left: Any, *right: Any) -> object:
    if right:
        return _subtracted(info, left, right[0])
    return wrapped(EXACT.minus(left) if isinstance(left, Decimal) else -left, info.result_type)


_list_operators()


# -- size and sign ----------------------------------------------------------------------------


@functions.scalar(
    "ABS",
    signature("numeric", result=same_as(0)),
    kernel=on_columns(pc.abs),
    contextual=True,
    can_fail=False,
    examples=[("ABS(-5)", "5"), ("ABS(-1.5)", "1.5")],
)
def absolute(info: CallInfo, value: Any) -> object:
    """The absolute value of a number."""
    result = EXACT.abs(value) if isinstance(value, Decimal) else abs(value)
    return wrapped(result, info.result_type)


def _sign(info: CallInfo, value: Any) -> Any:
    type_ = info.result_type
    if isinstance(type_, DecimalType):
        return NotImplemented
    sign = pc.sign(value)
    if is_integer(type_):
        return pc.cast(sign, type_.to_arrow())
    # Java keeps the sign of a zero.
    return pc.if_else(pc.equal(value, pa.scalar(0, value.type)), value, sign)


@functions.scalar(
    "SIGN",
    signature("numeric", result=same_as(0)),
    kernel=_sign,
    contextual=True,
    can_fail=False,
    examples=[("SIGN(-5)", "-1"), ("SIGN(CAST(2.5 AS DOUBLE))", "1.0")],
)
def sign(info: CallInfo, value: Any) -> object:
    """The sign of a number: -1, 0 or 1 in its own type."""
    if isinstance(value, Decimal):
        assert isinstance(info.result_type, DecimalType)  # noqa: S101
        return fit(Decimal((value > 0) - (value < 0)), info.result_type)
    if isinstance(value, float):
        return value if value == 0 or math.isnan(value) else math.copysign(1.0, value)
    return (value > 0) - (value < 0)


# -- rounding ---------------------------------------------------------------------------------


def _whole_type(type_: LogicalType) -> LogicalType:
    return DecimalType(type_.precision, 0) if isinstance(type_, DecimalType) else type_


def _ceiling(info: CallInfo, value: Any, *unit: Any) -> Any:
    return NotImplemented if unit else _whole(pc.ceil, info, value)


def _floor(info: CallInfo, value: Any, *unit: Any) -> Any:
    return NotImplemented if unit else _whole(pc.floor, info, value)


def _whole(function: Callable[[Any], Any], info: CallInfo, value: Any) -> Any:
    type_ = info.result_type
    if is_integer(type_):
        return value
    if isinstance(type_, DecimalType):
        roomy = pa.decimal256(value.type.precision + 1, value.type.scale)
        return fit_column(function(value.cast(roomy)), type_)
    return function(value)


def _rounded_whole(value: Any, up: Callable[[Any], int], type_: LogicalType) -> object:
    if isinstance(value, float):
        if value == 0 or not math.isfinite(value):
            return value
        return math.copysign(float(up(value)), value)
    if isinstance(type_, DecimalType):
        return fit(Decimal(up(value)), type_)
    return value


@functions.scalar(
    "CEIL",
    signature("numeric", result=of_first(_whole_type)),
    ROUNDED_TIME,
    aliases=["CEILING"],
    kernel=_ceiling,
    contextual=True,
    syntax="CEIL(numeric), CEIL(time TO unit)",
    examples=[
        ("CEIL(1.2)", "2"),
        ("CEIL(CAST(-1.2 AS DOUBLE))", "-1.0"),
        ("CEIL(TIME '12:44:31' TO MINUTE)", "12:45:00"),
    ],
)
def ceiling(info: CallInfo, value: Any, unit: str | None = None) -> object:
    """The smallest whole number that is not less than the number.

    Of a date, a time or a timestamp: the next beginning of a unit, from MILLENNIUM to MILLISECOND
    (from MONTH on only the date counts); of a TIMESTAMP_LTZ on the session's clocks.
    """
    if unit is not None:
        return ceil_to(info, value, unit)
    return _rounded_whole(value, math.ceil, info.result_type)


@functions.scalar(
    "FLOOR",
    signature("numeric", result=of_first(_whole_type)),
    ROUNDED_TIME,
    kernel=_floor,
    contextual=True,
    syntax="FLOOR(numeric), FLOOR(time TO unit)",
    examples=[
        ("FLOOR(1.8)", "1"),
        ("FLOOR(CAST(-1.2 AS DOUBLE))", "-2.0"),
        ("FLOOR(DATE '2024-02-29' TO MONTH)", "2024-02-01"),
    ],
)
def floor(info: CallInfo, value: Any, unit: str | None = None) -> object:
    """The largest whole number that is not greater than the number.

    Of a date, a time or a timestamp: the beginning of the unit, from MILLENNIUM to MILLISECOND,
    that it lies in (weeks begin on Sunday); of a TIMESTAMP_LTZ on the session's clocks.
    """
    if unit is not None:
        return floor_to(info, value, unit)
    return _rounded_whole(value, math.floor, info.result_type)


def _digits_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    """The type of ROUND and TRUNCATE, which depends on how many digits a constant asks for."""
    type_ = types[0]
    digits = constants[1] if len(constants) > 1 else 0
    if digits is NOT_CONSTANT or digits is None:
        return type_
    assert isinstance(digits, int)  # noqa: S101
    return round_type(type_, digits)


_ROUNDING: Final = signature("numeric[, INT digits]", result=_digits_type)


def _rounding_kernel(rounding: str) -> Callable[..., Any]:
    """For columns and a constant number of digits after the point."""

    def kernel(info: CallInfo, value: Any, digits: Any = None) -> Any:
        type_ = info.result_type
        if is_integer(type_) and digits is None:
            return value
        if isinstance(digits, pa.Array) or not isinstance(value, pa.Array):
            return NotImplemented
        wanted = 0 if digits is None else digits.as_py()
        if wanted is None or wanted < 0:
            return NotImplemented
        if type_.is_a(TypeFamily.APPROXIMATE_NUMERIC):
            return _rounded_floats(info, value, wanted, rounding)
        if not isinstance(type_, DecimalType):
            return NotImplemented
        if wanted < value.type.scale:
            value = fit_column(value, _of_scale(value.type, wanted), rounding=rounding)
        return fit_column(value, type_)

    return kernel


def _rounded_floats(info: CallInfo, column: pa.Array, digits: int, rounding: str) -> Any:
    """Binary fractions, where it is clear to which side they go.

    Scaling them makes an error; the reference does the numbers that lie within that of where the
    side changes.  A quotient of whole numbers is rounded once, as is its text.
    """
    if digits > _MAX_EXACT_POWER:
        return NotImplemented
    values = column.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
    with np.errstate(all="ignore"):
        scaled = np.abs(values) * 10.0**digits
        whole = np.floor(scaled)
        rest = scaled - whole
        edge = np.abs(rest - 0.5) if rounding == ROUND_HALF_UP else np.minimum(rest, 1 - rest)
        whole_already = np.floor(values) == values
        clear = (scaled < _MAX_SCALED) & ((edge > _UNCLEAR) | whole_already)
    if rounding == ROUND_HALF_UP:
        whole += rest >= 0.5  # noqa: PLR2004 - a half
    else:
        whole += whole_already & (rest > 0.5)  # noqa: PLR2004 - scaled a little too low
    result = np.copysign(whole / 10.0**digits, values)
    for position in np.flatnonzero(~clear).tolist():
        result[position] = _rounded(info, float(values[position]), digits, rounding)
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(result, pa.float64(), mask=mask).cast(column.type)


def _of_scale(arrow_type: pa.DataType, scale: int) -> DecimalType:
    whole = arrow_type.precision - arrow_type.scale
    return DecimalType(min(whole + scale + 1, 38), scale)


def _rounded(info: CallInfo, value: Any, digits: int, rounding: str) -> object:
    type_ = info.result_type
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        # The digits of a DOUBLE, of FLOAT too.
        return float(_rounded_exactly(Decimal(repr(value)), digits, rounding))
    exact = _rounded_exactly(Decimal(value), digits, rounding)
    if isinstance(type_, DecimalType):
        return fit(exact, type_)
    return wrapped(int(exact), type_)


def _rounded_exactly(value: Decimal, digits: int, rounding: str) -> Decimal:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)  # noqa: S101 - the value is finite
    if -exponent <= digits:
        return value  # nothing to round, however many digits are asked for
    if -digits > value.adjusted() + 1:
        # Less than a tenth of the unit, which may be too large for a decimal.
        return Decimal(0)
    return value.quantize(_unit(digits), rounding=rounding, context=EXACT)


def _unit(digits: int) -> Decimal:
    return Decimal(1).scaleb(-digits)


@functions.scalar(
    "ROUND",
    _ROUNDING,
    kernel=_rounding_kernel(ROUND_HALF_UP),
    contextual=True,
    examples=[("ROUND(3.14159, 2)", "3.14"), ("ROUND(2.5)", "3"), ("ROUND(1251, -2)", "1300")],
)
def round_number(info: CallInfo, value: Any, digits: int = 0) -> object:
    """The number rounded (half away from zero) to so many digits after the point, 0 unless given.

    A negative number of digits rounds before the point.
    """
    return _rounded(info, value, digits, ROUND_HALF_UP)


@functions.scalar(
    "TRUNCATE",
    _ROUNDING,
    kernel=_rounding_kernel(ROUND_DOWN),
    contextual=True,
    examples=[("TRUNCATE(42.345, 2)", "42.34"), ("TRUNCATE(1299, -2)", "1200")],
)
def truncate(info: CallInfo, value: Any, digits: int = 0) -> object:
    """The number cut to so many digits after the point, 0 unless given.

    With a negative number of digits, those before the point become zero.
    """
    return _rounded(info, value, digits, ROUND_DOWN)


_MULTIPLIER: Final = 0x5DEECE66D
_INCREMENT: Final = 0xB
_MASK: Final = (1 << 48) - 1


class JavaRandom:
    """A generator; without a seed it starts anywhere."""

    def __init__(self, seed: int | None = None) -> None:
        start = secrets.randbits(48) if seed is None else seed
        self._state = (start ^ _MULTIPLIER) & _MASK

    def _next(self, bits: int) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return wrap(self._state >> (48 - bits), 32)

    def next_double(self) -> float:
        """A number from 0 up to 1."""
        return ((self._next(26) << 27) + self._next(27)) * 2.0**-53

    def next_int(self, bound: int) -> int:
        """An integer from 0 up to ``bound``.

        Raises:
            ValueError: the bound is not positive.
        """
        if bound <= 0:
            message = f"the bound must be positive, not {bound}"
            raise ValueError(message)
        if bound & (bound - 1) == 0:
            return (bound * self._next(31)) >> 31
        while True:
            bits = self._next(31)
            value = bits % bound
            # The last, incomplete run of numbers would favour small ones.
            if bits - value + (bound - 1) < 1 << 31:
                return value


def _on_arrays(function: Callable[..., Any], *columns: Any) -> pa.Array:
    """A function of numpy on floating-point columns of one type; NULL where one of them is.

    At least one of them is no scalar.
    """
    arrow_type = columns[0].type
    if any(isinstance(column, pa.Scalar) and not column.is_valid for column in columns):
        rows = next(len(column) for column in columns if isinstance(column, pa.Array))
        return pa.nulls(rows, arrow_type)
    dtype = arrow_type.to_pandas_dtype()
    values = [
        dtype(column.as_py())
        if isinstance(column, pa.Scalar)
        else column.fill_null(0.0).to_numpy(zero_copy_only=False)
        for column in columns
    ]
    with np.errstate(all="ignore"):
        result = function(*values)
    masks = [
        column.is_null().to_numpy(zero_copy_only=False)
        for column in columns
        if isinstance(column, pa.Array) and column.null_count
    ]
    mask = np.logical_or.reduce(masks) if masks else None
    return pa.array(result, arrow_type, mask=mask)


def _total(function: Callable[..., float], *, overflow: float = math.inf) -> Callable[..., object]:
    """A function of ``math`` that gives NaN where it is not defined, as Java's does."""

    def reference(*values: float) -> float:
        try:
            return function(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return overflow

    return reference


def _list(
    name: str,
    reference: Callable[..., object],
    vectorised: Callable[..., Any],
    documentation: str,
    example: str,
    *,
    arity: int = 1,
) -> None:
    """List a function from DOUBLE to DOUBLE."""
    numbers = "DOUBLE" if arity == 1 else "DOUBLE numeric1, DOUBLE numeric2"
    values = ", ".join(["1"] * arity)
    functions.scalar(
        name,
        signature(numbers, result=DOUBLE),
        kernel=on_columns(vectorised),
        can_fail=False,
        documentation=documentation,
        examples=[(f"{name}({values})", example)],
    )(reference)


def _power(base: float, exponent: float) -> float:
    if math.isnan(exponent) or (abs(base) == 1 and math.isinf(exponent)):
        return math.nan
    try:
        return math.pow(base, exponent)
    except OverflowError:
        odd = exponent % 2 == 1
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base == 0:  # to a negative power
            odd = exponent % 2 == 1
            return math.copysign(math.inf, base) if odd else math.inf
        return math.nan


def _powers(base: Any, exponent: Any) -> Any:
    is_one = pc.equal(pc.abs(base), 1.0)
    undefined = pc.or_(pc.is_nan(exponent), pc.and_(is_one, pc.is_inf(exponent)))
    return pc.if_else(undefined, math.nan, pc.power(base, exponent))


_list("POWER", _power, _powers, "numeric1 raised to the power of numeric2.", "1.0", arity=2)
_list("SQRT", _total(math.sqrt), pc.sqrt, "The square root.", "1.0")


def _log(value: float) -> float:
    if value == 0:
        return -math.inf
    return math.log(value) if value > 0 else math.nan


def _log10(value: float) -> float:
    if value == 0:
        return -math.inf
    return math.log10(value) if value > 0 else math.nan


def _log2(value: float) -> float:
    return _log(value) / math.log(2.0)


def _logs2(values: Any) -> Any:
    return pc.divide(pc.ln(values), math.log(2.0))


_list("LN", _log, pc.ln, "The natural logarithm.", "0.0")
_list("LOG10", _log10, pc.log10, "The logarithm to the base 10.", "0.0")
_list("LOG2", _log2, _logs2, "The logarithm to the base 2.", "0.0")


def _any_log(_: CallInfo, *columns: Any) -> Any:
    if len(columns) == 1:
        return pc.ln(columns[0])
    return pc.divide(pc.ln(columns[1]), pc.ln(columns[0]))


@functions.scalar(
    "LOG",
    signature("DOUBLE numeric", result=DOUBLE),
    signature("DOUBLE base, DOUBLE numeric", result=DOUBLE),
    kernel=_any_log,
    can_fail=False,
    examples=[("LOG(1)", "0.0"), ("LOG(2, 1)", "0.0")],
)
def log(first: float, *rest: float) -> object:
    """The natural logarithm; with two arguments, that of the second to the base of the first."""
    if not rest:
        return _log(first)
    value, base = _log(rest[0]), _log(first)
    if base == 0:
        if value == 0 or math.isnan(value):
            return math.nan
        return math.copysign(math.inf, value) * math.copysign(1.0, base)
    return value / base if not (math.isinf(value) and math.isinf(base)) else math.nan


def _sinh(value: float) -> float:
    try:
        return math.sinh(value)
    except OverflowError:
        return math.copysign(math.inf, value)


_list("EXP", _total(math.exp), pc.exp, "e raised to the power of the number.", str(math.e))
_list("SIN", _total(math.sin), pc.sin, "The sine of an angle in radians.", "0.8414709848078965")
_list("SINH", _sinh, pc.sinh, "The hyperbolic sine.", "1.1752011936438014")
_list("COS", _total(math.cos), pc.cos, "The cosine of an angle in radians.", "0.5403023058681398")
_list("COSH", _total(math.cosh), pc.cosh, "The hyperbolic cosine.", "1.5430806348152437")
_list("TAN", _total(math.tan), pc.tan, "The tangent of an angle in radians.", "1.5574077246549023")
_list("TANH", _total(math.tanh), pc.tanh, "The hyperbolic tangent.", "0.7615941559557649")
_list("ASIN", _total(math.asin), pc.asin, "The arc sine.", "1.5707963267948966")
_list("ACOS", _total(math.acos), pc.acos, "The arc cosine.", "0.0")
_list("ATAN", _total(math.atan), pc.atan, "The arc tangent.", "0.7853981633974483")
_list(
    "ATAN2",
    _total(math.atan2),
    pc.atan2,
    "The angle of the point (numeric2, numeric1), in radians.",
    "0.7853981633974483",
    arity=2,
)


def _cotangent(value: float) -> float:
    if math.isinf(value) or math.isnan(value):
        return math.nan
    tangent = math.tan(value)
    return 1.0 / tangent if tangent else math.copysign(math.inf, tangent)


def _cotangents(values: Any) -> Any:
    return pc.divide(1.0, pc.tan(values))


def _degrees(value: float) -> float:
    return value * (180.0 / math.pi)


def _scaled(factor: float) -> Callable[..., Any]:
    return lambda values: pc.multiply(values, factor)


def _radians(value: float) -> float:
    return value * (math.pi / 180.0)


_list("COT", _cotangent, _cotangents, "The cotangent.", "0.6420926159343306")
_list("DEGREES", _degrees, _scaled(180.0 / math.pi), "Radians in degrees.", "57.29577951308232")
_list("RADIANS", _radians, _scaled(math.pi / 180.0), "Degrees in radians.", "0.017453292519943295")


# -- constants and chance ---------------------------------------------------------------------


def _constant(name: str, value: float, documentation: str) -> None:
    def reference() -> object:
        return value

    def kernel(_: CallInfo) -> Any:
        return pa.scalar(value, pa.float64())

    functions.scalar(
        name,
        signature(result=DOUBLE, nullability=Nullability.NEVER),
        kernel=kernel,
        can_fail=False,
        documentation=documentation,
        examples=[(f"{name}()", str(value))],
    )(reference)


_constant("PI", math.pi, "The number pi.")
_constant("E", math.e, "The base of the natural logarithm.")


def _random(info: CallInfo, seed: Any) -> JavaRandom:
    """The generator of this call: a seed is looked at once, as in Flink."""
    found = info.state.get("random")
    if found is None:
        found = JavaRandom(seed)
        info.state["random"] = found
    assert isinstance(found, JavaRandom)  # noqa: S101
    return found


def _rand_column(info: CallInfo, *seed: Any) -> Any:
    if seed:
        return NotImplemented
    generator = info.state.setdefault("generator", np.random.default_rng())
    return pa.array(generator.random(info.rows))


@functions.scalar(
    "RAND",
    signature(result=DOUBLE, nullability=Nullability.NEVER),
    signature("INT seed", result=DOUBLE),
    kernel=_rand_column,
    contextual=True,
    deterministic=False,
    can_fail=False,
    examples=[("RAND(1) >= 0", "TRUE")],
)
def rand(info: CallInfo, *seed: int) -> object:
    """A pseudo-random DOUBLE from 0 up to (not including) 1.

    With a seed, the sequence of numbers is always the same, and Java's.
    """
    return _random(info, seed[0] if seed else None).next_double()


@functions.scalar(
    "RAND_INTEGER",
    signature("INT bound", result=INT),
    signature("INT seed, INT bound", result=INT),
    contextual=True,
    deterministic=False,
    examples=[("RAND_INTEGER(1)", "0")],
)
def rand_integer(info: CallInfo, first: int, *rest: int) -> object:
    """A pseudo-random INT from 0 up to (not including) the bound; two arguments: seed and bound.

    With a seed, the sequence of numbers is always the same, and Java's.
    """
    bound = rest[0] if rest else first
    return _random(info, first if rest else None).next_int(bound)


def _uuids(info: CallInfo) -> Any:
    return pa.array([str(uuid.uuid4()) for _ in range(info.rows)], pa.string())


functions.total(
    "UUID",
    "A random UUID (RFC 4122, type 4) as text.",
    lambda: str(uuid.uuid4()),
    signature(result=CharType(36), nullability=Nullability.NEVER),
    kernel=_uuids,
    deterministic=False,
    examples=[("CHAR_LENGTH(UUID())", "36")],
)


# -- digits of other bases --------------------------------------------------------------------

_UNSIGNED: Final = (1 << 64) - 1


functions.total(
    "BIN",
    "The digits of an integer to the base 2; a negative one has 64.",
    lambda value: format(value & _UNSIGNED, "b"),
    signature("BIGINT integer", result=STRING),
    examples=[("BIN(4)", "100"), ("BIN(12)", "1100")],
)


@functions.scalar(
    "HEX",
    signature("BIGINT integer", result=STRING),
    signature("string", result=STRING),
    can_fail=False,
    nulls=NullBehaviour.STRICT,
    examples=[("HEX(20)", "14"), ("HEX('hello,world')", "68656C6C6F2C776F726C64")],
)
def hexadecimal_digits(value: Any) -> object:
    """The digits of an integer to the base 16, or of each byte of a text (UTF-8), in capitals."""
    if isinstance(value, str):
        return value.encode().hex().upper()
    return format(value & _UNSIGNED, "X")
