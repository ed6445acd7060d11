"""Name resolution: the columns that are visible at a position of a query."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from millstream.configuration import options
from millstream.errors import ValidationError
from millstream.expressions.nodes import InputReference
from millstream.sql.parser import nodes
from millstream.sql.parser.nodes import Node, Query
from millstream.sql.parser.tokens import excerpt
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.expressions.nodes import Expression
    from millstream.sql.catalog.catalog import CatalogManager
    from millstream.sql.planner.logical import LogicalNode
    from millstream.types.logical_types import LogicalType, RowType


class NameProblem(Exception):  # noqa: N818 - becomes a ValidationError with a place
    """A name is unknown or has two meanings."""


@dataclass(frozen=True, slots=True)
class OuterReference:
    """A column of the query around a sub-query.  Gone when the sub-query has become a join."""

    index: int
    name: str
    type: LogicalType
    #: How many queries further out: 1 is the one around.
    level: int = 1

    def __str__(self) -> str:
        """As in plans."""
        return f"$cor{self.level - 1}.{self.name}"


@dataclass(frozen=True, slots=True)
class ScopeTable:
    """A relation of FROM: its alias, or the parts of its name, and where its columns begin."""

    #: ``("catalog", "database", "table")``, or ``("alias",)``; empty: it has no name.
    name: tuple[str, ...]
    #: Names of its columns as the query sees them, with their positions in the row.
    columns: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column that a name stands for, and the parts of the name that are fields of it."""

    expression: Expression | OuterReference
    rest: tuple[str, ...]


@dataclass(slots=True)
class Scope:
    """The relations of one FROM, joined to one row."""

    row: RowType
    tables: list[ScopeTable] = field(default_factory=list)
    #: Of the query around this one.
    outer: Scope | None = None
    #: Columns that USING has merged: they have one meaning though two tables have them.
    merged: dict[str, int] = field(default_factory=dict)
    #: The columns of ``*`` where USING has brought them in another order: what it merges is first.
    shown: list[tuple[str, int]] | None = None

    @staticmethod
    def of(row: RowType, name: Sequence[str] = (), outer: Scope | None = None) -> Scope:
        """The scope of one relation."""
        columns = tuple((each.name, i) for i, each in enumerate(row.fields))
        return Scope(row, [ScopeTable(tuple(name), columns)], outer)

    def reference(self, index: int) -> InputReference:
        """The column at a position."""
        found = self.row.fields[index]
        return InputReference(index, found.name, found.type)

    def columns(self, table: Sequence[str] | None = None) -> list[tuple[str, int]]:
        """The columns of ``*``, or of ``table.*``.

        Raises:
            NameProblem: there is no such table.
        """
        if table is None:
            if self.shown is not None:
                return self.shown
            return [column for each in self.tables for column in each.columns]
        for each in self.tables:
            if _ends_with(each.name, table):
                return list(each.columns)
        known = [each.name[-1] for each in self.tables if each.name]
        hint = did_you_mean(table[-1], known)
        message = f"Table '{'.'.join(table)}' is not in FROM.{hint} There are: {listed(known)}."
        raise NameProblem(message)

    def full_name(self, name: str, index: int) -> tuple[str, ...]:
        """A column's name with that of its table before it, if the table has one."""
        if self.merged.get(name) == index:
            return (name,)
        owners = [each.name for each in self.tables if (name, index) in each.columns]
        return (*(owners[0] if owners else ()), name)

    def merge(self, columns: Sequence[tuple[str, int]], sides: Collection[int]) -> None:
        """Make one column of each two that USING names; they come first in ``*``.

        Args:
            columns: their names, and the positions of what has their values.
            sides: the positions of both of each.
        """
        rest = [each for each in self.columns() if each[1] not in sides]
        self.shown = [*columns, *rest]
        self.merged.update(columns)

    def find(self, parts: Sequence[str]) -> FoundColumn:
        """The column that a name stands for; the longest name of a table wins over fields.

        Raises:
            NameProblem: there is none, or there are several.
        """
        scope: Scope | None = self
        level = 0
        while scope is not None:
            found = scope._find_here(tuple(parts))  # noqa: SLF001 - of this class
            if found is not None:
                if not level:
                    return found
                column = found.expression
                assert isinstance(column, InputReference)  # noqa: S101 - by _find_here
                outer = OuterReference(column.index, column.name, column.type, level)
                return FoundColumn(outer, found.rest)
            scope, level = scope.outer, level + 1
        raise NameProblem(self._unknown(tuple(parts)))

    def _find_here(self, parts: tuple[str, ...]) -> FoundColumn | None:
        if parts[0] in self.merged:
            # Another table may have a column of that name which USING does not name.
            self._check_one([i for name, i in self.columns() if name == parts[0]], parts[:1])
            return FoundColumn(self.reference(self.merged[parts[0]]), parts[1:])
        plain = [index for each in self.tables for name, index in each.columns if name == parts[0]]
        for length in range(len(parts) - 1, 0, -1):
            qualified = [
                index
                for each in self.tables
                if _ends_with(each.name, parts[:length])
                for name, index in each.columns
                if name == parts[length]
            ]
            if qualified:
                self._check_one(qualified, parts[: length + 1])
                return FoundColumn(self.reference(qualified[0]), parts[length + 1 :])
        if not plain:
            return None
        self._check_one(plain, parts[:1])
        return FoundColumn(self.reference(plain[0]), parts[1:])

    def _check_one(self, found: list[int], parts: tuple[str, ...]) -> None:
        if len(set(found)) > 1:
            owners = [
                ".".join((*each.name[-1:], parts[-1]))
                for each in self.tables
                for name, index in each.columns
                if index in found and name == parts[-1]
            ]
            message = f"Column '{'.'.join(parts)}' is ambiguous: it is {' or '.join(owners)}."
            raise NameProblem(message)

    def _unknown(self, parts: tuple[str, ...]) -> str:
        if len(parts) > 1:
            for each in self.tables:
                if _ends_with(each.name, parts[:-1]):
                    known = [name for name, _ in each.columns]
                    hint = did_you_mean(parts[-1], known)
                    return (
                        f"Column '{parts[-1]}' not found in table '{'.'.join(parts[:-1])}'.{hint} "
                        f"Its columns are: {listed(known)}."
                    )
        known = []
        scope: Scope | None = self
        while scope is not None:
            known += [name for each in scope.tables for name, _ in each.columns]
            scope = scope.outer
        whole = ".".join(parts)
        if not known:
            return f"Column '{whole}' not found: there is no table in FROM."
        tables = [each.name[-1] for each in self.tables if each.name]
        hint = did_you_mean(parts[-1], known)
        if len(parts) > 1 and not hint:
            hint = did_you_mean(parts[0], tables)
        return f"Column '{whole}' not found in any table.{hint} There are: {listed(known)}."

    def joined(self, other: Scope, row: RowType) -> Scope:
        """The scope of a join: the tables of both, those of ``other`` behind."""
        shift = len(self.row.fields)
        moved = [
            ScopeTable(each.name, tuple((name, index + shift) for name, index in each.columns))
            for each in other.tables
        ]
        merged = {**{name: i + shift for name, i in other.merged.items()}, **self.merged}
        shown = None
        if self.shown is not None or other.shown is not None:
            shown = [*self.columns(), *((name, i + shift) for name, i in other.columns())]
        return Scope(row, [*self.tables, *moved], self.outer, merged, shown)


