"""Nodes of expressions, queries and relations, as the parser makes them.

Operators and special forms have a node each where the syntax has a shape of its own.  What is only
spelled differently (``EXTRACT(DAY FROM x)``, ``TRIM(BOTH ' ' FROM x)``) is a `FunctionCall` with
positional arguments and a `Symbol` for each keyword among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, dataclass_transform

if TYPE_CHECKING:
    from decimal import Decimal

    from millstream.types.logical_types import LogicalType


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


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class _Frozen:
    """Makes frozen dataclasses of the classes below it."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Node(_Frozen):
    """Anything that the parser makes; ``position`` is None if no text was parsed (Table API)."""

    position: Position | None = field(default=None, compare=False, repr=False, kw_only=True)


class Expression(Node):
    """A node that has a value, or stands where a value may stand (symbols, descriptors)."""


class Relation(Node):
    """A node that may stand in FROM."""


class Statement(Node):
    """A node that may stand between two semicolons."""


class Query(Statement):
    """A node that gives a table: a statement by itself, or a part of one."""


class Name(Node):
    """One name, as written; names are case-sensitive, so quoting changes nothing but the text."""

    value: str
    quoted: bool = field(default=False, compare=False)


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


# --- literals


class Literal(Expression):
    """A number, a string, bytes, TRUE, FALSE, UNKNOWN or NULL.

    ``1`` is an INT, or a BIGINT where it does not fit; ``1.50`` is a DECIMAL(3, 2), ``1e0`` a
    DOUBLE, ``'abc'`` a CHAR(3), ``X'00'`` a BINARY(1), all NOT NULL; UNKNOWN is the BOOLEAN None,
    and NULL is None of the null type.
    """

    value: int | Decimal | float | str | bytes | bool | None
    type: LogicalType


class TemporalLiteral(Expression):
    """``DATE '2024-01-31'``, ``TIME '12:00:00'``, ``TIMESTAMP '2024-01-31 12:00:00.000'``.

    The text is known to be a date, a time or a timestamp; the type's precision is its number of
    digits after the point.
    """

    text: str
    type: LogicalType


class TimeUnit(StrEnum):
    """Units of intervals."""

    YEAR = "YEAR"
    QUARTER = "QUARTER"
    MONTH = "MONTH"
    WEEK = "WEEK"
    DAY = "DAY"
    HOUR = "HOUR"
    MINUTE = "MINUTE"
    SECOND = "SECOND"


class IntervalQualifier(Node):
    """``DAY(3) TO SECOND(6)``: a range of units, or one."""

    start: TimeUnit
    end: TimeUnit | None = None
    #: Digits of the first unit; None: not said.
    precision: int | None = None
    #: Digits behind the seconds' point; None: not said.
    fraction: int | None = None

    @property
    def is_year_month(self) -> bool:
        """Whether it counts months; otherwise milliseconds."""
        return self.start in {TimeUnit.YEAR, TimeUnit.QUARTER, TimeUnit.MONTH}


class IntervalLiteral(Expression):
    """``INTERVAL -'1 02:03' DAY TO MINUTE``."""

    #: What stands between the quotes.
    text: str
    qualifier: IntervalQualifier
    #: Months if ``qualifier.is_year_month``, otherwise milliseconds; signed.
    value: int
    #: Whether a minus stands before the quotes.
    negative: bool = False


class Symbol(Expression):
    """A keyword among arguments: ``DAY`` of EXTRACT, ``BOTH`` of TRIM; in capitals."""

    value: str


# --- operators


class UnaryOperation(Expression):
    """``NOT``, ``+`` or ``-`` before its operand."""

    operator: str
    operand: Expression


class BinaryOperation(Expression):
    """``OR AND = <> < <= > >= || + - * / %`` between two operands; ``!=`` is ``<>``."""

    operator: str
    left: Expression
    right: Expression


class IsPredicate(Expression):
    """``x IS [NOT] NULL | TRUE | FALSE | UNKNOWN``."""

    operand: Expression
    test: str
    negated: bool = False


class IsDistinctFrom(Expression):
    """``x IS [NOT] DISTINCT FROM y``."""

    left: Expression
    right: Expression
    negated: bool = False


class IsJson(Expression):
    """``x IS [NOT] JSON [VALUE | ARRAY | OBJECT | SCALAR]``."""

    operand: Expression
    #: VALUE, ARRAY, OBJECT or SCALAR.
    kind: str = "VALUE"
    negated: bool = False


