"""Kernels agree with the references, on extremes and by chance, for all types that they do."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.expressions.rows import values_of

from millstream.errors import ExpressionError, ProgramError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import ColumnNode, ConstantNode, FunctionNode, Node
from millstream.expressions.functions.registry import get_function
from millstream.expressions.nodes import Call, Expression, InputReference, Literal
from millstream.expressions.resolution import resolve_call
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    NullType,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.type_derivation import supports_explicit_cast
from millstream.types.values import column_of, scalar_of, values_of_column

if TYPE_CHECKING:
    from millstream.expressions.functions.definition import FunctionDefinition

ZONES = ["UTC", "America/New_York", "GMT+05:30"]
ROWS = 120
#: Makes so many values of a type.
Rows = Callable[[LogicalType, int, random.Random], list[Any]]

INTEGERS: list[LogicalType] = [TinyIntType(), SmallIntType(), IntType(), BigIntType()]
DECIMALS: list[LogicalType] = [
    DecimalType(5, 2),
    DecimalType(9, 4),
    DecimalType(18, 0),
    DecimalType(20, 10),
    DecimalType(38, 0),
    DecimalType(38, 38),
]
FLOATS: list[LogicalType] = [FloatType(), DoubleType()]
NUMBERS = [*INTEGERS, *DECIMALS, *FLOATS]
TIMES: list[LogicalType] = [
    DateType(),
    TimeType(0),
    TimeType(6),
    TimestampType(0),
    TimestampType(3),
    TimestampType(5),
    TimestampType(9),
    LocalZonedTimestampType(3),
    LocalZonedTimestampType(6),
]
INTERVALS: list[LogicalType] = [
    YearMonthIntervalType("YEAR"),
    YearMonthIntervalType(),
    DayTimeIntervalType("DAY"),
    DayTimeIntervalType(),
]
TEXTS: list[LogicalType] = [VarCharType(), VarCharType(3), CharType(4)]
NESTED: list[LogicalType] = [ArrayType(IntType()), RowType.of(a=IntType(), b=VarCharType())]
COMPARED = [BooleanType(), *NUMBERS, *TIMES, *INTERVALS, *TEXTS, VarBinaryType(), *NESTED]


def pairs(types: list[LogicalType]) -> list[tuple[LogicalType, ...]]:
    return [(left, right) for left in types for right in types]


def resolved(name: str, *types: LogicalType | Literal) -> Call | None:
    """The call with columns for arguments; None if the function does not take these types."""
    columns: list[Expression] = [
        given if isinstance(given, Literal) else InputReference(i, f"c{i}", given)
        for i, given in enumerate(types)
    ]
    try:
        call = resolve_call(name, *columns)
    except ProgramError:
        return None
    assert isinstance(call, Call)
    return call


def casts(types: list[LogicalType]) -> list[Call]:
    return [
        Call(name, (InputReference(0, "c0", source),), target)
        for name in ("CAST", "TRY_CAST")
        for source, target in itertools.product(types, types)
        if source != target and supports_explicit_cast(source, target)
    ]


def check(call: Call, seed: int, zone: str, rows: Rows = values_of, count: int = ROWS) -> None:
    """Hold kernel against reference on rows made from the seed.

    Both are given the arguments after implicit casts, so that only this call is compared.
    Arguments that are literals are scalars.
    """
    chance = random.Random(seed)
    definition = get_function(call.function)
    assert definition.kernel is not None
    types = [argument.type for argument in call.arguments]
    columns: list[Any] = [
        scalar_of(argument.value, type_)
        if isinstance(argument, Literal)
        else column_of(rows(type_, count, chance), type_)
        for argument, type_ in zip(call.arguments, types, strict=True)
    ]
    context = EvaluationContext(time_zone=zone)
    by_kernel = _outcome(call, definition, columns, context, count, kernel=True)
    by_reference = _outcome(call, definition, columns, context, count, kernel=False)
    if by_kernel is NotImplemented:
        return
    if isinstance(by_kernel, str) or isinstance(by_reference, str):
        assert by_kernel == by_reference
        return
    for position, (one, other) in enumerate(zip(by_kernel, by_reference, strict=True)):
        row = [
            column.as_py() if isinstance(column, pa.Scalar) else column[position]
            for column in columns
        ]
        assert alike(one, other), (str(call), seed, zone, row, "kernel", one, "reference", other)


def _outcome(
    call: Call,
    definition: FunctionDefinition,
    columns: list[Any],
    context: EvaluationContext,
    rows: int,
    *,
    kernel: bool,
) -> Any:
    """The values, the word ``fails``, or NotImplemented."""
    nodes: list[Node] = [
        ConstantNode(argument.value, argument.type)
        if isinstance(argument, Literal)
        else ColumnNode(i, argument.type)
        for i, argument in enumerate(call.arguments)
    ]
    node = FunctionNode(call, definition, nodes)
    info = node._info
    info.context, info.rows = context, rows
    try:
        if not kernel:
            return values_of_column(node._rows(columns, rows), call.type)
        assert definition.kernel is not None
        result = definition.kernel(info, *columns)
    except (ExpressionError, pa.ArrowException):
        return "fails"
    if result is NotImplemented:
        return result
    if isinstance(result, pa.Scalar):
        result = pa.repeat(result, rows)
    assert result.type == call.type.to_arrow(), (str(call), result.type)
    return values_of_column(result, call.type)


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        # Java allows its functions an error of one unit in the last place.
        return one == other or math.isclose(one, other, rel_tol=1e-13)
    if isinstance(one, Decimal):
        return isinstance(other, Decimal) and str(one) == str(other)
    return type(one) is type(other) and bool(one == other)


BINARY = [
    call
    for name in ("+", "-", "*", "/", "%", "GREATEST", "LEAST")
    for types in pairs(NUMBERS)
    if (call := resolved(name, *types)) is not None
]
TIMED = [
    call
    for name in ("+", "-", "*", "/")
    for types in [
        *itertools.product([*TIMES, *INTERVALS], INTERVALS),
        *itertools.product(INTERVALS, [IntType(), BigIntType(), DoubleType(), DateType()]),
    ]
    if (call := resolved(name, *types)) is not None
]
COMPARISONS = [
    call
    for name in ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
    for types in [*((type_, type_) for type_ in COMPARED), *pairs(NUMBERS), *pairs(TIMES)]
    if (call := resolved(name, *types)) is not None
]
UNARY = [
    call
    for name in ("-", "ABS", "SIGN", "CEIL", "FLOOR", "ROUND", "TRUNCATE")
    for type_ in [*NUMBERS, *INTERVALS]
    if (call := resolved(name, type_)) is not None
]
MATHEMATICS = [
    call
    for name in (
        *("SQRT", "LN", "LOG10", "LOG2", "LOG", "EXP", "SIN", "SINH", "COS", "COSH", "TAN", "TANH"),
        *("COT", "ASIN", "ACOS", "ATAN", "DEGREES", "RADIANS"),
    )
    if (call := resolved(name, DoubleType())) is not None
] + [
    call
    for name in ("POWER", "ATAN2", "LOG")
    if (call := resolved(name, DoubleType(), DoubleType())) is not None
]
CHOICES = [
    call
    for name in ("IS NULL", "IS NOT NULL", "GREATEST", "LEAST")
    for type_ in COMPARED
    for types in [(type_,) if name.startswith("IS") else (type_, type_)]
    if (call := resolved(name, *types)) is not None
] + [
    call
    for name in ("BETWEEN", "NOT BETWEEN", "BETWEEN SYMMETRIC", "IN", "NOT IN")
    for type_ in COMPARED
    if (call := resolved(name, type_, type_, type_)) is not None
]
TRUTH = [
    call
    for name in (
        *("NOT", "IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE"),
        *("IS UNKNOWN", "IS NOT UNKNOWN"),
    )
    if (call := resolved(name, BooleanType())) is not None
]


def lit(value: Any, type_: LogicalType) -> Literal:
    return Literal(value, type_.with_nullability(value is None))


def constant(type_: LogicalType, seed: int) -> Literal:
    chance = random.Random(seed)
    return lit(values_of(type_.not_null(), 1, chance)[0], type_)


def with_constants(type_: LogicalType) -> list[tuple[str, tuple[LogicalType | Literal, ...]]]:
    """Calls with scalars for some arguments: these have ways of their own."""
    found: list[tuple[str, tuple[LogicalType | Literal, ...]]] = []
    for name in "+-*/%":
        found += [(name, (type_, constant(type_, seed))) for seed in (1, 2)]
        found += [(name, (constant(type_, 3), type_))]
    found += [(name, (type_, lit(-1, IntType()))) for name in "/%"]
    found += [("/", (type_, lit(0, IntType()))), ("+", (type_, lit(None, type_)))]
    items = tuple(constant(type_, seed) for seed in range(4))
    found += [(name, (type_, *items)) for name in ("IN", "NOT IN")]
    found += [("IN", (type_, constant(type_, 5), lit(None, type_)))]
    for name in ("ROUND", "TRUNCATE"):
        found += [(name, (type_, lit(digits, IntType()))) for digits in (-2, 0, 1, 5, None)]
    return found


CONSTANTS = [
    call
    for type_ in NUMBERS
    for name, types in with_constants(type_)
    if (call := resolved(name, *types)) is not None
] + [
    call
    for name in ("LIKE", "NOT LIKE")
    for pattern in ("a%", "%b", "%a%", "abc", "", "%", "_", "a_", "%a%b%", "1!%%", "a\nb", "!__")
    for types in [(VarCharType(), lit(pattern, VarCharType()), lit("!", CharType(1)))]
    if (call := resolved(name, *types)) is not None
]
CASTS = casts([NullType(), BooleanType(), *NUMBERS, *TIMES, *INTERVALS, *TEXTS, VarBinaryType()])


def text_of(call: Call) -> str:
    return f"{call.function}({', '.join(str(argument.type) for argument in call.arguments)})"


GROUPS = {
    "binary": BINARY,
    "timed": TIMED,
    "comparisons": COMPARISONS,
    "unary": UNARY,
    "mathematics": MATHEMATICS,
    "choices": CHOICES,
    "truth": TRUTH,
    "constants": CONSTANTS,
    "casts": CASTS,
}


def check_group(name: str, seed: int) -> None:
    print(f"seed {seed}")
    calls = GROUPS[name]
    # Of large groups each seed takes another third.
    step = 3 if len(calls) > 500 else 1
    for index in range(seed % step, len(calls), step):
        check(calls[index], seed, ZONES[(index + seed) % len(ZONES)])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("name", GROUPS)
def test_agree_kernel_and_reference(name: str) -> None:
    assert len(GROUPS[name]) > 6
    check_group(name, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("seed", range(2, 40))
def test_agree_kernel_and_reference_on_many_rows(name: str, seed: int) -> None:
    check_group(name, seed)