def _ends_with(name: tuple[str, ...], parts: Sequence[str]) -> bool:
    return bool(name) and name[-len(parts) :] == tuple(parts)


def validation_error(text: str | None, node: Node | None, message: str) -> ValidationError:
    """The error that ``node`` of the statement ``text`` is wrong.

    Args:
        text: the statement; None where the Table API made the node.
        node: where; None if there is no one place.
        message: what is wrong, with what is there instead.
    """
    position = None if node is None else node.position
    if text is None or position is None:
        return ValidationError(message)
    where = f"SQL, line {position.line}, column {position.column}"
    shown = excerpt(text, position.start, position.end)
    return ValidationError(f"{where}: {message}\n{shown}")


@dataclass(frozen=True)
class BindingContext:
    """The surroundings of a statement."""

    catalogs: CatalogManager
    configuration: Configuration
    #: The statement's text, for errors; None: the Table API made it.
    text: str | None = None
    #: Tables that have no name in a catalog (inline tables of the Table API), by a made-up one.
    inline: Mapping[str, LogicalNode] = field(default_factory=dict)
    #: The views whose queries are being bound.
    views: tuple[tuple[str, ...], ...] = ()
    #: Takes, by the id of each ``*``, the names of the columns that it stands for.
    stars: dict[int, list[tuple[str, ...]]] | None = None

    @property
    def is_batch(self) -> bool:
        """Whether all rows are there before anything is given."""
        return self.configuration.get(options.RUNTIME_MODE) == "BATCH"

    def with_text(self, text: str | None) -> BindingContext:
        """The same for another statement."""
        return replace(self, text=text)

    def error(self, node: Node | None, message: str) -> ValidationError:
        """That ``node`` is wrong."""
        return validation_error(self.text, node, message)


def children(node: Node) -> Iterator[Node]:
    """The nodes directly in a node."""
    for each in fields(node):
        yield from _nodes_in(getattr(node, each.name))


def _nodes_in(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes_in(item)


def walk_nodes(node: Node) -> Iterator[Node]:
    """The node and all in it, without what is in sub-queries."""
    yield node
    if isinstance(node, Query):
        return
    for child in children(node):
        if not isinstance(child, Query):
            yield from walk_nodes(child)


def conjuncts(node: Node) -> Iterator[Node]:
    """Yield what AND connects."""
    if isinstance(node, nodes.BinaryOperation) and node.operator == "AND":
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node