class Between(Expression):
    """``x [NOT] BETWEEN [SYMMETRIC] low AND high``."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False
    symmetric: bool = False


class Like(Expression):
    """``x [NOT] LIKE | SIMILAR TO pattern [ESCAPE c]``."""

    operand: Expression
    pattern: Expression
    escape: Expression | None = None
    negated: bool = False
    #: Whether it is SIMILAR TO.
    similar: bool = False


class InList(Expression):
    """``x [NOT] IN (a, b)``."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False


class InQuery(Expression):
    """``x [NOT] IN (SELECT ...)``; the operand may be a `RowConstructor`."""

    operand: Expression
    query: Query
    negated: bool = False


class QuantifiedComparison(Expression):
    """``x = ANY (...)``, ``x < ALL (...)``: over a query's rows or a list."""

    operator: str
    left: Expression
    #: ANY (which SOME is too) or ALL.
    quantifier: str
    right: Query | tuple[Expression, ...]


class Exists(Expression):
    """``EXISTS (SELECT ...)``."""

    query: Query


class ScalarQuery(Expression):
    """``(SELECT max(x) FROM t)`` as a value."""

    query: Query


class PeriodPredicate(Expression):
    """``(start, end) OVERLAPS (start, end)``; the other predicates of periods are refused."""

    left: Expression
    right: Expression


class WhenClause(Node):
    """``WHEN condition THEN result``."""

    condition: Expression
    result: Expression


class Case(Expression):
    """``CASE [operand] WHEN ... THEN ... [ELSE ...] END``."""

    operand: Expression | None
    whens: tuple[WhenClause, ...]
    otherwise: Expression | None = None


class Cast(Expression):
    """``CAST(x AS type)``, or TRY_CAST; the type is nullable unless it says NOT NULL."""

    operand: Expression
    type: LogicalType
    #: Whether it is TRY_CAST.
    safe: bool = False


# --- composite values


class RowConstructor(Expression):
    """``ROW(a, b)`` or ``(a, b)``."""

    fields: tuple[Expression, ...]


class ArrayConstructor(Expression):
    """``ARRAY[a, b]``."""

    elements: tuple[Expression, ...]


class MapConstructor(Expression):
    """``MAP[k1, v1, k2, v2]``."""

    entries: tuple[tuple[Expression, Expression], ...]


class ElementAccess(Expression):
    """``x[i]``: of an array (from 1), a map (by key) or a row (from 1)."""

    operand: Expression
    index: Expression


class FieldAccess(Expression):
    """``f(x).field``, ``x[1].field``; fields of a plain name are parts of its `Identifier`."""

    operand: Expression
    name: Name


class Star(Expression):
    """``*`` or ``t.*`` in SELECT; ``*`` as the argument of COUNT."""

    qualifier: Identifier | None = None


# --- calls


class SortItem(Node):
    """``x [ASC | DESC] [NULLS FIRST | LAST]``."""

    expression: Expression
    descending: bool = False
    #: None: not said; the smallest, as in Flink (first when ascending).
    nulls_first: bool | None = None


class FrameBound(Node):
    """``UNBOUNDED PRECEDING``, ``CURRENT ROW``, ``3 FOLLOWING``."""

    #: PRECEDING, FOLLOWING or CURRENT ROW.
    direction: str
    #: How far; None: unbounded, or the current row.
    offset: Expression | None = None


class WindowFrame(Node):
    """``ROWS | RANGE BETWEEN start AND end``; without BETWEEN one end is the current row."""

    #: ROWS or RANGE.
    unit: str
    start: FrameBound
    end: FrameBound


class WindowSpecification(Node):
    """The content of the parentheses of OVER, or of a named window."""

    #: A window of the WINDOW clause that this one adds to.
    base: Name | None = None
    partition_by: tuple[Expression, ...] = ()
    order_by: tuple[SortItem, ...] = ()
    frame: WindowFrame | None = None


