"""Expressions of MATCH_RECOGNIZE: of DEFINE and MEASURES, over the rows of pattern variables.

What it is: ``A.price`` is the value in the last row of A, ``price`` that in the last row of all,
``FIRST`` and ``LAST`` count rows, aggregates take those of one variable.  Each becomes a slot, and
the expression is over slots.
What it is not: the clauses (``sql/binder/matches.py``).

Read next: ``runtime/operators/table/row_patterns.py``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.expressions.nodes import Call, InputReference, Literal, walk
from millstream.runtime.operators.table.row_patterns import Aggregation, MatchTime, Navigation
from millstream.sql.binder import calls
from millstream.sql.binder.aggregates import aggregate_type, plain_type
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import NameProblem
from millstream.sql.parser import nodes
from millstream.types.logical_types import TimestampKind, TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.runtime.operators.table.row_patterns import Slot
    from millstream.sql.binder.context import BindingContext
    from millstream.sql.binder.scope import Scope
    from millstream.sql.parser.syntax import Node

__all__ = ["MatchExpressions", "Slots"]

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
    """What conditions and measures read, each once."""

    def __init__(self, variables: Sequence[str]) -> None:
        self.variables = list(variables)
        self.found: list[Slot] = []

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
            if not isinstance(attribute, TimestampType):
                name = self.scope.row.names[self._time]
                message = f"Over a TIMESTAMP_LTZ write MATCH_ROWTIME({name})."
                raise self.context.error(node, message)
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
