"""What all nodes have in common: where they stand in the text, and names.

Nodes compare without their positions and without the quoting of their names, so that two texts that
say the same give equal nodes.  Read next: ``expression_nodes.py``, ``query_nodes.py``,
``table_nodes.py``,
``statement_nodes.py``; ``nodes.py`` has them all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Position(NamedTuple):
    """Where a node stands in the text that was parsed."""

    #: The line of its first character, from 1.
    line: int
    #: The column of its first character, from 1, in characters.
    column: int
    #: The first character's index in the text, from 0.
    start: int
    #: The index behind the last character.
    end: int


@dataclass(frozen=True, slots=True)
class Node:
    """Anything that the parser makes; ``position`` is None if no text was parsed (Table API)."""

    position: Position | None = field(default=None, compare=False, repr=False, kw_only=True)


class Expression(Node):
    """What has a value, or stands where a value may stand (symbols, descriptors)."""

    __slots__ = ()


class Relation(Node):
    """What may stand in FROM."""

    __slots__ = ()


class Statement(Node):
    """What may stand between two semicolons."""

    __slots__ = ()


class Query(Statement):
    """What gives a table: a statement by itself, or a part of one."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Name(Node):
    """One name, as written; names are case-sensitive, so quoting changes nothing but the text."""

    value: str
    quoted: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Identifier(Expression):
    """A name of several parts: a column, a table, a function.

    As an expression it is a column, maybe with its table before it and fields of it behind it:
    which part is what is the binder's question.
    """

    parts: tuple[Name, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The parts as strings."""
        return tuple(part.value for part in self.parts)

    @property
    def last(self) -> str:
        """The last part: the name of a column, or of a table without its database."""
        return self.parts[-1].value

    def __str__(self) -> str:
        return ".".join(self.names)


def identifier(*names: str) -> Identifier:
    """Make an identifier that no text has.

    Args:
        names: Its parts.
    """
    return Identifier(tuple(Name(name) for name in names))
