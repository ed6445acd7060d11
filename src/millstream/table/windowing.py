"""Windows of the Table API as queries of SQL.

What it is: a grouped window becomes a window table function with GROUP BY, its properties become
columns; one that counts rows becomes OVER, of which every so many rows are kept.
What it is not: the descriptions (``table/window.py``), or the tables (``table/table.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.errors import ProgramError, UnsupportedSqlError
from millstream.sql.binder import calls
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import unique_names
from millstream.table.building import aggregates_of, expression_of, shown_name
from millstream.table.expression_nodes import as_node
from millstream.table.rewriting import WindowProperty, rewritten
from millstream.types.logical_types import TimestampKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.context import BindingContext
    from millstream.table.window import GroupWindow
    from millstream.types.logical_types import RowType

__all__ = ["RowCountGroups", "WindowGroups", "shown_property"]


class _Groups:
    """The keys of ``group_by`` beside the name of its window.

    Args:
        row: of the table.
        window: the window.
        fields: of ``group_by``: the window's name, and keys.

    Raises:
        ProgramError: the window's name is missing, or a column has it.
    """

    def __init__(self, row: RowType, window: GroupWindow, fields: Sequence[Any]) -> None:
        self._window = window
        position = row.index_of(window.time)
        #: Of the time of the window: ROWTIME or PROCTIME; None: it is no time attribute.
        self._time_kind = None
        if position >= 0:
            self._time_kind = getattr(row.fields[position].type, "kind", None)
        keys = [expression_of(each) for each in fields]
        self.keys = [each for each in keys if not self._is_window(each)]
        if len(self.keys) + 1 != len(keys):
            message = f"group_by() takes the name of its window exactly once: col('{window.name}')"
            raise ProgramError(message)
        if window.name in row.names:
            message = f"the window is called '{window.name}', and so is a column of the table"
            raise ProgramError(message)

    def _is_window(self, node: Any) -> bool:
        return isinstance(node, nodes.Identifier) and node.names == (self._window.name,)

    def shown(self) -> tuple[nodes.SelectItem, ...]:
        """The keys.

        Raises:
            ProgramError: a key is no column.
        """
        if not all(isinstance(each, nodes.Identifier) for each in self.keys):
            message = "aggregate() behind a window takes columns as keys; add_columns() makes some"
            raise ProgramError(message)
        return tuple(nodes.SelectItem(each) for each in self.keys)


class RowCountGroups(_Groups):
    """A query over windows of a number of rows, in the order in which rows come.

    A window is complete with its last row.  So its aggregates are those over the rows before this
    one, of which as many as the size of the window are taken; all other rows are left out.
    """

    def __init__(self, row: RowType, window: GroupWindow, fields: Sequence[Any]) -> None:
        """Take what is grouped; arguments as for windows of time.

        Raises:
            ProgramError: the window is not on processing time.
        """
        super().__init__(row, window, fields)
        if self._time_kind is TimestampKind.ROWTIME:
            message = "Event-time grouping windows on row intervals are currently not supported."
            raise UnsupportedSqlError(message)
        if self._time_kind is not TimestampKind.PROCTIME:
            message = (
                f"A group window expects a time attribute for grouping; '{window.time}' is none. "
                "Windows of a number of rows take a column of PROCTIME()."
            )
            raise ProgramError(message)
        self._count, self._window_name = unique_names([*row.names, "row_count", "rows"])[-2:]
        rows = [each.rows for each in window.lengths]
        self._slide, self._size = rows[0], rows[-1]

    def items(self, given: Sequence[nodes.SelectItem]) -> tuple[nodes.SelectItem, ...]:
        """Refuse what such windows do not have.

        Raises:
            ProgramError: a property of the window.
        """
        for each in given:
            for found in aggregates_of([each.expression]):
                if isinstance(found, WindowProperty):
                    word = "tumble" if self._window.function == "TUMBLE" else "sliding"
                    message = (
                        "Window start and Window end cannot be selected for a row-count "
                        f"{word} window."
                    )
                    raise ProgramError(message)
        return tuple(given)

    def counted(self, source: nodes.TableReference) -> nodes.Select:
        """Return the query of all columns, and how many rows of its key each row is."""
        count = nodes.FunctionCall(
            nodes.identifier("COUNT"),
            (nodes.Star(),),
            over=self._over(nodes.FrameBound("PRECEDING")),
        )
        items = (nodes.SelectItem(nodes.Star()), nodes.SelectItem(count, nodes.Name(self._count)))
        return nodes.Select(items=items, source=source)

    def aggregated(
        self,
        source: nodes.TableReference,
        given: Sequence[nodes.SelectItem],
        context: BindingContext,
    ) -> nodes.Select:
        """Return the query of the items over the last rows of each, and of the count."""
        aggregates = aggregates_of(each.expression for each in given)
        name = nodes.Name(self._window_name)

        def change(node: Any) -> Any:
            # Those of users may be called by name.
            named = isinstance(node, nodes.FunctionCall) and calls.aggregate_of(context, node)
            return replace(node, over=name) if named or node in aggregates else node

        items = [replace(each, expression=rewritten(each.expression, change)) for each in given]
        count = nodes.SelectItem(nodes.identifier(self._count), nodes.Name(self._count))
        first = nodes.FrameBound("PRECEDING", as_node(self._size - 1))
        return nodes.Select(
            items=(*items, count),
            source=source,
            windows=(nodes.NamedWindow(name, self._over(first)),),
        )

    def complete(
        self, source: nodes.TableReference, given: Sequence[nodes.SelectItem]
    ) -> nodes.Select:
        """Return the query of the items where a window is complete."""
        count = nodes.identifier(self._count)
        size, slide = as_node(self._size), as_node(self._slide)
        behind = nodes.BinaryOperation("-", count, size)
        where = nodes.BinaryOperation(
            "AND",
            nodes.BinaryOperation(">=", count, size),
            nodes.BinaryOperation("=", nodes.BinaryOperation("%", behind, slide), as_node(0)),
        )
        items = tuple(nodes.SelectItem(nodes.identifier(shown_name(each))) for each in given)
        return nodes.Select(items=items, source=source, where=where)

    def _over(self, first: nodes.FrameBound) -> nodes.WindowSpecification:
        return nodes.WindowSpecification(
            partition_by=tuple(self.keys),
            order_by=(nodes.SortItem(nodes.identifier(self._window.time)),),
            frame=nodes.WindowFrame("ROWS", first, nodes.FrameBound("CURRENT ROW")),
        )


class WindowGroups(_Groups):
    """The clauses of a query over the groups of a window."""

    def __init__(self, row: RowType, window: GroupWindow, fields: Sequence[Any]) -> None:
        """Take what is grouped.

        Args:
            row: of the table.
            window: the window.
            fields: of ``group_by``: the window's name, and keys.

        Raises:
            ProgramError: the window's name is missing, or its time is no time attribute.
        """
        super().__init__(row, window, fields)
        self._is_proctime = self._time_kind is TimestampKind.PROCTIME
        bounds = unique_names([*row.names, "window_start", "window_end", "window_time"])[-3:]
        self._bounds = dict(zip(("window_start", "window_end", "window_time"), bounds, strict=True))
        self._uses_time = False

    def item(self, node: Any) -> Any:
        """An expression of ``select`` with columns in the place of the window's properties.

        Raises:
            ProgramError: it has the window itself, or a property of another.
        """

        def change(each: Any) -> Any:
            if not isinstance(each, WindowProperty):
                return each
            if not self._is_window(each.operand):
                message = f"start, end, rowtime and proctime are of col('{self._window.name}')"
                raise ProgramError(message)
            return nodes.identifier(self._bounds[self._property(each.kind)])

        return rewritten(node, change)

    def shown(self) -> tuple[nodes.SelectItem, ...]:
        """The keys, and the properties of the window by names of their own."""
        time = "proctime" if self._is_proctime else "rowtime"
        properties = [
            nodes.SelectItem(
                WindowProperty(nodes.identifier(self._window.name), kind), nodes.Name(f"${kind}")
            )
            for kind in ("window_start", "window_end", time)
        ]
        return (*super().shown(), *properties)

    def _property(self, kind: str) -> str:
        if kind in {"window_start", "window_end"}:
            return kind
        if (kind == "proctime") != self._is_proctime:
            there, missing = ("proctime", "rowtime") if self._is_proctime else ("rowtime", kind)
            message = f"the window is on {there}, so it has no {missing}"
            raise ProgramError(message)
        self._uses_time = True
        return "window_time"

    def source(self, table: nodes.TableReference) -> nodes.TableFunction:
        """What stands in FROM.

        Raises:
            ProgramError: a session is grouped by something else than columns.
        """
        partition = tuple(self.keys) if self._window.function == "SESSION" else ()
        if not all(isinstance(each, nodes.Identifier) for each in partition):
            message = "a session is grouped by columns; add_columns() makes columns of expressions"
            raise ProgramError(message)
        data = nodes.TableArgument(table.name, partition_by=partition)
        time = nodes.Descriptor((nodes.Name(self._window.time),))
        arguments = (data, time, *self._window.lengths)
        call = nodes.FunctionCall(nodes.identifier(self._window.function), arguments)
        return nodes.TableFunction(call, any_size=True)

    def group_by(self) -> tuple[Any, ...]:
        """The keys; ask when the items have been made."""
        bounds = ["window_start", "window_end", *(["window_time"] if self._uses_time else [])]
        return (*self.keys, *(nodes.identifier(self._bounds[each]) for each in bounds))


def shown_property(field: Any) -> Any:
    """A field of ``select`` over ``WindowGroups.shown``."""
    if isinstance(field, str):
        return field

    def change(each: Any) -> Any:
        return nodes.identifier(f"${each.kind}") if isinstance(each, WindowProperty) else each

    made = type(field)(rewritten(field.node, change), *field.names)
    is_property = isinstance(field.node, WindowProperty) and not field.names
    return made.alias(made.node.last[1:]) if is_property else made
