"""Bind MATCH_RECOGNIZE: its clauses become a pattern, conditions and measures."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.expressions.nodes import Call, InputReference, Literal, walk
from millstream.runtime.operators.table.match import Aggregation, MatchTime, Navigation
from millstream.runtime.operators.table.row_patterns import PatternVariable, RowPattern, SkipTo
from millstream.sql.binder import calls
from millstream.sql.binder.calls import aggregate_type, plain_type
from millstream.sql.binder.expressions import ExpressionBinder, interval_literal
from millstream.sql.binder.queries import sort_key
from millstream.sql.binder.scope import NameProblem, Scope
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import MatchNode, row_of
from millstream.sql.suggestions import did_you_mean
from millstream.types.logical_types import DayTimeIntervalType, TimestampKind, TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.runtime.operators.table.match import Slot
    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.parser.nodes import Node
    from millstream.sql.planner.logical import LogicalNode, SortKey


_DEVIATIONS: Final = {"STDDEV_POP", "STDDEV_SAMP", "STDDEV", "VAR_POP", "VAR_SAMP", "VARIANCE"}
_NAVIGATION: Final = frozenset({"FIRST", "LAST", "PREV", "NEXT"})
_OF_MATCH: Final = frozenset({"CLASSIFIER", "MATCH_NUMBER"})
#: What the grammar of patterns calls: no function of a user hides it.
_BY_GRAMMAR: Final = _NAVIGATION | _OF_MATCH
_AGGREGATES: Final = frozenset(
    {"COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LISTAGG", *_DEVIATIONS}
)
#: The value of an expression without a variable: it is of all rows.
_ALL: Final = None
_MOST_ARGUMENTS: Final = 2


class Slots:
    """The values that conditions and measures read, each once."""

    def __init__(self, variables: Sequence[str], without_rows: Sequence[str] = ()) -> None:
        """Take the names that expressions can use.

        Args:
            variables: those of the pattern.
            without_rows: those that only DEFINE or SUBSET has.  No row is of them, as in Flink,
                which neither adds them to the pattern nor knows the rows of a SUBSET.
        """
        self.variables = [*variables, *without_rows]
        self._with_rows = len(variables)
        self.found: list[Slot] = []

    def has_rows(self, variable: int | None) -> bool:
        """Return whether a row can be of a variable; None: of any."""
        return variable is None or variable < self._with_rows

    def reference(self, slot: Slot, text: str) -> InputReference:
        """An expression for a slot; ``text`` is for plans."""
        if slot not in self.found:
            self.found.append(slot)
        return InputReference(self.found.index(slot), text, slot.type)


class MatchExpressions(ExpressionBinder):
    """Binds one expression of DEFINE or MEASURES."""

    def __init__(
        self, context: BindingContext, scope: Scope, slots: Slots, time: int, *, in_measures: bool
    ) -> None:
        """Take what it may read.

        Args:
            context: of the statement.
            scope: the columns of the input.
            slots: takes what it reads.
            time: the column of the time attribute.
            in_measures: whether it stands in MEASURES, not in DEFINE.
        """
        super().__init__(context, scope)
        self._slots = slots
        self._time = time
        self._in_measures = in_measures
        #: FIRST or LAST, and the offset.
        self._navigation = (False, 0)
        #: Whether a call around it chooses the row, and of which variables it has columns.
        self._around: str | None = None
        self._seen: set[int | None] = set()

    def bound(self, node: Node) -> Expression:
        """A measure.

        Raises:
            ValidationError: it makes no sense.
        """
        return self._checked(node, self.bind(node))

    def bound_condition(self, node: Node) -> Expression:
        """A condition of DEFINE.

        Raises:
            ValidationError: it makes no sense.
        """
        return self._checked(node, self.condition(node))

    def _checked(self, node: Node, found: Expression) -> Expression:
        inside: list[Expression] = [found]
        for slot in self._slots.found:
            if isinstance(slot, Aggregation):
                inside += slot.arguments
        for root in inside:
            if any(isinstance(each, Call) and each.definition is not None for each in walk(root)):
                message = "Python Function can not be used in MATCH_RECOGNIZE for now."
                raise self.context.error(node, message)
        return found

    def bind(self, node: Node) -> Expression:
        """The bound expression of a node, over slots."""
        if isinstance(node, nodes.Identifier):
            try:
                return self._column(node)
            except NameProblem as problem:
                raise self.context.error(node, str(problem)) from None
        if isinstance(node, nodes.MatchSemantics):
            if not node.final or not self._in_measures:
                message = "Only FINAL is supported, and only in MEASURES."
                raise self.context.error(node, message)
            return self.bind(node.operand)
        return super().bind(node)

    # -- columns ---------------------------------------------------------------------------------

    def _variable(self, names: Sequence[str]) -> tuple[int | None, Sequence[str]]:
        """The variable that a name begins with, and the rest of it."""
        if len(names) > 1 and names[0] in self._slots.variables:
            return self._slots.variables.index(names[0]), names[1:]
        return _ALL, names

    def _column(self, node: Any) -> Expression:
        variable, names = self._variable(node.names)
        try:
            found = self.scope.find(names)
        except NameProblem:
            if len(names) == 1 and variable is _ALL and names[0].upper() in calls.NILADIC:
                return self.niladic(node)
            if len(names) > 1:
                known = ", ".join(self._slots.variables)
                message = f"'{'.'.join(names)}' not found; the pattern variables are: {known}."
                raise NameProblem(message) from None
            raise
        column = found.expression
        if len(names) - len(found.rest) > 1:
            known = ", ".join(self._slots.variables)
            message = f"'{names[0]}' is no pattern variable; there are: {known}."
            raise NameProblem(message)
        if not isinstance(column, InputReference):
            message = f"'{'.'.join(names)}' is of the query around; it cannot stand here."
            raise NameProblem(message)
        expression: Any = self._reference(variable, column)
        for part in found.rest:
            expression = self._field(node, expression, part)
        return expression  # type: ignore[no-any-return]

    def _reference(self, variable: int | None, column: InputReference) -> Expression:
        self._seen.add(variable)
        kind = plain_type(column.type)
        if self._around == "aggregate":
            return InputReference(column.index, column.name, kind)
        first, offset = self._navigation
        # A variable may have no such row.
        nullable = kind.with_nullability(True)  # noqa: FBT003
        if not self._slots.has_rows(variable):
            return Literal(None, nullable)
        slot = Navigation(column.index, variable, first, offset, nullable)
        text = self._text(variable, column.name)
        if first or offset:
            text = f"{'FIRST' if first else 'LAST'}({text}, {offset})"
        return self._slots.reference(slot, text)

    def _text(self, variable: int | None, column: str) -> str:
        return column if variable is None else f"{self._slots.variables[variable]}.{column}"

    @contextmanager
    def _within(self, node: Any, around: str) -> Iterator[set[int | None]]:
        """Bind what stands in a call that chooses rows; gives the variables that it has."""
        if self._around is not None:
            name = node.name.last.upper()
            message = f"{name} cannot stand within FIRST, LAST, PREV or an aggregate."
            raise self.context.error(node, message)
        outside = self._seen
        self._around, self._seen = around, set()
        try:
            yield self._seen
        finally:
            outside |= self._seen
            self._around, self._seen = None, outside
            self._navigation = (False, 0)

    # -- calls -----------------------------------------------------------------------------------

    def special(self, node: nodes.FunctionCall) -> Expression | None:
        """FIRST, LAST, PREV, NEXT, and the times of a match."""
        name = node.name.last.upper()
        if len(node.name.parts) > 1:
            return super().special(node)
        if name in _NAVIGATION:
            return self._navigated(node, name)
        if name in _OF_MATCH:
            raise self.context.error(node, f"{name} is not supported yet.")
        if name in {"MATCH_ROWTIME", "MATCH_PROCTIME"}:
            if not self._in_measures or self._around is not None:
                raise self.context.error(node, f"{name} can stand only in MEASURES, by itself.")
            return self._match_time(node, name)
        return super().special(node)

    def _is_hidden(self, node: Any) -> bool:
        is_ours = node.name.last.upper() in _BY_GRAMMAR
        return not is_ours and super()._is_hidden(node)

    def _navigated(self, node: nodes.FunctionCall, name: str) -> Expression:
        plain = not (node.distinct or node.filter or node.over or node.order_by)
        if not plain or not 1 <= len(node.arguments) <= _MOST_ARGUMENTS:
            message = f"{name} takes an expression over one variable, and an offset."
            raise self.context.error(node, message)
        is_physical = name in {"PREV", "NEXT"}
        offset = 1 if is_physical else 0
        if len(node.arguments) == _MOST_ARGUMENTS:
            given = self.bind(node.arguments[1])
            if not isinstance(given, Literal) or not isinstance(given.value, int):
                message = f"The offset of {name} must be a whole number."
                raise self.context.error(node.arguments[1], message)
            offset = given.value
        if is_physical and self._in_measures:
            raise self.context.error(node, f"Cannot use PREV/NEXT in MEASURE '{name}'")
        if is_physical and offset:
            message = "Physical offsets within a partition (PREV, NEXT) are not supported."
            raise self.context.error(node, message)
        if offset < 0:
            raise self.context.error(node, f"The offset of {name} must not be negative.")
        with self._within(node, "navigation") as seen:
            self._navigation = (name == "FIRST", offset)
            found = self.bind(node.arguments[0])
            self._one_variable(node, name, seen)
        return found

    def _one_variable(self, node: Node, name: str, seen: set[int | None]) -> int | None:
        if len(seen) > 1:
            message = f"{name} must be applied to a single pattern variable."
            raise self.context.error(node, message)
        if not seen:
            raise self.context.error(node, f"No pattern variable specified in {name}.")
        return next(iter(seen))

    def _match_time(self, node: nodes.FunctionCall, name: str) -> Expression:
        if name == "MATCH_PROCTIME":
            if node.arguments:
                raise self.context.error(node, "MATCH_PROCTIME takes no arguments.")
            return self.call(node, "PROCTIME")
        attribute: Any = self.scope.reference(self._time).type
        if attribute.kind is not TimestampKind.ROWTIME:
            message = "MATCH_ROWTIME needs an ORDER BY of event time; here it is processing time."
            raise self.context.error(node, message)
        if not node.arguments:
            # Also over a TIMESTAMP_LTZ, whose milliseconds are read in UTC, as in Flink.
            kind = TimestampType(3, kind=TimestampKind.ROWTIME, nullable=False)
            return self._slots.reference(MatchTime(kind), "MATCH_ROWTIME()")
        given = node.arguments[0]
        found: Any = None
        if isinstance(given, nodes.Identifier):
            try:
                found = self.scope.find(self._variable(given.names)[1]).expression
            except NameProblem as problem:
                raise self.context.error(given, str(problem)) from None
        if len(node.arguments) > 1 or getattr(found, "index", None) != self._time:
            message = "MATCH_ROWTIME takes the time attribute of ORDER BY."
            raise self.context.error(node, message)
        return self._slots.reference(MatchTime(attribute), f"MATCH_ROWTIME({found.name})")

    def aggregate(self, node: nodes.FunctionCall) -> Expression:
        """An aggregate over the rows of one variable.

        Raises:
            ValidationError: it is over several, or has clauses that it cannot have here.
        """
        name = node.name.last.upper()
        if calls.aggregate_of(self.context, node) is not None:
            message = f"{name} is an aggregate function of yours: MATCH_RECOGNIZE takes none."
            raise self.context.error(node, message)
        if node.distinct:
            message = "DISTINCT aggregations are not supported in MATCH_RECOGNIZE."
            raise self.context.error(node, message)
        if name not in _AGGREGATES or node.filter or node.order_by or node.within_group:
            message = (
                f"Aggregates of MATCH_RECOGNIZE are {', '.join(sorted(_AGGREGATES))} of an "
                "expression, without FILTER and ORDER BY."
            )
            raise self.context.error(node, message)
        with self._within(node, "aggregate") as seen:
            arguments = self._arguments(node, seen)
            variable = self._one_variable(node, "Aggregation", seen)
        try:
            types = [each.type for each in arguments]
            function, kind = aggregate_type(name, types, grouped=False, filtered=False)
        except ProgramError as error:
            raise self.context.error(node, str(error)) from error
        if not self._slots.has_rows(variable):
            return Literal(0 if name == "COUNT" else None, kind)
        inside = ", ".join(map(str, arguments)) or "*"
        if variable is not None:
            inside = f"{self._slots.variables[variable]}.{inside}"
        slot = Aggregation(function, tuple(arguments), variable, kind)
        return self._slots.reference(slot, f"{name}({inside})")

    def _arguments(self, node: nodes.FunctionCall, seen: set[int | None]) -> list[Expression]:
        name = node.name.last.upper()
        if len(node.arguments) != 1:
            raise self.context.error(node, f"{name} takes one argument.")
        argument = node.arguments[0]
        if not isinstance(argument, nodes.Star):
            return [self.bind(argument)]
        if name != "COUNT":
            raise self.context.error(node, f"Only COUNT takes *; {name} does not.")
        seen.add(_ALL)
        return []


_SKIPS: Final = {
    nodes.SkipKind.PAST_LAST_ROW: SkipTo.PAST_LAST_ROW,
    nodes.SkipKind.TO_NEXT_ROW: SkipTo.NEXT_ROW,
    nodes.SkipKind.TO_FIRST: SkipTo.FIRST,
    nodes.SkipKind.TO_LAST: SkipTo.LAST,
}
_PARTS: Final = {
    nodes.PatternAlternatives: "Alternatives (|) in PATTERN are not supported.",
    nodes.PatternPermutation: "PERMUTE in PATTERN is not supported.",
    nodes.PatternExclusion: "Exclusions ({- -}) in PATTERN are not supported.",
}


def match_recognize(queries: QueryBinder, node: Any) -> tuple[LogicalNode, Scope]:
    """The plan of ``relation MATCH_RECOGNIZE (...)``, and the names over its result.

    Raises:
        ValidationError: a clause makes no sense, or is one that Flink does not support.
    """
    return _MatchBinder(queries, node).bind()


class _MatchBinder:
    def __init__(self, queries: QueryBinder, node: Any) -> None:
        self.context = queries.context
        self._node = node
        self._below, self._scope = queries.relation(node.relation)

    def bind(self) -> tuple[LogicalNode, Scope]:
        node = self._node
        self._check_clauses()
        partition = tuple(self._column(each).index for each in node.partition_by)
        order = self._order()
        variables = self._variables()
        names = [each.name for each in variables]
        defined = self._without_rows(names)
        slots = Slots(names, defined)
        conditions = self._conditions(names, slots, order[0].column)
        subsets = self._subsets([*names, *defined])
        slots.variables += subsets
        measures: list[Expression] = []
        for measure in node.measures:
            binder = self._expressions(slots, order[0].column, in_measures=True)
            measures.append(binder.bound(measure.expression))
        shown = [self._below.row.names[index] for index in partition]
        shown += [measure.name.value for measure in node.measures]
        twice = sorted({name for name in shown if shown.count(name) > 1})
        if twice:
            message = f"Columns ambiguously defined: {{{', '.join(twice)}}}"
            raise self.context.error(node, message)
        types = [plain_type(self._below.row.children[index]) for index in partition]
        row = row_of(shown, [*types, *(each.type for each in measures)])
        plan = MatchNode(
            row=row,
            input=self._below,
            partition=partition,
            order=order,
            pattern=self._pattern(variables),
            conditions=conditions,
            measures=tuple(measures),
            slots=tuple(slots.found),
        )
        return plan, Scope.of(row)

    def _check_clauses(self) -> None:
        node = self._node
        refused = (
            (node.all_rows, "All rows per match mode is not supported yet."),
            (not node.measures, "MATCH_RECOGNIZE without MEASURES is not supported."),
        )
        for is_there, message in refused:
            if is_there:
                raise self.context.error(node, message)

    # -- rows ------------------------------------------------------------------------------------

    def _column(self, node: Any) -> InputReference:
        found: Any = None
        if isinstance(node, nodes.Identifier):
            try:
                found = self._scope.find(node.names)
            except NameProblem as problem:
                raise self.context.error(node, str(problem)) from None
        if found is None or found.rest or not isinstance(found.expression, InputReference):
            message = "PARTITION BY and ORDER BY of MATCH_RECOGNIZE take columns."
            raise self.context.error(node, message)
        return found.expression

    def _order(self) -> tuple[SortKey, ...]:
        items = self._node.order_by
        if not items:
            message = "You must specify either rowtime or proctime for order by."
            raise self.context.error(self._node, message)
        columns = [self._column(item.expression) for item in items]
        attribute = getattr(columns[0].type, "kind", TimestampKind.REGULAR)
        if attribute is TimestampKind.REGULAR:
            message = "You must specify either rowtime or proctime for order by as the first one."
            raise self.context.error(items[0], message)
        if items[0].descending:
            message = "Primary sort order of a streaming table must be ascending on time."
            raise self.context.error(items[0], message)
        if attribute is TimestampKind.PROCTIME and len(items) > 1:
            message = "Columns after a processing time in ORDER BY are not in this release."
            raise self.context.error(items[1], message)
        pairs = zip(columns, items, strict=True)
        return tuple(sort_key(column.index, item) for column, item in pairs)

    def _without_rows(self, names: list[str]) -> list[str]:
        """The variables that DEFINE has beside those of the pattern."""
        found: list[str] = []
        known: set[str] = set()
        for each in self._node.definitions:
            name = each.variable.value
            if name in known:
                message = f"Pattern variable '{name}' has already been defined"
                raise self.context.error(each, message)
            known.add(name)
            if name not in names:
                found.append(name)
        return found

    def _subsets(self, names: list[str]) -> list[str]:
        """The names of SUBSET, which measures can use."""
        found: list[str] = []
        for each in self._node.subsets:
            name = each.name.value
            if name in {*names, *found}:
                message = f"Pattern variable '{name}' has already been defined"
                raise self.context.error(each, message)
            for variable in each.variables:
                if variable.value not in names:
                    hint = did_you_mean(variable.value, names)
                    message = f"Pattern variable '{variable.value}' is not in PATTERN.{hint}"
                    raise self.context.error(variable, message)
            found.append(name)
        return found

    # -- the pattern -----------------------------------------------------------------------------

    def _variables(self) -> tuple[PatternVariable, ...]:
        found = list(self._parts(self._node.pattern))
        for number, (part, variable) in enumerate(found):
            if any(variable.name == other.name for _, other in found[:number]):
                message = "Pattern variables must be unique. That might change in the future."
                raise self.context.error(part, message)
        if not any(each.minimum for _, each in found):
            message = (
                "Patterns that can produce empty matches are not supported. There must be at least "
                "one non-optional state."
            )
            raise self.context.error(self._node.pattern, message)
        for (part, variable), (_, before) in zip(found[1:], found, strict=False):
            if before.greedy and (variable.minimum, variable.maximum) in {(0, 1), (0, None)}:
                message = "Optional pattern cannot be preceded by greedy pattern"
                raise self.context.error(part, message)
        part, last = found[-1]
        if last.greedy:
            message = (
                "Greedy quantifiers are not allowed as the last element of a Pattern yet. "
                "Finish your pattern with either a simple variable or reluctant quantifier."
            )
            raise self.context.error(part, message)
        return tuple(variable for _, variable in found)

    def _parts(self, node: Any) -> Iterator[tuple[Node, PatternVariable]]:
        """The variables of a pattern, one behind the other."""
        message = _PARTS.get(type(node))
        if message is not None:
            raise self.context.error(node, message)
        if isinstance(node, nodes.PatternVariable):
            yield node, PatternVariable(node.name.value)
        elif isinstance(node, nodes.PatternSequence):
            for part in node.parts:
                yield from self._parts(part)
        else:
            yield node, self._quantified(node)

    def _quantified(self, node: Any) -> PatternVariable:
        if not isinstance(node.pattern, nodes.PatternVariable):
            for _ in self._parts(node.pattern):
                pass  # what it has within may be refused by a name of its own
            message = "A quantifier of a group: group patterns are not supported yet."
            raise self.context.error(node, message)
        low, high = node.minimum, node.maximum
        if high == 0:
            message = "A quantifier must allow at least one row."
            raise self.context.error(node, message)
        is_optional = (low, high) == (0, 1)
        if is_optional and node.reluctant:
            message = "Reluctant optional variables are not supported yet."
            raise self.context.error(node, message)
        greedy = not node.reluctant and not is_optional and low != high
        return PatternVariable(node.pattern.name.value, low, high, greedy)

    def _pattern(self, variables: tuple[PatternVariable, ...]) -> RowPattern:
        after = self._node.after_match
        skip, target = SkipTo.NEXT_ROW, None
        if after is not None:
            skip = _SKIPS[after.kind]
            if after.variable is not None:
                known = [each.name for each in variables]
                name = after.variable.value
                if name not in known:
                    hint = did_you_mean(name, known)
                    message = f"Pattern variable '{name}' is not in PATTERN.{hint}"
                    raise self.context.error(after, message)
                target = known.index(name)
        return RowPattern(variables, skip, target, self._within())

    def _within(self) -> int | None:
        if self._node.within is None:
            return None
        interval = interval_literal(self._node.within)
        value = interval.value
        if not isinstance(interval.type, DayTimeIntervalType) or not isinstance(value, int):
            message = (
                "Only constant intervals with millisecond resolution are supported as time "
                "constraints of patterns."
            )
            raise self.context.error(self._node.within, message)
        if value <= 0:
            raise self.context.error(self._node.within, "WITHIN takes a positive interval.")
        return value

    # -- expressions -----------------------------------------------------------------------------

    def _expressions(self, slots: Slots, time: int, *, in_measures: bool) -> MatchExpressions:
        return MatchExpressions(self.context, self._scope, slots, time, in_measures=in_measures)

    def _conditions(
        self, names: list[str], slots: Slots, time: int
    ) -> tuple[Expression | None, ...]:
        found: dict[str, Expression] = {}
        for each in self._node.definitions:
            name = each.variable.value
            binder = self._expressions(slots, time, in_measures=False)
            found[name] = binder.bound_condition(each.condition)
        return tuple(found.get(name) for name in names)
