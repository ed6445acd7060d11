"""Execute a parsed statement by its type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import UnsupportedSqlError
from millstream.sql.binder.scope import validation_error
from millstream.sql.parser import statement_nodes as syntax
from millstream.sql.parser.nodes import Query
from millstream.sql.parser.parser import parse_statement
from millstream.sql.statements import catalogs, definitions, plans, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.parser.nodes import Statement
    from millstream.sql.statements.session import JobResult, QueryResult, RowsResult, Session


_HANDLERS: Final[dict[type, Callable[[Any, Any, str | None], RowsResult | JobResult]]] = {
    **definitions.HANDLERS,
    **catalogs.HANDLERS,
    **show.HANDLERS,
    **plans.HANDLERS,
}
#: Why there is none, and what to do instead.
_REASONS: Final[dict[type, str]] = {
    syntax.Call: "; there are no procedures",
    syntax.AnalyzeTable: "; say what you know by alter_table_statistics() of the catalog",
    syntax.TruncateTable: "; INSERT OVERWRITE replaces what is in files",
}


def execute(session: Session, text: str) -> RowsResult | JobResult | QueryResult:
    """Run one statement.

    Raises:
        SqlParserError: it is no statement.
        ValidationError: it makes no sense; has line, column and caret.
        CatalogError: what it names is not there, or is there already.
        UnsupportedSqlError: it is not in this release.
    """
    return run(session, parse_statement(text), text)


def run(
    session: Session, statement: Statement, text: str | None
) -> RowsResult | JobResult | QueryResult:
    """Run a parsed statement."""
    if isinstance(statement, Query):
        return session.query(session.bind(statement, text))
    if isinstance(statement, syntax.Execute):
        return run(session, statement.statement, text)
    if isinstance(statement, syntax.Insert):
        return session.insert([session.target(statement, text)])
    if isinstance(statement, syntax.StatementSet):
        return session.insert([session.target(each, text) for each in statement.statements])
    handler = _HANDLERS.get(type(statement))
    if handler is None:
        words = re.sub(r"(?<!^)(?=[A-Z])", " ", type(statement).__name__).upper()
        reason = _REASONS.get(type(statement), "")
        message = f"{words} is not in this release{reason}."
        raise UnsupportedSqlError(str(validation_error(text, statement, message)))
    return handler(session, statement, text)
