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
from millstream.table.collection_methods import (
    AggregateMethods,
    BitmapMethods,
    CollectionMethods,
    JsonMethods,
)
from millstream.table.expression_nodes import JsonExistsOnError as JsonExistsOnError
from millstream.table.expression_nodes import JsonOnNull as JsonOnNull
from millstream.table.expression_nodes import JsonQueryOnEmptyOrError as JsonQueryOnEmptyOrError
from millstream.table.expression_nodes import JsonQueryWrapper as JsonQueryWrapper
from millstream.table.expression_nodes import JsonType as JsonType
from millstream.table.expression_nodes import JsonValueOnEmptyOrError as JsonValueOnEmptyOrError
from millstream.table.expression_nodes import TimeIntervalUnit as TimeIntervalUnit
from millstream.table.expression_nodes import TimePointUnit as TimePointUnit
from millstream.table.expression_nodes import as_node as as_node
from millstream.table.expression_nodes import function_node
from millstream.table.scalar_methods import NumberMethods, TextMethods, TimeMethods

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType


def function(name: str, *arguments: Any) -> Expression:
    """A call of a function."""
    return Expression(function_node(name, *arguments))


class Expression(
    AggregateMethods,
    BitmapMethods,
    CollectionMethods,
    JsonMethods,
    NumberMethods,
    TextMethods,
    TimeMethods,
):
    """A value computed of columns."""

    #: As the program wrote it in SQL; None: it made it by methods.
    written: str | None = None

    def _binary(self, operator: str, other: Any, *, swapped: bool = False) -> Self:
        left, right = self.node, as_node(other)
        if swapped:
            left, right = right, left
        return self._of(InlineOperation(operator, left, right))

    def __str__(self) -> str:
        """As SQL writes it; what only the Table API has, as it is."""
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
        """Whether it is not TRUE: of NULL that is TRUE, unlike ``not_``, as in PyFlink."""
        return self.is_not_true

    def __neg__(self) -> Self:
        return self._of(nodes.UnaryOperation("-", self.node))

    def __abs__(self) -> Self:
        return self.abs

    def __getitem__(self, index: Any) -> Self:
        """An element of an array (from 1) or map."""
        return self.at(index)

    def __iter__(self) -> Any:
        """Refused: it would not end."""
        message = "an expression is one value and cannot be iterated over"
        raise TypeError(message)

    def __bool__(self) -> bool:
        """Refused: ``and`` and ``or`` of Python do not see what is in it."""
        message = "an expression has no truth value: write & for AND, | for OR, ~ for NOT"
        raise ProgramError(message)

    # -- names and order -------------------------------------------------------------------------

    def alias(self, name: str, *extra_names: str) -> Self:
        """The same under a name; under several, if it gives several columns."""
        return type(self)(self.node, name, *extra_names)

    def as_argument(self, name: str) -> Self:
        """As the argument of a function's parameter of that name."""
        return self._of(nodes.NamedArgument(nodes.Name(name), self.node))

    @property
    def asc(self) -> Self:
        """In ascending order."""
        return self._ordered(descending=False)

    @property
    def desc(self) -> Self:
        """In descending order."""
        return self._ordered(descending=True)

    def _ordered(self, *, descending: bool) -> Self:
        made = type(self)(self.node, *self.names)
        made.descending = descending
        return made

    # -- tests -----------------------------------------------------------------------------------

    def _is(self, test: str, *, negated: bool = False) -> Self:
        return self._of(nodes.IsPredicate(self.node, test, negated=negated))

    @property
    def is_null(self) -> Self:
        """Whether it is NULL."""
        return self._is("NULL")

    @property
    def is_not_null(self) -> Self:
        """Whether it is not NULL."""
        return self._is("NULL", negated=True)

    @property
    def is_true(self) -> Self:
        """Whether it is TRUE, not FALSE or NULL."""
        return self._is("TRUE")

    @property
    def is_false(self) -> Self:
        """Whether it is FALSE, not TRUE or NULL."""
        return self._is("FALSE")

    @property
    def is_not_true(self) -> Self:
        """Whether it is FALSE or NULL."""
        return self._is("TRUE", negated=True)

    @property
    def is_not_false(self) -> Self:
        """Whether it is TRUE or NULL."""
        return self._is("FALSE", negated=True)

    def between(self, lower_bound: Any, upper_bound: Any) -> Self:
        """Whether it lies between two values, both included."""
        return self._of(nodes.Between(self.node, as_node(lower_bound), as_node(upper_bound)))

    def not_between(self, lower_bound: Any, upper_bound: Any) -> Self:
        """Whether it does not lie between two values."""
        low, high = as_node(lower_bound), as_node(upper_bound)
        return self._of(nodes.Between(self.node, low, high, negated=True))

    def in_(self, first_element_or_table: Any, *remaining_elements: Any) -> Self:
        """Whether it is one of some values, or in the one column of a table (in ``where``).

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
        """One value where it is true, another elsewhere."""
        when = nodes.WhenClause(self.node, as_node(if_true))
        return self._of(nodes.Case(None, (when,), as_node(if_false)))

    def if_null(self, null_replacement: Any) -> Self:
        """Another value where it is NULL."""
        return self._call("IFNULL", null_replacement)

    # -- casts and parts -------------------------------------------------------------------------

    def cast(self, data_type: LogicalType) -> Self:
        """As a value of another type."""
        return self._of(nodes.Cast(self.node, data_type))

    def try_cast(self, data_type: LogicalType) -> Self:
        """As a value of another type; NULL where that fails."""
        return self._of(nodes.Cast(self.node, data_type, safe=True))

    def get(self, name_or_index: str | int) -> Self:
        """A field of a row, by its name or its position from 0."""
        if isinstance(name_or_index, str):
            return self._of(nodes.FieldAccess(self.node, nodes.Name(name_or_index)))
        return self._of(nodes.ElementAccess(self.node, as_node(name_or_index + 1)))

    @property
    def flatten(self) -> Self:
        """The fields of a row, each as a column (in ``select``)."""
        return self._of(Flattened(self.node))

    def at(self, index: Any) -> Self:
        """An element of an array (from 1) or map."""
        return self._of(nodes.ElementAccess(self.node, as_node(index)))

    def __getattr__(self, name: str) -> Any:
        """Further functions of SQL as methods.

        Raises:
            AttributeError: there is no such function.
        """
        if not name.startswith("_"):
            from millstream.expressions.functions.registry import find_function

            if find_function(name) is not None:
                return lambda *arguments: self._call(name.upper(), *arguments)
        message = f"an expression has no '{name}'; call('{name.upper()}', ...) may"
        raise AttributeError(message)
