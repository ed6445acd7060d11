"""Bind FROM: tables, views, sub-queries, joins, window TVFs and UNNEST."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import MillstreamError, ValidationError
from millstream.expressions.nodes import Call, InputReference, Literal, transform
from millstream.sql.binder import calls
from millstream.sql.binder.calls import (
    InlineCall,
    Placeholder,
    inline_call,
    plain_type,
    user_call,
    user_function,
)
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.matches import match_recognize
from millstream.sql.binder.queries import no_hints, output_names, table_options
from millstream.sql.binder.scope import NameProblem, OuterReference, Scope, ScopeTable
from millstream.sql.binder.subqueries import (
    all_of,
    beside,
    bound_sub_query,
    has_repeated,
    is_outer,
    is_row_of_outer,
    joined,
    pulled,
    row_values,
)
from millstream.sql.binder.table_functions import CHANGELOGS, WINDOWS, changelog, window
from millstream.sql.catalog import connectors
from millstream.sql.catalog.objects import CatalogTable, CatalogView
from millstream.sql.catalog.schema import ComputedColumn
from millstream.sql.parser import nodes
from millstream.sql.parser.parser import parse_expression, parse_query
from millstream.sql.planner import logical as lp
from millstream.sql.planner.calcs import substituted
from millstream.sql.suggestions import did_you_mean, listed
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.catalog.catalog import FoundTable
    from millstream.sql.catalog.schema import Column, ResolvedSchema, WatermarkSpec
    from millstream.sql.parser.nodes import Node


_MOST_DIGITS = 3


def scan(
    queries: QueryBinder,
    found: FoundTable,
    overrides: Mapping[str, str],
    node: Node | None = None,
) -> lp.LogicalNode:
    """The plan of a table or view.

    Args:
        queries: binds the query of a view.
        found: the table.
        overrides: of the hint OPTIONS.
        node: where it stands.

    Raises:
        ValidationError: its connector refuses its options, or cannot read.
    """
    plan: lp.LogicalNode | None = getattr(found.table, "plan", None)
    if plan is not None:
        return plan
    if isinstance(found.table, CatalogView):
        return _view(queries, found, found.table, node)
    context = queries.context
    table = found.table
    assert isinstance(table, CatalogTable)  # noqa: S101 - the third kind
    if overrides:
        table = table.copy({**table.options, **overrides})
    schema = table.schema
    try:
        source = connectors.table_source(found.identifier, table, context.configuration)
    except MillstreamError as error:
        raise context.error(node, str(error)) from error
    read = schema.read
    said = source.metadata()
    kinds = [_read_type(column, said) for column in read]
    row = lp.row_of([column.name for column in read], kinds)
    plan = lp.ScanNode(
        row=row,
        identifier=found.identifier,
        table=table,
        source=source,
        is_temporary=found.is_temporary,
    )
    plan = _cast_metadata(plan, read)
    plan = _computed(context, plan, schema)
    if schema.watermark is not None and is_source_watermark(schema.watermark.expression):
        raise context.error(node, _no_watermarks(table.options.get("connector"), found))
    return watermarked(context, plan, schema)


def _read_type(column: Column, said: Mapping[str, lt.LogicalType]) -> lt.LogicalType:
    """Return what the connector gives for a column."""
    if not column.is_metadata():
        return column.type
    kind = said[column.key]
    is_same = kind.with_nullability(column.type.is_nullable) == column.type
    return column.type if is_same else kind


def _cast_metadata(plan: lp.LogicalNode, read: Sequence[Column]) -> lp.LogicalNode:
    """Metadata as the types that the columns are declared with."""
    columns = lp.references(plan.row)
    made = [
        calls.cast(each, column.type) if column.is_metadata() else each
        for each, column in zip(columns, read, strict=True)
    ]
    if made == columns:
        return plan
    return lp.project(plan, made, plan.row.names)


def _view(
    queries: QueryBinder, found: FoundTable, view: CatalogView, node: Node | None
) -> lp.LogicalNode:
    text, parts = view.expanded_query, found.identifier.parts
    shown = found.identifier.as_summary_string()
    if parts in queries.context.views:
        raise queries.context.error(node, f"View '{shown}' reads itself.")
    plan = queries.other(text, parts).bind(parse_query(text))
    if len(plan.row) != len(view.schema.names):
        message = (
            f"View '{shown}' has {len(view.schema.names)} columns, and its query gives "
            f"{len(plan.row)} since a table has changed; create the view again."
        )
        raise queries.context.error(node, message)
    return lp.project(plan, lp.references(plan.row), view.schema.names)


def _computed(
    context: BindingContext, plan: lp.LogicalNode, schema: ResolvedSchema
) -> lp.LogicalNode:
    if not any(column.is_computed() for column in schema.columns):
        return plan
    scope = Scope.of(plan.row)
    expressions: list[Expression] = []
    for column in schema.columns:
        if isinstance(column, ComputedColumn):
            text = column.expression
            binder = ExpressionBinder(context.with_text(text), scope)
            try:
                expressions.append(binder.bind(parse_expression(text)))
            except ValidationError as error:
                message = f"Computed column '{column.name}': {error}"
                raise ValidationError(message) from error
        else:
            found: Any = scope.find([column.name]).expression
            expressions.append(found)
    return lp.project(plan, expressions, schema.names)


def is_source_watermark(expression: str) -> bool:
    """Return whether watermarks are declared to be those that the source gives."""
    node = parse_expression(expression)
    if not isinstance(node, nodes.FunctionCall) or node.arguments:
        return False
    return node.name.last.upper() == lp.SOURCE_WATERMARK


def _no_watermarks(connector: str | None, found: FoundTable) -> str:
    shown = found.identifier.as_summary_string()
    return (
        f"SOURCE_WATERMARK() in WATERMARK FOR of table '{shown}': connector '{connector}' gives no "
        "watermarks of its own. Streams do (from_data_stream); of a table declare the column less "
        "an interval, such as WATERMARK FOR ts AS ts - INTERVAL '5' SECOND."
    )


def watermarked(
    context: BindingContext, plan: lp.LogicalNode, schema: ResolvedSchema
) -> lp.LogicalNode:
    """The plan with event time as the schema declares it.

    Raises:
        ValidationError: the column is no timestamp, or the expression gives none.
    """
    declared = schema.watermark
    if declared is None:
        return plan
    position = plan.row.index_of(declared.rowtime)
    if position < 0:
        hint = did_you_mean(declared.rowtime, plan.row.names)
        message = (
            f"The rowtime attribute field '{declared.rowtime}' is not defined in the table "
            f"schema.{hint} There are: {listed(plan.row.names)}."
        )
        raise ValidationError(message)
    kind = plan.row.fields[position].type
    if not isinstance(kind, lt.TimestampType | lt.LocalZonedTimestampType) or (
        kind.precision > _MOST_DIGITS
    ):
        message = (
            f"Invalid data type of time field for watermark definition. The field must be of type "
            f"TIMESTAMP(p) or TIMESTAMP_LTZ(p), the supported precision 'p' is from 0 to 3, but "
            f"the time field '{declared.rowtime}' is {kind.as_summary_string()}."
        )
        raise ValidationError(message)
    expression = _watermark_of(context, plan, declared, kind)
    fields = list(plan.row.fields)
    rowtime = kind.with_parameters(kind=lt.TimestampKind.ROWTIME)
    fields[position] = lt.RowField(declared.rowtime, rowtime)
    row = lt.RowType(tuple(fields), nullable=False)
    return lp.WatermarkNode(row=row, input=plan, rowtime=position, expression=expression)


def _watermark_of(
    context: BindingContext, plan: lp.LogicalNode, declared: WatermarkSpec, kind: lt.LogicalType
) -> Expression:
    if is_source_watermark(declared.expression):
        return Call(lp.SOURCE_WATERMARK, (), kind)
    binder = ExpressionBinder(context.with_text(declared.expression), Scope.of(plan.row))
    expression = binder.bind(parse_expression(declared.expression))
    if not isinstance(expression.type, lt.TimestampType | lt.LocalZonedTimestampType):
        shown = expression.type.as_summary_string()
        message = f"The watermark of '{declared.rowtime}' must be a timestamp; it is {shown}."
        raise ValidationError(message)
    return expression


def lateral(
    queries: QueryBinder, left: lp.LogicalNode, scope: Scope, node: Any, kind: lp.JoinType
) -> lp.LogicalNode:
    """The rows of the left with those of a sub-query behind them.

    Args:
        queries: of the query around.
        left: what stands before the sub-query.
        scope: of the left.
        node: the sub-query.
        kind: of the join.

    Raises:
        ValidationError: it is joined or correlated otherwise than can be.
    """
    bound = bound_sub_query(queries, scope, node.query)
    if kind not in {lp.JoinType.INNER, lp.JoinType.LEFT}:
        message = "LATERAL is joined by CROSS, INNER or LEFT JOIN."
        raise queries.context.error(node, message)
    if is_row_of_outer(bound):
        return _one_row(queries, left, bound, node, kind)
    computed: list[Expression] = list(lp.references(bound.row))
    below = bound
    while kind is lp.JoinType.INNER and isinstance(below, lp.ProjectNode) and _computes(below):
        computed = [substituted(each, below.expressions) for each in computed]
        below = below.input
    inner, found = pulled(queries, below, node)
    if has_repeated(below, found):
        message = "LATERAL with DISTINCT is correlated by equalities alone in this release."
        raise queries.context.error(node, message)
    width = len(left.row)
    condition = all_of([joined(each, width) for each in found])
    join = lp.JoinNode(
        row=_row(left, inner.row.names, inner.row.children, kind),
        left=left,
        right=inner,
        kind=kind,
        condition=condition,
    )
    shown = [*lp.references(join.row)[:width], *(joined(each, width) for each in computed)]
    if kind is lp.JoinType.LEFT:
        shown = list(lp.references(join.row)[: width + len(bound.row)])
    return _projected(join, left, bound, shown)


def _computes(plan: lp.ProjectNode) -> bool:
    return any(map(is_outer, plan.expressions))


def _projected(
    plan: lp.LogicalNode, left: lp.LogicalNode, bound: lp.LogicalNode, shown: Sequence[Expression]
) -> lp.LogicalNode:
    return lp.project(plan, shown, [*left.row.names, *bound.row.names])


def _row(
    left: lp.LogicalNode, names: Sequence[str], types: Sequence[Any], kind: lp.JoinType
) -> Any:
    if kind is lp.JoinType.LEFT:
        types = [each.with_nullability(True) for each in types]  # noqa: FBT003
    return lp.row_of([*left.row.names, *names], [*left.row.children, *types])


def _one_row(
    queries: QueryBinder, left: lp.LogicalNode, bound: lp.LogicalNode, node: Any, kind: lp.JoinType
) -> lp.LogicalNode:
    """An aggregate of all rows: it is there for each row of the left, if of no rows.

    Raises:
        ValidationError: HAVING may leave it out of a LEFT JOIN.
    """
    (inner, condition), values, present = row_values(queries, bound, node)
    if present is not None and kind is lp.JoinType.LEFT:
        message = "LEFT JOIN LATERAL of an aggregate with HAVING is not in this release."
        raise queries.context.error(node, message)
    width = len(left.row)

    def change(each: Any) -> Any:
        if isinstance(each, Placeholder):
            return InputReference(width + each.index, f"$q{each.index}", each.type)
        if isinstance(each, OuterReference):
            return joined(each, width)  # type: ignore[arg-type]
        return each

    on = None if condition is None else transform(condition, change)
    plan = beside(left, inner, on)
    if present is not None:
        plan = lp.FilterNode(row=plan.row, input=plan, condition=transform(present, change))
    shown = [*lp.references(plan.row)[:width], *(transform(each, change) for each in values)]
    return _projected(plan, left, bound, shown)


_KINDS: Final = {
    nodes.JoinKind.INNER: lp.JoinType.INNER,
    nodes.JoinKind.LEFT: lp.JoinType.LEFT,
    nodes.JoinKind.RIGHT: lp.JoinType.RIGHT,
    nodes.JoinKind.FULL: lp.JoinType.FULL,
    nodes.JoinKind.CROSS: lp.JoinType.INNER,
    nodes.JoinKind.COMMA: lp.JoinType.INNER,
}


class RelationBinder:
    """Binds what stands in FROM."""

    def __init__(self, queries: QueryBinder) -> None:
        self.queries = queries
        self.context = queries.context

    def bind(self, node: Any) -> tuple[lp.LogicalNode, Scope]:
        """The plan of a relation, and the names over it."""
        handler = _RELATIONS.get(type(node))
        if handler is None:
            what = type(node).__name__
            raise self.context.error(node, f"{what} is not in this release.")
        return handler(self, node)

    # -- kinds -----------------------------------------------------------------------------------

    def _table(self, node: Any) -> tuple[lp.LogicalNode, Scope]:
        names = node.name.names
        if node.as_of is not None:
            message = "FOR SYSTEM_TIME AS OF can stand only on the right of a join."
            raise self.context.error(node.as_of, message)
        if len(names) == 1 and names[0] in self.queries.tables:
            plan = self.queries.tables[names[0]]
            no_hints(self.context, node.hints, f"'{names[0]}'")
            return plan, Scope.of(plan.row, names)
        if len(names) == 1 and names[0] in self.context.inline:
            plan = self.context.inline[names[0]]
            no_hints(self.context, node.hints, "a table of the program")
            return plan, Scope.of(plan.row, names)
        found = self.context.catalogs.find_table(names)
        if found is None:
            known = [*self.context.catalogs.table_names(), *self.queries.tables]

            hint = self.context.catalogs.suggest_table(names)
            hint = hint or (did_you_mean(names[0], known) if len(names) == 1 else "")
            message = f"Table '{'.'.join(names)}' not found.{hint}"
            raise self.context.error(node.name, message)
        overrides = table_options(self.context, node.hints)
        if not isinstance(found.table, CatalogTable):
            no_hints(self.context, node.hints, f"view '{'.'.join(names)}'")
        plan = scan(self.queries, found, overrides, node)
        return plan, Scope.of(plan.row, found.identifier.parts)

    def _derived(self, node: Any) -> tuple[lp.LogicalNode, Scope]:
        plan = self.queries.nested(None).bind(node.query)
        return plan, _derived_scope(node, plan.row)

    def _aliased(self, node: Any) -> tuple[lp.LogicalNode, Scope]:
        plan, scope = self.bind(node.relation)
        return self.aliased(plan, scope, node)

    def aliased(
        self, plan: lp.LogicalNode, scope: Scope, node: Any
    ) -> tuple[lp.LogicalNode, Scope]:
        """The same under an alias, maybe with other names of the columns."""
        columns = scope.columns()
        if node.columns:
            if len(node.columns) != len(columns):
                message = f"{len(node.columns)} names for {len(columns)} columns."
                raise self.context.error(node, message)
            given = [name.value for name in node.columns]
            twice = sorted({name for name in given if given.count(name) > 1})
            if twice:
                message = f"Columns named twice: {', '.join(twice)}."
                raise self.context.error(node, message)
            columns = [
                (name.value, index) for name, (_, index) in zip(node.columns, columns, strict=True)
            ]
        return plan, Scope(plan.row, [ScopeTable((node.alias.value,), tuple(columns))])

    def _match(self, node: Any) -> tuple[lp.LogicalNode, Scope]:
        return match_recognize(self.queries, node)

    def _function(self, node: Any) -> tuple[lp.LogicalNode, Scope]:
        if self._calls(node, WINDOWS):
            plan = window(self.queries, node.call, any_size=node.any_size)
            return plan, Scope.of(plan.row)
        if self._calls(node, CHANGELOGS):
            made = changelog(self.queries, node.call)
            return made, Scope.of(made.row)
        return self._unnest(node)

    def _calls(self, node: Any, names: Container[str]) -> bool:
        """Check for a call of a built-in table function of these names."""
        call = getattr(node, "call", None)
        if not isinstance(call, nodes.FunctionCall) or len(call.name.parts) > 1:
            return False
        is_hidden = self.context.catalogs.system_function(call.name.last) is not None
        return call.name.last.upper() in names and not is_hidden

    def _unnest(self, node: Any) -> tuple[lp.LogicalNode, Scope]:
        from millstream.sql.binder.queries import one_row

        before = one_row()
        empty = Scope(before.row, [])
        plan, scope = self._correlated(before, empty, node, lp.JoinType.INNER)
        return plan, scope

    # -- joins -----------------------------------------------------------------------------------

    def _join(self, node: Any) -> tuple[lp.LogicalNode, Scope]:
        ttls = self.queries.state_ttls
        state_ttls = (None, None) if ttls is None else (ttls.of(node.left), ttls.of(node.right))
        left, left_scope = self.bind(node.left)
        inner = node.right.relation if isinstance(node.right, nodes.AliasedRelation) else node.right
        kind = _KINDS[node.kind]
        if isinstance(inner, nodes.Unnest | nodes.TableFunction) and not (
            self._calls(inner, {*WINDOWS, *CHANGELOGS})
        ):
            plan, scope = self._correlated(left, left_scope, node.right, kind)
            return self._correlated_condition(node, plan, scope), scope
        if isinstance(inner, nodes.DerivedTable) and inner.lateral:
            plan, scope = self._lateral(left, left_scope, node.right, kind)
            return self._correlated_condition(node, plan, scope), scope
        if isinstance(inner, nodes.TableReference) and inner.as_of is not None:
            return self._temporal(node, left, left_scope, inner.as_of)
        right, right_scope = self.bind(node.right)
        row = _joined_row(left, right, kind)
        scope = left_scope.joined(right_scope, row)
        scope.outer = self.queries.outer
        condition = self._condition(node, left_scope, right_scope, scope, kind)
        join = lp.JoinNode(
            row=row,
            left=left,
            right=right,
            kind=kind,
            condition=condition,
            state_ttls=state_ttls,
        )
        if kind is lp.JoinType.FULL and (node.using or node.natural):
            names = self._shared(node, left_scope, right_scope)
            return self._merged(node, join, scope, right_scope, names)
        return join, scope

    def _lateral(
        self, left: lp.LogicalNode, left_scope: Scope, node: Any, kind: lp.JoinType
    ) -> tuple[lp.LogicalNode, Scope]:
        """A sub-query that names columns of the left."""
        aliased = node if isinstance(node, nodes.AliasedRelation) else None
        derived = node.relation if aliased is not None else node
        plan = lateral(self.queries, left, left_scope, derived, kind)
        width = len(left.row)
        made = _derived_scope(derived, lp.row_of(plan.row.names[width:], plan.row.children[width:]))
        if aliased is not None:
            _, made = self.aliased(_Shown(made.row), made, aliased)  # type: ignore[arg-type]
        return plan, left_scope.joined(made, plan.row)

    def _merged(
        self, node: Any, join: lp.JoinNode, scope: Scope, right: Scope, names: list[str]
    ) -> tuple[lp.LogicalNode, Scope]:
        """A full join with the columns of USING behind the others: of the side that is there."""
        binder = ExpressionBinder(self.context, scope)
        shift = len(join.left.row)
        columns: list[Expression] = list(lp.references(join.row))
        shown = list(join.row.names)
        merged: list[tuple[str, int]] = []
        for name in names:
            one = scope.reference(scope.merged[name])
            found: Any = right.find([name]).expression
            other = scope.reference(found.index + shift)
            merged.append((name, len(columns)))
            columns.append(binder.call(node, "COALESCE", one, other))
            shown.append(name)
        plan = lp.project(join, columns, shown)
        scope.row = plan.row
        scope.merge(merged, {scope.merged[name] for name in names})
        scope.tables.insert(0, ScopeTable((), tuple(merged)))
        return plan, scope

    @staticmethod
    def _shared(node: Any, left: Scope, right: Scope) -> list[str]:
        """The names of USING, or those that NATURAL finds on both sides."""
        if not node.natural:
            return [name.value for name in node.using]
        known = {name for name, _ in right.columns()}
        return list(dict.fromkeys(name for name, _ in left.columns() if name in known))

    def _correlated_condition(
        self, node: Any, plan: lp.LogicalNode, scope: Scope
    ) -> lp.LogicalNode:
        """Return what ON says of the rows that UNNEST, a table function or LATERAL makes."""
        if node.using or node.natural:
            message = (
                "UNNEST, table functions and LATERAL are joined by ON, not by USING or NATURAL."
            )
            raise self.context.error(node, message)
        if node.condition is None:
            return plan
        condition = ExpressionBinder(self.context, scope).condition(node.condition)
        if isinstance(condition, Literal) and condition.value is True:
            return plan
        if _KINDS[node.kind] is lp.JoinType.LEFT:
            message = "LEFT JOIN of UNNEST, a table function or LATERAL takes ON TRUE alone."
            raise self.context.error(node.condition, message)
        return lp.FilterNode(row=plan.row, input=plan, condition=condition)

    def _condition(
        self, node: Any, left: Scope, right: Scope, scope: Scope, kind: lp.JoinType
    ) -> Expression | None:
        names = self._shared(node, left, right)
        binder = ExpressionBinder(self.context, scope)
        if not names:
            return None if node.condition is None else binder.condition(node.condition)
        shift = len(left.row)
        found: list[Expression] = []
        merged: list[tuple[str, int]] = []
        sides: set[int] = set()
        for name in names:
            try:
                one: Any = left.find([name]).expression
                other: Any = right.find([name]).expression
            except NameProblem as problem:
                raise self.context.error(node, str(problem)) from None
            moved = InputReference(other.index + shift, other.name, other.type)
            found.append(binder.call(node, "=", one, moved))
            merged.append((name, moved.index if kind is lp.JoinType.RIGHT else one.index))
            sides |= {one.index, moved.index}
        scope.merge(merged, sides)
        return all_of(found)

    def _temporal(
        self, node: Any, left: lp.LogicalNode, left_scope: Scope, as_of: Node
    ) -> tuple[lp.LogicalNode, Scope]:
        kind = _KINDS[node.kind]
        if kind not in {lp.JoinType.INNER, lp.JoinType.LEFT}:
            message = (
                "Temporal table join currently only support INNER JOIN and LEFT JOIN, but was "
                f"{kind.name} JOIN."
            )
            raise self.context.error(node, message)
        right, right_scope = self.bind(_of_now(node.right))
        time = ExpressionBinder(self.context, left_scope).bind(as_of)
        attribute = getattr(time.type, "kind", lt.TimestampKind.REGULAR)
        if not isinstance(time, InputReference) or attribute is lt.TimestampKind.REGULAR:
            shown = time.type.as_summary_string()
            message = (
                f"FOR SYSTEM_TIME AS OF takes a time attribute of the left table, not {shown}."
            )
            raise self.context.error(as_of, message)
        row = _joined_row(left, right, kind, temporal=True)
        scope = left_scope.joined(right_scope, row)
        condition = self._condition(node, left_scope, right_scope, scope, kind)
        position = time.index if attribute is lt.TimestampKind.ROWTIME else None
        hints = self.queries.state_ttls
        hint = hints.lookups.of(node.right) if hints and position is None else None
        join = lp.TemporalJoinNode(
            row=row,
            left=left,
            right=right,
            kind=kind,
            condition=condition,
            time=position,
            lookup=hint or lp.LookupHint(),
        )
        return join, scope

    def _correlated(
        self, left: lp.LogicalNode, left_scope: Scope, node: Any, kind: lp.JoinType
    ) -> tuple[lp.LogicalNode, Scope]:
        """UNNEST of columns of the left, or the rows that a user's function makes of them."""
        aliased = node if isinstance(node, nodes.AliasedRelation) else None
        unnest = node.relation if aliased is not None else node
        if kind not in {lp.JoinType.INNER, lp.JoinType.LEFT}:
            word = "UNNEST" if isinstance(unnest, nodes.Unnest) else "A table function"
            raise self.context.error(node, f"{word} is joined by CROSS, INNER or LEFT JOIN.")
        argument = self._collection(unnest, ExpressionBinder(self.context, left_scope))
        names, types = self._unnested(unnest, argument)
        with_ordinality = getattr(unnest, "with_ordinality", False)
        if with_ordinality:
            names.append("ORDINALITY")
            types.append(lt.IntType(nullable=False))
        if kind is lp.JoinType.LEFT:
            types = [each.with_nullability(True) for each in types]  # noqa: FBT003
        row = lp.row_of([*left.row.names, *names], [*left.row.children, *types])
        plan = lp.CorrelateNode(
            row=row,
            input=left,
            function="UNNEST",
            arguments=(argument,),
            kind=kind,
            with_ordinality=with_ordinality,
        )
        made = Scope.of(lp.row_of(names, types))
        if aliased is not None:
            _, made = self.aliased(_Shown(made.row), made, aliased)  # type: ignore[arg-type]
        return plan, left_scope.joined(made, row)

    def _collection(self, node: Any, binder: ExpressionBinder) -> Expression:
        if isinstance(node, nodes.Unnest):
            if len(node.arguments) != 1:
                raise self.context.error(node, "UNNEST takes one array, map or multiset.")
            return binder.bind(node.arguments[0])
        if isinstance(node.call, InlineCall):
            given = binder.bind_all(node.call.arguments)
            return inline_call(self.context, node, node.call.definition, given, table=True)
        names = node.call.name.names
        function = user_function(self.context, node.call)
        if function is None:
            known = [*self.context.catalogs.function_names(), *WINDOWS]
            hint = did_you_mean(names[-1], known)
            shown = ".".join(names)
            raise self.context.error(node, f"Table function '{shown}' not found.{hint}")
        arguments = binder.bind_all(node.call.arguments)
        return user_call(self.context, node, function, arguments, table=True)

    def _unnested(self, node: Node, argument: Expression) -> tuple[list[str], list[Any]]:
        kind = argument.type
        if isinstance(kind, lt.MapType):
            return ["KEY", "VALUE"], [kind.key, kind.value]
        if isinstance(kind, lt.ArrayType | lt.MultisetType):
            if isinstance(kind.element, lt.RowType):
                return list(kind.element.names), list(kind.element.children)
            return ["EXPR$0"], [kind.element]
        shown = kind.as_summary_string()
        raise self.context.error(node, f"UNNEST takes an array, map or multiset, not {shown}.")


