"""Windows of the Table API as queries of SQL.

What it is: a grouped window becomes a window table function with GROUP BY, its properties become
columns.
What it is not: the descriptions (``table/window.py``), or the tables (``table/table.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import ProgramError
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import unique_names
from millstream.table.building import expression_of
from millstream.table.rewriting import WindowProperty, rewritten
from millstream.types.logical_types import TimestampKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.table.window import GroupWindow
    from millstream.types.logical_types import RowType

__all__ = ["WindowGroups", "shown_property"]


class WindowGroups:
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
        self._window = window
        position = row.index_of(window.time)
        kind = row.fields[position].type if position >= 0 else None
        self._is_proctime = getattr(kind, "kind", None) is TimestampKind.PROCTIME
        bounds = unique_names([*row.names, "window_start", "window_end", "window_time"])[-3:]
        self._bounds = dict(zip(("window_start", "window_end", "window_time"), bounds, strict=True))
        keys = [expression_of(each) for each in fields]
        self.keys = [each for each in keys if not self._is_window(each)]
        if len(self.keys) + 1 != len(keys):
            message = f"group_by() takes the name of its window exactly once: col('{window.name}')"
            raise ProgramError(message)
        if window.name in row.names:
            message = f"the window is called '{window.name}', and so is a column of the table"
            raise ProgramError(message)
        self._uses_time = False

    def _is_window(self, node: Any) -> bool:
        return isinstance(node, nodes.Identifier) and node.names == (self._window.name,)

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
        if not all(isinstance(each, nodes.Identifier) for each in self.keys):
            message = "aggregate() behind a window takes columns as keys; add_columns() makes some"
            raise ProgramError(message)
        return (*(nodes.SelectItem(each) for each in self.keys), *properties)

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
