"""Powers, logarithms, angles, random numbers, number bases; undefined results are NaN.

Kernels are Arrow's, which call the C library as Python does: numpy's results differ from it, and
from machine to machine, in the last digit.
"""

from __future__ import annotations

import math
import secrets
import uuid
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.decimals import wrap
from millstream.expressions.functions.definition import (
    BIGINT,
    DOUBLE,
    INT,
    STRING,
    CallInfo,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    character,
    exactly,
    signature,
)
from millstream.types.logical_types import CharType

if TYPE_CHECKING:
    from collections.abc import Callable


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


#: Joins the group of ``arithmetic.py``.
functions: Final = FunctionGroup("arithmetic")

_NUMBER: Final = exactly("numeric", DOUBLE)


def on_arrays(function: Callable[..., Any], *columns: Any) -> pa.Array:
    """A function of numpy on columns of floating-point numbers; NULL where one of them is.

    Args:
        function: takes one array or number per column.
        columns: of one Arrow type, at least one of them no scalar.
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

    def kernel(info: CallInfo, *columns: Any) -> Any:
        del info
        return vectorised(*columns)

    numbers = [exactly(f"numeric{i + 1}" if arity > 1 else "numeric", DOUBLE) for i in range(arity)]
    values = ", ".join(["1"] * arity)
    functions.scalar(
        name,
        signatures=[signature(*numbers, result=DOUBLE)],
        kernel=kernel,
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


def _any_log(info: CallInfo, *columns: Any) -> Any:
    del info
    if len(columns) == 1:
        return pc.ln(columns[0])
    return pc.divide(pc.ln(columns[1]), pc.ln(columns[0]))


@functions.scalar(
    "LOG",
    signatures=[
        signature(_NUMBER, result=DOUBLE),
        signature(exactly("base", DOUBLE), _NUMBER, result=DOUBLE),
    ],
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

    def kernel(info: CallInfo) -> Any:
        del info
        return pa.scalar(value, pa.float64())

    functions.scalar(
        name,
        signatures=[signature(result=DOUBLE, nullability=Nullability.NEVER)],
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
    signatures=[
        signature(result=DOUBLE, nullability=Nullability.NEVER),
        signature(exactly("seed", INT), result=DOUBLE),
    ],
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
    signatures=[
        signature(exactly("bound", INT), result=INT),
        signature(exactly("seed", INT), exactly("bound", INT), result=INT),
    ],
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


@functions.scalar(
    "UUID",
    signatures=[signature(result=CharType(36), nullability=Nullability.NEVER)],
    kernel=_uuids,
    deterministic=False,
    can_fail=False,
    examples=[("CHAR_LENGTH(UUID())", "36")],
)
def random_uuid() -> object:
    """A random UUID (RFC 4122, type 4) as text."""
    return str(uuid.uuid4())


# -- digits of other bases --------------------------------------------------------------------

_UNSIGNED: Final = (1 << 64) - 1


@functions.scalar(
    "BIN",
    signatures=[signature(exactly("integer", BIGINT), result=STRING)],
    can_fail=False,
    examples=[("BIN(4)", "100"), ("BIN(12)", "1100")],
)
def binary_digits(value: int) -> object:
    """The digits of an integer to the base 2; a negative one has 64."""
    return format(value & _UNSIGNED, "b")


@functions.scalar(
    "HEX",
    signatures=[
        signature(exactly("integer", BIGINT), result=STRING),
        signature(character(), result=STRING),
    ],
    can_fail=False,
    nulls=NullBehaviour.STRICT,
    examples=[("HEX(20)", "14"), ("HEX('hello,world')", "68656C6C6F2C776F726C64")],
)
def hexadecimal_digits(value: Any) -> object:
    """The digits of an integer to the base 16, or of each byte of a text (UTF-8), in capitals."""
    if isinstance(value, str):
        return value.encode().hex().upper()
    return format(value & _UNSIGNED, "X")
