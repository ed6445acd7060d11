"""The evaluator: which rows are evaluated, what is computed once, what errors say."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from millstream.errors import ExpressionError, ProgramError, UserFunctionError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import (
    compile_calculation,
    compile_expression,
    compile_filter,
    compile_projection,
    fold,
    is_deterministic,
)
from millstream.expressions.functions.definition import (
    INT,
    FunctionDefinition,
    NullBehaviour,
    signature,
)
from millstream.expressions.nodes import Call, Expression, InputReference, Literal, transform, walk
from millstream.expressions.resolution import resolve_call, resolve_cast, resolve_definition
from millstream.types.logical_types import (
    BooleanType,
    CharType,
    DecimalType,
    DoubleType,
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    NullType,
    VarCharType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CONTEXT = EvaluationContext()
A = InputReference(0, "a", IntType())
B = InputReference(1, "b", IntType())
S = InputReference(2, "s", VarCharType())
BATCH = pa.record_batch(
    {
        "a": pa.array([6, 7, None, 9], pa.int32()),
        "b": pa.array([0, 2, 3, None], pa.int32()),
        "s": pa.array(["x", "12", None, "yy"]),
    }
)


def lit(value: Any, type_: LogicalType | None = None) -> Literal:
    return Literal(value, (type_ or IntType()).not_null())


def values(expression: Expression, batch: pa.RecordBatch = BATCH) -> list[Any]:
    column = compile_expression(expression).evaluate(batch, CONTEXT)
    assert isinstance(column, pa.Array)
    assert column.type == expression.type.to_arrow()
    assert len(column) == batch.num_rows
    result: list[Any] = column.to_pylist()
    return result


class Counting:
    """A function of one integer that tells which values it has seen."""

    def __init__(self, *, fails: bool = False, **options: Any) -> None:
        self.seen: list[int | None] = []
        self.definition = FunctionDefinition(
            "counting",
            "test",
            signatures=(signature("integer", result=INT),),
            reference=self.reference,
            **options,
        )
        self._fails = fails

    def reference(self, value: int | None) -> int | None:
        self.seen.append(value)
        if self._fails:
            message = "refused"
            raise ValueError(message)
        return value

    def call(self, argument: Expression) -> Call:
        return resolve_definition(self.definition, [argument], user=True)


# -- which rows -------------------------------------------------------------------------------


def test_case_divides_by_no_zero() -> None:
    quotient = resolve_call("/", A, B)
    case = resolve_call("CASE", resolve_call("<>", B, lit(0)), quotient, lit(-1))
    assert values(case) == [-1, 3, None, -1]
    with pytest.raises(ExpressionError, match="division by zero"):
        values(quotient)


def test_case_evaluates_each_branch_on_its_rows_only() -> None:
    first, second, last = Counting(), Counting(), Counting()
    case = resolve_call(
        "CASE",
        resolve_call("=", A, lit(6)),
        first.call(A),
        resolve_call("=", A, lit(7)),
        second.call(A),
        last.call(A),
    )
    assert values(case) == [6, 7, None, 9]
    assert (first.seen, second.seen, last.seen) == ([6], [7], [9])


def test_later_conditions_are_only_asked_for_the_rows_that_are_left() -> None:
    condition = Counting()
    case = resolve_call(
        "CASE",
        resolve_call("=", A, lit(6)),
        lit(1),
        resolve_call("=", condition.call(A), lit(7)),
        lit(2),
        Literal(None, NullType()),
    )
    assert values(case) == [1, 2, None, None]
    assert condition.seen == [7, 9]


@pytest.mark.parametrize(
    ("name", "deciding", "expected"),
    [("AND", False, [False, True, None, None]), ("OR", True, [True, True, None, True])],
)
def test_and_or_ask_where_nothing_is_decided(
    name: str, deciding: bool, expected: list[bool | None]
) -> None:
    right = Counting()
    left = resolve_call("=" if deciding else "<>", A, lit(6))
    junction = resolve_call(name, left, resolve_call(">", right.call(B), lit(1)))
    found = values(junction)
    assert found[:2] == expected[:2]
    assert right.seen == [2, 3]  # row 0 is decided, row 3 has a NULL


def test_three_valued_logic() -> None:
    truth = [True, False, None]
    pairs = [(left, right) for left in truth for right in truth]
    batch = pa.record_batch(
        {
            "l": pa.array([left for left, _ in pairs]),
            "r": pa.array([right for _, right in pairs]),
        }
    )
    left, right = (InputReference(i, "lr"[i], BooleanType()) for i in (0, 1))
    assert values(resolve_call("AND", left, right), batch) == [
        *[True, False, None],
        *[False, False, False],
        *[None, False, None],
    ]
    assert values(resolve_call("OR", left, right), batch) == [
        *[True, True, True],
        *[True, False, None],
        *[True, None, None],
    ]


def test_coalesce_asks_where_all_before_are_null() -> None:
    second = Counting()
    assert values(resolve_call("COALESCE", A, second.call(B), lit(5))) == [6, 7, 3, 9]
    assert second.seen == [3]


def test_if_and_ifnull() -> None:
    inverse = resolve_call("/", lit(12), B)
    assert values(resolve_call("IF", resolve_call("=", B, lit(0)), lit(0), inverse)) == [
        *[0, 6, 4],
        None,
    ]
    assert values(resolve_call("IFNULL", A, lit(0))) == [6, 7, 0, 9]
    assert resolve_call("IFNULL", A, lit(0)).type == IntType(nullable=False)


def test_nested_selections_keep_the_order_of_rows() -> None:
    batch = pa.record_batch({"a": pa.array(range(100), pa.int32())})
    inner = resolve_call(
        "CASE",
        resolve_call("=", resolve_call("%", A, lit(3)), lit(0)),
        resolve_call("/", lit(900), resolve_call("+", A, lit(1))),
        resolve_call("-", A),
    )
    outer = resolve_call("CASE", resolve_call("=", resolve_call("%", A, lit(2)), lit(0)), inner, A)
    expected = [(900 // (a + 1) if a % 3 == 0 else -a) if a % 2 == 0 else a for a in range(100)]
    assert values(outer, batch) == expected


def test_a_filter_takes_unknown_for_false() -> None:
    mask = compile_filter(resolve_call(">", A, B)).evaluate(BATCH, CONTEXT)
    assert mask.to_pylist() == [True, True, False, False]
    assert mask.null_count == 0


def test_a_filter_is_boolean() -> None:
    with pytest.raises(ProgramError, match=r"must be of type BOOLEAN; \+\(a, b\) is INT"):
        compile_filter(resolve_call("+", A, B))


def test_a_calculation_evaluates_what_passes() -> None:
    calculation = compile_calculation(
        resolve_call("<>", B, lit(0)), [resolve_call("/", A, B), S, lit(1)]
    )
    mask, columns = calculation.evaluate(BATCH, CONTEXT)
    assert mask is not None
    assert mask.to_pylist() == [False, True, True, False]
    assert [column.to_pylist() for column in columns] == [[3, None], ["12", None], [1, 1]]


def test_a_calculation_of_most_rows() -> None:
    numbers = pa.record_batch({"a": pa.array([*range(29), None], pa.int32())})
    calculation = compile_calculation(resolve_call("<>", A, lit(7)), [resolve_call("+", A, lit(1))])
    mask, columns = calculation.evaluate(numbers, CONTEXT)
    assert mask is not None
    assert mask.true_count == 28
    assert columns[0].to_pylist() == [n + 1 for n in range(29) if n != 7]


@pytest.mark.parametrize("divisor", [1, 2, 8, 2**30, -8, 6])
@pytest.mark.parametrize("least", [-20, 0])
def test_remainders_have_the_sign_of_what_is_divided(divisor: int, least: int) -> None:
    """Powers of two are not divided by, as long as no number is negative."""
    numbers = [*range(least, 40), None, 2**31 - 1]
    batch = pa.record_batch({"a": pa.array(numbers, pa.int32())})
    expected = [None if n is None else int(math.fmod(n, divisor)) for n in numbers]
    assert values(resolve_call("%", A, lit(divisor)), batch) == expected


def test_a_calculation_says_that_all_pass() -> None:
    calculation = compile_calculation(resolve_call("IS NOT NULL", lit(1)), [A])
    mask, columns = calculation.evaluate(BATCH, CONTEXT)
    assert mask is None
    assert columns[0].to_pylist() == [6, 7, None, 9]
    assert compile_calculation(None, [A]).evaluate(BATCH, CONTEXT)[0] is None


def test_batches_without_rows() -> None:
    batch = BATCH.slice(0, 0)
    case = resolve_call("CASE", resolve_call("<>", B, lit(0)), resolve_call("/", A, B), lit(0))
    assert values(case, batch) == []
    assert values(resolve_call("+", A, B), batch) == []
    assert values(Counting().call(A), batch) == []
    assert (
        values(resolve_call("AND", resolve_call("=", A, B), Literal(None, NullType())), batch) == []
    )


# -- functions --------------------------------------------------------------------------------


def test_a_strict_reference_never_sees_null() -> None:
    counting = Counting()
    assert values(counting.call(A)) == [6, 7, None, 9]
    assert counting.seen == [6, 7, 9]
    called = Counting(nulls=NullBehaviour.CALLED)
    assert values(called.call(A)) == [6, 7, None, 9]
    assert called.seen == [6, 7, None, 9]


def test_costly_functions_run_on_distinct_values() -> None:
    counting = Counting(costly=True)
    batch = pa.record_batch({"a": pa.array([1, 2, None, 1] * 25, pa.int32())})
    assert values(counting.call(A), batch) == [1, 2, None, 1] * 25
    assert sorted(value for value in counting.seen if value is not None) == [1, 2]


def test_costly_functions_that_are_not_deterministic_run_for_each_row() -> None:
    counting = Counting(costly=True, deterministic=False)
    batch = pa.record_batch({"a": pa.array([1] * 50, pa.int32())})
    values(counting.call(A), batch)
    assert len(counting.seen) == 50


def test_constants_are_computed_once() -> None:
    counting = Counting()
    evaluator = compile_expression(resolve_call("+", A, counting.call(lit(5))))
    for _ in range(3):
        assert evaluator.evaluate(BATCH, CONTEXT).to_pylist() == [11, 12, None, 14]
    assert counting.seen == [5]


def test_a_constant_that_fails_fails_for_rows_that_need_it_only() -> None:
    failing = resolve_call("/", lit(1), lit(0))
    case = resolve_call("CASE", resolve_call("=", A, lit(100)), failing, A)
    assert values(case) == [6, 7, None, 9]
    with pytest.raises(ExpressionError, match="division by zero"):
        values(failing)


def test_a_constant_follows_the_time_zone() -> None:
    text = resolve_cast(lit(0, LocalZonedTimestampType(0)), VarCharType())
    evaluator = compile_expression(text)
    batch = BATCH.slice(0, 1)
    assert evaluator.evaluate(batch, CONTEXT).to_pylist() == ["1970-01-01 00:00:00"]
    tokyo = EvaluationContext(time_zone="Asia/Tokyo")
    assert evaluator.evaluate(batch, tokyo).to_pylist() == ["1970-01-01 09:00:00"]
    assert evaluator.evaluate(batch, CONTEXT).to_pylist() == ["1970-01-01 00:00:00"]


def test_what_several_expressions_share_is_computed_once() -> None:
    counting = Counting()
    shared = counting.call(A)
    projection = compile_projection(
        [resolve_call("+", shared, lit(1)), resolve_call("*", shared, shared), shared]
    )
    columns = projection.evaluate(BATCH, CONTEXT)
    assert [column.to_pylist() for column in columns] == [
        [7, 8, None, 10],
        [36, 49, None, 81],
        [6, 7, None, 9],
    ]
    assert counting.seen == [6, 7, 9]


def test_what_is_not_deterministic_is_not_shared() -> None:
    projection = compile_projection([resolve_call("RAND"), resolve_call("RAND")])
    one, other = projection.evaluate(BATCH, CONTEXT)
    assert one != other
    assert not is_deterministic(resolve_call("+", resolve_call("RAND"), lit(1)))
    assert is_deterministic(resolve_call("+", A, lit(1)))


def test_random_numbers_differ_from_row_to_row() -> None:
    assert len(set(values(resolve_call("RAND", lit(1))))) == 4
    assert len(set(values(resolve_call("UUID")))) == 4


# -- errors -----------------------------------------------------------------------------------


def test_an_error_names_expression_and_values() -> None:
    with pytest.raises(ExpressionError) as caught:
        values(resolve_call("+", lit(1), resolve_call("/", A, B)))
    assert str(caught.value) == "/(a, b) fails where a = 6, b = 0: division by zero"
    assert isinstance(caught.value, UserFunctionError)


def test_an_error_of_a_reference_names_the_row() -> None:
    with pytest.raises(ExpressionError, match="counting\\(a\\) fails where a = 6: refused"):
        values(Counting(fails=True).call(A))


def test_what_is_rewritten_is_not_evaluated_as_it_is() -> None:
    with pytest.raises(ProgramError, match="NULLIF cannot be evaluated"):
        compile_expression(Call("NULLIF", (A, B), IntType()))


def test_an_error_of_a_cast_names_the_text() -> None:
    with pytest.raises(ExpressionError, match=r"fails where s = 'x': 'x' is no INT"):
        values(resolve_cast(S, IntType()))


def test_an_error_writes_texts_as_a_person_does() -> None:
    with pytest.raises(ExpressionError) as caught:
        values(resolve_call("ENCODE", S, Literal("nope", VarCharType(4, nullable=False))))
    assert str(caught.value).startswith("ENCODE(s, 'nope') fails where s = 'x': unknown charset")


def test_unknown_functions_get_a_suggestion() -> None:
    with pytest.raises(ProgramError, match="no function COALESC; did you mean COALESCE"):
        resolve_call("COALESC", A)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: resolve_call("+", A, S), r"\+ does not take \(INT, STRING\)"),
        (lambda: resolve_call("=", A, S), "= does not take INT and STRING together"),
        (lambda: resolve_call("SIN"), r"SIN\(numeric <DOUBLE>\)"),
        (lambda: resolve_call("AND", A, A), "AND does not take"),
        (lambda: resolve_call("CASE", A, A, A), "CASE does not take"),
        (lambda: resolve_call("COALESCE", A, S), "COALESCE does not take"),
    ],
)
def test_arguments_that_do_not_fit(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        make()


# -- nodes ------------------------------------------------------------------------------------


def test_expressions_are_picklable_and_hashable() -> None:
    expression = resolve_call("CASE", resolve_call("=", A, lit(1)), lit("x", CharType(1)), S)
    assert pickle.loads(pickle.dumps(expression)) == expression
    assert hash(pickle.loads(pickle.dumps(expression))) == hash(expression)


def test_walk_and_transform() -> None:
    expression = resolve_call("+", A, resolve_call("*", B, lit(2)))
    assert [str(node) for node in walk(expression)] == ["+(a, *(b, 2))", "a", "*(b, 2)", "b", "2"]
    swapped = transform(expression, lambda node: A if node == B else node)
    assert str(swapped) == "+(a, *(a, 2))"
    assert transform(expression, lambda node: node) is expression


def test_implicit_casts_are_calls() -> None:
    call = resolve_call("+", A, lit(1.0, DoubleType()))
    assert str(call) == "+(CAST(a AS DOUBLE), 1.0:DOUBLE)"
    assert call.type == DoubleType()


def test_a_literal_keeps_its_sign() -> None:
    assert resolve_call("-", lit(5)) == lit(-5)
    assert resolve_call("-", lit(Decimal("1.5"), DecimalType(2, 1))) == lit(
        Decimal("-1.5"), DecimalType(2, 1)
    )


# -- folding ----------------------------------------------------------------------------------


YES = resolve_call("=", lit(1), lit(1))
NO = resolve_call("=", lit(1), lit(2))
EQUAL = resolve_call("=", A, B)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (resolve_call("+", lit(1), resolve_call("*", lit(2), lit(3))), "7"),
        (resolve_call("+", A, resolve_call("*", lit(2), lit(3))), "+(a, 6)"),
        (resolve_call("/", lit(1), lit(0)), "/(1, 0)"),
        (
            resolve_call("AND", YES, EQUAL),
            "=(a, b)",
        ),
        (resolve_call("AND", EQUAL, NO), "false"),
        (resolve_call("OR", EQUAL, NO), "=(a, b)"),
        (resolve_call("CASE", NO, A, B), "b"),
        (
            resolve_call("CASE", resolve_call("=", A, A), A, lit(True, BooleanType()), B, A),
            "CASE(=(a, a), a, b)",
        ),
        (resolve_call("RAND", lit(1)), "RAND(1)"),
        (resolve_call("NULLIF", lit(1), lit(1)), "null:INTEGER"),
    ],
    ids=str,
)
def test_folding(expression: Expression, text: str) -> None:
    assert str(fold(expression, CONTEXT)) == text
