"""Bind GROUP BY: keys, aggregates, grouping sets and group windows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.expressions.nodes import Call, InputReference, transform, walk
from millstream.expressions.resolution import json_string
from millstream.expressions.user_functions import user_aggregate
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.sql.binder import calls
from millstream.sql.binder.calls import (
    InlineCall,
    Inputs,
    Placeholder,
    aggregate_arguments,
    aggregate_type,
    plain_type,
)
from millstream.sql.binder.expressions import ExpressionBinder, user_aggregate_arguments
from millstream.sql.binder.scope import OuterReference, walk_nodes
from millstream.sql.binder.subqueries import beside, from_inside
from millstream.sql.binder.table_functions import WINDOWS, length, window_node
from millstream.sql.parser import nodes
from millstream.sql.planner import logical as lp
from millstream.types import logical_types as lt
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.overs import OverCalls
    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.binder.subqueries import SubqueryValue
    from millstream.sql.parser.nodes import Node
    from millstream.sql.planner.window_columns import WindowColumns


_KINDS: Final = frozenset({"TUMBLE", "HOP", "SESSION"})
#: What a window has, by the end of the name of its function; the number of its column.
_PROPERTIES: Final = {"START": 0, "END": 1, "ROWTIME": 2, "PROCTIME": 2}


@dataclass(frozen=True)
class GroupWindow:
    """The window by which rows are grouped."""

    kind: str
    #: The column of the time, and the lengths in milliseconds: what TUMBLE_START must repeat.
    time: InputReference
    lengths: tuple[int, ...]
    #: The columns of the rows that are start, end and time of their window.
    columns: tuple[InputReference, ...]
    #: Keys that are computed ahead of the window, and the columns that they are.
    computed: tuple[tuple[Expression, InputReference], ...] = ()

    def column_of(self, key: Expression) -> Expression:
        """A key as a column, if it is computed ahead of the window."""
        return next((column for each, column in self.computed if each == key), key)

    @property
    def is_by_clock(self) -> bool:
        """Whether it goes by processing time."""
        return _kind_of(self.time) is lt.TimestampKind.PROCTIME


def is_group_window(node: Node) -> bool:
    """Return whether it is TUMBLE, HOP or SESSION of a time."""
    return _name(node) in _KINDS


def window_property(node: Node) -> str | None:
    """START, END, ROWTIME or PROCTIME, if it is the function for that of a window."""
    kind, _, what = _name(node).partition("_")
    return what if kind in _KINDS and what in _PROPERTIES else None


def _name(node: Any) -> str:
    if isinstance(node, nodes.FunctionCall) and len(node.name.parts) == 1 and node.over is None:
        return str(node.name.last.upper())
    return ""


def group_window(
    binder: ExpressionBinder, plan: lp.LogicalNode, group_by: Sequence[Node]
) -> tuple[lp.LogicalNode, GroupWindow] | None:
    """The rows with the columns of their windows behind theirs; None if no window groups them.

    Args:
        binder: of expressions over the rows.
        plan: of the rows.
        group_by: the elements of GROUP BY.

    Raises:
        ValidationError: there are several windows, or an argument is wrong.
    """
    parts = [each for element in group_by for each in walk_nodes(element)]
    calls = [each for each in parts if is_group_window(each)]
    if not calls:
        return None
    described = [_described(binder, each) for each in calls]
    if any(each != described[0] for each in described):
        message = "Only a single window group function may be used in GROUP BY"
        raise binder.context.error(calls[1], message)
    kind, time, lengths = described[0]
    partition: tuple[int, ...] = ()
    computed: list[tuple[Expression, InputReference]] = []
    if kind == "SESSION":
        plan, partition, computed = _partitioned(binder, plan, group_by)
    step, size = lengths if kind == "HOP" else (None, lengths[0])
    names = lp.unique_names([*plan.row.names, "window_start", "window_end", "window_time"])
    made = window_node(plan, kind, time.index, size, step, 0, partition, names)
    columns = tuple(lp.references(made.row)[-3:])
    return made, GroupWindow(kind, time, lengths, columns, tuple(computed))


def _partitioned(
    binder: ExpressionBinder, plan: lp.LogicalNode, group_by: Sequence[Node]
) -> tuple[lp.LogicalNode, tuple[int, ...], list[tuple[Expression, InputReference]]]:
    """The rows with the keys of sessions as columns, and which they are."""
    keys: list[Expression] = []
    for element in group_by:
        if isinstance(element, nodes.GroupingSets | nodes.GroupingSet):
            message = "GROUPING SETS with SESSION are not in this release; use one query per set."
            raise binder.context.error(element, message)
        parts = element.fields if isinstance(element, nodes.RowConstructor) else (element,)
        keys += [binder.bind(each) for each in parts if not is_group_window(each)]
    columns: list[Expression] = list(lp.references(plan.row))
    names = list(plan.row.names)
    computed: list[tuple[Expression, InputReference]] = []
    for each in keys:
        if each not in columns:
            column = InputReference(len(columns), f"$f{len(columns)}", each.type)
            computed.append((each, column))
            columns.append(each)
            names.append(column.name)
    if computed:
        plan = lp.project(plan, columns, names)
    return plan, tuple(dict.fromkeys(columns.index(each) for each in keys)), computed


def _described(binder: ExpressionBinder, call: Any) -> tuple[str, InputReference, tuple[int, ...]]:
    """Which window it is, on which column, and its lengths."""
    kind = _name(call).partition("_")[0]
    words = [each.lower() for each in WINDOWS[kind] if each.isupper() and each != "DATA"][1:]
    if len(call.arguments) == len(words) + 2:
        message = f"{kind} window with alignment is not supported yet."
        raise binder.context.error(call.arguments[-1], message)
    if len(call.arguments) != len(words) + 1:
        message = f"{_name(call)} of GROUP BY takes a time attribute, {' and '.join(words)}."
        raise binder.context.error(call, message)
    time = binder.bind(call.arguments[0])
    if not isinstance(time, InputReference) or _kind_of(time) is lt.TimestampKind.REGULAR:
        shown = time.type.as_summary_string()
        message = (
            "Window aggregate can only be defined over a time attribute column, but "
            f"{shown} encountered."
        )
        raise binder.context.error(call.arguments[0], message)
    pairs = zip(words, call.arguments[1:], strict=True)
    return kind, time, tuple(length(binder, kind, word, each) for word, each in pairs)


def _kind_of(time: InputReference) -> lt.TimestampKind:
    found: lt.TimestampKind = getattr(time.type, "kind", lt.TimestampKind.REGULAR)
    return found


def property_column(
    binder: ExpressionBinder, window: GroupWindow | None, call: Any
) -> InputReference:
    """The column that TUMBLE_START or its like is.

    Raises:
        ValidationError: GROUP BY has not this window, or the window has it not.
    """
    name = _name(call)
    kind, _, what = name.partition("_")
    if window is None or _described(binder, call) != (window.kind, window.time, window.lengths):
        message = (
            f"Call to auxiliary group function '{name}' must have matching call to group function "
            f"'{kind}' in GROUP BY clause"
        )
        raise binder.context.error(call, message)
    if what in {"ROWTIME", "PROCTIME"} and (what == "PROCTIME") != window.is_by_clock:
        there = "proctime" if window.is_by_clock else "rowtime"
        message = f"A {there} window cannot provide a {what.lower()} attribute."
        raise binder.context.error(call, message)
    return window.columns[_PROPERTIES[what]]


_GROUPING = frozenset({"GROUPING", "GROUPING_ID", "GROUP_ID"})


def has_aggregate(context: BindingContext, node: Node) -> bool:
    """Return whether an aggregate that is no OVER call stands in an expression."""
    inner: list[Node] = [node]
    while inner:
        each = inner.pop()
        if isinstance(each, nodes.FunctionCall):
            name = each.name.last.upper()
            built_in = len(each.name.parts) == 1 and calls.is_aggregate(name)
            is_hidden = calls.user_function(context, each) is not None
            if each.over is None and not is_hidden and (built_in or name in _GROUPING):
                return True
        if (
            isinstance(each, nodes.FunctionCall | InlineCall)
            and each.over is None
            and calls.aggregate_of(context, each) is not None
        ):
            return True
        if isinstance(each, nodes.JsonObject | nodes.JsonArray) and each.aggregate:
            return True
        if not isinstance(each, nodes.Query):
            from millstream.sql.binder.scope import children

            inner += children(each)
    return False


#: The length in the type of aggregates of JSON.
_JSON_LENGTH: Final = 2000


class GroupBinder(ExpressionBinder):
    """Binds expressions over groups."""

    def __init__(
        self,
        base: ExpressionBinder,
        group_by: Sequence[Any],
        overs: OverCalls,
        value: Callable[[ExpressionBinder, Node], SubqueryValue],
        windows: WindowColumns | None = None,
        window: GroupWindow | None = None,
    ) -> None:
        """Bind the keys.

        Args:
            base: binds expressions over the rows below.
            group_by: the elements of the clause.
            overs: takes OVER calls, which are computed on the groups.
            value: binds sub-queries as values, which are joined to the groups.
            windows: the columns below that say in which window a row is; None: in none.
            window: the one of GROUP BY, if that has one.
        """
        super().__init__(base.context, base.scope)
        self._base = base
        self._overs = overs
        self._value = value
        self._values: list[tuple[Node, Expression]] = []
        #: Plans that are joined to the groups, and by what.
        self._joins: list[tuple[lp.LogicalNode, Expression | None]] = []
        self._window = window
        self._inputs = Inputs()
        self._keys: list[Expression] = []
        self._calls: list[AggregateCall] = []
        self._groupings: list[tuple[int, ...]] = []
        sets = [self._sets_of(element) for element in group_by]
        self._sets = self._combined(sets) if self._has_sets(group_by) else None
        self._window_times = self._kept_times(windows)
        self._positions = [
            self._inputs.add(key, _key_name(key, number)) for number, key in enumerate(self._keys)
        ]

    # -- keys ------------------------------------------------------------------------------------

    @staticmethod
    def _has_sets(group_by: Sequence[Any]) -> bool:
        return any(isinstance(each, nodes.GroupingSets) for each in group_by)

    def _sets_of(self, element: Any) -> list[tuple[int, ...]]:
        """The sets of keys that an element of GROUP BY stands for."""
        if isinstance(element, nodes.GroupingSet):
            return [self._keys_of(element.keys)]
        if not isinstance(element, nodes.GroupingSets):
            if isinstance(element, nodes.RowConstructor):
                return [self._keys_of(element.fields)]
            return [self._keys_of([element])]
        parts = [self._sets_of(each) for each in element.elements]
        if element.kind is nodes.GroupingKind.SETS:
            return [each for part in parts for each in part]
        flat = [part[0] for part in parts]
        if element.kind is nodes.GroupingKind.ROLLUP:
            return [sum(flat[:length], ()) for length in range(len(flat), -1, -1)]
        return [
            sum((part for part, taken in zip(flat, mask, strict=True) if taken), ())
            for mask in itertools.product((True, False), repeat=len(flat))
        ]

    def _combined(self, sets: Sequence[list[tuple[int, ...]]]) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(dict.fromkeys(sum(combination, ()))) for combination in itertools.product(*sets)
        )

    def _keys_of(self, given: Sequence[Node]) -> tuple[int, ...]:
        found: list[int] = []
        for node in given:
            if self._window is not None and is_group_window(node):
                found += [self._place(each) for each in self._window.columns[:2]]
                continue
            if has_aggregate(self.context, node):
                raise self.context.error(node, "A key of GROUP BY cannot have an aggregate.")
            found.append(self._place(self._base.bind(node)))
        return tuple(found)

    def _place(self, key: Expression) -> int:
        key = key if self._window is None else self._window.column_of(key)
        if key not in self._keys:
            self._keys.append(key)
        return self._keys.index(key)

    def _property(self, node: nodes.FunctionCall) -> Expression:
        """A column of the window of GROUP BY, which its time becomes a key for."""
        column = property_column(self._base, self._window, node)
        if column not in self._keys:
            index = self._place(column)
            self._positions.append(self._inputs.add(column, column.name))
            self._window_times |= {index}
            if self._sets is not None:
                self._sets = tuple((*each, index) for each in self._sets)
        return self._over_keys(column)

    def _kept_times(self, windows: WindowColumns | None) -> frozenset[int]:
        """The keys that are times of windows, if groups are windows: they go on as times."""
        columns = {
            each.index: number
            for number, each in enumerate(self._keys)
            if isinstance(each, InputReference) and all(number in part for part in self._sets or ())
        }
        there = set(columns)
        if windows is None or not windows.starts & there or not windows.ends & there:
            return frozenset()
        return frozenset(columns[each] for each in windows.times & there)

    def _key_type(self, index: int) -> lt.LogicalType:
        kind = self._keys[index].type
        if index not in self._window_times:
            kind = plain_type(kind)
        if self._sets is not None and any(index not in each for each in self._sets):
            return kind.with_nullability(True)  # noqa: FBT003
        return kind

    # -- expressions -----------------------------------------------------------------------------

    def bind(self, node: Node) -> Expression:
        if isinstance(node, nodes.Literal) or self._is_over(node) or self._has_aggregate(node):
            return super().bind(node)
        for each in walk_nodes(node):
            is_over = isinstance(each, nodes.FunctionCall | InlineCall) and each.over is not None
            is_of_window = window_property(each) is not None
            if is_over or is_of_window or _is_subquery(each):
                return super().bind(node)
        bound = self._over_keys(self._base.bind(node))
        if not any(isinstance(each, InputReference) for each in walk(bound)):
            return bound
        if isinstance(node, nodes.Identifier):
            raise self._not_grouped(node, ".".join(node.names))
        return super().bind(node)

    def column(self, node: Node, reference: InputReference) -> Expression:
        """A column of ``*``, which must be a key."""
        found = self._over_keys(reference)
        if isinstance(found, InputReference):
            raise self._not_grouped(node, reference.name)
        return found

    def _not_grouped(self, node: Node, name: str) -> Exception:
        keys = ", ".join(str(key) for key in self._keys)
        there = f"the keys are {keys}" if keys else "there are no keys"
        message = (
            f"Column '{name}' is not in GROUP BY ({there}); put it there, or into an aggregate."
        )
        return self.context.error(node, message)

    def _is_over(self, node: Node) -> bool:
        return isinstance(node, nodes.FunctionCall | InlineCall) and node.over is not None

    def _has_aggregate(self, node: Node) -> bool:
        return has_aggregate(self.context, node)

    def _over_keys(self, expression: Expression) -> Expression:
        if self._window is not None:
            expression = self._window.column_of(expression)
        if expression in self._keys:
            index = self._keys.index(expression)
            return Placeholder("key", index, self._key_type(index))  # type: ignore[return-value]
        if isinstance(expression, Call):
            arguments = tuple(self._over_keys(each) for each in expression.arguments)
            return replace(expression, arguments=arguments)
        return expression

    def over(self, node: nodes.FunctionCall) -> Expression:
        return self._overs.add(self, node)

    def subquery(self, node: Node) -> Expression:
        for known, found in self._values:
            if known is node:
                return found
        value = self._value(self, node)
        before = sum(len(inner.row) for inner, _ in self._joins)

        def change(each: Any) -> Any:
            if isinstance(each, Placeholder) and each.kind == "inner":
                return Placeholder("joined", before + each.index, each.type)
            if not isinstance(each, OuterReference):
                return each
            column = from_inside(each)
            if isinstance(column, OuterReference):
                return column
            key = self._over_keys(column)
            if isinstance(key, InputReference):
                raise self._not_grouped(node, column.name)
            return key

        for inner, condition in value.joins:
            on = None if condition is None else transform(condition, change)
            self._joins.append((inner, on))
        found = transform(value.value, change)
        self._values.append((node, found))
        return found

    def special(self, node: nodes.FunctionCall) -> Expression | None:
        name = node.name.last.upper()
        if name in _GROUPING and len(node.name.parts) == 1 and node.over is None:
            return self._grouping(node, name)
        if window_property(node) is not None:
            return self._property(node)
        return super().special(node)

    def _grouping(self, node: Any, name: str) -> Expression:
        if name == "GROUP_ID":
            if node.arguments:
                raise self.context.error(node, "GROUP_ID takes no arguments.")
            return self._grouping_of(lp.GROUP_ID)
        keys = []
        for argument in node.arguments:
            bound = self._base.bind(argument)
            if bound not in self._keys:
                raise self.context.error(argument, f"{name} takes keys of GROUP BY.")
            keys.append(self._keys.index(bound))
        return self._grouping_of(tuple(keys))

    def _grouping_of(self, wanted: tuple[int, ...]) -> Expression:
        if wanted not in self._groupings:
            self._groupings.append(wanted)
        index = self._groupings.index(wanted)
        return Placeholder("grouping", index, lt.BigIntType(nullable=False))  # type: ignore[return-value]

    def aggregate(self, node: nodes.FunctionCall) -> Expression:
        definition = calls.aggregate_of(self.context, node)
        if definition is not None:
            call = user_aggregate_call(self._base, self._inputs, node, definition)
            return self._placeholder(call)
        if node.order_by or node.within_group:
            message = f"ORDER BY in {node.name.last.upper()} is not in this release."
            raise self.context.error(node, message)
        call = aggregate_call(
            self._base, self._inputs, node, grouped=bool(self._keys) and self._sets is None
        )
        return self._placeholder(call)

    def json_aggregate(self, node: Any) -> Expression:
        if isinstance(node, nodes.JsonArray):
            if node.order_by:
                message = "ORDER BY in JSON_ARRAYAGG is not in this release."
                raise self.context.error(node, message)
            name, default, given = "JSON_ARRAYAGG", True, [node.elements[0]]
        else:
            name, default, given = "JSON_OBJECTAGG", False, list(node.entries[0])
        *keys, value = [self._base.bind(each) for each in given]
        for key in keys:
            if not key.type.is_a(TypeFamily.CHARACTER_STRING):
                shown = key.type.as_summary_string()
                message = f"{name} takes a text as its key, not {shown}."
                raise self.context.error(node, message)
        absent = default if node.absent_on_null is None else node.absent_on_null
        columns = [*keys, json_string(value)]
        call = AggregateCall(
            f"{name}_{'ABSENT' if absent else 'NULL'}_ON_NULL",
            tuple(self._inputs.add(each) for each in columns),
            # As in Flink; longer values are not cut.
            lt.VarCharType(_JSON_LENGTH, nullable=False),
            None,
            False,  # noqa: FBT003 - not DISTINCT
        )
        return self._placeholder(call)

    def _placeholder(self, call: AggregateCall) -> Expression:
        if call not in self._calls:
            self._calls.append(call)
        index = self._calls.index(call)
        return Placeholder("call", index, call.type)  # type: ignore[return-value]

    # -- plan ------------------------------------------------------------------------------------

    def plan(self, below: lp.LogicalNode, state_ttl: int | None) -> lp.LogicalNode:
        """The aggregation over a plan; ``state_ttl`` in milliseconds, None: as the option says."""
        inputs = self._inputs
        if not inputs.expressions:  # COUNT(*) of all: a stream has at least one column
            first = below.row.fields[0]
            inputs.add(InputReference(0, first.name, first.type))
        projected = lp.project(below, inputs.expressions, inputs.names)
        names = [projected.row.fields[position].name for position in self._positions]
        names += [f"EXPR${number}" for number in range(len(self._calls))]
        names += [f"GROUPING${number}" for number in range(len(self._groupings))]
        types = [self._key_type(index) for index in range(len(self._keys))]
        types += [call.type for call in self._calls]
        types += [lt.BigIntType(nullable=False)] * len(self._groupings)
        self._output = lp.row_of(names, types)
        made: lp.LogicalNode = lp.AggregateNode(
            row=self._output,
            input=projected,
            keys=tuple(self._positions),
            calls=tuple(self._calls),
            sets=self._sets,
            groupings=tuple(self._groupings),
            state_ttl=state_ttl,
        )
        for inner, condition in self._joins:
            joined = beside(made, inner)
            self._output = joined.row
            on = None if condition is None else self.resolved(condition)
            made = beside(made, inner, on)
        return made

    def resolved(self, expression: Expression) -> Expression:
        """An expression over the groups, with positions instead of placeholders."""
        before = {
            "key": 0,
            "call": len(self._keys),
            "grouping": len(self._keys) + len(self._calls),
            "joined": len(self._keys) + len(self._calls) + len(self._groupings),
        }

        def change(each: Any) -> Any:
            if isinstance(each, Placeholder) and each.kind in before:
                index = before[each.kind] + each.index
                return InputReference(index, self._output.fields[index].name, each.type)
            return each

        return transform(expression, change)


def _is_subquery(node: Node) -> bool:
    if isinstance(node, nodes.QuantifiedComparison):
        return not isinstance(node.right, tuple)
    return isinstance(node, nodes.ScalarQuery | nodes.InQuery | nodes.Exists)


def _key_name(key: Expression, number: int) -> str:
    return key.name if isinstance(key, InputReference) else f"$f{number}"


def aggregate_call(
    base: ExpressionBinder, inputs: Inputs, node: nodes.FunctionCall, *, grouped: bool
) -> AggregateCall:
    """A call of an aggregate whose arguments are columns of ``inputs``.

    Raises:
        ValidationError: it does not take these arguments.
    """
    name = node.name.last.upper()
    arguments = [each for each in node.arguments if not isinstance(each, nodes.Star)]
    if node.distinct and name == "COUNT" and len(arguments) > 1:
        message = "COUNT(DISTINCT ...) takes one argument; count a ROW of the columns."
        raise base.context.error(node, message)
    if name != "COUNT" and (not arguments or len(arguments) < len(node.arguments)):
        raise base.context.error(node, f"{name} needs an argument.")
    if name == "COUNT" and not node.arguments:
        raise base.context.error(node, "COUNT needs an argument: a column or *.")
    if node.distinct and not arguments:
        raise base.context.error(node, "DISTINCT of * is not possible: name the columns.")
    bound = [base.bind(each) for each in arguments]
    condition = None if node.filter is None else base.condition(node.filter)
    try:
        function, kind = aggregate_type(
            name, [each.type for each in bound], grouped=grouped, filtered=condition is not None
        )
    except ProgramError as error:
        raise base.context.error(node, str(error)) from error
    wanted = aggregate_arguments(name, [each.type for each in bound])
    if function == "PERCENTILE":
        bound = [
            calls.coerced(each, kind) or each for each, kind in zip(bound, wanted, strict=True)
        ]
    distinct = node.distinct and function not in {"MIN", "MAX"}
    if function == "APPROX_COUNT_DISTINCT":
        function, distinct = "COUNT", True
    return AggregateCall(
        function,
        tuple(inputs.add(each) for each in bound),
        kind,
        None if condition is None else inputs.add(condition),
        distinct,
    )


def user_aggregate_call(
    base: ExpressionBinder, inputs: Inputs, node: Any, definition: FunctionDefinition
) -> AggregateCall:
    """A call of a user's aggregate function.

    Raises:
        ValidationError: it does not take these arguments, or gives rows.
    """
    call = user_aggregate_arguments(base, node, definition)
    given = getattr(node, "filter", None)
    condition = None if given is None else base.condition(given)
    return AggregateCall(
        calls.user_name(definition),
        tuple(inputs.add(each) for each in call.arguments),
        call.type,
        None if condition is None else inputs.add(condition),
        node.distinct,
        user=user_aggregate(definition),
    )