class FunctionCall(Expression):
    """``f(a, b)``, with all that may stand in and behind the parentheses."""

    #: Of one part for built-in functions, in the spelling of the text.
    name: Identifier
    #: May have `Star`, `Symbol`, `NamedArgument`, `Descriptor` and `TableArgument` among them.
    arguments: tuple[Expression, ...] = ()
    distinct: bool = False
    #: ``ARRAY_AGG(x ORDER BY y)``.
    order_by: tuple[SortItem, ...] = ()
    #: ``IGNORE NULLS``: True, ``RESPECT NULLS``: False.
    ignore_nulls: bool | None = None
    #: ``WITHIN GROUP (ORDER BY ...)``.
    within_group: tuple[SortItem, ...] = ()
    #: ``FILTER (WHERE ...)``.
    filter: Expression | None = None
    #: ``OVER (...)``, or the name of a window.
    over: WindowSpecification | Name | None = None
    #: Whether it is written without parentheses: CURRENT_DATE.
    niladic: bool = field(default=False, compare=False)


class NamedArgument(Expression):
    """``SIZE => INTERVAL '1' HOUR``."""

    name: Name
    value: Expression


class DefaultArgument(Expression):
    """``DEFAULT`` in the place of an argument: the function's own default."""


class Descriptor(Expression):
    """``DESCRIPTOR(rowtime)``."""

    columns: tuple[Name, ...]


class TableArgument(Expression):
    """``TABLE t [PARTITION BY x] [ORDER BY y]``, or ``TABLE (SELECT ...)``."""

    table: Identifier | Query
    partition_by: tuple[Expression, ...] = ()
    order_by: tuple[SortItem, ...] = ()


class MatchSemantics(Expression):
    """``RUNNING last(A.x)`` or ``FINAL last(A.x)``, in MATCH_RECOGNIZE."""

    final: bool
    operand: Expression


# --- JSON


class JsonBehavior(Node):
    """The behaviour before ON EMPTY, ON ERROR or ON NULL."""

    #: NULL, ERROR, EMPTY ARRAY, EMPTY OBJECT, TRUE, FALSE, UNKNOWN or DEFAULT.
    kind: str
    #: The value behind DEFAULT.
    default: Expression | None = None


class JsonExists(Expression):
    """``JSON_EXISTS(x, path [TRUE | FALSE | UNKNOWN | ERROR ON ERROR])``."""

    operand: Expression
    path: Expression
    on_error: JsonBehavior | None = None


class JsonValue(Expression):
    """``JSON_VALUE(x, path [RETURNING type] [... ON EMPTY] [... ON ERROR])``."""

    operand: Expression
    path: Expression
    returning: LogicalType | None = None
    on_empty: JsonBehavior | None = None
    on_error: JsonBehavior | None = None


class JsonQuery(Expression):
    """``JSON_QUERY(x, path [RETURNING type] [... WRAPPER] [... ON EMPTY] [... ON ERROR])``."""

    operand: Expression
    path: Expression
    returning: LogicalType | None = None
    #: WITHOUT, CONDITIONAL or UNCONDITIONAL (which WITH WRAPPER is); None: not said.
    wrapper: str | None = None
    on_empty: JsonBehavior | None = None
    on_error: JsonBehavior | None = None


class JsonObject(Expression):
    """``JSON_OBJECT(KEY k VALUE v, ... [NULL | ABSENT ON NULL])``; JSON_OBJECTAGG has one entry."""

    entries: tuple[tuple[Expression, Expression], ...]
    #: Whether entries without a value are left out; None: not said.
    absent_on_null: bool | None = None
    aggregate: bool = False


class JsonArray(Expression):
    """``JSON_ARRAY(x, y [NULL | ABSENT ON NULL])``; JSON_ARRAYAGG has one element."""

    elements: tuple[Expression, ...]
    absent_on_null: bool | None = None
    aggregate: bool = False
    #: Of JSON_ARRAYAGG.
    order_by: tuple[SortItem, ...] = ()


# --- queries


class Hint(Node):
    """``OPTIONS('k' = 'v')``, ``STATE_TTL('t' = '1d')``, ``BROADCAST(t)`` of ``/*+ ... */``."""

    #: In capitals.
    name: str
    #: Arguments without a key: names of tables, or strings.
    arguments: tuple[str, ...] = ()
    #: Arguments with a key.
    options: tuple[tuple[str, str], ...] = ()


class SelectItem(Node):
    """``x AS a``; a star has no alias."""

    expression: Expression
    alias: Name | None = None


class GroupingKind(StrEnum):
    """Kinds of elements of GROUP BY that stand for several sets of keys."""

    SETS = "GROUPING SETS"
    ROLLUP = "ROLLUP"
    CUBE = "CUBE"


class GroupingSet(Node):
    """``(a, b)`` among sets, or one key; ``()`` has none."""

    keys: tuple[Expression, ...]


