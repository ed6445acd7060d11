"""Statements of modules: LOAD, UNLOAD, USE.

What it is: one function per kind of statement.
What it is not: the modules (``sql/catalog/modules.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.errors import UnsupportedSqlError, ValidationError
from millstream.sql.binder.scope import validation_error
from millstream.sql.parser import nodes
from millstream.sql.statements.session import OK

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.statements.session import RowsResult, Session


def _placed(text: str | None, node: Any, do: Callable[[], None]) -> RowsResult:
    """Do it; errors say where the statement names the module."""
    try:
        do()
    except UnsupportedSqlError as error:
        raise UnsupportedSqlError(str(validation_error(text, node, str(error)))) from error
    except ValidationError as error:
        raise validation_error(text, node, str(error)) from error
    return OK


def _load(session: Session, node: Any, text: str | None) -> RowsResult:
    return _placed(text, node.name, lambda: session.modules.load(node.name.value))


def _unload(session: Session, node: Any, text: str | None) -> RowsResult:
    return _placed(text, node.name, lambda: session.modules.unload(node.name.value))


def _use(session: Session, node: Any, text: str | None) -> RowsResult:
    names = [each.value for each in node.names]
    return _placed(text, node, lambda: session.modules.use(names))


HANDLERS: Final[dict[type, Callable[[Any, Any, str | None], RowsResult]]] = {
    nodes.LoadModule: _load,
    nodes.UnloadModule: _unload,
    nodes.UseModules: _use,
}
