"""Table: PyFlink's ``Table`` over a logical plan; nothing is read before ``execute``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import options
from millstream.errors import ProgramError
from millstream.expressions.nodes import InputReference
from millstream.sql.binder.binding import fitted, query_binder
from millstream.sql.binder.relations import scan
from millstream.sql.catalog.catalog import FoundTable
from millstream.sql.catalog.identifiers import ObjectIdentifier
from millstream.sql.catalog.objects import CatalogBaseTable, CatalogTable
from millstream.sql.catalog.schema import PhysicalColumn, ResolvedSchema, TableSchema
from millstream.sql.parser import nodes
from millstream.sql.parser.parser import parse_identifier
from millstream.sql.planner.logical import WatermarkNode, unique_names
from millstream.sql.statements.session import Target
from millstream.sql.statements.show import explain
from millstream.sql.suggestions import did_you_mean
from millstream.table.building import (
    bound,
    column_of,
    expression_of,
    flattened,
    items_of,
    refuse_ambiguous,
    shown_name,
)
from millstream.table.explain_detail import Explainable
from millstream.table.expression_nodes import as_node
from millstream.table.lateral import (
    RESULT,
    aggregate_of,
    column_named,
    lateral,
    one_row_of,
    result_items,
    result_names,
    rows_of,
    unnested,
    with_definition,
)
from millstream.table.table_pipeline import TablePipeline as TablePipeline
from millstream.table.table_result import TableResult
from millstream.table.window import (
    GroupWindow,
    OverWindow,
    RowCountGroups,
    WindowGroups,
    shown_property,
)
from millstream.types.logical_types import (
    BigIntType,
    RowField,
    RowType,
    TimestampKind,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    import pandas as pd
    import pyarrow as pa

    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.statements.session import Session
    from millstream.table.building import HasSession
    from millstream.table.expression import Expression
    from millstream.table.table_descriptor import TableDescriptor


class FrameResults:
    """Conversions of a table to pandas, Arrow and Spark."""

    @property
    @abstractmethod
    def plan(self) -> LogicalNode:
        """Return what is computed."""

    @property
    @abstractmethod
    def _time_zone(self) -> str:
        """The time zone of the session."""

    @abstractmethod
    def execute(self) -> TableResult:
        """Start a job that collects the rows."""

    def to_pandas(self) -> pd.DataFrame:
        """Run, and give the rows that are there at the end as a DataFrame.

        Numbers keep their width and timestamps their unit, arrays are of numpy and rows dicts.
        """
        from millstream.table.elements import frame_of

        return frame_of(self.execute().collect_batches(), self.plan.row, self._time_zone)

    def to_arrow(self) -> pa.Table:
        """Run, and give the rows that are there at the end as a table of Arrow."""
        from millstream.table.elements import arrow_of

        return arrow_of(self.execute().collect_batches(), self.plan.row)

    def to_spark(self, spark: Any) -> Any:
        """Run, and give the rows that are there at the end as a DataFrame of Spark.

        The rows go through this process.

        Args:
            spark: the SparkSession whose DataFrame it becomes.

        Returns:
            The DataFrame, of which ``createOrReplaceTempView`` makes a table of Spark.

        Raises:
            ProgramError: Spark has no type for a column.
        """
        from millstream.table.elements import spark_frame_of

        return spark_frame_of(self.execute().collect_batches(), self.plan.row, spark)


_CHANGELOG_TABLES_ALL = (nodes.SelectItem(nodes.Star()),)


class ChangelogTables:
    """Conversions between a table and its changes."""

    if TYPE_CHECKING:

        def _made(self, query: Callable[..., Any]) -> Self: ...

    def to_changelog(self, *arguments: Expression) -> Self:
        """The changes of the table as rows that are only added, with their kind in a column.

        Args:
            arguments: ``descriptor("kind").as_argument("op")``: the column, ``op`` unless said;
                ``map_("INSERT", "I", ...).as_argument("op_mapping")``: the codes of kinds.
        """
        return self._of("TO_CHANGELOG", arguments)

    def from_changelog(self, *arguments: Expression) -> Self:
        """The table whose changes the rows are, by their kind in a column.

        Args:
            arguments: as those of ``to_changelog``; the map is from codes to kinds.
        """
        return self._of("FROM_CHANGELOG", arguments)

    def _of(self, function: str, arguments: tuple[Expression, ...]) -> Self:
        given = tuple(each.node for each in arguments)

        def query(table: nodes.TableReference) -> nodes.Select:
            call = nodes.FunctionCall(
                nodes.identifier(function), (nodes.TableArgument(table.name), *given)
            )
            return nodes.Select(items=_CHANGELOG_TABLES_ALL, source=nodes.TableFunction(call))

        return self._made(query)


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


@dataclass(frozen=True, kw_only=True)
class PlanView(CatalogBaseTable):
    """A table of the Table API, or a stream, under a name of a catalog."""

    plan: LogicalNode

    @staticmethod
    def of(plan: LogicalNode) -> PlanView:
        """A view of a plan."""
        columns = tuple(PhysicalColumn(each.name, each.type) for each in plan.row.fields)
        return PlanView(schema=ResolvedSchema(columns), plan=plan)

    @property
    def is_view(self) -> bool:
        """It is."""
        return True


_ALL: Final = (nodes.SelectItem(nodes.Star()),)


class Table(ChangelogTables, FrameResults, Explainable):
    """A query that is not run yet."""

    def __init__(self, environment: HasSession, plan: LogicalNode) -> None:
        """Made by the environment and by other tables."""
        self._environment = environment
        self._plan = plan

    @property
    def plan(self) -> LogicalNode:
        """Return what it means."""
        return self._plan

    def __str__(self) -> str:
        """A name by which statements know it: ``f"SELECT * FROM {table}"``."""
        return self._environment.session.named(self.plan)

    def __getattr__(self, name: str) -> Expression:
        """A column: ``table.a`` is ``col("a")``, unless the table has a method of that name."""
        return column_named(name, () if name.startswith("_") else self.plan.row.names)

    @property
    def _time_zone(self) -> str:
        return self._environment.session.configuration.get(options.LOCAL_TIME_ZONE)

    def get_schema(self) -> TableSchema:
        """The names and types of the columns, as Flink's older class has them."""
        return TableSchema.from_resolved_schema(self.get_resolved_schema())

    def get_resolved_schema(self) -> ResolvedSchema:
        """The names and types of the columns."""
        return PlanView.of(self.plan).schema

    def print_schema(self) -> None:
        """Print names and types."""
        print(self.get_resolved_schema())  # noqa: T201 - what it is for

    # -- relational ------------------------------------------------------------------------------

    def _made(self, query: Any, *others: LogicalNode) -> Table:
        return Table(self._environment, bound(self._environment.session, self.plan, query, *others))

    def _from(self, **clauses: Any) -> Table:
        return self._made(lambda source: nodes.Select(source=source, **clauses))

    def _items(self, fields: Sequence[Any]) -> tuple[nodes.SelectItem, ...]:
        return flattened(self._environment.session, self.plan, fields)

    def select(self, *fields: Expression | str) -> Table:
        """Other columns, computed row by row, or aggregates over all rows."""
        return self._from(items=self._items(fields))

    def alias(self, field: str, *fields: str) -> Table:
        """The same with other names of the columns."""
        names = (field, *fields)
        if len(names) != len(self.plan.row):
            message = f"alias() got {len(names)} names for {len(self.plan.row)} columns"
            raise ProgramError(message)
        refuse_ambiguous(names)
        pairs = zip(self.plan.row.names, names, strict=True)
        items = tuple(
            nodes.SelectItem(nodes.identifier(old), nodes.Name(new)) for old, new in pairs
        )
        return self._from(items=items)

    def filter(self, predicate: Expression) -> Table:
        """The rows for which a condition is true."""
        return self._from(items=_ALL, where=predicate.node)

    def where(self, predicate: Expression) -> Table:
        """The same as ``filter``."""
        return self.filter(predicate)

    def distinct(self) -> Table:
        """Each row once."""
        return self._from(items=_ALL, distinct=True)

    def group_by(self, *fields: Expression | str) -> GroupedTable:
        """Rows by key; ``select`` of what comes back aggregates them."""
        return GroupedTable(self, fields)

    def aggregate(self, func: Any) -> AggregatedTable:
        """All rows together by an aggregate function of the user.

        Args:
            func: a call on expressions, or a function that takes the whole row; by ``udaf``.
        """
        return GroupedTable(self, ()).aggregate(func)

    def flat_aggregate(self, func: Any) -> FlatAggregateTable:
        """The rows that a function of the user makes of all rows together.

        Args:
            func: a call on expressions, or a function that takes the whole row; by ``udtaf``.
        """
        return GroupedTable(self, ()).flat_aggregate(func)

    def window(self, window: GroupWindow | Any) -> GroupWindowedTable:
        """Rows by windows of time; ``group_by`` of what comes back takes the window's name.

        Args:
            window: ``Tumble.over(lit(10).minutes).on(col("rowtime")).alias("w")`` and others.
        """
        if isinstance(window, GroupWindow):
            return GroupWindowedTable(self, window)
        message = "window() takes a window with a name: Tumble.over(...).on(...).alias('w')"
        raise ProgramError(message)

    def over_window(self, *over_windows: OverWindow) -> OverWindowedTable:
        """Rows with windows around each; ``select`` of what comes back aggregates over them.

        Args:
            over_windows: ``Over.partition_by(...).order_by(...).preceding(...).alias("w")``.
        """
        if not over_windows or not all(isinstance(each, OverWindow) for each in over_windows):
            message = "over_window() takes windows with names: Over.order_by(...).alias('w')"
            raise ProgramError(message)
        return OverWindowedTable(self, over_windows)

    # -- columns ---------------------------------------------------------------------------------

    def add_columns(self, *fields: Expression) -> Table:
        """Further columns behind those that there are."""
        items = self._items(fields)
        refuse_ambiguous([*self.plan.row.names, *(shown_name(each) for each in items)])
        return self._from(items=(*_ALL, *items))

    def add_or_replace_columns(self, *fields: Expression) -> Table:
        """Further columns; one with the name of a column takes its place."""
        made = {shown_name(each): each for each in self._items(fields)}
        kept = [
            made.pop(name, nodes.SelectItem(nodes.identifier(name))) for name in self.plan.row.names
        ]
        return self._from(items=(*kept, *made.values()))

    def drop_columns(self, *fields: Expression | str) -> Table:
        """Without some columns."""
        gone = [column_of(each) for each in self._items(fields)]
        for name in gone:
            self._known(name)
        kept = tuple(
            nodes.SelectItem(nodes.identifier(name))
            for name in self.plan.row.names
            if name not in gone
        )
        return self._from(items=kept)

    def rename_columns(self, *fields: Expression) -> Table:
        """Some columns under other names: ``col("a").alias("b")``."""
        renamed = {column_of(each): each.alias for each in self._items(fields)}
        for name in renamed:
            self._known(name)
        names = [renamed.get(name) or nodes.Name(name) for name in self.plan.row.names]
        return self.alias(*(each.value for each in names))

    def _known(self, name: str) -> None:
        names = self.plan.row.names
        if name not in names:
            message = f"there is no column '{name}'.{did_you_mean(name, names)}"
            raise ProgramError(message)

    # -- set operations and joins ----------------------------------------------------------------

    def union_all(self, right: Table) -> Table:
        """The rows of both."""
        return self._set(nodes.SetOperator.UNION, right, every=True)

    def union(self, right: Table) -> Table:
        """The rows of both, each once."""
        return self._set(nodes.SetOperator.UNION, right, every=False)

    def intersect(self, right: Table) -> Table:
        """The rows that are in both, each once."""
        return self._set(nodes.SetOperator.INTERSECT, right, every=False)

    def intersect_all(self, right: Table) -> Table:
        """The rows that are in both, as often as in the one where they are seldom."""
        return self._set(nodes.SetOperator.INTERSECT, right, every=True)

    def minus(self, right: Table) -> Table:
        """The rows that are not in the other, each once."""
        return self._set(nodes.SetOperator.EXCEPT, right, every=False)

    def minus_all(self, right: Table) -> Table:
        """The rows of this table, each as often as it is here more often than there."""
        return self._set(nodes.SetOperator.EXCEPT, right, every=True)

    def _set(self, operator: Any, right: Table, *, every: bool) -> Table:
        return self._made(
            lambda left, other: nodes.SetOperation(
                operator, every, nodes.TableQuery(left.name), nodes.TableQuery(other.name)
            ),
            right.plan,
        )

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
        on = None if predicate is None else predicate.node
        return self._made(
            lambda left, other: nodes.Select(items=_ALL, source=nodes.Join(left, other, kind, on)),
            right.plan,
        )

    def join_lateral(
        self, table_function_call: Any, join_predicate: Expression | None = None
    ) -> Table:
        """Each row with the rows that a table function makes of it.

        Args:
            table_function_call: of expressions, with names: ``split(col("a")).alias("word")``.
            join_predicate: which pairs are kept; all of them if None.
        """
        return self._lateral(table_function_call, nodes.JoinKind.INNER, join_predicate)

    def left_outer_join_lateral(
        self, table_function_call: Any, join_predicate: Expression | None = None
    ) -> Table:
        """The same with rows of which the function makes none.

        Args:
            table_function_call: of expressions, with names.
            join_predicate: None, or ``lit(True)``.
        """
        return self._lateral(table_function_call, nodes.JoinKind.LEFT, join_predicate)

    def _lateral(self, call: Any, kind: Any, predicate: Expression | None) -> Table:
        condition = None if predicate is None else predicate.node
        function = lateral(rows_of(call, self.plan.row))
        made = self._made(
            lambda left: nodes.Select(
                items=_ALL, source=nodes.Join(left, function, kind, condition)
            )
        )
        shown = function.columns if isinstance(function, nodes.AliasedRelation) else ()
        own = self.plan.row.names
        refuse_ambiguous([*own, *([e.value for e in shown] or made.plan.row.names[len(own) :])])
        return made

    # -- functions over rows ---------------------------------------------------------------------

    def map(self, func: Any) -> Table:
        """Return what a scalar function, which gives rows, makes of each row.

        Args:
            func: a call on expressions, or a function that takes the whole row; by ``udf``.
        """
        return self._functions(one_row_of(self._with_definition(func), self.plan.row))

    def flat_map(self, func: Any) -> Table:
        """The rows that a table function makes of each row.

        Args:
            func: a call on expressions, or a function that takes the whole row; by ``udtf``.
        """
        return self._functions(rows_of(self._with_definition(func), self.plan.row))

    def _with_definition(self, function: Any) -> Any:
        return with_definition(function, self._environment.session.context(None))

    def _functions(self, call: Any) -> Table:
        joined = self._made(
            lambda left: nodes.Select(
                items=_ALL, source=nodes.Join(left, lateral(call), nodes.JoinKind.CROSS)
            )
        )
        width = len(self.plan.row)
        names = list(call.names) or result_names(call)
        shown = joined.plan.row.names[width:]
        if len(names) != len(shown):
            message = f"the function gives {len(shown)} columns, not {len(names)}: {names}"
            raise ProgramError(message)
        refuse_ambiguous(names)
        items = tuple(
            nodes.SelectItem(nodes.identifier(old), nodes.Name(new))
            for old, new in zip(shown, names, strict=True)
        )
        return joined._from(items=items)  # noqa: SLF001 - its own kind

    # -- order -----------------------------------------------------------------------------------

    def order_by(self, *fields: Expression | str) -> OrderedTable:
        """In an order, of which ``fetch`` gives the first rows."""
        keys = tuple(
            nodes.SortItem(nodes.identifier(each)) if isinstance(each, str) else each.sort_item()
            for each in fields
        )
        return OrderedTable(self._environment, self.plan, keys)

    def offset(self, offset: int) -> OrderedTable:
        """Without the first rows, as they come; ``fetch`` says how many then."""
        return OrderedTable(self._environment, self.plan, (), offset)

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """The first rows, as they come."""
        return OrderedTable(self._environment, self.plan, (), offset).fetch(fetch)

    def fetch(self, fetch: int) -> Table:
        """The first rows."""
        return self.limit(fetch)

    # -- ends ------------------------------------------------------------------------------------

    def target(self, to: str | TableDescriptor, *, overwrite: bool = False) -> Target:
        """This table as what is written into the table of a path, or of a descriptor."""
        return target_of(self._environment.session, self.plan, to, overwrite=overwrite)

    def execute_insert(
        self,
        table_path_or_descriptor: str | TableDescriptor,
        overwrite: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> TableResult:
        """Start a job that writes this table into the table of a path, or of a descriptor."""
        return self.insert_into(table_path_or_descriptor, overwrite).execute()

    def insert_into(
        self,
        table_path_or_descriptor: str | TableDescriptor,
        overwrite: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> TablePipeline:
        """This table on its way into the table of a path, or of a descriptor."""
        to = table_path_or_descriptor
        return TablePipeline(self._environment, self.target(to, overwrite=overwrite))

    def execute(self) -> TableResult:
        """Start a job that collects the rows."""
        return TableResult(self._environment.session.query(self.plan))

    def _explained(self, details: tuple[str, ...]) -> str:
        return explain(self._environment.session, self.plan, details)


class OrderedTable(Table):
    """Rows in an order."""

    def __init__(
        self, environment: HasSession, below: LogicalNode, keys: tuple[Any, ...], offset: int = 0
    ) -> None:
        """Made by ``Table.order_by``."""
        super().__init__(environment, below)
        self._keys = keys
        self._offset = offset

    @property
    def plan(self) -> LogicalNode:
        """All rows in the order, which a stream has only by time."""
        return self._rows(None)

    def _rows(self, count: int | None) -> LogicalNode:
        return bound(
            self._environment.session,
            self._plan,
            lambda source: nodes.OrderedQuery(
                nodes.Select(items=_ALL, source=source),
                order_by=self._keys,
                offset=as_node(self._offset) if self._offset else None,
                limit=None if count is None else as_node(count),
            ),
        )

    def offset(self, offset: int) -> OrderedTable:
        """Without the first rows of the order."""
        return OrderedTable(self._environment, self._plan, self._keys, self._offset + offset)

    def fetch(self, fetch: int) -> Table:
        """The first rows of the order."""
        return Table(self._environment, self._rows(fetch))

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """Some rows of the order, from an offset on."""
        return self.offset(offset).fetch(fetch)


class GroupedTable:
    """Rows by key."""

    def __init__(self, table: Table, fields: tuple[Any, ...]) -> None:
        """Made by ``Table.group_by``."""
        self._table = table
        self._fields = fields

    def select(self, *fields: Expression | str) -> Table:
        """Keys and aggregates."""
        keys = tuple(expression_of(each) for each in self._fields)
        items = items_of(fields, self._table.plan.row.names)
        return self._table._from(items=items, group_by=keys)  # noqa: SLF001 - a friend

    def aggregate(self, func: Any) -> AggregatedTable:
        """The rows of each key by an aggregate function of the user.

        Args:
            func: a call on expressions, or a function that takes the whole row; by ``udaf``.
        """
        given = self._table._with_definition(func)  # noqa: SLF001 - a friend
        call = aggregate_of(given, self._table.plan.row)
        return AggregatedTable(self.select(*self._fields, call.alias(RESULT)), call)

    def flat_aggregate(self, func: Any) -> FlatAggregateTable:
        """The rows that a function of the user makes of the rows of each key.

        Args:
            func: a call on expressions, or a function that takes the whole row; by ``udtaf``.
        """
        given = self._table._with_definition(func)  # noqa: SLF001 - a friend
        call = aggregate_of(given, self._table.plan.row, rows=True)
        return FlatAggregateTable(self.select(*self._fields, call.alias(RESULT)), call)


class AggregatedTable:
    """Keys and what an aggregate function of the user gives."""

    def __init__(self, table: Table, call: Expression) -> None:
        """Made by ``aggregate``."""
        self._table = table
        self._call = call

    def select(self, *fields: Expression | str) -> Table:
        """Keys, columns of the function as ``alias`` names them, and properties of the window."""
        table = self._table
        items = result_items(table.plan.row, self._call)
        return table._from(items=items).select(*map(shown_property, fields))  # noqa: SLF001


class FlatAggregateTable:
    """Keys and the rows that a function of the user gives."""

    def __init__(self, table: Table, call: Expression) -> None:
        """Made by ``flat_aggregate``."""
        self._table = table
        self._call = call

    def select(self, *fields: Expression | str) -> Table:
        """Keys, and the columns of the function, as ``alias`` names them."""
        query = unnested(self._table.plan.row, self._call)
        return self._table._made(query).select(*fields)  # noqa: SLF001 - a friend


class GroupWindowedTable:
    """Rows by windows of time."""

    def __init__(self, table: Table, window: GroupWindow) -> None:
        """Made by ``Table.window``."""
        self._table = table
        self._window = window

    def group_by(self, *fields: Expression | str) -> WindowGroupedTable:
        """Rows by window and keys.

        Args:
            fields: the window's name, and keys.
        """
        return WindowGroupedTable(self._table, self._window, fields)


class WindowGroupedTable:
    """Rows by window and keys."""

    def __init__(self, table: Table, window: GroupWindow, fields: tuple[Any, ...]) -> None:
        """Made by ``GroupWindowedTable.group_by``."""
        if table._environment.session.is_batch:  # noqa: SLF001 - a friend
            table, window = _timed(table, window)
        self._table = table
        kind = RowCountGroups if window.counts_rows else WindowGroups
        self._groups = kind(table.plan.row, window, fields)

    def select(self, *fields: Expression | str) -> Table:
        """Keys, aggregates, and the start and end of the window: ``col("w").start``."""
        return self._select(items_of(fields, self._table.plan.row.names))

    def _select(self, given: tuple[nodes.SelectItem, ...]) -> Table:
        groups = self._groups
        table = self._table
        if isinstance(groups, RowCountGroups):
            items = groups.items(given)
            table = table._made(groups.counted)  # noqa: SLF001 - a friend
            context = table._environment.session.context(None)  # noqa: SLF001
            table = table._made(  # noqa: SLF001
                lambda source: groups.aggregated(source, items, context)
            )
            return table._made(lambda source: groups.complete(source, items))  # noqa: SLF001
        items = tuple(replace(each, expression=groups.item(each.expression)) for each in given)
        return table._made(  # noqa: SLF001 - a friend
            lambda source: nodes.Select(
                items=items, source=groups.source(source), group_by=groups.group_by()
            )
        )

    def aggregate(self, func: Any) -> AggregatedTable:
        """The rows of each window and key by an aggregate function of the user.

        Args:
            func: a call on expressions, or a function that takes the whole row; by ``udaf``.
        """
        given = self._table._with_definition(func)  # noqa: SLF001 - a friend
        call = aggregate_of(given, self._table.plan.row)
        result = nodes.SelectItem(call.node, nodes.Name(RESULT))
        shown = self._groups.shown()
        return AggregatedTable(self._select((*shown, result)), call)


def _timed(table: Table, window: GroupWindow) -> tuple[Table, GroupWindow]:
    """Return a bounded table with event time, of which windows may be over milliseconds as BIGINT.

    As in Flink, they are those since 1970-01-01 00:00:00, in no time zone.
    """
    row = table.plan.row
    position = row.index_of(window.time)
    if position < 0 or window.counts_rows or not isinstance(row.children[position], BigIntType):
        return table, window
    name = unique_names([*row.names, "rowtime"])[-1]
    milliseconds = nodes.BinaryOperation(
        "*", as_node(timedelta(milliseconds=1)), nodes.identifier(window.time)
    )
    start = as_node(datetime(1970, 1, 1))  # noqa: DTZ001 - of no time zone
    time = nodes.Cast(nodes.BinaryOperation("+", start, milliseconds), TimestampType(3))
    items = (nodes.SelectItem(nodes.Star()), nodes.SelectItem(time, nodes.Name(name)))
    below = table._from(items=items).plan  # noqa: SLF001 - a friend
    last = len(row)
    kind = TimestampType(3, kind=TimestampKind.ROWTIME)
    fields = (*below.row.fields[:last], RowField(name, kind))
    made = WatermarkNode(
        row=RowType(fields, nullable=False),
        input=below,
        rowtime=last,
        expression=InputReference(last, name, below.row.children[last]),
    )
    return Table(table._environment, made), replace(window, time=name)  # noqa: SLF001


class OverWindowedTable:
    """Rows with windows around each."""

    def __init__(self, table: Table, over_windows: tuple[OverWindow, ...]) -> None:
        """Made by ``Table.over_window``."""
        self._table = table
        self._windows = over_windows

    def select(self, *fields: Expression | str) -> Table:
        """Columns, and aggregates over the windows: ``col("b").sum.over(col("w"))``."""
        table = self._table
        if not table._environment.session.is_batch:  # noqa: SLF001 - a friend
            for each in self._windows:
                each.check_order(table.plan.row)
        windows = tuple(
            nodes.NamedWindow(nodes.Name(each.name), each.specification) for each in self._windows
        )
        items = items_of(fields, self._table.plan.row.names)
        return self._table._from(items=items, windows=windows)  # noqa: SLF001 - a friend
