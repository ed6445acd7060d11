"""Calls of users' aggregate functions: their arguments, bound.

What it is: what GROUP BY and OVER share.
What it is not: the plan (``sql/binder/grouping.py``, ``sql/binder/overs.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import ProgramError
from millstream.expressions.resolution import resolve_definition
from millstream.expressions.user_aggregates import user_aggregate
from millstream.sql.binder.inline_calls import InlineCall
from millstream.sql.parser import nodes

if TYPE_CHECKING:
    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.expressions.nodes import Call
    from millstream.sql.binder.expressions import ExpressionBinder

__all__ = ["user_aggregate_arguments"]


def user_aggregate_arguments(
    base: ExpressionBinder, node: Any, definition: FunctionDefinition
) -> Call:
    """A call with bound arguments, cast to what the function takes.

    Raises:
        ValidationError: it does not take them, or gives rows.
    """
    user = user_aggregate(definition)
    is_over = getattr(node, "over", None) is not None
    if user.gives_rows and (is_over or not isinstance(node, InlineCall)):
        message = f"{definition.name} gives rows: flat_aggregate() of the Table API takes it."
        raise base.context.error(node, message)
    if isinstance(node, nodes.FunctionCall) and (node.order_by or node.within_group):
        raise base.context.error(node, f"ORDER BY in {definition.name} is not in this release.")
    if any(isinstance(each, nodes.Star) for each in node.arguments):
        raise base.context.error(node, f"Only COUNT takes *; {definition.name} does not.")
    try:
        return resolve_definition(definition, base.bind_all(node.arguments), user=True)
    except ProgramError as error:
        raise base.context.error(node, str(error)) from error
