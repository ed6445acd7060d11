"""Bind queries: VALUES, set operations, WITH, ORDER BY, LIMIT and query hints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from millstream.configuration import options as config
from millstream.configuration.flink_options import say_once
from millstream.configuration.option import parse_duration
from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.sql.binder import calls
from millstream.sql.binder.calls import InlinePlan, aggregate_type, plain_type
from millstream.sql.binder.expressions import ExpressionBinder, is_time_attribute, typed_literal
from millstream.sql.binder.scope import NameProblem, Scope
from millstream.sql.parser import nodes
from millstream.sql.parser.nodes import AliasedRelation, TableReference
from millstream.sql.planner import logical as lp
from millstream.sql.suggestions import did_you_mean, listed
from millstream.types.logical_types import BigIntType, IntType, MultisetType, NullType
from millstream.types.type_derivation import common_type
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.parser.nodes import Hint, Node, Query
    from millstream.types.logical_types import LogicalType


_T = TypeVar("_T")

_OF_ASYNC: Final = ("output-mode", "capacity", "timeout")
_OF_RETRY: Final = ("retry-predicate", "retry-strategy", "fixed-delay", "max-attempts")


def name_of(relation: object) -> str | None:
    """Return what hints call a relation of FROM: its alias, if it has one; None: it has no name."""
    if isinstance(relation, AliasedRelation):
        return relation.alias.value
    return relation.name.last if isinstance(relation, TableReference) else None


class NamedHints(ABC, Generic[_T]):
    """The hints of one SELECT on relations of FROM, by the names that they have there."""

    def __init__(self) -> None:
        """Know of none."""
        self._hints: dict[str, tuple[_T, Hint]] = {}
        self._names: set[str] = set()

    def of(self, relation: object) -> _T | None:
        """Return what is said of a relation of FROM; None: nothing.

        A table has the name of its alias, if it has one; a join has none.
        """
        name = name_of(relation)
        if name is None:
            return None
        self._names.add(name)
        return self._hints[name][0] if name in self._hints else None

    def check_names(self, context: BindingContext) -> None:
        """Refuse names that no relation has that was asked for.

        Raises:
            ValidationError: there is one.
        """
        for name, (_, hint) in self._hints.items():
            if name not in self._names:
                raise context.error(hint, self.unknown(name, did_you_mean(name, self._names)))

    @abstractmethod
    def unknown(self, name: str, near: str) -> str:
        """Return what is said of a name that no relation has; ``near``: of one that is like it."""


class LookupHints(NamedHints[lp.LookupHint]):
    """The hints LOOKUP of one SELECT: how relations that are looked up are asked for."""

    def add(self, context: BindingContext, hint: Hint) -> None:
        """Take a hint.

        Raises:
            ValidationError: an option is missing or makes no sense; unknown ones are ignored, as
                in Flink.
        """
        options = dict(hint.options)
        if hint.arguments or not options:
            _refuse(context, hint, "it has pairs of the form 'key' = 'value'")
        name = options.pop("table", None)
        if name is None:
            near = "".join(did_you_mean(key, ("table",)) for key in options)
            missing = "'table' says which table of FROM is meant; it is missing"
            _refuse(context, hint, missing, near)
        if name in self._hints:
            _refuse(context, hint, f"there are two for '{name}'")
        self._hints[name] = (_Reader(context, hint, options).read(), hint)

    def unknown(self, name: str, near: str) -> str:
        return _invalid(f"'{name}' is no table of FROM whose rows are looked up", near)


def _invalid(what: str, more: str = "") -> str:
    return f"Invalid LOOKUP hint: {what}.{more}"


def _refuse(context: BindingContext, hint: Hint, what: str, more: str = "") -> NoReturn:
    raise context.error(hint, _invalid(what, more))


class _Reader:
    """The options of one hint, but for the table."""

    def __init__(self, context: BindingContext, hint: Hint, options: dict[str, str]) -> None:
        self._context = context
        self._hint = hint
        self._options = options

    def read(self) -> lp.LookupHint:
        """Return what the options say."""
        is_async = self._choice("async", ("true", "false")) == "true"
        given = [key for key in _OF_ASYNC if key in self._options]
        if given and not is_async:
            self._refuse(f"'{given[0]}' needs 'async' = 'true'")
        retry = [key for key in _OF_RETRY if key in self._options]
        if retry and len(retry) < len(_OF_RETRY):
            self._refuse(f"{listed(list(_OF_RETRY))} go together")
        self._choice("retry-predicate", ("lookup_miss",))
        self._choice("retry-strategy", ("fixed_delay",))
        mode = self._choice("output-mode", ("ordered", "allow_unordered"))
        get = self._context.configuration.get
        mode = mode or get(config.ASYNC_LOOKUP_MODE).lower()
        return lp.LookupHint(
            is_async=is_async,
            is_unordered=mode == "allow_unordered",
            capacity=self._number("capacity", get(config.ASYNC_LOOKUP_CAPACITY)),
            timeout=self._duration("timeout", get(config.ASYNC_LOOKUP_TIMEOUT)),
            retry_delay=self._duration("fixed-delay", 0),
            max_attempts=self._number("max-attempts", 0),
            is_shuffled=self._choice("shuffle", ("true", "false")) == "true",
        )

    def _refuse(self, what: str) -> NoReturn:
        _refuse(self._context, self._hint, what)

    def _choice(self, key: str, taken: tuple[str, ...]) -> str | None:
        value = self._options.get(key)
        if value is not None and value.lower() not in taken:
            self._refuse(f"'{key}' is '{value}'; it can be {listed(list(taken))}")
        return None if value is None else value.lower()

    def _number(self, key: str, default: int) -> int:
        value = self._options.get(key)
        if value is None:
            return default
        if not value.isdecimal() or int(value) < 1:
            self._refuse(f"'{key}' is '{value}'; it must be a whole number, at least 1")
        return int(value)

    def _duration(self, key: str, default: int) -> int:
        value = self._options.get(key)
        if value is None:
            return default
        try:
            found = parse_duration(value)
        except ValueError as error:
            self._refuse(f"'{key}' is '{value}'; it {error}")
        if found < 1:
            self._refuse(f"'{key}' is '{value}'; it must be at least 1 ms")
        return found


_JOIN_HINTS: Final = frozenset(
    {"BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "LOOKUP", "MULTI_JOIN"}
)


class StateTtls(NamedHints[int]):
    """How long state of the tables of one SELECT is kept, in milliseconds."""

    def __init__(self) -> None:
        """Know of none."""
        super().__init__()
        #: The hints LOOKUP beside them.
        self.lookups = LookupHints()

    def add(self, context: BindingContext, hint: Hint) -> None:
        """Take a hint.

        Raises:
            ValidationError: it is not STATE_TTL('table' = 'length of time', ...).
        """
        if hint.arguments or not hint.options:
            message = "The hint STATE_TTL has pairs of the form 'table' = 'length of time'."
            raise context.error(hint, message)
        for name, text in hint.options:
            if name in self._hints:
                message = f"The hint STATE_TTL has '{name}' twice."
                raise context.error(hint, message)
            try:
                self._hints[name] = (parse_duration(text), hint)
            except ValueError as error:
                message = f"The hint STATE_TTL has '{text}' for '{name}'; it {error}."
                raise context.error(hint, message) from error

    def check_names(self, context: BindingContext) -> None:
        super().check_names(context)
        self.lookups.check_names(context)

    def unknown(self, name: str, near: str) -> str:
        return f"The hint STATE_TTL names '{name}', which no table of FROM is called.{near}"


def select_hints(context: BindingContext, hints: Sequence[Hint]) -> StateTtls:
    """Read the hints behind SELECT.

    Raises:
        ValidationError: a hint is not what it should be.
    """
    ttls = StateTtls()
    for hint in hints:
        name = hint.name.upper()
        if name == "STATE_TTL":
            ttls.add(context, hint)
            continue
        if name == "OPTIONS":
            message = "The hint OPTIONS must follow the table name, not SELECT."
            raise context.error(hint, message)
        if name == "LOOKUP":
            ttls.lookups.add(context, hint)
            continue
        if name not in _JOIN_HINTS:
            near = did_you_mean(name, {*_JOIN_HINTS, "STATE_TTL"})
            say_once(f"hint {hint.name} is not known and has no effect.{near}")
    return ttls


def table_options(context: BindingContext, hints: Sequence[Hint]) -> dict[str, str]:
    """The options that hints behind a table give.

    Raises:
        ValidationError: a hint is not OPTIONS('key' = 'value', ...).
    """
    found: dict[str, str] = {}
    for hint in hints:
        if hint.name.upper() != "OPTIONS":
            message = f"There is no hint {hint.name} of tables; there is OPTIONS."
            raise context.error(hint, message)
        if hint.arguments:
            message = "The hint OPTIONS has pairs of the form 'key' = 'value'."
            raise context.error(hint, message)
        found.update(hint.options)
    return found


def no_hints(context: BindingContext, hints: Sequence[Hint], what: str) -> None:
    """Refuse hints behind what has no options.

    Raises:
        ValidationError: there are hints.
    """
    if table_options(context, hints):
        message = f"The hint OPTIONS is for tables of connectors; {what} has no options."
        raise context.error(hints[0], message)


def item_name(item: Any, number: int) -> str:
    """The name of the column of an item at a position."""
    if item.alias is not None:
        return str(item.alias.value)
    node = item.expression
    if isinstance(node, nodes.Identifier):
        return node.last
    if isinstance(node, nodes.FieldAccess):
        return node.name.value
    return f"EXPR${number}"


def output_names(query: nodes.Query) -> list[str]:
    """The names of the columns of a SELECT; empty if the text alone does not say them."""
    if isinstance(query, nodes.OrderedQuery):
        return output_names(query.query)
    if not isinstance(query, nodes.Select):
        return []
    if any(isinstance(each.expression, nodes.Star) for each in query.items):
        return []
    return [item_name(each, number) for number, each in enumerate(query.items)]


def repeated_name(query: nodes.Query) -> str | None:
    """Return a name that a SELECT gives to two columns; None: it gives none twice."""
    names = output_names(query)
    return next((name for number, name in enumerate(names) if name in names[:number]), None)


_COUNT: Final = BigIntType(nullable=False)
_ELEMENT: Final = IntType(nullable=False)


def distinct(left: lp.LogicalNode, right: lp.LogicalNode, *, intersect: bool) -> lp.LogicalNode:
    """INTERSECT, or EXCEPT: rows of the left that are (not) on the right too, each once.

    Args:
        left: a query.
        right: another of the same types.
        intersect: whether the row is to be there.
    """
    width = len(left.row)
    condition: Expression | None = None
    for one, other in zip(lp.references(left.row), lp.references(right.row), strict=True):
        moved = InputReference(other.index + width, other.name, other.type)
        same = calls.resolve("IS NOT DISTINCT FROM", [one, moved])
        condition = same if condition is None else calls.resolve("AND", [condition, same])
    kind = lp.JoinType.SEMI if intersect else lp.JoinType.ANTI
    join = lp.JoinNode(row=left.row, left=left, right=right, kind=kind, condition=condition)
    return lp.DistinctNode(row=left.row, input=join)


def counted(left: lp.LogicalNode, right: lp.LogicalNode, *, intersect: bool) -> lp.LogicalNode:
    """INTERSECT ALL: as often as on the side that has fewer; EXCEPT ALL: what the left has more.

    Args:
        left: a query.
        right: another of the same types.
        intersect: whether it is INTERSECT.
    """
    members = (_marked(left, 1, 0), _marked(right, 0, 1))
    width = len(left.row)
    names = [*left.row.names, "$left", "$right"]
    types = [
        plain_type(one).with_nullability(one.is_nullable or other.is_nullable)
        for one, other in zip(left.row.children, right.row.children, strict=True)
    ]
    row = lp.row_of(names, [*types, _COUNT, _COUNT])
    function, kind = aggregate_type("SUM", [_COUNT], grouped=True, filtered=False)
    sums = tuple(AggregateCall(function, (width + side,), kind) for side in (0, 1))
    grouped = lp.AggregateNode(
        row=lp.row_of(names, [*types, kind, kind]),
        input=lp.UnionNode(row=row, members=members),
        keys=tuple(range(width)),
        calls=sums,
    )
    columns = lp.references(grouped.row)
    often = calls.resolve("LEAST" if intersect else "-", columns[width:])
    is_there = calls.resolve(">", [often, Literal(0, _COUNT)])
    kept = lp.FilterNode(row=grouped.row, input=grouped, condition=is_there)
    repeated = _repeated(kept, often)
    shown = tuple(lp.references(repeated.row)[:width])
    result = lp.row_of(left.row.names, types)
    return lp.ProjectNode(row=result, input=repeated, expressions=shown)


def _marked(plan: lp.LogicalNode, left: int, right: int) -> lp.LogicalNode:
    """Rows with one for the side that they are of."""
    columns = lp.references(plan.row)
    marks = (Literal(left, _COUNT), Literal(right, _COUNT))
    return lp.project(plan, (*columns, *marks), [*plan.row.names, "$left", "$right"])


def _repeated(plan: lp.LogicalNode, often: Expression) -> lp.LogicalNode:
    """Each row as often as a number says: once per element of a multiset of so many."""
    number = calls.cast(often, _ELEMENT)
    elements = Call("MAP", (Literal(0, _ELEMENT), number), MultisetType(_ELEMENT, nullable=False))
    row = lp.row_of([*plan.row.names, "$element"], [*plan.row.children, _ELEMENT])
    return lp.CorrelateNode(
        row=row,
        input=plan,
        function="$REPLICATE_ROWS",
        arguments=(elements,),
        kind=lp.JoinType.INNER,
    )


#: As in Flink, and those that it orders item by item, which this release does not.
_UNORDERED: Final = frozenset(
    {
        TypeRoot.ARRAY,
        TypeRoot.BITMAP,
        TypeRoot.MAP,
        TypeRoot.MULTISET,
        TypeRoot.ROW,
        TypeRoot.VARIANT,
    }
)


def check_orderable(context: BindingContext, node: Node, kind: LogicalType) -> None:
    """Refuse to order by values of a type that has no order.

    Args:
        context: of the statement.
        node: what it orders by.
        kind: the type of that.

    Raises:
        ValidationError: its values have no order.
    """
    if kind.root in _UNORDERED:
        text = kind.as_summary_string()
        message = f"ORDER BY does not go by {text}: its values have no order."
        raise context.error(node, message)


@dataclass(frozen=True)
class Parts:
    """The binders of what queries are made of; ``sql/binder/binding.py`` has them."""

    #: Of SELECT with the items of ORDER BY: the plan, and the columns to sort by.
    select: Callable[[QueryBinder, Any, Sequence[Any]], tuple[lp.LogicalNode, list[lp.SortKey]]]
    #: Of what stands in FROM.
    relation: Callable[[QueryBinder, Any], tuple[lp.LogicalNode, Scope]]


class QueryBinder:
    """Binds queries; one for each query with its own names of WITH."""

    def __init__(
        self,
        context: BindingContext,
        parts: Parts,
        tables: Mapping[str, lp.LogicalNode] | None = None,
        outer: Scope | None = None,
    ) -> None:
        """Take the surroundings.

        Args:
            context: of the statement.
            parts: the binders of what queries are made of.
            tables: what WITH has named.
            outer: the scope of the query around this one.
        """
        self.context = context
        self._parts = parts
        self.tables = dict(tables or {})
        self.outer = outer
        #: Of the SELECT whose FROM is bound just now.
        self.state_ttls: StateTtls | None = None

    def bind(self, query: Query) -> lp.LogicalNode:
        """The plan of a query.

        Raises:
            ValidationError: it makes no sense; says where.
        """
        handler = _QUERIES.get(type(query))
        if handler is None:
            raise self.context.error(query, f"{type(query).__name__} is not in this release.")
        return handler(self, query)

    def nested(self, outer: Scope | None) -> QueryBinder:
        """The binder of a sub-query, which sees the same names of WITH."""
        return QueryBinder(self.context, self._parts, self.tables, outer)

    def other(self, text: str, view: tuple[str, ...]) -> QueryBinder:
        """The binder of the query of a view, which has a text of its own."""
        views = (*self.context.views, view)
        return QueryBinder(replace(self.context, text=text, views=views), self._parts)

    def relation(self, node: Any) -> tuple[lp.LogicalNode, Scope]:
        """The plan of what stands in FROM, and the names over it."""
        return self._parts.relation(self, node)

    # -- kinds of queries ------------------------------------------------------------------------

    def _select(self, node: Any) -> lp.LogicalNode:
        return self._parts.select(self, node, ())[0]

    def _with(self, node: Any) -> lp.LogicalNode:
        inner = self.nested(self.outer)
        known: set[str] = set()
        for each in node.tables:
            if each.name.value in known:
                message = f"'{each.name.value}' stands twice in WITH."
                raise self.context.error(each.name, message)
            known.add(each.name.value)
            plan = inner.bind(each.query)
            twice = None if each.columns else repeated_name(each.query)
            if twice is not None:
                message = f"'{each.name.value}' has two columns '{twice}' and no column list."
                raise self.context.error(each.name, message)
            if each.columns:
                plan = self.renamed(plan, [name.value for name in each.columns], each)
            inner.tables[each.name.value] = plan
        return inner.bind(node.query)

    def renamed(self, plan: lp.LogicalNode, names: Sequence[str], node: Node) -> lp.LogicalNode:
        """The plan with other names of its columns.

        Raises:
            ValidationError: there are more or fewer names than columns.
        """
        if len(names) != len(plan.row):
            message = f"{len(names)} names for {len(plan.row)} columns."
            raise self.context.error(node, message)
        return lp.project(plan, lp.references(plan.row), names)

    def _table(self, node: Any) -> lp.LogicalNode:
        return self.relation(nodes.TableReference(node.name, position=node.position))[0]

    def _inline(self, node: Any) -> lp.LogicalNode:
        return node.plan  # type: ignore[no-any-return]

    def _values(self, node: Any) -> lp.LogicalNode:
        binder = ExpressionBinder(self.context, Scope(lp.row_of([], []), outer=self.outer))
        rows = [binder.bind_all(each.fields) for each in node.rows]
        width = len(rows[0])
        for each, bound in zip(node.rows, rows, strict=True):
            if len(bound) != width:
                message = f"All rows of VALUES must have {width} columns; this has {len(bound)}."
                raise self.context.error(each, message)
        types = [
            self._common([row[column] for row in rows], node.rows[0].fields[column])
            for column in range(width)
        ]
        names = [f"EXPR${column}" for column in range(width)]
        return self._values_of(rows, names, types)

    def _common(self, found: Sequence[Expression], node: Node) -> LogicalType:
        kind = common_type([each.type for each in found])
        if kind is None and all(isinstance(each.type, NullType) for each in found):
            return NullType()
        if kind is None:
            shown = ", ".join(dict.fromkeys(each.type.as_summary_string() for each in found))
            message = f"Values of one column have no type in common: {shown}."
            raise self.context.error(node, message)
        return kind

    def _values_of(
        self, rows: list[list[Expression]], names: list[str], types: list[LogicalType]
    ) -> lp.LogicalNode:
        row = lp.row_of(names, types)
        cast = [
            [
                each if isinstance(kind, NullType) else _constant(each, kind)
                for each, kind in zip(bound, types, strict=True)
            ]
            for bound in rows
        ]
        if all(isinstance(each, Literal) for bound in cast for each in bound):
            constants = tuple(
                tuple(each.value for each in bound if isinstance(each, Literal)) for bound in cast
            )
            return lp.ValuesNode(row=row, rows=constants)
        members = tuple(
            lp.ProjectNode(row=row, input=one_row(), expressions=tuple(bound)) for bound in cast
        )
        return members[0] if len(members) == 1 else lp.UnionNode(row=row, members=members)

    # -- set operations --------------------------------------------------------------------------

    def _set_operation(self, node: Any) -> lp.LogicalNode:
        left, right = self.bind(node.left), self.bind(node.right)
        if len(left.row) != len(right.row):
            message = (
                f"{node.operator} needs as many columns on both sides; there are "
                f"{len(left.row)} and {len(right.row)}."
            )
            raise self.context.error(node, message)
        types = []
        for one, other in zip(left.row.fields, right.row.fields, strict=True):
            kind = common_type([one.type, other.type])
            if kind is None:
                message = (
                    f"Column '{one.name}' of {node.operator} is {one.type} on the left and "
                    f"{other.type} on the right."
                )
                raise self.context.error(node, message)
            is_union = node.all and node.operator is nodes.SetOperator.UNION
            types.append(_united(kind, one.type, other.type) if is_union else kind)
        left, right = cast_columns(left, types), cast_columns(right, types)
        row = lp.row_of(left.row.names, types)
        if node.operator is nodes.SetOperator.UNION:
            members = (*_members(left), *_members(right)) if node.all else (left, right)
            union = lp.UnionNode(row=row, members=members)
            return union if node.all else lp.DistinctNode(row=row, input=union)
        intersect = node.operator is nodes.SetOperator.INTERSECT
        combined = counted if node.all else distinct
        return combined(left, right, intersect=intersect)

    # -- order -----------------------------------------------------------------------------------

    def _ordered(self, node: Any) -> lp.LogicalNode:
        limit, offset = self._count(node.limit, "LIMIT"), self._count(node.offset, "OFFSET")
        if isinstance(node.query, nodes.Select) and node.order_by:
            plan, keys = self._parts.select(self, node.query, node.order_by)
            width = len(plan.row) - _hidden(plan)
        else:
            plan = self.bind(node.query)
            keys = self._sort_keys(plan, node.order_by)
            width = len(plan.row)
        for item, key in zip(node.order_by, keys, strict=True):
            check_orderable(self.context, item.expression, plan.row.children[key.column])
        if keys or limit is not None or offset:
            plan = lp.LimitNode(
                row=plan.row, input=plan, order=tuple(keys), offset=offset or 0, limit=limit
            )
        if width < len(plan.row):
            return lp.project(plan, lp.references(plan.row)[:width], plan.row.names[:width])
        return plan

    def _sort_keys(self, plan: lp.LogicalNode, items: Sequence[Any]) -> list[lp.SortKey]:
        scope = Scope.of(plan.row)
        keys = []
        for item in items:
            if not isinstance(item.expression, nodes.Identifier):
                message = "ORDER BY after a set operation takes columns of its result."
                raise self.context.error(item.expression, message)
            try:
                found = scope.find(item.expression.names).expression
            except NameProblem as problem:
                raise self.context.error(item.expression, str(problem)) from None
            keys.append(sort_key(found.index, item))  # type: ignore[union-attr]
        return keys

    def _count(self, node: Node | None, word: str) -> int | None:
        if node is None:
            return None
        if isinstance(node, nodes.Literal) and isinstance(node.value, int) and node.value >= 0:
            return int(node.value)
        raise self.context.error(node, f"{word} takes a whole number that is not negative.")


def _united(kind: LogicalType, one: LogicalType, other: LogicalType) -> LogicalType:
    """The type of a column of UNION ALL: a time attribute if it is the same on both sides."""
    left, right = (each.with_nullability(kind.is_nullable) for each in (one, other))
    return left if is_time_attribute(left) and left == right else kind


def _members(plan: lp.LogicalNode) -> tuple[lp.LogicalNode, ...]:
    return plan.members if isinstance(plan, lp.UnionNode) else (plan,)


def _hidden(plan: lp.LogicalNode) -> int:
    """How many columns are only there to sort by; their names begin with ``$sort``."""
    return sum(name.startswith("$sort") for name in plan.row.names)


def sort_key(column: int, item: Any) -> lp.SortKey:
    """A column to sort by; NULL is the smallest value, as in Flink."""
    nulls_first = item.nulls_first
    if nulls_first is None:
        nulls_first = not item.descending
    return lp.SortKey(column, item.descending, nulls_first)


def _constant(expression: Expression, kind: LogicalType) -> Expression:
    """A value of VALUES as one of the column's type."""
    if isinstance(expression, Literal):
        typed = typed_literal(expression, kind)
        if typed is not None:
            return typed
    return calls.coerced(expression, kind) or expression


