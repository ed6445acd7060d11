"""Expressions in the styles of EXPLAIN.

What it is: three ways to write an expression.  ``str(expression)`` is the one of Flink's optimised
physical plan, ``>(a, 10)``; its syntax tree has positions, ``>($0, 10)``; its execution plan writes
operators between their arguments, ``(a > 10)``.

What it is not: the layout of plans.

Read next: ``expressions/texts.py``.
"""

from __future__ import annotations

from typing import Final

from millstream.expressions.nodes import Call, Expression, InputReference, Literal
from millstream.expressions.texts import call_text, plan_type_text, value_text
from millstream.types.type_roots import TypeFamily

__all__ = ["indexed_text", "infix_text"]

_BINARY: Final = frozenset(
    {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||"}
    | {"IS DISTINCT FROM", "IS NOT DISTINCT FROM"}
)
_POSTFIX: Final = frozenset(
    {"IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE"}
    | {"IS UNKNOWN", "IS NOT UNKNOWN"}
)


def indexed_text(expression: Expression) -> str:
    """The expression with positions for columns: ``+($0, CAST($1):BIGINT)``."""
    if isinstance(expression, InputReference):
        return f"${expression.index}"
    if isinstance(expression, Literal):
        return str(expression)
    arguments = [indexed_text(argument) for argument in expression.arguments]
    if expression.function in {"CAST", "TRY_CAST"}:
        return f"{expression.function}({arguments[0]}):{plan_type_text(expression.type)}"
    return call_text(expression.function, arguments, expression.type)


def infix_text(expression: Expression) -> str:
    """The expression with operators between their arguments: ``((a + 1) > b)``."""
    if isinstance(expression, InputReference):
        return expression.name
    if isinstance(expression, Literal):
        return _plain_literal(expression)
    arguments = [infix_text(argument) for argument in expression.arguments]
    return _call(expression, arguments)


def _call(call: Call, arguments: list[str]) -> str:
    name = call.function
    if name in _BINARY and len(arguments) > 1:
        return f"({f' {name} '.join(arguments)})"
    if name in _POSTFIX:
        return f"{arguments[0]} {name}"
    if name == "NOT":
        return f"NOT {arguments[0]}"
    return call_text(name, arguments, call.type)


def _plain_literal(literal: Literal) -> str:
    told = literal.value is not None and not literal.type.is_a(TypeFamily.INTERVAL)
    return value_text(literal.value, literal.type) if told else str(literal)
