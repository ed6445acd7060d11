"""Expression: PyFlink's operators and methods over the nodes that the parser makes.

Names and types are resolved only when a table takes the expression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from millstream.errors import ProgramError
from millstream.sql.binder.calls import InlineOperation, InlinePlan
from millstream.sql.parser import nodes
from millstream.sql.parser.unparser import unparse
from millstream.table.building import Flattened
from millstream.table.expression_methods import (
    AggregateMethods,
    JsonMethods,
    ScalarMethods,
    TimeMethods,
)
from millstream.table.expression_nodes import BaseExpression, ExpressionProperty, function_node
from millstream.table.expression_nodes import JsonExistsOnError as JsonExistsOnError
from millstream.table.expression_nodes import JsonOnNull as JsonOnNull
from millstream.table.expression_nodes import JsonQueryOnEmptyOrError as JsonQueryOnEmptyOrError
from millstream.table.expression_nodes import JsonQueryWrapper as JsonQueryWrapper
from millstream.table.expression_nodes import JsonType as JsonType
from millstream.table.expression_nodes import JsonValueOnEmptyOrError as JsonValueOnEmptyOrError
from millstream.table.expression_nodes import TimeIntervalUnit as TimeIntervalUnit
from millstream.table.expression_nodes import TimePointUnit as TimePointUnit
from millstream.table.expression_nodes import as_node as as_node
from millstream.table.function_methods import FunctionMethods

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType


def function(name: str, *arguments: Any) -> Expression:
    """Call a function of SQL."""
    return Expression(function_node(name, *arguments))


def _test(test: str, documentation: str, *, negated: bool = False) -> ExpressionProperty:
    def predicate(operand: BaseExpression) -> nodes.IsPredicate:
        return nodes.IsPredicate(operand.node, test, negated=negated)

    return ExpressionProperty(predicate, documentation)


class Expression(AggregateMethods, FunctionMethods, JsonMethods, ScalarMethods, TimeMethods):
    """A value computed of columns."""

    #: As the program wrote it in SQL; None: it made it by methods.
    written: str | None = None

    def _binary(self, operator: str, other: Any, *, swapped: bool = False) -> Self:
        left, right = self.node, as_node(other)
        if swapped:
            left, right = right, left
        return self._of(InlineOperation(operator, left, right))

    def __str__(self) -> str:
        """Return the SQL of the expression; what only the Table API has, as it is."""
        if self.written is not None:
            return self.written
        try:
            return unparse(self.node)
        except TypeError:
            return repr(self.node)

    def __repr__(self) -> str:
        """As SQL writes it."""
        return f"<Expression {self}>"

    # -- operators -------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self._binary("=", other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self._binary("<>", other)

    def __hash__(self) -> int:
        return id(self)

    def __lt__(self, other: Any) -> Self:
        return self._binary("<", other)

    def __le__(self, other: Any) -> Self:
        return self._binary("<=", other)

    def __gt__(self, other: Any) -> Self:
        return self._binary(">", other)

    def __ge__(self, other: Any) -> Self:
        return self._binary(">=", other)

    def __add__(self, other: Any) -> Self:
        return self._binary("+", other)

    def __radd__(self, other: Any) -> Self:
        return self._binary("+", other, swapped=True)

    def __sub__(self, other: Any) -> Self:
        return self._binary("-", other)

    def __rsub__(self, other: Any) -> Self:
        return self._binary("-", other, swapped=True)

    def __mul__(self, other: Any) -> Self:
        return self._binary("*", other)

    def __rmul__(self, other: Any) -> Self:
        return self._binary("*", other, swapped=True)

    def __truediv__(self, other: Any) -> Self:
        return self._binary("/", other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._binary("/", other, swapped=True)

    def __mod__(self, other: Any) -> Self:
        return self._binary("%", other)

    def __rmod__(self, other: Any) -> Self:
        return self._binary("%", other, swapped=True)

    def __pow__(self, other: Any) -> Self:
        return self._call("POWER", other)

    def __rpow__(self, other: Any) -> Self:
        return self._of(function_node("POWER", other, self))

    def __and__(self, other: Any) -> Self:
        return self._binary("AND", other)

    def __rand__(self, other: Any) -> Self:
        return self._binary("AND", other)

    def __or__(self, other: Any) -> Self:
        return self._binary("OR", other)

    def __ror__(self, other: Any) -> Self:
        return self._binary("OR", other)

    def __invert__(self) -> Self:
        """Test if the value is not TRUE: of NULL that is TRUE, unlike ``not_``, as in PyFlink."""
        return self.is_not_true

    def __neg__(self) -> Self:
        return self._of(nodes.UnaryOperation("-", self.node))

    def __abs__(self) -> Self:
        return self.abs

    def __getitem__(self, index: Any) -> Self:
        """Return an element of an array (from 1) or map."""
        return self.at(index)

    def __iter__(self) -> Any:
        """Refuse it: it would not end."""
        message = "an expression is one value and cannot be iterated over"
        raise TypeError(message)

    def __bool__(self) -> bool:
        """Refuse it: ``and`` and ``or`` of Python do not see the nodes."""
        message = "an expression has no truth value: write & for AND, | for OR, ~ for NOT"
        raise ProgramError(message)

    # -- names and order -------------------------------------------------------------------------

    def alias(self, name: str, *extra_names: str) -> Self:
        """Name the column, or the columns, of the expression."""
        return type(self)(self.node, name, *extra_names)

    def as_argument(self, name: str) -> Self:
        """Make it the argument of a function's parameter of that name."""
        return self._of(nodes.NamedArgument(nodes.Name(name), self.node))

    @property
    def asc(self) -> Self:
        """Sort in ascending order."""
        return self._ordered(descending=False)

    @property
    def desc(self) -> Self:
        """Sort in descending order."""
        return self._ordered(descending=True)

    def _ordered(self, *, descending: bool) -> Self:
        made = type(self)(self.node, *self.names)
        made.descending = descending
        return made

    # -- tests -----------------------------------------------------------------------------------

    is_null = _test("NULL", "Test if the value is NULL.")
    is_not_null = _test("NULL", "Test if the value is not NULL.", negated=True)
    is_true = _test("TRUE", "Test if the value is TRUE, not FALSE or NULL.")
    is_false = _test("FALSE", "Test if the value is FALSE, not TRUE or NULL.")
    is_not_true = _test("TRUE", "Test if the value is FALSE or NULL.", negated=True)
    is_not_false = _test("FALSE", "Test if the value is TRUE or NULL.", negated=True)

    def between(self, lower_bound: Any, upper_bound: Any) -> Self:
        """Test if the value is between two values, both included."""
        return self._of(nodes.Between(self.node, as_node(lower_bound), as_node(upper_bound)))

    def not_between(self, lower_bound: Any, upper_bound: Any) -> Self:
        """Test if the value is not between two values."""
        low, high = as_node(lower_bound), as_node(upper_bound)
        return self._of(nodes.Between(self.node, low, high, negated=True))

    def in_(self, first_element_or_table: Any, *remaining_elements: Any) -> Self:
        """Test if the value is one of these, or in the one column of a table (in ``where``).

        Args:
            first_element_or_table: a value, or the table; or a list of all values.
            remaining_elements: further values.
        """
        first = first_element_or_table
        plan = getattr(first, "plan", None)
        if plan is not None:
            return self._of(nodes.InQuery(self.node, InlinePlan(plan)))
        several = isinstance(first, list | tuple) and not remaining_elements
        values = first if several else (first, *remaining_elements)
        return self._of(nodes.InList(self.node, tuple(map(as_node, values))))

    def then(self, if_true: Any, if_false: Any) -> Self:
        """Return one value where it is true, another elsewhere."""
        when = nodes.WhenClause(self.node, as_node(if_true))
        return self._of(nodes.Case(None, (when,), as_node(if_false)))

    def if_null(self, null_replacement: Any) -> Self:
        """Return another value where it is NULL."""
        return self._call("IFNULL", null_replacement)

    # -- casts and parts -------------------------------------------------------------------------

    def cast(self, data_type: LogicalType) -> Self:
        """Convert to another type."""
        return self._of(nodes.Cast(self.node, data_type))

    def try_cast(self, data_type: LogicalType) -> Self:
        """Convert to another type; NULL where that fails."""
        return self._of(nodes.Cast(self.node, data_type, safe=True))

    def get(self, name_or_index: str | int) -> Self:
        """Return a field of a row, by its name or its position from 0."""
        if isinstance(name_or_index, str):
            return self._of(nodes.FieldAccess(self.node, nodes.Name(name_or_index)))
        return self._of(nodes.ElementAccess(self.node, as_node(name_or_index + 1)))

    @property
    def flatten(self) -> Self:
        """Make a column of each field of a row (in ``select``)."""
        return self._of(Flattened(self.node))

    def at(self, index: Any) -> Self:
        """Return an element of an array (from 1) or map."""
        return self._of(nodes.ElementAccess(self.node, as_node(index)))

    def __getattr__(self, name: str) -> Any:
        """Call further functions of SQL as methods.

        Raises:
            AttributeError: there is no such function.
        """
        if not name.startswith("_"):
            from millstream.expressions.functions.registry import find_function

            if find_function(name) is not None:
                return lambda *arguments: self._call(name.upper(), *arguments)
        message = f"an expression has no '{name}'; call('{name.upper()}', ...) may"
        raise AttributeError(message)
