"""Expression: a value computed of columns, as programs write it.

What it is: PyFlink's operators and methods over the nodes that the parser makes.
What it is not: bound: names and types are looked at when a table takes it.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from millstream.errors import ProgramError
from millstream.sql.parser import nodes
from millstream.types.logical_types import (
    BigIntType,
    BooleanType,
    CharType,
    DateType,
    DecimalType,
    DoubleType,
    IntType,
    NullType,
    TimestampType,
)

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType

__all__ = ["Expression", "as_node", "function"]

_INT = 2**31


def as_node(value: Any) -> Any:  # noqa: PLR0911 - a table
    """The node of an expression or of a value.

    Raises:
        ProgramError: there is no literal of it.
    """
    if isinstance(value, Expression):
        return value.node
    if value is None:
        return nodes.Literal(None, NullType())
    if isinstance(value, bool):
        return nodes.Literal(value, BooleanType(nullable=False))
    if isinstance(value, int):
        wide = not -_INT <= value < _INT
        kind = BigIntType(nullable=False) if wide else IntType(nullable=False)
        return nodes.Literal(value, kind)
    if isinstance(value, float):
        return nodes.Literal(value, DoubleType(nullable=False))
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        scale = max(-int(exponent), 0)
        return nodes.Literal(value, DecimalType(max(len(digits), scale, 1), scale, nullable=False))
    if isinstance(value, str):
        return nodes.Literal(value, CharType(len(value), nullable=False))
    if isinstance(value, dt.datetime):
        text = value.strftime("%Y-%m-%d %H:%M:%S.%f")
        return nodes.TemporalLiteral(text, TimestampType(6, nullable=False))
    if isinstance(value, dt.date):
        return nodes.TemporalLiteral(value.isoformat(), DateType(nullable=False))
    message = f"lit() takes plain values, not {value!r}"
    raise ProgramError(message)


def function(name: str, *arguments: Any) -> Expression:
    """A call of a function."""
    return Expression(nodes.FunctionCall(nodes.identifier(name), tuple(map(as_node, arguments))))


class Expression:
    """A value computed of columns."""

    def __init__(self, node: Any, alias: str | None = None) -> None:
        """Made by ``col``, ``lit`` and other expressions."""
        self.node = node
        self._alias = alias
        self._order: tuple[bool] | None = None

    def select_item(self) -> nodes.SelectItem:
        """As an item of SELECT."""
        return nodes.SelectItem(self.node, None if self._alias is None else nodes.Name(self._alias))

    def sort_item(self) -> nodes.SortItem:
        """As an item of ORDER BY."""
        return nodes.SortItem(self.node, bool(self._order and self._order[0]))

    def _binary(self, operator: str, other: Any, *, swapped: bool = False) -> Expression:
        left, right = self.node, as_node(other)
        if swapped:
            left, right = right, left
        return Expression(nodes.BinaryOperation(operator, left, right))

    # -- operators -------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self._binary("=", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._binary("<>", other)

    def __hash__(self) -> int:
        return id(self)

    def __lt__(self, other: Any) -> Expression:
        return self._binary("<", other)

    def __le__(self, other: Any) -> Expression:
        return self._binary("<=", other)

    def __gt__(self, other: Any) -> Expression:
        return self._binary(">", other)

    def __ge__(self, other: Any) -> Expression:
        return self._binary(">=", other)

    def __add__(self, other: Any) -> Expression:
        return self._binary("+", other)

    def __radd__(self, other: Any) -> Expression:
        return self._binary("+", other, swapped=True)

    def __sub__(self, other: Any) -> Expression:
        return self._binary("-", other)

    def __rsub__(self, other: Any) -> Expression:
        return self._binary("-", other, swapped=True)

    def __mul__(self, other: Any) -> Expression:
        return self._binary("*", other)

    def __rmul__(self, other: Any) -> Expression:
        return self._binary("*", other, swapped=True)

    def __truediv__(self, other: Any) -> Expression:
        return self._binary("/", other)

    def __mod__(self, other: Any) -> Expression:
        return self._binary("%", other)

    def __and__(self, other: Any) -> Expression:
        return self._binary("AND", other)

    def __or__(self, other: Any) -> Expression:
        return self._binary("OR", other)

    def __invert__(self) -> Expression:
        return Expression(nodes.UnaryOperation("NOT", self.node))

    def __neg__(self) -> Expression:
        return Expression(nodes.UnaryOperation("-", self.node))

    def __bool__(self) -> bool:
        """Refused: ``and`` and ``or`` of Python do not see what is in it."""
        message = "an expression has no truth value: write & for AND, | for OR, ~ for NOT"
        raise ProgramError(message)

    # -- names and order -------------------------------------------------------------------------

    def alias(self, name: str, *extra_names: str) -> Expression:
        """The same under a name."""
        if extra_names:
            message = "alias() takes one name in this release"
            raise ProgramError(message)
        return Expression(self.node, name)

    @property
    def asc(self) -> Expression:
        """In ascending order."""
        return self._ordered(descending=False)

    @property
    def desc(self) -> Expression:
        """In descending order."""
        return self._ordered(descending=True)

    def _ordered(self, *, descending: bool) -> Expression:
        made = Expression(self.node, self._alias)
        made._order = (descending,)
        return made

    # -- tests and casts -------------------------------------------------------------------------

    @property
    def is_null(self) -> Expression:
        """Whether it is NULL."""
        return Expression(nodes.IsPredicate(self.node, "NULL"))

    @property
    def is_not_null(self) -> Expression:
        """Whether it is not NULL."""
        return Expression(nodes.IsPredicate(self.node, "NULL", negated=True))

    def between(self, lower_bound: Any, upper_bound: Any) -> Expression:
        """Whether it lies between two values, both included."""
        return Expression(nodes.Between(self.node, as_node(lower_bound), as_node(upper_bound)))

    def in_(self, *args: Any) -> Expression:
        """Whether it is one of some values."""
        values = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
        return Expression(nodes.InList(self.node, tuple(map(as_node, values))))

    def like(self, pattern: Any) -> Expression:
        """Whether it matches a pattern of LIKE."""
        return Expression(nodes.Like(self.node, as_node(pattern)))

    def cast(self, data_type: LogicalType) -> Expression:
        """As a value of another type."""
        return Expression(nodes.Cast(self.node, data_type))

    def try_cast(self, data_type: LogicalType) -> Expression:
        """As a value of another type; NULL where that fails."""
        return Expression(nodes.Cast(self.node, data_type, safe=True))

    def get(self, name_or_index: str | int) -> Expression:
        """A field of a row."""
        if isinstance(name_or_index, str):
            return Expression(nodes.FieldAccess(self.node, nodes.Name(name_or_index)))
        return Expression(nodes.ElementAccess(self.node, as_node(name_or_index + 1)))

    def at(self, index: Any) -> Expression:
        """An element of an array (from 1) or map."""
        return Expression(nodes.ElementAccess(self.node, as_node(index)))

    # -- aggregates ------------------------------------------------------------------------------

    def _aggregate(self, name: str, *, distinct: bool = False) -> Expression:
        call = nodes.FunctionCall(nodes.identifier(name), (self.node,), distinct=distinct)
        return Expression(call)

    @property
    def sum(self) -> Expression:
        """The sum; NULL of no rows."""
        return self._aggregate("SUM")

    @property
    def sum0(self) -> Expression:
        """The sum; 0 of no rows."""
        return self._aggregate("$SUM0")

    @property
    def avg(self) -> Expression:
        """The average."""
        return self._aggregate("AVG")

    @property
    def min(self) -> Expression:
        """The least."""
        return self._aggregate("MIN")

    @property
    def max(self) -> Expression:
        """The greatest."""
        return self._aggregate("MAX")

    @property
    def count(self) -> Expression:
        """How many are not NULL."""
        return self._aggregate("COUNT")

    @property
    def count_distinct(self) -> Expression:
        """How many different ones there are."""
        return self._aggregate("COUNT", distinct=True)

    @property
    def first_value(self) -> Expression:
        """The first."""
        return self._aggregate("FIRST_VALUE")

    @property
    def last_value(self) -> Expression:
        """The last."""
        return self._aggregate("LAST_VALUE")

    @property
    def distinct(self) -> Expression:
        """An aggregate over different values only: ``col("a").sum.distinct``."""
        from dataclasses import replace

        if not isinstance(self.node, nodes.FunctionCall):
            message = "distinct is for aggregates: col('a').sum.distinct"
            raise ProgramError(message)
        return Expression(replace(self.node, distinct=True))

    def __getattr__(self, name: str) -> Any:
        """Functions of SQL as methods: ``col("a").upper_case`` and the like are not all there."""
        if name.startswith("_"):
            raise AttributeError(name)
        known = _METHODS.get(name)
        if known is None:
            from millstream.expressions.functions.registry import find_function

            if find_function(name) is None:
                message = f"an expression has no '{name}'; call('{name.upper()}', ...) may"
                raise AttributeError(message)
            known = name.upper(), False
        sql, is_property = known
        if is_property:
            return function(sql, self)
        return lambda *arguments: function(sql, self, *arguments)


#: Method -> the function of SQL, and whether it is a property.
_METHODS = {
    "upper_case": ("UPPER", True),
    "lower_case": ("LOWER", True),
    "char_length": ("CHAR_LENGTH", True),
    "abs": ("ABS", True),
    "floor": ("FLOOR", True),
    "ceil": ("CEIL", True),
    "sqrt": ("SQRT", True),
    "ln": ("LN", True),
    "exp": ("EXP", True),
    "sign": ("SIGN", True),
    "is_true": ("IS TRUE", True),
    "is_false": ("IS FALSE", True),
    "to_date": ("TO_DATE", True),
    "to_timestamp": ("TO_TIMESTAMP", True),
    "cardinality": ("CARDINALITY", True),
    "md5": ("MD5", True),
    "sha1": ("SHA1", True),
    "sha256": ("SHA256", True),
    "trim": ("TRIM", False),
    "substring": ("SUBSTRING", False),
    "concat": ("CONCAT", False),
}
