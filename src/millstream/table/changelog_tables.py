"""Tables of changes: ``to_changelog`` and ``from_changelog``.

What it is: two methods of tables, over the table functions of SQL.
What it is not: changes as streams of the program (``table/streams.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.sql.parser import nodes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from millstream.table.expression import Expression

__all__ = ["ChangelogTables"]

_ALL = (nodes.SelectItem(nodes.Star()),)


class ChangelogTables:
    """What tables do with their changes."""

    if TYPE_CHECKING:

        def _made(self, query: Callable[..., Any]) -> Self: ...

    def to_changelog(self, *arguments: Expression) -> Self:
        """The changes of the table as rows that are only added, with their kind in a column.

        Args:
            arguments: ``descriptor("kind").as_argument("op")``: the column, ``op`` unless said;
                ``map_("INSERT", "I", ...).as_argument("op_mapping")``: the codes of kinds.
        """
        return self._of("TO_CHANGELOG", arguments)

    def from_changelog(self, *arguments: Expression) -> Self:
        """The table whose changes the rows are, by their kind in a column.

        Args:
            arguments: as those of ``to_changelog``; the map is from codes to kinds.
        """
        return self._of("FROM_CHANGELOG", arguments)

    def _of(self, function: str, arguments: tuple[Expression, ...]) -> Self:
        given = tuple(each.node for each in arguments)

        def query(table: nodes.TableReference) -> nodes.Select:
            call = nodes.FunctionCall(
                nodes.identifier(function), (nodes.TableArgument(table.name), *given)
            )
            return nodes.Select(items=_ALL, source=nodes.TableFunction(call))

        return self._made(query)
