"""The text of expressions in plans, in Flink's three styles."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from millstream.expressions.nodes import (
    Expression,
    InputReference,
    Literal,
    indexed_text,
    infix_text,
)
from millstream.expressions.resolution import resolve_call, resolve_cast
from millstream.types.logical_types import (
    BigIntType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntType,
    LogicalType,
    SymbolType,
    TimestampType,
    VarBinaryType,
    VarCharType,
)

A = InputReference(0, "a", IntType())
B = InputReference(1, "b", BigIntType())
S = InputReference(2, "s", VarCharType())


def lit(value: Any, type_: LogicalType) -> Literal:
    return Literal(value, type_.with_nullability(value is None))


@pytest.mark.parametrize(
    ("literal", "text", "plain"),
    [
        (lit(1, IntType()), "1", "1"),
        (lit(1, BigIntType()), "1:BIGINT", "1"),
        (lit(True, BooleanType()), "true", "true"),
        (lit("it's", CharType(4)), "_UTF-16LE'it''s'", "'it''s'"),
        (
            lit("ab", VarCharType()),
            "_UTF-16LE'ab':VARCHAR(2147483647) CHARACTER SET \"UTF-16LE\"",
            "'ab'",
        ),
        (lit(Decimal("1.5"), DecimalType(2, 1)), "1.5", "1.5"),
        (lit(Decimal("1.50"), DecimalType(10, 2)), "1.50:DECIMAL(10, 2)", "1.50"),
        (lit(1.0, DoubleType()), "1.0:DOUBLE", "1.0"),
        (lit(None, IntType()), "null:INTEGER", "null:INTEGER"),
        (lit(0, DateType()), "1970-01-01", "1970-01-01"),
        (lit(0, TimestampType(3)), "1970-01-01 00:00:00:TIMESTAMP(3)", "1970-01-01 00:00:00"),
        (lit(5000, DayTimeIntervalType("SECOND", 2, 3)), "5000:INTERVAL SECOND(3)", None),
        (lit(b"\x01\xff", VarBinaryType()), "X'01ff':VARBINARY(2147483647)", "X'01ff'"),
        (lit("DAY", SymbolType()), "DAY", "DAY"),
    ],
    ids=str,
)
def test_literals(literal: Literal, text: str, plain: str | None) -> None:
    assert str(literal) == text
    assert infix_text(literal) == (text if plain is None else plain)


def one(value: int = 1) -> Literal:
    return lit(value, IntType())


@pytest.mark.parametrize(
    ("expression", "prefix", "indexed", "infix"),
    [
        (resolve_call("+", A, one()), "+(a, 1)", "+($0, 1)", "(a + 1)"),
        (
            resolve_call("AND", resolve_call(">", A, one(10)), resolve_call("IS NULL", S)),
            "AND(>(a, 10), IS NULL(s))",
            "AND(>($0, 10), IS NULL($2))",
            "((a > 10) AND s IS NULL)",
        ),
        (
            resolve_cast(A, BigIntType()),
            "CAST(a AS BIGINT)",
            "CAST($0):BIGINT",
            "CAST(a AS BIGINT)",
        ),
        (
            resolve_call("CASE", resolve_call("NOT", resolve_call("=", B, B)), A, one()),
            "CASE(NOT(=(b, b)), a, 1)",
            "CASE(NOT(=($1, $1)), $0, 1)",
            "CASE(NOT (b = b), a, 1)",
        ),
        (
            resolve_call("LIKE", S, lit("a%", CharType(2))),
            "LIKE(s, _UTF-16LE'a%')",
            "LIKE($2, _UTF-16LE'a%')",
            "LIKE(s, 'a%')",
        ),
        (resolve_call("-", A), "-(a)", "-($0)", "-(a)"),
    ],
    ids=str,
)
def test_calls(expression: Expression, prefix: str, indexed: str, infix: str) -> None:
    assert str(expression) == prefix
    assert indexed_text(expression) == indexed
    assert infix_text(expression) == infix