class GroupingSets(Node):
    """``GROUPING SETS (...)``, ``ROLLUP (...)``, ``CUBE (...)``."""

    kind: GroupingKind
    elements: tuple[GroupingSet | GroupingSets, ...]


class NamedWindow(Node):
    """``WINDOW w AS (...)``."""

    name: Name
    specification: WindowSpecification


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
    """The operator between two queries; MINUS is EXCEPT."""

    UNION = "UNION"
    INTERSECT = "INTERSECT"
    EXCEPT = "EXCEPT"


class SetOperation(Query):
    """``left UNION [ALL] right``."""

    operator: SetOperator
    all: bool
    left: Query
    right: Query


class Values(Query):
    """``VALUES (1, 'a'), (2, 'b')``; a row without parentheses has one field."""

    rows: tuple[RowConstructor, ...]


class TableQuery(Query):
    """``TABLE t``: all of it."""

    name: Identifier


class OrderedQuery(Query):
    """A query with ``ORDER BY``, ``LIMIT`` (or ``FETCH``) and ``OFFSET`` behind it."""

    query: Query
    order_by: tuple[SortItem, ...] = ()
    offset: Expression | None = None
    limit: Expression | None = None


class CommonTable(Node):
    """``name (columns) AS (query)`` of WITH."""

    name: Name
    columns: tuple[Name, ...]
    query: Query


class WithQuery(Query):
    """``WITH a AS (...), b AS (...) query``."""

    tables: tuple[CommonTable, ...]
    query: Query


# --- FROM


class TableReference(Relation):
    """A table, a view or a common table by name."""

    name: Identifier
    hints: tuple[Hint, ...] = ()
    #: ``FOR SYSTEM_TIME AS OF ...``.
    as_of: Expression | None = None


class DerivedTable(Relation):
    """``(SELECT ...)`` in FROM."""

    query: Query
    lateral: bool = False


class TableFunction(Relation):
    """``TABLE(f(...))``, ``LATERAL TABLE(f(...))``, ``TUMBLE(...)``: windows and functions."""

    call: FunctionCall
    lateral: bool = False
    #: Of the Table API, where the size of HOP need not be a multiple of its slide.
    any_size: bool = False


class Unnest(Relation):
    """``UNNEST(a) [WITH ORDINALITY]``."""

    arguments: tuple[Expression, ...]
    with_ordinality: bool = False


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


class Join(Relation):
    """``left JOIN right ON condition``."""

    left: Relation
    right: Relation
    kind: JoinKind
    condition: Expression | None = None
    using: tuple[Name, ...] = ()
    natural: bool = False


# --- MATCH_RECOGNIZE


class PatternNode(Node):
    """A part of a pattern of rows."""


class PatternVariable(PatternNode):
    """One row that meets the variable's condition."""

    name: Name


class PatternSequence(PatternNode):
    """``A B C``."""

    parts: tuple[PatternNode, ...]


class PatternAlternatives(PatternNode):
    """``A | B``."""

    alternatives: tuple[PatternNode, ...]


class PatternQuantifier(PatternNode):
    """``A*``, ``A+?``, ``A{2,5}``."""

    pattern: PatternNode
    minimum: int
    #: None: without end.
    maximum: int | None
    #: Whether it takes as few rows as it can (``?`` behind it).
    reluctant: bool = False


class PatternExclusion(PatternNode):
    """``{- A -}``: rows that match and do not come out."""

    pattern: PatternNode


class PatternPermutation(PatternNode):
    """``PERMUTE(A, B)``: all orders."""

    patterns: tuple[PatternNode, ...]


class SkipKind(StrEnum):
    """Where matching goes on behind a match."""

    PAST_LAST_ROW = "PAST LAST ROW"
    TO_NEXT_ROW = "TO NEXT ROW"
    TO_FIRST = "TO FIRST"
    TO_LAST = "TO LAST"


class AfterMatch(Node):
    """``AFTER MATCH SKIP ...``."""

    kind: SkipKind
    #: The variable of TO FIRST and TO LAST.
    variable: Name | None = None


class Measure(Node):
    """``expression AS name``."""

    expression: Expression
    name: Name


class PatternSubset(Node):
    """``SUBSET S = (A, B)``."""

    name: Name
    variables: tuple[Name, ...]


class PatternDefinition(Node):
    """``DEFINE A AS condition``."""

    variable: Name
    condition: Expression


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
