"""Methods of expressions that are times or lengths of time.

What it is: PyFlink's names over functions of SQL, whose reference says what they do.
What it is not: the functions (``expressions/functions/``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ProgramError
from millstream.sql.parser import nodes
from millstream.table.expression_nodes import BaseExpression, interval_of, milliseconds
from millstream.types.logical_types import DateType, TimestampType, TimeType

if TYPE_CHECKING:
    from typing import Self

    from millstream.table.expression_units import TimeIntervalUnit

__all__ = ["TimeMethods"]


class TimeMethods(BaseExpression):
    """What can be made of times; ``lit(5).minutes`` is a length of time."""

    @property
    def to_date(self) -> Self:
        """As a DATE."""
        return self._of(nodes.Cast(self.node, DateType()))

    @property
    def to_time(self) -> Self:
        """As a TIME(0)."""
        return self._of(nodes.Cast(self.node, TimeType(0)))

    @property
    def to_timestamp(self) -> Self:
        """As a TIMESTAMP(3)."""
        return self._of(nodes.Cast(self.node, TimestampType(3)))

    def extract(self, time_interval_unit: TimeIntervalUnit) -> Self:
        """A part of a time, such as its hour."""
        return self._with_unit("EXTRACT", nodes.Symbol(time_interval_unit.name), self.node)

    def floor(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Rounded down: to a whole number, or a time to a unit."""
        return self._rounded("FLOOR", time_interval_unit)

    def ceil(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Rounded up: to a whole number, or a time to a unit."""
        return self._rounded("CEIL", time_interval_unit)

    def _rounded(self, name: str, unit: TimeIntervalUnit | None) -> Self:
        if unit is None:
            return self._call(name)
        return self._with_unit(name, self.node, nodes.Symbol(unit.name))

    def _with_unit(self, name: str, *arguments: nodes.Expression) -> Self:
        return self._of(nodes.FunctionCall(nodes.identifier(name), arguments))

    def _number(self, unit: str) -> int:
        value = getattr(self.node, "value", None)
        if not isinstance(self.node, nodes.Literal) or type(value) is not int:
            message = f"a length of time is of a whole number: lit(5).{unit}"
            raise ProgramError(message)
        return value

    def _length(self, unit: nodes.TimeUnit) -> Self:
        return self._of(interval_of(self._number(f"{unit.lower()}s"), unit))

    @property
    def year(self) -> Self:
        """A length of time of so many years."""
        return self._length(nodes.TimeUnit.YEAR)

    @property
    def years(self) -> Self:
        """A length of time of so many years."""
        return self._length(nodes.TimeUnit.YEAR)

    @property
    def quarter(self) -> Self:
        """A length of time of so many quarters."""
        return self._length(nodes.TimeUnit.QUARTER)

    @property
    def quarters(self) -> Self:
        """A length of time of so many quarters."""
        return self._length(nodes.TimeUnit.QUARTER)

    @property
    def month(self) -> Self:
        """A length of time of so many months."""
        return self._length(nodes.TimeUnit.MONTH)

    @property
    def months(self) -> Self:
        """A length of time of so many months."""
        return self._length(nodes.TimeUnit.MONTH)

    @property
    def week(self) -> Self:
        """A length of time of so many weeks."""
        return self._length(nodes.TimeUnit.WEEK)

    @property
    def weeks(self) -> Self:
        """A length of time of so many weeks."""
        return self._length(nodes.TimeUnit.WEEK)

    @property
    def day(self) -> Self:
        """A length of time of so many days."""
        return self._length(nodes.TimeUnit.DAY)

    @property
    def days(self) -> Self:
        """A length of time of so many days."""
        return self._length(nodes.TimeUnit.DAY)

    @property
    def hour(self) -> Self:
        """A length of time of so many hours."""
        return self._length(nodes.TimeUnit.HOUR)

    @property
    def hours(self) -> Self:
        """A length of time of so many hours."""
        return self._length(nodes.TimeUnit.HOUR)

    @property
    def minute(self) -> Self:
        """A length of time of so many minutes."""
        return self._length(nodes.TimeUnit.MINUTE)

    @property
    def minutes(self) -> Self:
        """A length of time of so many minutes."""
        return self._length(nodes.TimeUnit.MINUTE)

    @property
    def second(self) -> Self:
        """A length of time of so many seconds."""
        return self._length(nodes.TimeUnit.SECOND)

    @property
    def seconds(self) -> Self:
        """A length of time of so many seconds."""
        return self._length(nodes.TimeUnit.SECOND)

    @property
    def milli(self) -> Self:
        """A length of time of so many milliseconds."""
        return self._of(milliseconds(self._number("millis")))

    @property
    def millis(self) -> Self:
        """A length of time of so many milliseconds."""
        return self._of(milliseconds(self._number("millis")))
