"""Methods of expressions that aggregate, and those of windows.

What it is: PyFlink's names over aggregates of SQL.
What it is not: the aggregates (``sql/binder/aggregates.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.errors import ProgramError
from millstream.sql.binder.inline_calls import InlineCall
from millstream.sql.parser import nodes
from millstream.table.expression_nodes import BaseExpression, as_node
from millstream.table.rewriting import WindowProperty

if TYPE_CHECKING:
    from typing import Self

__all__ = ["AggregateMethods"]


class AggregateMethods(BaseExpression):
    """What can be made of the values of several rows, and of windows."""

    @property
    def sum(self) -> Self:
        """The sum; NULL of no rows."""
        return self._call("SUM")

    @property
    def sum0(self) -> Self:
        """The sum; 0 of no rows."""
        return self._call("$SUM0")

    @property
    def avg(self) -> Self:
        """The average."""
        return self._call("AVG")

    @property
    def min(self) -> Self:
        """The least."""
        return self._call("MIN")

    @property
    def max(self) -> Self:
        """The greatest."""
        return self._call("MAX")

    @property
    def count(self) -> Self:
        """How many are not NULL."""
        return self._call("COUNT")

    @property
    def first_value(self) -> Self:
        """The first."""
        return self._call("FIRST_VALUE")

    @property
    def last_value(self) -> Self:
        """The last."""
        return self._call("LAST_VALUE")

    @property
    def stddev_pop(self) -> Self:
        """The standard deviation of all."""
        return self._call("STDDEV_POP")

    @property
    def stddev_samp(self) -> Self:
        """The standard deviation of a sample."""
        return self._call("STDDEV_SAMP")

    @property
    def var_pop(self) -> Self:
        """The variance of all."""
        return self._call("VAR_POP")

    @property
    def var_samp(self) -> Self:
        """The variance of a sample."""
        return self._call("VAR_SAMP")

    @property
    def collect(self) -> Self:
        """All values, as a multiset."""
        return self._call("COLLECT")

    @property
    def array_agg(self) -> Self:
        """All values, as an array."""
        return self._call("ARRAY_AGG")

    @property
    def count_distinct(self) -> Self:
        """How many different ones there are."""
        return self._call("COUNT").distinct

    def list_agg(self, separator: Any = None) -> Self:
        """All texts as one, with separators."""
        return self._call("LISTAGG", separator)

    def percentile(self, percentage: Any, frequency: Any = None) -> Self:
        """The value below which a part of all lies."""
        return self._call("PERCENTILE", percentage, frequency)

    @property
    def distinct(self) -> Self:
        """An aggregate over different values only: ``col("a").sum.distinct``.

        Raises:
            ProgramError: it is no aggregate.
        """
        if not isinstance(self.node, nodes.FunctionCall | InlineCall):
            message = "distinct is for aggregates: col('a').sum.distinct"
            raise ProgramError(message)
        return self._of(replace(self.node, distinct=True))

    def over(self, alias: Any) -> Self:
        """An aggregate over the window of a name, which ``over_window`` has given.

        Args:
            alias: the name, or ``col(name)``.

        Raises:
            ProgramError: it is no aggregate, or ``alias`` no name.
        """
        name = as_node(alias)
        if isinstance(alias, str):
            name = nodes.identifier(alias)
        is_call = isinstance(self.node, nodes.FunctionCall | InlineCall)
        if not is_call or not isinstance(name, nodes.Identifier):
            message = "over() is for aggregates, and takes the name of a window: over(col('w'))"
            raise ProgramError(message)
        return self._of(replace(self.node, over=nodes.Name(name.last)))

    # -- windows ---------------------------------------------------------------------------------

    @property
    def start(self) -> Self:
        """When the window begins."""
        return self._of(WindowProperty(self.node, "window_start"))

    @property
    def end(self) -> Self:
        """When the window ends; that moment is not in it."""
        return self._of(WindowProperty(self.node, "window_end"))

    @property
    def rowtime(self) -> Self:
        """The window's event time: the last millisecond that is in it."""
        return self._of(WindowProperty(self.node, "rowtime"))

    @property
    def proctime(self) -> Self:
        """The window's processing time."""
        return self._of(WindowProperty(self.node, "proctime"))
