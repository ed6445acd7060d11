"""The binder of MATCH_RECOGNIZE: from its clauses to a pattern, conditions and measures.

What it is: the part that is about rows: PARTITION BY, ORDER BY, PATTERN, AFTER MATCH, WITHIN.  What
Flink refuses is refused, in words of the same meaning.
What it is not: expressions over variables (``sql/binder/match_expressions.py``).

Read next: ``runtime/operators/table/row_patterns.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.nodes import InputReference
from millstream.runtime.operators.table.row_patterns import PatternVariable, RowPattern, SkipTo
from millstream.sql.binder.aggregates import plain_type
from millstream.sql.binder.literals import interval_literal
from millstream.sql.binder.match_expressions import MatchExpressions, Slots
from millstream.sql.binder.queries import sort_key
from millstream.sql.binder.scope import NameProblem, Scope
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import MatchNode, row_of
from millstream.sql.suggestions import did_you_mean
from millstream.types.logical_types import DayTimeIntervalType, TimestampKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.parser.syntax import Node
    from millstream.sql.planner.logical import LogicalNode, SortKey

__all__ = ["match_recognize"]

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
        slots = Slots(names)
        conditions = self._conditions(names, slots, order[0].column)
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
            (node.anchored_start or node.anchored_end, "Anchors (^, $) are not supported."),
            (node.subsets, "SUBSET is not supported."),
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
            message = "Columns behind a processing time in ORDER BY are not in this release."
            raise self.context.error(items[1], message)
        pairs = zip(columns, items, strict=True)
        return tuple(sort_key(column.index, item) for column, item in pairs)

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
        for part, variable in reversed(found):
            if variable.greedy or (variable.minimum, variable.maximum) == (0, 1):
                message = (
                    "Greedy quantifiers are not allowed as the last element of a Pattern yet. "
                    "Finish your pattern with either a simple variable or reluctant quantifier."
                )
                raise self.context.error(part, message)
            if variable.minimum:
                break
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
            if name not in names:
                hint = did_you_mean(name, names)
                message = f"Pattern variable '{name}' is not in PATTERN.{hint}"
                raise self.context.error(each, message)
            if name in found:
                message = f"Pattern variable '{name}' has already been defined"
                raise self.context.error(each, message)
            binder = self._expressions(slots, time, in_measures=False)
            found[name] = binder.bound_condition(each.condition)
        return tuple(found.get(name) for name in names)
