"""Tables that the Table API writes and reads by path or by descriptor.

What it is: what ``execute_insert`` and ``from_descriptor`` take becomes a table of a catalog; that
of a descriptor is under no name that a statement could say.
What it is not: the statements (``sql/statements/session.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.sql.binder.binding import query_binder
from millstream.sql.binder.inserts import fitted
from millstream.sql.binder.tables import scan
from millstream.sql.catalog.identifiers import ObjectIdentifier
from millstream.sql.catalog.manager import FoundTable
from millstream.sql.catalog.objects import CatalogTable
from millstream.sql.parser.parser import parse_identifier
from millstream.sql.statements.session import Target

if TYPE_CHECKING:
    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.statements.session import Session
    from millstream.table.table_descriptor import TableDescriptor

__all__ = ["described", "scanned", "target_of"]

_CONNECTOR: Final = "connector"


def described(session: Session, descriptor: TableDescriptor) -> FoundTable:
    """The table of a descriptor, under a name of its own."""
    table = descriptor.to_catalog_table(session.context(None))
    session.anonymous += 1
    name = f"*anonymous_{table.options.get(_CONNECTOR, 'table')}${session.anonymous}*"
    catalogs = session.catalogs
    home = catalogs.current_catalog or "", catalogs.current_database or ""
    return FoundTable(ObjectIdentifier(*home, name), table, is_temporary=True)


def scanned(session: Session, descriptor: TableDescriptor) -> LogicalNode:
    """The plan that reads the table of a descriptor."""
    return scan(query_binder(session.context(None)), described(session, descriptor), {})


def target_of(
    session: Session, plan: LogicalNode, to: str | TableDescriptor, *, overwrite: bool = False
) -> Target:
    """A plan on its way into a table.

    Args:
        session: of the plan.
        plan: what is written.
        to: the path of the table, or its descriptor.
        overwrite: whether what is in the table is replaced.

    Raises:
        ValidationError: there is no such table, or the columns do not fit.
    """
    context = session.context(None)
    if isinstance(to, str):
        name = parse_identifier(to)
        found = session.catalogs.find_table(name.names)
        if found is None or not isinstance(found.table, CatalogTable):
            hint = session.catalogs.suggest_table(name.names)
            raise context.error(None, f"Table '{to}' not found.{hint}")
    else:
        if to.schema is None:
            to = to.with_row(plan.row)
        found = described(session, to)
    assert isinstance(found.table, CatalogTable)  # noqa: S101 - of both
    return Target(
        found.identifier,
        found.table,
        fitted(context, plan, found.identifier, found.table),
        {} if overwrite else None,
    )
