"""The methods of expressions that are made of a table, and what type checkers know of them."""

from __future__ import annotations

import inspect

import pytest
from tests.table.function_stub import STUB, stub

from millstream.table.expression import Expression
from millstream.table.expressions import col
from millstream.table.function_methods import METHODS, FunctionMethods, signature_of


def test_the_stub_is_up_to_date() -> None:
    assert STUB.read_text() == stub(), "run python -m tests.table.function_stub"


@pytest.mark.parametrize("declaration", METHODS)
def test_methods_are_as_declared(declaration: str) -> None:
    name, function, signature = signature_of(declaration)
    method = vars(FunctionMethods)[name]
    assert method.__doc__ == METHODS[declaration]
    assert inspect.signature(getattr(Expression, name)) == signature
    required = [each for each in signature.parameters.values() if each.default is each.empty]
    plain = [each for each in required if each.kind is not each.VAR_POSITIONAL][1:]
    made = getattr(col("a"), name)(*(f"b{at}" for at in range(len(plain))))
    assert isinstance(made, Expression)
    assert made.node.name.last == function


def test_arguments_are_given_by_name_or_position() -> None:
    by_name = col("a").substring(length=2, begin_index=1)
    assert str(by_name) == str(col("a").substring(1, 2))
    assert str(col("a").replace(replacement="b")) == str(col("a").replace(None, "b"))
    assert str(col("a").map_union(col("b"), col("c"))) == "MAP_UNION(`a`, `b`, `c`)"
    assert str(col("a").locate("b")) != str(col("a").locate("b", 3))


def test_wrong_arguments_name_the_method() -> None:
    with pytest.raises(TypeError, match=r"lpad\(\): missing a required argument: 'pad'"):
        col("a").lpad(3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"array_max\(\): too many positional arguments"):
        col("a").array_max(3)  # type: ignore[call-arg]
