"""Bind SELECT and INSERT statements to logical plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import fold
from millstream.expressions.nodes import InputReference, Literal, transform
from millstream.sql.binder import calls, subqueries
from millstream.sql.binder.calls import Placeholder, called
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.grouping import GroupBinder, group_window, has_aggregate
from millstream.sql.binder.overs import OverCalls
from millstream.sql.binder.queries import (
    Parts,
    QueryBinder,
    item_name,
    one_row,
    select_hints,
    sort_key,
)
from millstream.sql.binder.relations import RelationBinder
from millstream.sql.binder.scope import NameProblem, Scope, conjuncts
from millstream.sql.binder.subqueries import subquery_value
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import (
    DistinctNode,
    FilterNode,
    ProjectNode,
    project,
    references,
    row_of,
)
from millstream.sql.planner.windows import logical_windows
from millstream.sql.suggestions import did_you_mean, listed
from millstream.types.logical_types import RowType
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.binder.subqueries import SubqueryValue
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.parser.nodes import Node
    from millstream.sql.parser.statement_nodes import PartitionValue
    from millstream.sql.planner.logical import LogicalNode, SortKey
    from millstream.types.logical_types import LogicalType


class _RowBinder(ExpressionBinder):
    """Binds items of a SELECT without groups: OVER and scalar sub-queries can stand there."""

    def __init__(self, select: SelectBinder, scope: Scope, *, overs: bool) -> None:
        super().__init__(select.queries.context, scope)
        self._select = select
        self._overs = overs

    def over(self, node: nodes.FunctionCall) -> Expression:
        if not self._overs:
            return super().over(node)
        return self._select.overs.add(self, node)

    def aggregate(self, node: nodes.FunctionCall) -> Expression:
        message = f"Aggregate {called(node)} cannot stand here; HAVING can have it."
        raise self.context.error(node, message)

    def subquery(self, node: Node) -> Expression:
        return self._select.value(self, node)


class SelectBinder:
    """Binds one SELECT."""

    def __init__(self, queries: QueryBinder, node: nodes.Select) -> None:
        self.queries = queries
        self.context = queries.context
        self.node = node
        self.plan: LogicalNode = one_row()
        self.scope = Scope(row_of([], []), outer=queries.outer)
        self.overs = OverCalls(self.context, node.windows)
        #: How long groups are kept, if a hint says it.
        self._ttl: int | None = None
        self._ttls = select_hints(self.context, node.hints)

    def bind_ordered(self, order: Sequence[Any]) -> tuple[LogicalNode, list[SortKey]]:
        """The plan, with columns to sort by behind those of the query where it needs them."""
        self._from()
        self._where()
        binder, groups = self._item_binder()
        named = self._items(binder)
        having = None if self.node.having is None else binder.condition(self.node.having)
        qualify = None if self.node.qualify is None else binder.condition(self.node.qualify)
        keys = self._order(order, named, binder)
        if groups is not None:
            self.plan = groups.plan(self.plan, self._ttl)
            if having is not None:
                condition = groups.resolved(having)
                self.plan = FilterNode(row=self.plan.row, input=self.plan, condition=condition)
        elif having is not None:
            message = "HAVING needs GROUP BY or an aggregate; WHERE filters rows."
            raise self.context.error(self.node.having, message)
        expressions = [each for _, each in named]
        if groups is not None:
            expressions = [groups.resolved(each) for each in expressions]
            qualify = None if qualify is None else groups.resolved(qualify)
            self.overs.resolve(groups.resolved)
        self.plan, places = self.overs.plan(self.plan)
        expressions = [_placed(each, places) for each in expressions]
        if qualify is not None:
            condition = _placed(qualify, places)
            self.plan = FilterNode(row=self.plan.row, input=self.plan, condition=condition)
        row = row_of([name for name, _ in named], [each.type for each in expressions])
        result: LogicalNode = ProjectNode(row=row, input=self.plan, expressions=tuple(expressions))
        if self.node.distinct:
            result = DistinctNode(row=row, input=result, state_ttl=self._ttl)
        return result, keys

    # -- parts -----------------------------------------------------------------------------------

    def _from(self) -> None:
        if self.node.source is None:
            self._ttls.check_names(self.context)
            return
        self.queries.state_ttls = self._ttls
        self.plan, self.scope = self.queries.relation(self.node.source)
        self.queries.state_ttls = None
        self._ttl = self._ttls.of(self.node.source)
        self._ttls.check_names(self.context)
        self.scope.outer = self.queries.outer

    def _where(self) -> None:
        if self.node.where is None:
            return
        plain: list[Node] = []
        predicates: list[Node] = []
        for each in conjuncts(self.node.where):
            (predicates if subqueries.is_predicate(each) else plain).append(each)
        binder = _RowBinder(self, self.scope, overs=False)
        condition = subqueries.all_of([binder.condition(each) for each in plain])
        if condition is not None:
            self.plan = FilterNode(row=self.plan.row, input=self.plan, condition=condition)
        for each in predicates:
            self.plan = self._filtered(binder, each)

    def _filtered(self, binder: ExpressionBinder, node: Node) -> LogicalNode:
        """The rows for which IN or EXISTS is true."""
        found = subqueries.filtered(self.queries, self.plan, self.scope, node)
        if found is not None:
            return found
        condition = binder.condition(node)
        return FilterNode(row=self.plan.row, input=self.plan, condition=condition)

    def value(self, binder: ExpressionBinder, node: Node) -> Expression:
        """A sub-query as a value, by columns behind those of the plan."""
        value = subquery_value(self.queries, binder, self.scope, node)
        self.plan, found = subqueries.with_value(self.plan, value)
        self.scope.row = self.plan.row
        return found

    def _value_beside(self, binder: ExpressionBinder, node: Node) -> SubqueryValue:
        return subquery_value(self.queries, binder, self.scope, node)

    def _item_binder(self) -> tuple[ExpressionBinder, GroupBinder | None]:
        stars = (nodes.Star,)
        values = [each.expression for each in self.node.items]
        having = self.node.having
        grouped = self.node.group_by is not None or any(
            has_aggregate(self.context, each) for each in values if not isinstance(each, stars)
        )
        if not grouped and having is not None:
            grouped = has_aggregate(self.context, having)
        if not grouped:
            return _RowBinder(self, self.scope, overs=True), None
        base = _RowBinder(self, self.scope, overs=False)
        keys = self.node.group_by or ()
        window = None
        found = group_window(base, self.plan, keys)
        if found is not None:
            self.plan, window = found
            self.scope.row = self.plan.row
        windows = logical_windows(self.plan)
        groups = GroupBinder(base, keys, self.overs, self._value_beside, windows, window)
        return groups, groups

    def _items(self, binder: ExpressionBinder) -> list[tuple[str, Expression]]:
        found: list[tuple[str, Expression]] = []
        for number, item in enumerate(self.node.items):
            if isinstance(item.expression, nodes.Star):
                found += self._star(item.expression, binder)
                continue
            expression = binder.bind(item.expression)
            found.append((item_name(item, number), expression))
        return found

    def _star(self, star: Any, binder: ExpressionBinder) -> list[tuple[str, Expression]]:
        operand = star.qualifier
        if self.node.source is None:
            raise self.context.error(star, "SELECT * needs FROM.")
        try:
            columns = self.scope.columns(None if operand is None else operand.names)
        except NameProblem as problem:
            fields = None if operand is None else self._fields(operand)
            if fields is None:
                raise self.context.error(star, str(problem)) from None
            if self.context.stars is not None:
                self.context.stars[id(star)] = [each.names for each in fields]
            return [(each.names[-1], binder.bind(each)) for each in fields]
        self._check_names(star, columns)
        if self.context.stars is not None:
            self.context.stars[id(star)] = [self.scope.full_name(*each) for each in columns]
        if isinstance(binder, GroupBinder):
            return [(name, binder.column(star, self.scope.reference(i))) for name, i in columns]
        return [(name, self.scope.reference(index)) for name, index in columns]

    def _check_names(self, star: Any, columns: list[tuple[str, int]]) -> None:
        """Refuse ``*`` of a table of which two columns have one name, as in Flink.

        Raises:
            ValidationError: names the column.
        """
        wanted = set(columns)
        for table in self.scope.tables:
            names = [each[0] for each in table.columns if each in wanted]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise self.context.error(star, f"Column '{twice}' is ambiguous.")

    def _fields(self, operand: nodes.Identifier) -> list[nodes.Identifier] | None:
        """The fields of a column of type ROW, by their names; None: it is no such column."""
        try:
            self.scope.find(operand.names)
        except NameProblem:
            return None
        kind = ExpressionBinder(self.context, self.scope).bind(operand).type
        if not isinstance(kind, RowType):
            message = f"'{'.'.join(operand.names)}' is neither a table nor a column of type ROW."
            raise self.context.error(operand, message)
        return [nodes.identifier(*operand.names, name) for name in kind.names]

    def _order(
        self,
        items: Sequence[Any],
        named: list[tuple[str, Expression]],
        binder: ExpressionBinder,
    ) -> list[SortKey]:
        keys = []
        aliases = [name for name, _ in named]
        for item in items:
            node = item.expression
            if isinstance(node, nodes.Literal) and isinstance(node.value, int):
                column = node.value - 1
                if not 0 <= column < len(aliases):
                    message = f"ORDER BY {node.value}: there are {len(aliases)} columns."
                    raise self.context.error(node, message)
            elif (
                isinstance(node, nodes.Identifier)
                and node.names[0] in aliases[:]
                and len(node.names) == 1
            ):
                column = aliases.index(node.names[0])
            else:
                expression = binder.bind(node)
                known = [each for _, each in named]
                column = known.index(expression) if expression in known else len(named)
                if column == len(named):
                    if self.node.distinct:
                        message = "ORDER BY of SELECT DISTINCT takes columns of the result."
                        raise self.context.error(node, message)
                    named.append((f"$sort{column}", expression))
            keys.append(sort_key(column, item))
        return keys


def _placed(expression: Expression, places: dict[int, InputReference]) -> Expression:
    def change(each: Any) -> Any:
        if isinstance(each, Placeholder) and each.kind == "over":
            return places[each.index]
        return each

    return transform(expression, change)


def _select(
    queries: QueryBinder, node: Any, order: Sequence[Any]
) -> tuple[LogicalNode, list[SortKey]]:
    return SelectBinder(queries, node).bind_ordered(order)


def _relation(queries: QueryBinder, node: Any) -> tuple[LogicalNode, Scope]:
    return RelationBinder(queries).bind(node)


_PARTS: Final = Parts(_select, _relation)


def query_binder(context: BindingContext) -> QueryBinder:
    """Return what binds the queries of a statement."""
    return QueryBinder(context, _PARTS)


def bound_insert(
    context: BindingContext,
    node: Any,
    identifier: ObjectIdentifier,
    table: CatalogTable,
    static: Mapping[str, Literal],
) -> LogicalNode:
    """The plan of an INSERT, with exactly the columns that the table takes.

    Args:
        context: of the statement.
        node: the statement.
        identifier: the table's name.
        table: the table.
        static: the columns that PARTITION says.
    """
    plan = query_binder(context).bind(node.query)
    names = [column.last for column in node.columns]
    persisted = [column.name for column in table.schema.persisted]
    for column in node.columns:
        if column.last not in persisted:
            hint = did_you_mean(column.last, persisted)
            message = f"Column '{column}' of table '{identifier.object_name}' not found.{hint}"
            raise context.error(column, message)
        if column.last in static:
            message = f"Target column '{column.last}' is in PARTITION already."
            raise context.error(column, message)
        if names.count(column.last) > 1:
            message = f"Target column '{column.last}' is assigned more than once."
            raise context.error(column, message)
    return fitted(context, plan, identifier, table, names, node, static)


def fitted(
    context: BindingContext,
    plan: LogicalNode,
    identifier: ObjectIdentifier,
    table: CatalogTable,
    names: Sequence[str] = (),
    node: Any = None,
    static: Mapping[str, Literal] | None = None,
) -> LogicalNode:
    """A plan as the rows of a table.

    Args:
        context: of the statement.
        plan: the query.
        identifier: the table's name.
        table: the table.
        names: the columns that the query gives, in its order; empty: all, in the table's.
        node: the statement, for errors.
        static: columns that the statement says itself.

    Raises:
        ValidationError: columns are missing, or their types do not fit; shows both schemas.
    """
    persisted = table.schema.persisted
    said = static or {}
    order = list(names) or [column.name for column in persisted if column.name not in said]
    if len(order) != len(plan.row):
        raise context.error(node, _mismatch(plan, table, identifier, "Different number of columns"))
    columns: dict[str, Expression] = dict(zip(order, references(plan.row), strict=True))
    given = {**columns, **said}
    expressions: list[Expression] = []
    for column in persisted:
        if column.name not in given:
            if not column.type.is_nullable:
                message = f"Column '{column.name}' has no default value and does not allow NULLs."
                raise context.error(node, message)
            expressions.append(Literal(None, column.type))
            continue
        cast = calls.coerced(given[column.name], column.type)
        if cast is None:
            cause = (
                f"Incompatible types for sink column '{column.name}' at position "
                f"{len(expressions) + 1}"
            )
            raise context.error(node, _mismatch(plan, table, identifier, cause))
        expressions.append(cast)
    row = row_of([column.name for column in persisted], [each.type for each in expressions])
    if tuple(expressions) == tuple(references(plan.row)) and row == plan.row:
        return plan
    return ProjectNode(row=row, input=plan, expressions=tuple(expressions))


def with_metadata(
    plan: LogicalNode, table: CatalogTable, said: Mapping[str, LogicalType]
) -> LogicalNode:
    """The rows of a table with the metadata in it as the types in which the sink takes it."""
    columns = references(plan.row)
    made = [
        calls.cast(each, said[column.key]) if column.is_metadata() else each
        for each, column in zip(columns, table.schema.persisted, strict=True)
    ]
    if made == columns:
        return plan
    return project(plan, made, plan.row.names)


def _mismatch(
    plan: LogicalNode, table: CatalogTable, identifier: ObjectIdentifier, cause: str
) -> str:
    query = [f"{each.name}: {each.type.as_summary_string()}" for each in plan.row.fields]
    sink = [f"{each.name}: {each.type.as_summary_string()}" for each in table.schema.persisted]
    return (
        f"Column types of query result and sink for '{identifier.as_summary_string()}' do not "
        f"match.\nCause: {cause}.\n\nQuery schema: [{', '.join(query)}]\n"
        f"Sink schema:  [{', '.join(sink)}]"
    )


def static_partition(
    context: BindingContext, table: CatalogTable, name: str, values: Sequence[PartitionValue]
) -> dict[str, Literal]:
    """The columns of a partition that a statement says, in the table's order.

    Args:
        context: of the statement.
        table: the table.
        name: of the table, for errors.
        values: as they were parsed.

    Raises:
        ValidationError: the table has no such columns in PARTITIONED BY, one is said twice, or a
            value is none of its column's type.
    """
    keys = table.partition_keys
    found: dict[str, Literal] = {}
    for each in values:
        column = each.column.value
        if not keys:
            message = f"Table '{name}' is not partitioned: it has no PARTITIONED BY."
            raise context.error(each, message)
        if column not in keys:
            hint = did_you_mean(column, keys)
            message = (
                f"'{column}' does not partition table '{name}', which is by {listed(keys)}.{hint}"
            )
            raise context.error(each, message)
        if column in found:
            raise context.error(each, f"Partition column '{column}' is given more than once.")
        found[column] = _constant(context, table, each)
    return {key: found[key] for key in keys if key in found}


def _is_same(given: Any, made: Literal) -> bool:
    """Whether a constant is still what was said: it would be another partition's otherwise."""
    was = getattr(given, "value", None)
    if made.value is None:
        return was is None
    numbers = all(each.type.is_a(TypeFamily.NUMERIC) for each in (given, made))
    return not numbers or was is None or was == made.value


def _constant(context: BindingContext, table: CatalogTable, given: PartitionValue) -> Literal:
    wanted = table.schema.column(given.column.value).type
    select: Any = nodes.Select(items=(nodes.SelectItem(given.value),))  # type: ignore[arg-type]
    plan: Any = query_binder(context).bind(select)
    value = plan.expressions[0]
    cast = calls.coerced(value, wanted)
    if cast is None:
        cast = calls.cast(value, wanted)
    made = fold(cast, EvaluationContext())
    if not isinstance(made, Literal) or not _is_same(value, made):
        shown = getattr(value, "value", value)
        message = (
            f"Partition column '{given.column.value}' {wanted.as_summary_string()} cannot be "
            f"{shown!r}."
        )
        raise context.error(given, message)
    return made
