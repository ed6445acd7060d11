"""DESCRIBE FUNCTION [EXTENDED]: what is known of a function.

What it is: rows as Flink's, of built-in functions and of those of users.
What it is not: the page of functions, which says what they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.expressions.functions.definition import FunctionKind
from millstream.expressions.functions.registry import built_in_functions
from millstream.sql.binder.calls import user_definition, user_function
from millstream.sql.statements.results import texts
from millstream.sql.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.sql.statements.results import RowsResult
    from millstream.sql.statements.session import Session

__all__ = ["describe_function"]


def describe_function(session: Session, node: Any, text: str | None) -> RowsResult:
    """The rows of DESCRIBE FUNCTION.

    Raises:
        ValidationError: there is no such function.
    """
    names: tuple[str, ...] = node.name.names
    own = user_function(session.context(text), node)
    if own is not None:
        is_system, is_temporary = session.catalogs.place_of_function(names)
        rows = [_said("is system function", is_system), _said("is temporary", is_temporary)]
        if not is_temporary:
            rows += [["class name", own.get_class_name()]]
            rows += [["function language", own.get_function_language()]]
        if node.extended:
            rows += _extended(user_definition(session.context(text), node.name, own), names[-1])
        return texts(["info name", "info value"], rows)
    built_in = built_in_functions()
    definition = built_in.get(names[0].upper()) if len(names) == 1 else None
    if definition is None:
        hint = did_you_mean(names[-1].upper(), [*built_in, *_upper(session)])
        message = f"Function with the identifier '{node.name}' doesn't exist.{hint}"
        raise session.context(text).error(node.name, message)
    rows = [_said("is system function", True), _said("is temporary", False)]  # noqa: FBT003
    if node.extended:
        rows += _extended(definition, definition.name)
    return texts(["info name", "info value"], rows)


def _upper(session: Session) -> Sequence[str]:
    return [each.upper() for each in session.catalogs.function_names()]


def _said(name: str, value: bool) -> list[str]:  # noqa: FBT001 - what is said
    return [name, "true" if value else "false"]


def _extended(definition: FunctionDefinition, name: str) -> list[list[str]]:
    return [
        ["kind", definition.kind.name],
        ["requirements", "[]"],
        _said("is deterministic", definition.deterministic),
        _said("supports constant folding", definition.is_foldable),
        ["signature", _signatures(definition, name)],
    ]


def _signatures(definition: FunctionDefinition, name: str) -> str:
    """One line for each way to call it, with what the arguments may be."""
    if definition.syntax is not None and definition.kind is FunctionKind.SCALAR:
        return definition.syntax  # as no call is written
    lines = []
    for signature in definition.signatures:
        shown = [f"<{argument.text}>" for argument in signature.arguments]
        for count in range(len(shown) - signature.optional, len(shown) + 1):
            more = ["..."] if signature.repeats and count == len(shown) else []
            lines.append(f"{name}({', '.join([*shown[:count], *more])})")
    return "\n".join(dict.fromkeys(lines)) or f"{name}(*)"
