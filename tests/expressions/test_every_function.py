"""Every function takes NULL, boundaries and unreadable text in each argument.

The documented examples of a function give arguments that fit together.  Each argument in turn is
replaced by NULL, by the boundaries of its type and by text that is no number, date, pattern, JSON
or URL.  All of it runs through the reference and through the kernel, as columns and as constants:
results are equal, and nothing fails but what fails in Flink 2.3.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from tests.expressions.rows import boundaries
from tests.expressions.test_kernels import alike
from tests.support.sql_expressions import NOW, bind

from millstream.errors import ExpressionError, ProgramError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_expression
from millstream.expressions.functions.definition import FunctionKind
from millstream.expressions.functions.registry import function_groups
from millstream.expressions.nodes import Call, Expression, InputReference, Literal, walk
from millstream.expressions.resolution import resolve_definition
from millstream.types.columns import as_key
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    BinaryType,
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
    MapType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.type_derivation import supports_explicit_cast
from millstream.types.type_roots import TypeFamily, TypeRoot
from millstream.types.values import column_of, values_of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.functions.definition import FunctionDefinition

Row = tuple[Any, ...]

SCALARS: Final = [
    definition
    for group in function_groups()
    for definition in group.definitions
    if definition.kind is FunctionKind.SCALAR
]
#: What no number, date, pattern, JSON, URL, zone, encoding or name of a unit is.
UNREADABLE: Final = [
    *(
        "",
        " ",
        "x",
        "{",
        "[",
        "(",
        "\\",
        "%",
        "%zz",
        "'",
        "*",
        "$",
        "+",
        "-",
        "\x00",
        "ä\U0001f600",
    ),
    *("2026-02-31", "25:61:61", "nan", "1e999", "-0", "99999999999999999999", '{"a": [1', '"\\u12'),
]
#: Arguments that say how long a result becomes.
LENGTHS: Final = {"REPEAT", "LPAD", "RPAD"}
LONGEST: Final = 50
#: Of the rows without a NULL, every so many is evaluated alone, too.
ALONE: Final = 5
CONTEXT: Final = EvaluationContext(time_zone="America/New_York", processing_time=NOW)
#: What functions raise, as Java's do: IllegalArgumentException, ArithmeticException and their like.
RAISED: Final = (ValueError, ArithmeticError)
#: Functions that fail for some values in Flink 2.3, too.
FAILS_IN_FLINK: Final = {
    # Division by zero.
    **dict.fromkeys(("/", "%"), "/ by zero"),
    # Patterns that are none.
    **dict.fromkeys(("LIKE", "NOT LIKE"), "Invalid escape sequence"),
    **dict.fromkeys(("SIMILAR TO", "NOT SIMILAR TO"), "PatternSyntaxException"),
    "STR_TO_MAP": "PatternSyntaxException",
    **dict.fromkeys(
        ("DATE_FORMAT", "TO_DATE", "UNIX_TIMESTAMP", "FROM_UNIXTIME"), "Illegal pattern"
    ),
    # Letters of Java's patterns that are not supported here.
    "TO_TIMESTAMP": "",
    "TO_TIMESTAMP_LTZ": "could not be parsed; / by zero",
    # Text that is none of what it has to be.
    **dict.fromkeys(("ENCODE", "DECODE"), "Unsupported charset"),
    "FROM_BASE64": "Illegal base64 character",
    **dict.fromkeys(("JSON", "PARSE_JSON"), "JsonParseException"),
    "BITMAP_FROM_BYTES": "cannot deserialize",
    # Numbers that ask for what there is not.
    "INSTR": "nthAppearance must be positive",
    "SHA2": "Unsupported algorithm",
    "ELEMENT": "more than one element",
    "MAP_FROM_ARRAYS": "the length of the keys array is not equal to the length of the values",
    "JSON_OBJECT": "the key is null",
}
#: Timestamps beyond those that 64 bits of microseconds or nanoseconds hold; Flink has 96 bits.
BEYOND_TIMESTAMPS: Final = {"TIMESTAMPADD"}
#: Maps have no NULL among their keys; Flink's may.
NULL_KEYS: Final = {"MAP", "MAP_FROM_ARRAYS"}
#: Not tried like this, and why.
OTHERWISE: Final = {
    **dict.fromkeys(("RAND", "RAND_INTEGER", "UUID"), "not deterministic"),
    **dict.fromkeys(("CAST", "TRY_CAST"), "by pairs of types, below"),
    **dict.fromkeys(("BETWEEN", "NOT BETWEEN", "BETWEEN SYMMETRIC"), "bound as comparisons"),
    **dict.fromkeys(("IN", "NOT IN", "NULLIF"), "bound as comparisons"),
    **dict.fromkeys(("NOT LIKE", "NOT SIMILAR TO"), "bound as NOT of the others"),
}


def wide(type_: LogicalType) -> LogicalType:
    """The type of the same kind that holds most."""
    if isinstance(type_, CharType | VarCharType):
        return VarCharType()
    if isinstance(type_, BinaryType | VarBinaryType):
        return VarBinaryType()
    if isinstance(type_, IntType):
        return BigIntType()
    if isinstance(type_, DecimalType):
        return DecimalType(38, 18)
    return type_


def as_given(type_: LogicalType) -> LogicalType:
    """The type, but that text and bytes have any length."""
    return wide(type_) if not isinstance(type_, IntType | DecimalType) else type_


def examples_of(definition: FunctionDefinition) -> list[Call]:
    """The calls of the function in its examples, of different types of arguments."""
    found: dict[tuple[Any, ...], Call] = {}
    for text, _ in definition.examples:
        for call in walk(bind(text)):
            if isinstance(call, Call) and call.function == definition.name:
                types = tuple(argument.type.root for argument in call.arguments)
                found.setdefault(types, call)
    return list(found.values())


def evaluated(call: Call, rows: Sequence[Row]) -> list[Any]:
    """The results of a call of columns for rows of arguments."""
    columns = {
        argument.name: column_of([row[at] for row in rows], argument.type)
        for at, argument in enumerate(call_arguments(call))
        if isinstance(argument, InputReference)
    }
    batch = pa.record_batch(columns or {"n": pa.array([0] * len(rows))})
    return values_of_column(compile_expression(call).evaluate(batch, CONTEXT), call.type)


def call_arguments(call: Call) -> list[Expression]:
    """The arguments without the casts around them."""
    return [
        argument.arguments[0]
        if isinstance(argument, Call) and argument.function in {"CAST", "TRY_CAST"}
        else argument
        for argument in call.arguments
    ]


def outcomes(call: Call, rows: Sequence[Row]) -> list[Any]:
    """The results for rows; where one fails, its exception."""
    try:
        return evaluated(call, rows)
    except ExpressionError:
        return [outcome(call, row) for row in rows]


def outcome(call: Call, row: Row) -> Any:
    """The result for one row, or the exception."""
    try:
        return evaluated(call, [row])[0]
    except ExpressionError as error:
        return error


def on_columns(
    definition: FunctionDefinition, example: Call, kind: Callable[[LogicalType], LogicalType]
) -> Call | None:
    """The call with a column for each argument that need not be a constant."""

    def resolved(constant: Callable[[Expression], bool]) -> Call:
        columns: list[Expression] = []
        for argument in example.arguments:
            count = sum(isinstance(column, InputReference) for column in columns)
            type_ = kind(argument.type).with_nullability(True)
            column = InputReference(count, f"c{count}", type_)
            columns.append(argument if constant(argument) else column)
        return resolve_definition(definition, columns)

    for constant in (_is_symbol, lambda argument: isinstance(argument, Literal)):
        try:
            return resolved(constant)
        except ProgramError:
            continue
    return None


def _is_symbol(argument: Expression) -> bool:
    return argument.type.root is TypeRoot.SYMBOL


def on_constants(definition: FunctionDefinition, call: Call, row: Row) -> Call | None:
    """The call with the values of a row as literals; None if it is refused or of another type."""
    literals = [
        argument
        if isinstance(argument, Literal)
        else Literal(as_key(value), argument.type.with_nullability(value is None))
        for argument, value in zip(call_arguments(call), row, strict=True)
    ]
    try:
        made = resolve_definition(definition, literals)
    except ProgramError:
        return None
    same = made.type.with_nullability(True) == call.type.with_nullability(True)
    return made if same else None


def special_values(name: str, type_: LogicalType) -> list[Any]:
    found = [None, *boundaries(type_)]
    if type_.is_a(TypeFamily.CHARACTER_STRING):
        found += UNREADABLE
    if isinstance(type_, DateType):
        found += [2**31 - 1, -(2**31)]
    if name in LENGTHS and type_.is_a(TypeFamily.INTEGER_NUMERIC):
        found = [value for value in found if value is None or value <= LONGEST]
    return found


def rows_of(call: Call, values: Row) -> list[Row]:
    """The example, the example with each special value in each place, and some of all at once."""
    chance = random.Random(call.function)
    special = [
        [value] if isinstance(argument, Literal) else special_values(call.function, argument.type)
        for argument, value in zip(call_arguments(call), values, strict=True)
    ]
    rows = [values]
    for position, candidates in enumerate(special):
        rows += [(*values[:position], one, *values[position + 1 :]) for one in candidates]
    rows += [tuple(map(chance.choice, special)) for _ in range(20)]
    return rows


def value_of_constant(expression: Expression) -> Any:
    if isinstance(expression, Literal):
        return None if _is_symbol(expression) else expression.value
    batch = pa.record_batch({"n": pa.array([0])})
    column = compile_expression(expression).evaluate(batch, CONTEXT)
    return values_of_column(column, expression.type)[0]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Exception) or isinstance(other, Exception):
        return isinstance(one, Exception) and isinstance(other, Exception)
    return alike(one, other)


CASES: Final = [
    (definition, example)
    for definition in SCALARS
    if definition.name not in OTHERWISE
    for example in examples_of(definition)
]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("kind", [as_given, wide], ids=["as given", "wide"])
@pytest.mark.parametrize(("definition", "example"), CASES, ids=[str(case[1]) for case in CASES])
def test_agree_on_null_boundaries_and_unreadable_text(
    definition: FunctionDefinition, example: Call, kind: Callable[[LogicalType], LogicalType]
) -> None:
    call = on_columns(definition, example, kind)
    if call is None:
        pytest.skip("it does not take the wider types")
    reference = call
    if definition.reference is not None:
        reference = replace(call, definition=replace(definition, kernel=None))
    rows = rows_of(call, tuple(map(value_of_constant, example.arguments)))
    expected = outcomes(reference, rows)
    for row, found in zip(rows, expected, strict=True):
        if isinstance(found, ExpressionError):
            assert isinstance(found.__cause__, RAISED), (str(call), row, repr(found.__cause__))
            assert definition.name in {*FAILS_IN_FLINK, *BEYOND_TIMESTAMPS, *NULL_KEYS}, (
                row,
                str(found),
            )
    fine = [at for at, found in enumerate(expected) if not isinstance(found, Exception)]
    for at, found in zip(fine, evaluated(call, [rows[at] for at in fine]), strict=True):
        assert same(found, expected[at]), (str(call), rows[at], found, expected[at])
    for at, (row, wanted) in enumerate(zip(rows, expected, strict=True)):
        if at % ALONE and None not in row:
            continue
        alone = outcome(call, row)
        assert same(alone, wanted), (str(call), row, alone, wanted)
        constants = on_constants(definition, call, row)
        if constants is not None and definition.name != "TYPEOF":
            folded = outcome(constants, row)
            assert same(folded, wanted), (str(constants), folded, wanted)


def test_every_function_is_tried() -> None:
    tried = {definition.name for definition, _ in CASES}
    assert {definition.name for definition in SCALARS} - tried == set(OTHERWISE)


CAST_TYPES: Final = [
    *(BooleanType(), TinyIntType(), BigIntType(), DecimalType(5, 2), DecimalType(38, 18)),
    *(FloatType(), DoubleType(), CharType(4), VarCharType(), BinaryType(3), VarBinaryType()),
    *(DateType(), TimeType(0), TimeType(3), TimestampType(0), TimestampType(9)),
    *(LocalZonedTimestampType(3), LocalZonedTimestampType(9), YearMonthIntervalType("MONTH")),
    *(DayTimeIntervalType("DAY"), ArrayType(VarCharType()), MapType(VarCharType(), IntType())),
]


@pytest.mark.parametrize("source", CAST_TYPES, ids=str)
def test_agree_casts_of_boundaries_and_unreadable_text(source: LogicalType) -> None:
    rows = [(value,) for value in special_values("CAST", source)]
    for target in CAST_TYPES:
        if source == target or not supports_explicit_cast(source, target):
            continue
        column = InputReference(0, "c0", source)
        tried = evaluated(Call("TRY_CAST", (column,), target), rows)  # fails for none of them
        for row, found in zip(rows, tried, strict=True):
            alone = outcome(Call("CAST", (column,), target), row)
            if isinstance(alone, ExpressionError):
                assert isinstance(alone.__cause__, RAISED), (row, repr(alone.__cause__))
                alone = None
            assert same(found, alone), (str(source), str(target), row, found, alone)
