"""Physical plans as JSON, and back: what COMPILE PLAN writes.

What it is: the format, with its version.  Each node has a number, its kind, the numbers of its
inputs, what EXPLAIN shows of it, the uid of its operator if that has one, and its fields.  Sources
and sinks are tables, which their connectors make anew.
What it is not: values within nodes (``sql/planner/plan_values.py``), or how a plan is run
(``sql/statements/plans.py``).
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ValidationError
from millstream.sql.planner import physical
from millstream.sql.planner.matches import Match
from millstream.sql.planner.physical_changelogs import ChangelogFunction
from millstream.sql.planner.physical_joins import IntervalJoin, LookupJoin, TemporalJoin
from millstream.sql.planner.physical_sorts import TemporalSort
from millstream.sql.planner.physical_windows import WindowAggregate, WindowJoin, WindowRank
from millstream.sql.planner.plan_values import omitted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from millstream.sql.catalog.connectors import TableSink, TableSource
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.planner.physical import PhysicalNode, SinkNode
    from millstream.sql.planner.plan_values import PlanValues

    class Tables(Protocol):
        """Writes tables, and makes sources and sinks of those that were written."""

        def write(self, identifier: ObjectIdentifier, table: CatalogTable) -> dict[str, Any]:
            """A table as JSON."""

        def read(self, identifier: ObjectIdentifier, written: Any) -> CatalogTable:
            """The table that was written."""

        def source(self, identifier: ObjectIdentifier, table: CatalogTable) -> TableSource:
            """The table as a source."""

        def sink(
            self,
            identifier: ObjectIdentifier,
            table: CatalogTable,
            overwrite: Sequence[tuple[str, object]] | None,
        ) -> TableSink:
            """The table as a sink."""


__all__ = ["read_nodes", "written_nodes"]

_KINDS: Final[dict[str, type[PhysicalNode]]] = {
    each.__name__: each
    for each in (
        physical.TableSourceScan,
        physical.ValuesScan,
        physical.Calc,
        physical.WatermarkAssigner,
        physical.Exchange,
        physical.DropUpdateBefore,
        physical.ChangelogNormalize,
        physical.GroupAggregate,
        physical.Expand,
        physical.WindowTableFunction,
        WindowAggregate,
        physical.Deduplicate,
        physical.Rank,
        physical.Limit,
        physical.OverAggregate,
        physical.Join,
        IntervalJoin,
        TemporalJoin,
        physical.Correlate,
        physical.Union,
        physical.SinkNode,
        Match,
        LookupJoin,
        ChangelogFunction,
        TemporalSort,
        WindowJoin,
        WindowRank,
    )
}
#: Fields that are made anew, or are written otherwise.
_NOT_WRITTEN: Final = frozenset(
    {"inputs", "kinds", "_shown", "source", "sink", "lookup", "table", "known_rows"}
)


def written_nodes(
    sinks: Sequence[SinkNode],
    values: PlanValues,
    tables: Tables,
    uids: Mapping[int, Mapping[str, str]],
) -> list[dict[str, Any]]:
    """The nodes of a plan, inputs first.

    Args:
        sinks: the ends of the plan.
        values: writes what is in nodes.
        tables: writes tables.
        uids: of the operators of nodes, by ``id`` and by which operator of the node it is.

    Raises:
        ValidationError: the plan reads something that is of the program alone.
    """
    numbers: dict[int, int] = {}
    found: list[dict[str, Any]] = []

    def write(node: PhysicalNode) -> int:
        if id(node) in numbers:
            return numbers[id(node)]
        below = [write(each) for each in node.inputs]
        if type(node).__name__ not in _KINDS:
            message = (
                f"{node.kind}({node.details()}) is of the program and cannot be in a compiled "
                "plan; plans are compiled of tables of connectors and VALUES."
            )
            raise ValidationError(message)
        number = numbers[id(node)] = len(numbers) + 1
        shown = f"{node.shown_kind}({node.details()})"
        made = {"id": number, "type": type(node).__name__, "inputs": below, "description": shown}
        if uids.get(id(node)):
            made["uids"] = dict(uids[id(node)])
        found.append({**made, **_fields(node, values, tables)})
        return number

    for sink in sinks:
        write(sink)
    return found


def _fields(node: Any, values: PlanValues, tables: Tables) -> dict[str, Any]:
    made = {
        each.name: values.write(getattr(node, each.name))
        for each in fields(node)
        if each.name not in _NOT_WRITTEN and not omitted(each, getattr(node, each.name))
    }
    table = getattr(node, "table", None)
    if table is not None:
        made["table"] = tables.write(node.identifier, table)
    return made


def read_nodes(
    written: Sequence[Mapping[str, Any]], values: PlanValues, tables: Tables
) -> tuple[list[SinkNode], dict[int, dict[str, str]]]:
    """The ends of a plan, and the uids of its operators, by ``id`` of their node.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it says no plan.
        ValidationError: a table or a function is not there, or not as it was.
    """
    nodes: dict[int, PhysicalNode] = {}
    uids: dict[int, dict[str, str]] = {}
    for each in written:
        kind = _KINDS[each["type"]]
        names = {field.name for field in fields(kind)} - _NOT_WRITTEN
        given = {name: values.read(each[name]) for name in names if name in each}
        given["inputs"] = tuple(nodes[number] for number in each["inputs"])
        given |= _tables(kind, each, given, tables)
        unknown = each.keys() - names - {"id", "type", "inputs", "description", "uids", "table"}
        if unknown:
            message = f"node {each['id']} says {min(unknown)!r}, which no {each['type']} has"
            raise ValueError(message)
        made = nodes[each["id"]] = kind(**given)
        uids[id(made)] = {str(name): str(uid) for name, uid in each.get("uids", {}).items()}
    return [each for each in nodes.values() if isinstance(each, physical.SinkNode)], uids


def _tables(
    kind: type[PhysicalNode], written: Mapping[str, Any], given: dict[str, Any], tables: Tables
) -> dict[str, Any]:
    """The fields of a node that its connector makes."""
    if kind not in {physical.TableSourceScan, physical.SinkNode, LookupJoin}:
        return {}
    identifier = given["identifier"]
    table = tables.read(identifier, written["table"])
    if kind is physical.SinkNode:
        return {"table": table, "sink": tables.sink(identifier, table, given.get("overwrite"))}
    source = tables.source(identifier, table)
    if kind is physical.TableSourceScan:
        if len(given["row"]) < len(table.schema.read):
            source = source.with_columns(given["row"].names) or source
        partitions = given.get("partitions")
        pruned = None if partitions is None else source.with_partitions(partitions)
        return {"table": table, "source": pruned or source}
    lookup = source.lookup(given["names"])
    if lookup is None:
        message = f"Table '{identifier.as_summary_string()}' cannot be looked up any more."
        raise ValidationError(message)
    return {"table": table, "lookup": lookup.with_columns(given["table_row"].names)}