def _derived_scope(node: nodes.DerivedTable, row: lt.RowType) -> Scope:
    names = output_names(node.query)
    if len(names) != len(row):
        return Scope.of(row)
    # Two columns of one name stay so: the name alone is ambiguous.
    columns = tuple((name, index) for index, name in enumerate(names))
    return Scope(row, [ScopeTable((), columns)])


class _Shown:
    """A row where a plan is asked for nothing but its row."""

    def __init__(self, row: lt.RowType) -> None:
        self.row = row


def _of_now(node: Any) -> Any:
    """A table without FOR SYSTEM_TIME AS OF."""
    if isinstance(node, nodes.AliasedRelation):
        return replace(node, relation=_of_now(node.relation))
    return replace(node, as_of=None)


def _joined_row(
    left: lp.LogicalNode, right: lp.LogicalNode, kind: lp.JoinType, *, temporal: bool = False
) -> lt.RowType:
    """The columns of both; those of a side that may be missing are nullable.

    Time attributes end in regular joins, where the order of rows is that of their arrival; whether
    the join is an interval join is only seen later, so that they are kept here.  A version is as
    old as it is: its times are no attributes behind a temporal join.
    """
    one, other = list(left.row.children), list(right.row.children)
    if temporal:
        other = [plain_type(each) for each in other]
    if kind.keeps_right:
        one = [plain_type(each).with_nullability(True) for each in one]  # noqa: FBT003
    if kind.keeps_left:
        other = [plain_type(each).with_nullability(True) for each in other]  # noqa: FBT003
    return lp.row_of([*left.row.names, *right.row.names], [*one, *other])


_RELATIONS: Final[dict[type, Callable[[RelationBinder, Any], tuple[lp.LogicalNode, Scope]]]] = {
    nodes.TableReference: RelationBinder._table,  # noqa: SLF001 - the table of this class
    nodes.DerivedTable: RelationBinder._derived,  # noqa: SLF001
    nodes.AliasedRelation: RelationBinder._aliased,  # noqa: SLF001
    nodes.TableFunction: RelationBinder._function,  # noqa: SLF001
    nodes.MatchRecognize: RelationBinder._match,  # noqa: SLF001
    nodes.Unnest: RelationBinder._unnest,  # noqa: SLF001
    nodes.Join: RelationBinder._join,  # noqa: SLF001
}
