"""Nodes of the logical plan: relational algebra over bound expressions.

Each node knows the type of its rows.  Columns are referenced by position; names are for display
only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, dataclass_transform

from millstream.expressions.nodes import InputReference
from millstream.types.logical_types import RowField, RowType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from decimal import Decimal

    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation
    from millstream.runtime.operators.table.match import Slot
    from millstream.runtime.operators.table.row_patterns import RowPattern
    from millstream.runtime.operators.table.specs import AggregateCall
    from millstream.sql.catalog.connectors import TableSource
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.types.logical_types import LogicalType


#: Among groupings: how many sets that are alike stand in front.
GROUP_ID: Final = (-1,)


def unique_names(names: Iterable[str]) -> list[str]:
    """The names, with a number behind those that came before, as Flink's planner does it."""
    taken: set[str] = set()
    found: list[str] = []
    for name in names:
        candidate, number = name, 0
        while candidate in taken:
            candidate, number = f"{name}{number}", number + 1
        taken.add(candidate)
        found.append(candidate)
    return found


def row_of(names: Iterable[str], types: Iterable[LogicalType]) -> RowType:
    """A row, whose names are made unique."""
    pairs = zip(unique_names(names), types, strict=True)
    return RowType(tuple(RowField(name, kind) for name, kind in pairs), nullable=False)


def references(row: RowType) -> list[InputReference]:
    """All columns of a row, as expressions."""
    return [InputReference(i, each.name, each.type) for i, each in enumerate(row.fields)]


class JoinType(Enum):
    """The rows that a join keeps; the value is Flink's name in plans."""

    INNER = "InnerJoin"
    LEFT = "LeftOuterJoin"
    RIGHT = "RightOuterJoin"
    FULL = "FullOuterJoin"
    SEMI = "LeftSemiJoin"
    ANTI = "LeftAntiJoin"

    @property
    def keeps_left(self) -> bool:
        """Whether rows of the left come out though nothing on the right fits."""
        return self in {JoinType.LEFT, JoinType.FULL}

    @property
    def keeps_right(self) -> bool:
        """Whether rows of the right come out though nothing on the left fits."""
        return self in {JoinType.RIGHT, JoinType.FULL}

    @property
    def left_only(self) -> bool:
        """Whether the result has the columns of the left alone."""
        return self in {JoinType.SEMI, JoinType.ANTI}


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to sort by."""

    column: int
    descending: bool = False
    #: Whether NULL comes first.
    nulls_first: bool = True


#: The expression of watermarks that come with the rows.
SOURCE_WATERMARK: Final = "SOURCE_WATERMARK"


@dataclass(frozen=True, slots=True)
class OverCall:
    """An aggregate or ranking function over the rows around each row."""

    call: AggregateCall
    #: ROWS or RANGE.
    is_rows: bool
    #: How many rows, or milliseconds, before the row; None: from the beginning.  Of batch mode it
    #: may be negative, for behind the row, and RANGE goes by numbers, too.
    preceding: int | float | Decimal | None
    #: The same behind the row; None: to the end.  Streams have no rows behind the row.
    following: int | float | Decimal | None = 0


@dataclass_transform(
    frozen_default=True, eq_default=False, kw_only_default=True, field_specifiers=(field,)
)
class _Relation:
    """Makes frozen dataclasses of the classes below it."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False, kw_only=True)(cls)


class LogicalNode(_Relation):
    """A node; compared by identity, so that a query used twice is planned once."""

    row: RowType

    @property
    def inputs(self) -> Sequence[LogicalNode]:
        """What it reads."""
        return ()


class ScanNode(LogicalNode):
    """Reads a table: its physical and metadata columns."""

    identifier: ObjectIdentifier
    table: CatalogTable
    source: TableSource
    is_temporary: bool = False


class StreamScanNode(LogicalNode):
    """Reads a stream of the program."""

    transformation: Transformation
    name: str
    #: Whether the rows have kinds, and no -U.
    changelog: frozenset[str] = frozenset({"I"})
    #: Columns that are unique among the rows that are there.
    key: tuple[int, ...] = ()
    #: The column that takes the stream's own timestamps; they are rows' event time.
    rowtime: int | None = None


class ValuesNode(LogicalNode):
    """Rows of the statement itself: values as ``expressions/nodes.py`` has them."""

    rows: tuple[tuple[object, ...], ...]


class OneInput(LogicalNode):
    """Base of nodes with one input."""

    input: LogicalNode

    @property
    def inputs(self) -> Sequence[LogicalNode]:
        """The one input."""
        return (self.input,)


class ProjectNode(OneInput):
    """Expressions over each row."""

    expressions: tuple[Expression, ...]


def project(
    plan: LogicalNode, expressions: Iterable[Expression], names: Iterable[str]
) -> ProjectNode:
    """Compute columns over each row of a plan."""
    made = tuple(expressions)
    row = row_of(names, [each.type for each in made])
    return ProjectNode(row=row, input=plan, expressions=made)


