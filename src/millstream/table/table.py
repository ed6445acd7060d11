"""Table: a query that is not run yet, and what can be made of it.

What it is: PyFlink's ``Table`` over a logical plan.  Expressions build the nodes that the parser
builds, and are bound as SQL's are.
What it is not: data: nothing is read before ``execute``.

Read next: ``table/expression.py``, ``sql/binder/queries.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import ProgramError
from millstream.sql.binder.inserts import fitted
from millstream.sql.catalog.objects import CatalogBaseTable, CatalogTable
from millstream.sql.catalog.schema import Column, ResolvedSchema
from millstream.sql.parser import nodes
from millstream.sql.parser.parser import parse_identifier
from millstream.sql.statements.session import Target
from millstream.sql.statements.showing import explain
from millstream.table.building import bound, items_of
from millstream.table.table_result import TableResult

if TYPE_CHECKING:
    import pandas as pd

    from millstream.sql.planner.logical import LogicalNode
    from millstream.table.building import HasSession
    from millstream.table.expression import Expression

__all__ = ["GroupedTable", "OrderedTable", "PlanView", "Table", "TablePipeline"]


@dataclass(frozen=True, kw_only=True)
class PlanView(CatalogBaseTable):
    """A table of the Table API, or a stream, under a name of a catalog."""

    plan: LogicalNode

    @staticmethod
    def of(plan: LogicalNode) -> PlanView:
        """A view of a plan."""
        columns = tuple(Column(each.name, each.type) for each in plan.row.fields)
        return PlanView(schema=ResolvedSchema(columns), plan=plan)

    @property
    def is_view(self) -> bool:
        """It is."""
        return True


class Table:
    """A query that is not run yet."""

    def __init__(self, environment: HasSession, plan: LogicalNode) -> None:
        """Made by the environment and by other tables."""
        self._environment = environment
        self.plan = plan

    def __str__(self) -> str:
        """The columns."""
        return f"Table[{', '.join(self.plan.row.names)}]"

    def get_schema(self) -> ResolvedSchema:
        """The older name of ``get_resolved_schema``."""
        return self.get_resolved_schema()

    def get_resolved_schema(self) -> ResolvedSchema:
        """The names and types of the columns."""
        fields = self.plan.row.fields
        return ResolvedSchema(tuple(Column(each.name, each.type) for each in fields))

    def print_schema(self) -> None:
        """Print names and types."""
        lines = [
            f"  `{each.name}` {each.type.as_summary_string()}" for each in self.plan.row.fields
        ]
        print("(\n" + ",\n".join(lines) + "\n)")  # noqa: T201 - what it is for

    # -- relational ------------------------------------------------------------------------------

    def _made(self, query: Any) -> Table:
        return Table(self._environment, bound(self._environment.session, self.plan, query))

    def _from(self, **clauses: Any) -> Table:
        return self._made(lambda source: nodes.Select(source=source, **clauses))

    def select(self, *fields: Expression | str) -> Table:
        """Other columns, computed row by row, or aggregates over all rows."""
        return self._from(items=items_of(fields))

    def alias(self, field: str, *fields: str) -> Table:
        """The same with other names of the columns."""
        names = (field, *fields)
        if len(names) != len(self.plan.row):
            message = f"alias() got {len(names)} names for {len(self.plan.row)} columns"
            raise ProgramError(message)
        pairs = zip(self.plan.row.names, names, strict=True)
        items = tuple(
            nodes.SelectItem(nodes.identifier(old), nodes.Name(new)) for old, new in pairs
        )
        return self._from(items=items)

    def filter(self, predicate: Expression) -> Table:
        """The rows for which a condition is true."""
        star = (nodes.SelectItem(nodes.Star()),)
        return self._from(items=star, where=predicate.node)

    def where(self, predicate: Expression) -> Table:
        """The same as ``filter``."""
        return self.filter(predicate)

    def distinct(self) -> Table:
        """Each row once."""
        return self._from(items=(nodes.SelectItem(nodes.Star()),), distinct=True)

    def group_by(self, *fields: Expression | str) -> GroupedTable:
        """Rows by key; ``select`` of what comes back aggregates them."""
        return GroupedTable(self, tuple(each.expression for each in items_of(fields)))

    def add_columns(self, *fields: Expression) -> Table:
        """Further columns behind those that there are."""
        star = nodes.SelectItem(nodes.Star())
        return self._from(items=(star, *items_of(fields)))

    def drop_columns(self, *fields: Expression | str) -> Table:
        """Without some columns."""
        gone = {_column(each) for each in items_of(fields)}
        kept = tuple(
            nodes.SelectItem(nodes.identifier(name))
            for name in self.plan.row.names
            if name not in gone
        )
        return self._from(items=kept)

    def rename_columns(self, *fields: Expression) -> Table:
        """Some columns under other names: ``col("a").alias("b")``."""
        names = {_column(each): each.alias for each in items_of(fields) if each.alias is not None}
        items = tuple(
            nodes.SelectItem(nodes.identifier(name), names.get(name))
            for name in self.plan.row.names
        )
        return self._from(items=items)

    def union_all(self, right: Table) -> Table:
        """The rows of both."""
        return self._set(nodes.SetOperator.UNION, right, every=True)

    def union(self, right: Table) -> Table:
        """The rows of both, each once."""
        return self._set(nodes.SetOperator.UNION, right, every=False)

    def intersect(self, right: Table) -> Table:
        """The rows that are in both, each once."""
        return self._set(nodes.SetOperator.INTERSECT, right, every=False)

    def minus(self, right: Table) -> Table:
        """The rows that are not in the other, each once."""
        return self._set(nodes.SetOperator.EXCEPT, right, every=False)

    def _set(self, operator: Any, right: Table, *, every: bool) -> Table:
        session = self._environment.session
        plan = bound(
            session,
            self.plan,
            lambda left, other: nodes.SetOperation(
                operator, every, nodes.TableQuery(left.name), nodes.TableQuery(other.name)
            ),
            right.plan,
        )
        return Table(self._environment, plan)

    def join(self, right: Table, join_predicate: Expression | None = None) -> Table:
        """The pairs of rows for which a condition is true; columns need different names."""
        return self._joined(right, nodes.JoinKind.INNER, join_predicate)

    def left_outer_join(self, right: Table, join_predicate: Expression | None = None) -> Table:
        """The same with rows of this table that have no pair."""
        return self._joined(right, nodes.JoinKind.LEFT, join_predicate)

    def right_outer_join(self, right: Table, join_predicate: Expression) -> Table:
        """The same with rows of the other table that have no pair."""
        return self._joined(right, nodes.JoinKind.RIGHT, join_predicate)

    def full_outer_join(self, right: Table, join_predicate: Expression) -> Table:
        """The same with rows of both tables that have no pair."""
        return self._joined(right, nodes.JoinKind.FULL, join_predicate)

    def _joined(self, right: Table, kind: Any, predicate: Expression | None) -> Table:
        both = set(self.plan.row.names) & set(right.plan.row.names)
        if both:
            message = f"join(): both tables have a column '{min(both)}'; rename one of them"
            raise ProgramError(message)
        condition = None if predicate is None else predicate.node
        star = (nodes.SelectItem(nodes.Star()),)
        plan = bound(
            self._environment.session,
            self.plan,
            lambda left, other: nodes.Select(
                items=star, source=nodes.Join(left, other, kind, condition)
            ),
            right.plan,
        )
        return Table(self._environment, plan)

    def order_by(self, *fields: Expression) -> OrderedTable:
        """In an order, of which ``fetch`` gives the first rows."""
        return OrderedTable(self, tuple(each.sort_item() for each in fields))

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """The first rows, as they come."""
        from millstream.table.expressions import lit

        return self._made(
            lambda source: nodes.OrderedQuery(
                nodes.TableQuery(source.name), offset=lit(offset).node, limit=lit(fetch).node
            )
        )

    def fetch(self, fetch: int) -> Table:
        """The first rows."""
        return self.limit(fetch)

    # -- ends ------------------------------------------------------------------------------------

    def target(self, path: str, *, overwrite: bool = False) -> Target:
        """This table as what is written into the table of a path."""
        session = self._environment.session
        context = session.context(None)
        name = parse_identifier(path)
        found = session.catalogs.find_table(name.names)
        if found is None or not isinstance(found.table, CatalogTable):
            hint = session.catalogs.suggest_table(name.names)
            raise context.error(None, f"Table '{path}' not found.{hint}")
        if overwrite:
            raise context.error(None, "overwrite is not in this release.")
        plan = fitted(context, self.plan, found.identifier, found.table)
        return Target(found.identifier, found.table, plan)

    def execute_insert(
        self,
        table_path_or_descriptor: str,
        overwrite: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> TableResult:
        """Start a job that writes this table into the table of a path."""
        target = self.target(table_path_or_descriptor, overwrite=overwrite)
        return TableResult(self._environment.session.insert([target]))

    def insert_into(self, table_path_or_descriptor: str) -> TablePipeline:
        """This table on its way into the table of a path."""
        return TablePipeline(self, table_path_or_descriptor)

    def execute(self) -> TableResult:
        """Start a job that collects the rows."""
        return TableResult(self._environment.session.query(self.plan))

    def explain(self, *extra_details: Any) -> str:
        """The plan as text."""
        words = tuple(getattr(each, "name", str(each)) for each in extra_details)
        return explain(self._environment.session, self.plan, words)

    def to_pandas(self) -> pd.DataFrame:
        """Run, and give the rows that are there at the end as a DataFrame."""
        from millstream.table.elements import frame_of

        with self.execute().collect() as rows:
            return frame_of(list(rows), self.plan.row)


def _column(item: nodes.SelectItem) -> str:
    """The column that an item names.

    Raises:
        ProgramError: it is something else.
    """
    if not isinstance(item.expression, nodes.Identifier):
        message = "this takes columns, such as col('a')"
        raise ProgramError(message)
    return item.expression.last


class OrderedTable:
    """Rows in an order."""

    def __init__(self, table: Table, keys: tuple[Any, ...]) -> None:
        """Made by ``Table.order_by``."""
        self._table = table
        self._keys = keys

    def fetch(self, fetch: int) -> Table:
        """The first rows."""
        return self.limit(fetch)

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """Some rows from an offset on."""
        from millstream.table.expressions import lit

        star = (nodes.SelectItem(nodes.Star()),)
        return self._table._made(  # noqa: SLF001 - a friend
            lambda source: nodes.OrderedQuery(
                nodes.Select(items=star, source=source),
                order_by=self._keys,
                offset=lit(offset).node,
                limit=lit(fetch).node,
            )
        )


class GroupedTable:
    """Rows by key."""

    def __init__(self, table: Table, keys: tuple[Any, ...]) -> None:
        """Made by ``Table.group_by``."""
        self._table = table
        self._keys = keys

    def select(self, *fields: Expression | str) -> Table:
        """Keys and aggregates."""
        return self._table._from(items=items_of(fields), group_by=self._keys)  # noqa: SLF001 - a friend


class TablePipeline:
    """A table on its way into another."""

    def __init__(self, table: Table, path: str) -> None:
        """Made by ``Table.insert_into``."""
        self._table = table
        self._path = path

    def execute(self) -> TableResult:
        """Start the job."""
        return self._table.execute_insert(self._path)
