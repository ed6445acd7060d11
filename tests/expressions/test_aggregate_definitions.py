"""Aggregates in the registry: their types, and that nobody evaluates them row by row."""

from __future__ import annotations

import pytest

from millstream.errors import ProgramError
from millstream.expressions.evaluator import compile_expression
from millstream.expressions.functions.definition import FunctionKind
from millstream.expressions.functions.registry import function_groups, get_function
from millstream.expressions.nodes import InputReference, Literal
from millstream.expressions.resolution import resolve_call
from millstream.types.logical_types import (
    BigIntType,
    BooleanType,
    DecimalType,
    DoubleType,
    IntType,
    LogicalType,
    MapType,
    SymbolType,
    VarCharType,
)


@pytest.mark.parametrize(
    ("name", "types", "expected"),
    [
        ("COUNT", [], "BIGINT NOT NULL"),
        ("COUNT", [IntType(), VarCharType()], "BIGINT NOT NULL"),
        ("SUM", [BigIntType()], "BIGINT"),
        ("SUM", [IntType(nullable=False)], "INT NOT NULL"),
        ("SUM", [DecimalType(10, 2)], "DECIMAL(38, 2)"),
        ("AVG", [BigIntType()], "BIGINT"),
        ("AVG", [DecimalType(10, 2)], "DECIMAL(38, 6)"),
        ("MIN", [VarCharType(5)], "VARCHAR(5)"),
        ("STDDEV", [DoubleType(nullable=False)], "DOUBLE"),
        ("VAR_POP", [IntType(nullable=False)], "INT NOT NULL"),
        ("FIRST_VALUE", [BooleanType()], "BOOLEAN"),
        ("LISTAGG", [VarCharType(3)], "STRING"),
        ("COLLECT", [IntType()], "MULTISET<INT> NOT NULL"),
        ("ARRAY_AGG", [IntType(nullable=False)], "ARRAY<INT NOT NULL>"),
        ("PERCENTILE", [IntType(), DecimalType(2, 1)], "DOUBLE"),
        ("ROW_NUMBER", [], "BIGINT NOT NULL"),
        ("CUME_DIST", [], "DOUBLE NOT NULL"),
        ("LAG", [IntType(nullable=False)], "INT"),
        ("LEAD", [IntType(), IntType(), BigIntType()], "BIGINT"),
    ],
)
def test_result_types(name: str, types: list[LogicalType], expected: str) -> None:
    columns = [InputReference(i, f"c{i}", type_) for i, type_ in enumerate(types)]
    assert str(resolve_call(name, *columns).type) == expected


def test_json_aggregates_know_what_null_does() -> None:
    on_null = Literal("NULL", SymbolType(nullable=False))
    key, value = InputReference(0, "k", VarCharType()), InputReference(1, "v", IntType())
    assert str(resolve_call("JSON_OBJECTAGG", on_null, key, value).type) == "VARCHAR(2000) NOT NULL"
    assert str(resolve_call("JSON_ARRAYAGG", on_null, value).type) == "VARCHAR(2000) NOT NULL"


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("SUM", [VarCharType()]),
        ("MAX", [MapType(IntType(), IntType())]),
        ("LISTAGG", [IntType()]),
        ("ROW_NUMBER", [IntType()]),
    ],
)
def test_arguments_that_do_not_fit(name: str, types: list[LogicalType]) -> None:
    columns = [InputReference(i, f"c{i}", type_) for i, type_ in enumerate(types)]
    with pytest.raises(ProgramError, match=f"{name} does not take"):
        resolve_call(name, *columns)


def test_an_aggregate_is_not_evaluated_row_by_row() -> None:
    call = resolve_call("SUM", InputReference(0, "a", IntType()))
    with pytest.raises(ProgramError, match="SUM is no scalar function"):
        compile_expression(call)


def test_every_aggregate_is_documented() -> None:
    for group in function_groups():
        for definition in group.definitions:
            assert definition.documentation, definition.name
            assert definition.signatures, definition.name
            if definition.kind is not FunctionKind.SCALAR:
                assert definition.reference is None
    assert get_function("variance").name == "VAR_SAMP"
