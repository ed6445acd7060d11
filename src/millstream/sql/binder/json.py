"""The functions of JSON, whose clauses are words of the grammar: nodes to calls.

What it is: one function per node of the parser.
What it is not: what the functions do (``expressions/functions/json.py``).

Read next: ``expressions/json_calls.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError
from millstream.expressions import json_calls
from millstream.types.logical_types import VarCharType
from millstream.types.type_derivation import supports_implicit_cast
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.calls import Binds

__all__ = ["json_array", "json_exists", "json_object", "json_query", "json_value"]


def _called(binder: Binds, node: Any, call: Callable[[], Expression]) -> Expression:
    try:
        return call()
    except MillstreamError as error:
        raise binder.context.error(node, str(error)) from error


def _kind(behaviour: Any, default: str) -> str:
    return default if behaviour is None else behaviour.kind


def _default(binder: Binds, behaviour: Any, node: Any) -> Expression | None:
    if behaviour is None or behaviour.default is None:
        return None
    found = binder.bind(behaviour.default)
    target = node.returning or VarCharType()
    if target.is_a(TypeFamily.CHARACTER_STRING) or supports_implicit_cast(found.type, target):
        return found
    one, other = found.type.as_summary_string(), target.as_summary_string()
    raise binder.context.error(behaviour.default, f"The default is {one} and must be {other}.")


def json_exists(binder: Binds, node: Any) -> Expression:
    """``JSON_EXISTS``, with what it gives for an error."""
    operand, path = binder.bind(node.operand), binder.bind(node.path)
    on_error = _kind(node.on_error, "FALSE")
    return _called(binder, node, lambda: json_calls.json_exists(operand, path, on_error))


def json_value(binder: Binds, node: Any) -> Expression:
    """``JSON_VALUE`` with RETURNING, ON EMPTY and ON ERROR."""
    operand, path = binder.bind(node.operand), binder.bind(node.path)
    empty, error = node.on_empty, node.on_error
    defaults = _default(binder, empty, node), _default(binder, error, node)
    return _called(
        binder,
        node,
        lambda: json_calls.json_value(
            operand,
            path,
            returning=node.returning,
            on_empty=_kind(empty, "NULL"),
            default_on_empty=defaults[0],
            on_error=_kind(error, "NULL"),
            default_on_error=defaults[1],
        ),
    )


def json_query(binder: Binds, node: Any) -> Expression:
    """``JSON_QUERY`` with RETURNING, a wrapper, ON EMPTY and ON ERROR."""
    operand, path = binder.bind(node.operand), binder.bind(node.path)
    return _called(
        binder,
        node,
        lambda: json_calls.json_query(
            operand,
            path,
            returning=node.returning,
            wrapper=node.wrapper or "WITHOUT",
            on_empty=_kind(node.on_empty, "NULL"),
            on_error=_kind(node.on_error, "NULL"),
        ),
    )


def json_object(binder: Binds, node: Any) -> Expression:
    """``JSON_OBJECT``."""
    pairs = [(binder.bind(key), binder.json_argument(value)) for key, value in node.entries]
    on_null = "ABSENT" if node.absent_on_null else "NULL"
    return _called(binder, node, lambda: json_calls.json_object(pairs, on_null))


def json_array(binder: Binds, node: Any) -> Expression:
    """``JSON_ARRAY``."""
    values = [binder.json_argument(each) for each in node.elements]
    on_null = "NULL" if node.absent_on_null is False else "ABSENT"
    return _called(binder, node, lambda: json_calls.json_array(values, on_null))