def one_row() -> lp.ValuesNode:
    """One row, of which nothing is known: what SELECT without FROM reads."""
    return lp.ValuesNode(row=lp.row_of(["ZERO"], [IntType(nullable=False)]), rows=((0,),))


def cast_columns(plan: lp.LogicalNode, types: Sequence[LogicalType]) -> lp.LogicalNode:
    """The plan with its columns cast; itself if they have these types."""
    if [*plan.row.children] == [*types]:
        return plan
    expressions = tuple(
        calls.coerced(each, kind) or each
        for each, kind in zip(lp.references(plan.row), types, strict=True)
    )
    # A column that is never NULL may be one that can be in what reads it.
    return lp.project(plan, expressions, plan.row.names)


_QUERIES: Final[dict[type, Callable[[QueryBinder, Any], lp.LogicalNode]]] = {
    nodes.Select: QueryBinder._select,  # noqa: SLF001 - the table of this class
    nodes.WithQuery: QueryBinder._with,  # noqa: SLF001
    nodes.TableQuery: QueryBinder._table,  # noqa: SLF001
    InlinePlan: QueryBinder._inline,  # noqa: SLF001
    nodes.Values: QueryBinder._values,  # noqa: SLF001
    nodes.SetOperation: QueryBinder._set_operation,  # noqa: SLF001
    nodes.OrderedQuery: QueryBinder._ordered,  # noqa: SLF001
}
