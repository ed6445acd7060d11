"""Random nested expressions: a batch gives what its rows give one by one."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import ExpressionError, ProgramError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_calculation, compile_expression, fold
from millstream.expressions.nodes import Expression, InputReference, Literal
from millstream.expressions.resolution import resolve_call, resolve_cast
from millstream.types.logical_types import BooleanType, IntType, VarCharType
from millstream.types.type_roots import TypeRoot

CONTEXT = EvaluationContext()
NUMBERS = [InputReference(i, "abc"[i], IntType()) for i in range(3)]
TEXT = InputReference(3, "s", VarCharType())
ROWS = 25


def batch_of(chance: random.Random) -> pa.RecordBatch:
    numbers = [[chance.choice([None, 0, 0, 1, 2, -3]) for _ in range(ROWS)] for _ in range(3)]
    columns = {
        name: pa.array(column, pa.int32()) for name, column in zip("abc", numbers, strict=True)
    }
    texts = [chance.choice([None, "1", "0", "x"]) for _ in range(ROWS)]
    return pa.record_batch(columns | {"s": pa.array(texts, pa.string())})


def number(chance: random.Random, depth: int) -> Expression:  # noqa: PLR0911 - a table
    if depth == 0 or chance.random() < 0.2:
        if chance.random() < 0.3:
            value = chance.choice([None, 0, 1, 2])
            return Literal(value, IntType(nullable=value is None))
        return chance.choice(NUMBERS)
    kind = chance.randrange(6)
    inner = [number(chance, depth - 1) for _ in range(3)]
    if kind == 0:
        return resolve_call(chance.choice("+-*/%/"), *inner[:2])
    if kind == 1:
        return resolve_call("COALESCE", *inner)
    if kind == 2:
        return resolve_call("IF", condition(chance, depth - 1), *inner[:2])
    if kind == 3:
        first, second = condition(chance, depth - 1), condition(chance, depth - 1)
        return resolve_call("CASE", first, inner[0], second, inner[1], inner[2])
    if kind == 4:
        return resolve_cast(TEXT, IntType(), can_fail=chance.random() < 0.5)
    return resolve_call("NULLIF", *inner[:2])


def condition(chance: random.Random, depth: int) -> Expression:
    if depth == 0 or chance.random() < 0.3:
        left, right = number(chance, depth), number(chance, depth)
        return resolve_call(chance.choice(["=", "<", "<>"]), left, right)
    parts = [condition(chance, depth - 1) for _ in range(chance.choice([2, 3]))]
    kind = chance.choice(["AND", "OR", "NOT", "IS UNKNOWN", "COALESCE"])
    found = resolve_call(kind, *(parts if kind in {"AND", "OR", "COALESCE"} else parts[:1]))
    assert found.type.root is TypeRoot.BOOLEAN
    return found


def outcome(expression: Expression, batch: pa.RecordBatch) -> Any:
    try:
        return compile_expression(expression).evaluate(batch, CONTEXT).to_pylist()
    except ExpressionError:
        return "fails"


def one_by_one(expression: Expression, batch: pa.RecordBatch) -> Any:
    values = []
    for position in range(batch.num_rows):
        found = outcome(expression, batch.slice(position, 1))
        if found == "fails":
            return found
        values += found
    return values


def check(seed: int) -> bool:
    """Whether the expression of that seed fails for its batch."""
    chance = random.Random(seed)
    batch = batch_of(chance)
    try:
        expression = number(chance, 4) if seed % 2 else condition(chance, 4)
    except ProgramError:  # two NULLs without a type
        return False
    together = outcome(expression, batch)
    assert together == one_by_one(expression, batch), (seed, str(expression))
    folded = fold(expression, CONTEXT)
    assert folded.type.root is expression.type.root
    if together != "fails":
        assert outcome(folded, batch) == together, (seed, str(expression), str(folded))
    where = condition(chance, 2)
    check_calculation(where, expression, batch)
    return bool(together == "fails")


def check_calculation(where: Expression, value: Expression, batch: pa.RecordBatch) -> None:
    """A value behind a filter is that of the rows which pass, and of no others."""
    passed = outcome(resolve_call("IS TRUE", where), batch)
    if passed == "fails":
        return
    expected = outcome(value, batch.filter(pa.array(passed, pa.bool_())))
    calculation = compile_calculation(where, [value, Literal(True, BooleanType(nullable=False))])
    try:
        _, columns = calculation.evaluate(batch, CONTEXT)
    except ExpressionError:
        assert expected == "fails"
        return
    if True not in passed:
        assert columns == [], "no row passes, and yet something is computed"
        return
    assert columns[0].to_pylist() == expected
    assert columns[1].to_pylist() == [True] * sum(passed)


def test_agree_batches_and_single_rows() -> None:
    failed = [check(seed) for seed in range(40)]
    assert 2 < sum(failed) < 35


@pytest.mark.soak
@pytest.mark.parametrize("start", range(1000, 6000, 500))
def test_agree_batches_and_single_rows_of_many_expressions(start: int) -> None:
    for seed in range(start, start + 500):
        check(seed)