class FilterNode(OneInput):
    """Keeps rows for which a condition is true."""

    condition: Expression


class WatermarkNode(OneInput):
    """Makes a column the event time, and watermarks of an expression."""

    rowtime: int
    expression: Expression


class AggregateNode(OneInput):
    """One row per key: the key's columns, then the aggregates."""

    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    #: For GROUPING SETS: positions in ``keys``; None: one set of all.
    sets: tuple[tuple[int, ...], ...] | None = None
    #: GROUPING and GROUPING_ID: for each, the positions in ``keys``; behind the aggregates.
    groupings: tuple[tuple[int, ...], ...] = ()
    #: Milliseconds; None: as the option says.
    state_ttl: int | None = None


class DistinctNode(OneInput):
    """Each row once."""

    #: As of AggregateNode.
    state_ttl: int | None = None


class WindowNode(OneInput):
    """A window TVF: each row with window_start, window_end and window_time behind it."""

    #: TUMBLE, HOP, CUMULATE or SESSION.
    kind: str
    time: int
    #: Milliseconds; of a session: the gap.
    size: int
    #: Of HOP: from start to start; of CUMULATE: from end to end.
    step: int | None = None
    offset: int = 0
    #: Of SESSION.
    partition: tuple[int, ...] = ()

    @property
    def time_type(self) -> LogicalType:
        """The type of the time column."""
        return self.input.row.fields[self.time].type


class OverNode(OneInput):
    """Aggregates over the rows around each row, behind its columns."""

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    calls: tuple[OverCall, ...]


class ChangelogNode(OneInput):
    """Changes as rows with a code, or rows with a code as changes."""

    #: The column of the codes in the input; None: changes become rows.
    column: int | None
    #: Kinds of changes, by their names, with a code.
    codes: tuple[tuple[str, str], ...]


class MatchNode(OneInput):
    """One row for each match of a pattern of rows: the partition's columns, then the measures."""

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    pattern: RowPattern
    #: Per variable of the pattern, over ``slots``; None: every row meets it.
    conditions: tuple[Expression | None, ...]
    #: Over ``slots``.
    measures: tuple[Expression, ...]
    #: What conditions and measures read of the rows of a match.
    slots: tuple[Slot, ...]


class JoinNode(LogicalNode):
    """Pairs of rows for which a condition over both is true."""

    left: LogicalNode
    right: LogicalNode
    kind: JoinType
    #: Over the columns of the left, then those of the right.
    condition: Expression | None
    #: Of the left and of the right, as of AggregateNode.
    state_ttls: tuple[int | None, int | None] = (None, None)

    @property
    def inputs(self) -> Sequence[LogicalNode]:
        """The left and the right."""
        return (self.left, self.right)


@dataclass(frozen=True)
class LookupHint:
    """How the rows of a lookup join are asked for; times in milliseconds."""

    is_async: bool = False
    is_unordered: bool = False
    #: Keys that are under way at a time.
    capacity: int = 100
    #: How long an answer may take, with all that is asked again.
    timeout: int = 180_000
    #: How often, and after which time, keys without rows are asked for again.
    max_attempts: int = 0
    retry_delay: int = 0
    #: Whether rows with the same key go to the same subtask.
    is_shuffled: bool = False

    @property
    def text(self) -> str:
        """What EXPLAIN says of it, with a comma in front; empty: nothing."""
        parts = []
        if self.is_async:
            mode = "UNORDERED" if self.is_unordered else "ORDERED"
            parts.append(f", async=[{mode}, {self.timeout}ms, {self.capacity}]")
        if self.max_attempts:
            retry = f"{self.retry_delay}ms, {self.max_attempts}"
            parts.append(f", retry=[lookup_miss, FIXED_DELAY, {retry}]")
        return "".join(parts)


class TemporalJoinNode(LogicalNode):
    """Each row of the left with the version of the right at its time."""

    left: LogicalNode
    right: LogicalNode
    kind: JoinType
    condition: Expression | None
    #: The column of the left that says when; None: now.
    time: int | None
    #: How it is asked for what is now.
    lookup: LookupHint = field(default=LookupHint())

    @property
    def inputs(self) -> Sequence[LogicalNode]:
        """The left and the right."""
        return (self.left, self.right)


class CorrelateNode(OneInput):
    """Each row with the rows that a table function makes of it."""

    #: UNNEST, or the name of a function.
    function: str
    arguments: tuple[Expression, ...]
    kind: JoinType
    with_ordinality: bool = False


class UnionNode(LogicalNode):
    """All rows of all inputs."""

    members: tuple[LogicalNode, ...]

    @property
    def inputs(self) -> Sequence[LogicalNode]:
        """The members."""
        return self.members


class LimitNode(OneInput):
    """The first rows, in an order if there is one."""

    order: tuple[SortKey, ...] = field(default=())
    offset: int = 0
    #: None: all.
    limit: int | None = None
