"""Errors of the binder: what is wrong, where in the text, with a caret below it.

What it is: the one way in which the binder refuses a statement.
What it is not: errors of syntax (``sql/parser/``), which look alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ValidationError
from millstream.sql.parser.excerpt import excerpt

if TYPE_CHECKING:
    from millstream.sql.parser.syntax import Node

__all__ = ["validation_error"]


def validation_error(text: str | None, node: Node | None, message: str) -> ValidationError:
    """The error that ``node`` of the statement ``text`` is wrong.

    Args:
        text: the statement; None where the Table API made the node.
        node: where; None if there is no one place.
        message: what is wrong, with what is there instead.
    """
    position = None if node is None else node.position
    if text is None or position is None:
        return ValidationError(message)
    where = f"SQL, line {position.line}, column {position.column}"
    shown = excerpt(text, position.start, position.end)
    return ValidationError(f"{where}: {message}\n{shown}")
