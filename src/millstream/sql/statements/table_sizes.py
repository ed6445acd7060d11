"""How many rows the tables of a plan have, where a catalog has been told.

What it is: what EXPLAIN ESTIMATED_COST goes by in place of its default.
What it is not: asked when a plan is made: no rule of the planner looks at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.catalog.objects import CatalogTable
from millstream.sql.planner import physical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.sql.statements.session import Session

__all__ = ["say_sizes"]


def say_sizes(session: Session, plans: Iterable[PhysicalNode]) -> None:
    """Have the scans of some plans say how many rows their tables have."""
    nodes: list[PhysicalNode] = list(plans)
    seen: set[int] = set()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        nodes += node.inputs
        if isinstance(node, physical.TableSourceScan):
            node.known_rows = _rows_of(session, node.identifier)


def _rows_of(session: Session, identifier: ObjectIdentifier) -> int | None:
    """The rows of a table; those of its partitions together, if they are known of each."""
    found = session.catalogs.find_table(identifier.parts)
    if found is None or found.is_temporary:
        return None
    catalog, path = session.catalogs.catalog(identifier.catalog_name), identifier.path
    rows = catalog.get_table_statistics(path).get_row_count()
    if rows >= 0:
        return rows
    table = found.table
    if not isinstance(table, CatalogTable) or not table.partition_keys:
        return None
    if not catalog.facts_of(path).partition_statistics:
        return None  # and its directories need not be looked at
    parts = [
        each.get_row_count()
        for each in catalog.bulk_get_partition_statistics(path, catalog.list_partitions(path))
    ]
    return sum(parts) if parts and min(parts) >= 0 else None
