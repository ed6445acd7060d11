"""Nodes of queries and of what stands in their FROM."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from millstream.sql.parser.expression_nodes import (
    Expression,
    Identifier,
    Name,
    Node,
    Query,
    Relation,
)

if TYPE_CHECKING:
    from millstream.sql.parser.expression_nodes import (
        FunctionCall,
        IntervalLiteral,
        RowConstructor,
        SortItem,
        WindowSpecification,
    )

# --- queries


@dataclass(frozen=True, slots=True)
class Hint(Node):
    """``OPTIONS('k' = 'v')``, ``STATE_TTL('t' = '1d')``, ``BROADCAST(t)`` of ``/*+ ... */``."""

    #: In capitals.
    name: str
    #: Arguments without a key: names of tables, or strings.
    arguments: tuple[str, ...] = ()
    #: Arguments with a key.
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SelectItem(Node):
    """``x AS a``; a star has no alias."""

    expression: Expression
    alias: Name | None = None


class GroupingKind(StrEnum):
    """Kinds of elements of GROUP BY that stand for several sets of keys."""

    SETS = "GROUPING SETS"
    ROLLUP = "ROLLUP"
    CUBE = "CUBE"


@dataclass(frozen=True, slots=True)
class GroupingSet(Node):
    """``(a, b)`` among sets, or one key; ``()`` has none."""

    keys: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class GroupingSets(Node):
    """``GROUPING SETS (...)``, ``ROLLUP (...)``, ``CUBE (...)``."""

    kind: GroupingKind
    elements: tuple[GroupingSet | GroupingSets, ...]


@dataclass(frozen=True, slots=True)
class NamedWindow(Node):
    """``WINDOW w AS (...)``."""

    name: Name
    specification: WindowSpecification


@dataclass(frozen=True, slots=True)
class Select(Query):
    """``SELECT ... FROM ... WHERE ... GROUP BY ... HAVING ... WINDOW ... QUALIFY ...``."""

    items: tuple[SelectItem, ...]
    source: Relation | None = None
    where: Expression | None = None
    #: None: no GROUP BY; ``GROUP BY ()`` is one empty `GroupingSet`.
    group_by: tuple[Expression | GroupingSet | GroupingSets, ...] | None = None
    having: Expression | None = None
    windows: tuple[NamedWindow, ...] = ()
    qualify: Expression | None = None
    distinct: bool = False
    hints: tuple[Hint, ...] = ()


class SetOperator(StrEnum):
    """What stands between two queries; MINUS is EXCEPT."""

    UNION = "UNION"
    INTERSECT = "INTERSECT"
    EXCEPT = "EXCEPT"


@dataclass(frozen=True, slots=True)
class SetOperation(Query):
    """``left UNION [ALL] right``."""

    operator: SetOperator
    all: bool
    left: Query
    right: Query


@dataclass(frozen=True, slots=True)
class Values(Query):
    """``VALUES (1, 'a'), (2, 'b')``; a row without parentheses has one field."""

    rows: tuple[RowConstructor, ...]


@dataclass(frozen=True, slots=True)
class TableQuery(Query):
    """``TABLE t``: all of it."""

    name: Identifier


@dataclass(frozen=True, slots=True)
class OrderedQuery(Query):
    """A query with ``ORDER BY``, ``LIMIT`` (or ``FETCH``) and ``OFFSET`` behind it."""

    query: Query
    order_by: tuple[SortItem, ...] = ()
    offset: Expression | None = None
    limit: Expression | None = None


@dataclass(frozen=True, slots=True)
class CommonTable(Node):
    """``name (columns) AS (query)`` of WITH."""

    name: Name
    columns: tuple[Name, ...]
    query: Query


@dataclass(frozen=True, slots=True)
class WithQuery(Query):
    """``WITH a AS (...), b AS (...) query``."""

    tables: tuple[CommonTable, ...]
    query: Query


# --- FROM


@dataclass(frozen=True, slots=True)
class TableReference(Relation):
    """A table, a view or a common table by name."""

    name: Identifier
    hints: tuple[Hint, ...] = ()
    #: ``FOR SYSTEM_TIME AS OF ...``.
    as_of: Expression | None = None


@dataclass(frozen=True, slots=True)
class DerivedTable(Relation):
    """``(SELECT ...)`` in FROM."""

    query: Query
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class TableFunction(Relation):
    """``TABLE(f(...))``, ``LATERAL TABLE(f(...))``, ``TUMBLE(...)``: windows and functions."""

    call: FunctionCall
    lateral: bool = False
    #: Of the Table API, where the size of HOP need not be a multiple of its slide.
    any_size: bool = False


@dataclass(frozen=True, slots=True)
class Unnest(Relation):
    """``UNNEST(a) [WITH ORDINALITY]``."""

    arguments: tuple[Expression, ...]
    with_ordinality: bool = False


@dataclass(frozen=True, slots=True)
class AliasedRelation(Relation):
    """``relation AS alias (columns)``."""

    relation: Relation
    alias: Name
    columns: tuple[Name, ...] = ()


class JoinKind(StrEnum):
    """Kinds of joins."""

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    CROSS = "CROSS"
    #: ``FROM a, b``.
    COMMA = "COMMA"


@dataclass(frozen=True, slots=True)
class Join(Relation):
    """``left JOIN right ON condition``."""

    left: Relation
    right: Relation
    kind: JoinKind
    condition: Expression | None = None
    using: tuple[Name, ...] = ()
    natural: bool = False


# --- MATCH_RECOGNIZE


@dataclass(frozen=True, slots=True)
class PatternNode(Node):
    """A part of a pattern of rows."""


@dataclass(frozen=True, slots=True)
class PatternVariable(PatternNode):
    """One row that meets the variable's condition."""

    name: Name


