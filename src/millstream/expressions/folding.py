"""Folding of constants: what a planner can know of an expression before there are rows.

What it is: calls of constants become literals, and AND, OR and CASE lose the parts that constants
decide.  What fails is left as it is: it may stand where no row comes.  So is what users wrote: it
may need what only tasks have, such as parameters of the job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import ExpressionError
from millstream.expressions.evaluator import compile_expression, is_deterministic
from millstream.expressions.nodes import Call, Expression, Literal, transform
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from millstream.expressions.context import EvaluationContext


#: A row without columns to evaluate constants on.
_ONE_ROW: Final = pa.RecordBatch.from_pydict({"": pa.nulls(1)})


def fold(expression: Expression, context: EvaluationContext) -> Expression:
    """The expression with its constant parts computed.

    Args:
        expression: a bound scalar expression.
        context: for what depends on the session's time zone.

    Returns:
        An expression of the same type (maybe not nullable where that was) and with the same
        values.
    """
    return transform(expression, lambda node: _folded(node, context))


def _folded(node: Expression, context: EvaluationContext) -> Expression:
    if not isinstance(node, Call):
        return node
    if node.function in {"AND", "OR"}:
        node = _junction(node)
    elif node.function == "CASE":
        node = _case(node)
    if not isinstance(node, Call) or not _is_constant(node):
        return node
    try:
        column = compile_expression(node).evaluate(_ONE_ROW, context)
    except ExpressionError:
        return node
    return Literal(values_of_column(column, node.type)[0], node.type)


def _is_constant(call: Call) -> bool:
    """Whether it is a call of literals whose result can be one: nested values are no literals."""
    constant = call.arguments and all(isinstance(item, Literal) for item in call.arguments)
    is_of_user = call.definition is not None
    return bool(constant) and not (is_of_user or call.type.children) and is_deterministic(call)


def _junction(call: Call) -> Expression:
    """AND without TRUE, OR without FALSE; the deciding constant alone if there is one."""
    deciding = call.function == "OR"
    rest: list[Expression] = []
    for part in call.arguments:
        if isinstance(part, Literal) and part.value is deciding:
            # What stands before is not evaluated either: it cannot change the result.
            return part
        if not (isinstance(part, Literal) and part.value is (not deciding)):
            rest.append(part)
    if len(rest) == len(call.arguments):
        return call
    if not rest:
        return call.arguments[0]
    return rest[0] if len(rest) == 1 else replace(call, arguments=tuple(rest))


def _case(call: Call) -> Expression:
    """CASE without conditions that are FALSE or UNKNOWN, and without what stands behind a TRUE."""
    *pairs, otherwise = call.arguments
    kept: list[Expression] = []
    for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
        if isinstance(condition, Literal):
            if condition.value is True:
                otherwise = value
                break
            continue
        kept += [condition, value]
    if not kept:
        return otherwise
    return replace(call, arguments=(*kept, otherwise))