@dataclass(frozen=True, slots=True)
class PatternSequence(PatternNode):
    """``A B C``."""

    parts: tuple[PatternNode, ...]


@dataclass(frozen=True, slots=True)
class PatternAlternatives(PatternNode):
    """``A | B``."""

    alternatives: tuple[PatternNode, ...]


@dataclass(frozen=True, slots=True)
class PatternQuantifier(PatternNode):
    """``A*``, ``A+?``, ``A{2,5}``."""

    pattern: PatternNode
    minimum: int
    #: None: without end.
    maximum: int | None
    #: Whether it takes as few rows as it can (``?`` behind it).
    reluctant: bool = False


@dataclass(frozen=True, slots=True)
class PatternExclusion(PatternNode):
    """``{- A -}``: rows that match and do not come out."""

    pattern: PatternNode


@dataclass(frozen=True, slots=True)
class PatternPermutation(PatternNode):
    """``PERMUTE(A, B)``: all orders."""

    patterns: tuple[PatternNode, ...]


class SkipKind(StrEnum):
    """Where matching goes on behind a match."""

    PAST_LAST_ROW = "PAST LAST ROW"
    TO_NEXT_ROW = "TO NEXT ROW"
    TO_FIRST = "TO FIRST"
    TO_LAST = "TO LAST"


@dataclass(frozen=True, slots=True)
class AfterMatch(Node):
    """``AFTER MATCH SKIP ...``."""

    kind: SkipKind
    #: The variable of TO FIRST and TO LAST.
    variable: Name | None = None


@dataclass(frozen=True, slots=True)
class Measure(Node):
    """``expression AS name``."""

    expression: Expression
    name: Name


@dataclass(frozen=True, slots=True)
class PatternSubset(Node):
    """``SUBSET S = (A, B)``."""

    name: Name
    variables: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class PatternDefinition(Node):
    """``DEFINE A AS condition``."""

    variable: Name
    condition: Expression


@dataclass(frozen=True, slots=True)
class MatchRecognize(Relation):
    """``relation MATCH_RECOGNIZE (...)``."""

    relation: Relation
    pattern: PatternNode
    definitions: tuple[PatternDefinition, ...]
    partition_by: tuple[Expression, ...] = ()
    order_by: tuple[SortItem, ...] = ()
    measures: tuple[Measure, ...] = ()
    #: ``ALL ROWS PER MATCH``; None: not said, which is one.
    all_rows: bool | None = None
    #: None: not said.
    after_match: AfterMatch | None = None
    #: ``^`` before the pattern, ``$`` behind it.
    anchored_start: bool = False
    anchored_end: bool = False
    within: IntervalLiteral | None = None
    subsets: tuple[PatternSubset, ...] = ()
