"""Nodes of the physical plan, each with its change types and its text for EXPLAIN."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from millstream.sql.planner.formatting import (
    aggregate_text,
    columns_text,
    expression_text,
    frame_text,
    length_text,
    order_text,
    partial_name,
    ranked_text,
    right_name,
    window_text,
)
from millstream.sql.planner.logical import JoinType, LookupHint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation
    from millstream.sql.catalog.connectors import TableLookup, TableSink, TableSource
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.catalog.schema import Column
    from millstream.sql.planner.logical import AggregateCall, OverCall, SortKey
    from millstream.types.logical_types import RowType


@dataclass(eq=False, kw_only=True)
class PhysicalNode:
    """A node of the physical plan."""

    row: RowType
    inputs: tuple[PhysicalNode, ...] = ()
    #: Which kinds of changes it gives: I, UB, UA, D; set by the planner.
    changes: frozenset[str] = field(default=frozenset({"I"}))
    #: Which of I, U, D it gives, once somebody has asked.
    kinds: frozenset[str] | None = field(default=None, repr=False)

    kind: ClassVar[str] = ""

    @property
    def input(self) -> PhysicalNode:
        """The only input."""
        return self.inputs[0]

    @property
    def is_insert_only(self) -> bool:
        """Whether it gives inserts alone."""
        return self.changes <= {"I"}

    @property
    def update_before(self) -> bool:
        """Whether it gives -U before each +U."""
        return "UB" in self.changes

    def details(self) -> str:
        """What EXPLAIN shows between the parentheses."""
        return ""

    @property
    def shown_kind(self) -> str:
        """What EXPLAIN calls it."""
        return self.kind

    @property
    def shown_inputs(self) -> tuple[PhysicalNode, ...]:
        """What EXPLAIN shows below it."""
        return self.inputs

    def fields_text(self) -> str:
        """The names of its columns."""
        return ", ".join(self.row.names)


def nodes_of(plans: Sequence[PhysicalNode]) -> list[PhysicalNode]:
    """Return every node of some plans once, each after the nodes that read it."""
    found: list[PhysicalNode] = []
    seen: set[int] = set()

    def visit(node: PhysicalNode) -> None:
        if id(node) not in seen:
            seen.add(id(node))
            for below in reversed(node.inputs):
                visit(below)
            found.append(node)

    for plan in reversed(plans):
        visit(plan)
    return found[::-1]


@dataclass(eq=False, kw_only=True)
class TableSourceScan(PhysicalNode):
    """Reads a table."""

    identifier: ObjectIdentifier
    table: CatalogTable
    source: TableSource
    #: What is true of the partitions that are read, over the columns; None: all are.
    partitions: Expression | None = None
    #: What a catalog was told, for estimates of costs alone; None: nothing, or it was not asked.
    known_rows: int | None = None
    kind: ClassVar[str] = "TableSourceScan"

    def details(self) -> str:
        path = ", ".join(self.identifier.parts)
        if self.partitions is not None:
            path += f", partitions=[{expression_text(self.partitions)}]"
        read = self.read_columns
        if len(read) < len(self.table.schema.read):
            columns = ", ".join(each.name for each in read if not each.is_metadata())
            path += f", project=[{columns}]"
            if self.source.metadata():
                keys = ", ".join(each.key for each in read if each.is_metadata())
                path += f", metadata=[{keys}]"
        return f"table=[[{path}]], fields=[{self.fields_text()}]"

    @property
    def read_columns(self) -> list[Column]:
        """The table's columns that the scan gives."""
        return [each for each in self.table.schema.read if self.row.index_of(each.name) >= 0]


@dataclass(eq=False, kw_only=True)
class DataStreamScan(PhysicalNode):
    """Reads a stream of the program."""

    transformation: Transformation
    name: str
    given: frozenset[str]
    key: tuple[int, ...] = ()
    rowtime: int | None = None
    kind: ClassVar[str] = "DataStreamScan"

    def details(self) -> str:
        return f"table=[[{self.name}]], fields=[{self.fields_text()}]"


@dataclass(eq=False, kw_only=True)
class ValuesScan(PhysicalNode):
    """Gives rows of the statement."""

    rows: tuple[tuple[object, ...], ...]
    kind: ClassVar[str] = "Values"

    def details(self) -> str:
        from millstream.expressions.nodes import Literal

        shown = []
        for row in self.rows:
            values = zip(row, self.row.children, strict=True)
            texts = (expression_text(Literal(value, kind)) for value, kind in values)
            shown.append("{ " + ", ".join(texts) + " }")
        return f"tuples=[[{', '.join(shown)}]]"


@dataclass(eq=False, kw_only=True)
class Calc(PhysicalNode):
    """Filters rows, then computes columns."""

    projections: tuple[Expression, ...]
    condition: Expression | None = None
    kind: ClassVar[str] = "Calc"

    def details(self) -> str:
        names = zip(self.projections, self.row.names, strict=True)
        shown = [
            text if (text := expression_text(each)) == name else f"{text} AS {name}"
            for each, name in names
        ]
        where = ""
        if self.condition is not None:
            where = f", where=[{expression_text(self.condition)}]"
        return f"select=[{', '.join(shown)}]{where}"


@dataclass(eq=False, kw_only=True)
class WatermarkAssigner(PhysicalNode):
    """Makes event time."""

    rowtime: int
    expression: Expression
    kind: ClassVar[str] = "WatermarkAssigner"

    def details(self) -> str:
        name = self.row.names[self.rowtime]
        return f"rowtime=[{name}], watermark=[{expression_text(self.expression)}]"


@dataclass(eq=False, kw_only=True)
class Exchange(PhysicalNode):
    """Brings rows of one key to one task."""

    #: None: all rows to one task.
    keys: tuple[int, ...] | None
    kind: ClassVar[str] = "Exchange"

    def details(self) -> str:
        if not self.keys:
            return "distribution=[single]"
        return f"distribution=[hash[{columns_text(self.row, self.keys)}]]"


@dataclass(eq=False, kw_only=True)
class DropUpdateBefore(PhysicalNode):
    """Drops -U."""

    kind: ClassVar[str] = "DropUpdateBefore"


@dataclass(eq=False, kw_only=True)
class ChangelogNormalize(PhysicalNode):
    """Makes a full changelog of upserts."""

    keys: tuple[int, ...]
    kind: ClassVar[str] = "ChangelogNormalize"

    def details(self) -> str:
        return f"key=[{columns_text(self.row, self.keys)}]"


@dataclass(eq=False, kw_only=True)
class TwoPhaseAggregate(PhysicalNode):
    """An aggregate by key that may be computed in part ahead of its exchange."""

    keys: tuple[int, ...]
    #: Whether each batch, or its slices of windows, is aggregated by itself ahead of the exchange.
    two_phase: bool = False
    _shown: Exchange | None = field(default=None, repr=False)

    @abstractmethod
    def local(self) -> PhysicalNode:
        """The aggregate ahead of the exchange."""

    @property
    def group_text(self) -> str:
        """The keys, as EXPLAIN shows them."""
        return f"groupBy=[{columns_text(self.input.row, self.keys)}], " if self.keys else ""

    @property
    def shown_kind(self) -> str:
        return f"Global{self.kind}" if self.two_phase else self.kind

    @property
    def shown_inputs(self) -> tuple[PhysicalNode, ...]:
        """In two phases, the exchange is of what the local aggregate gives."""
        if not self.two_phase:
            return self.inputs
        if self._shown is None:
            keys = tuple(range(len(self.keys))) or None
            self._shown = Exchange(row=self.row, inputs=(self.local(),), keys=keys)
        return (self._shown,)


@dataclass(eq=False, kw_only=True)
class GroupAggregate(TwoPhaseAggregate):
    """One row per key: keys, then aggregates."""

    calls: tuple[AggregateCall, ...]
    kind: ClassVar[str] = "GroupAggregate"

    #: Milliseconds, of a hint; None: as the option says.
    state_ttl: int | None = None

    def local(self) -> PhysicalNode:
        return LocalGroupAggregate(
            row=self.input.row, inputs=self.input.inputs, keys=self.keys, calls=self.calls
        )

    def details(self) -> str:
        below = self.input.row
        names = self.row.names[len(self.keys) :]
        shown = [below.names[key] for key in self.keys]
        suffix = "" if self.input.is_insert_only else "_RETRACT"
        calls = [aggregate_text(call, below, suffix) for call in self.calls]
        if self.two_phase:
            calls = [
                f"{call.function}{suffix}({partial_name(call, number)})"
                for number, call in enumerate(self.calls)
            ]
        shown += [f"{call} AS {name}" for call, name in zip(calls, names, strict=True)]
        ttl = "" if self.state_ttl is None else f", stateTtlHints=[{length_text(self.state_ttl)}]"
        return f"{self.group_text}select=[{', '.join(shown)}]{ttl}"


@dataclass(eq=False, kw_only=True)
class LocalGroupAggregate(PhysicalNode):
    """The aggregates of each batch by itself, ahead of the exchange.

    It is only shown: what it does is a part of the aggregate that it belongs to.
    """

    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    kind: ClassVar[str] = "LocalGroupAggregate"

    def details(self) -> str:
        below = self.input.row
        group = f"groupBy=[{columns_text(below, self.keys)}], " if self.keys else ""
        suffix = "" if self.input.is_insert_only else "_RETRACT"
        shown = [below.names[key] for key in self.keys]
        shown += [
            f"{aggregate_text(call, below, suffix)} AS {partial_name(call, number)}"
            for number, call in enumerate(self.calls)
        ]
        if suffix:
            shown.append("COUNT_RETRACT(*) AS count1$")
        return f"{group}select=[{', '.join(shown)}]"


@dataclass(eq=False, kw_only=True)
class Expand(PhysicalNode):
    """Each row once per grouping set, with NULL for the keys that are not in it."""

    #: For each set: positions of its keys.
    sets: tuple[tuple[int, ...], ...]
    keys: tuple[int, ...]
    kind: ClassVar[str] = "Expand"

    def details(self) -> str:
        names = self.input.row.names
        shown = ", ".join("{" + ", ".join(names[each] for each in part) + "}" for part in self.sets)
        return f"projects=[{shown}]"


@dataclass(eq=False, kw_only=True)
class WindowTableFunction(PhysicalNode):
    """Adds window_start, window_end and window_time to each row, once per window."""

    window: str
    time: int
    size: int
    step: int | None
    offset: int
    partition: tuple[int, ...] = ()
    kind: ClassVar[str] = "WindowTableFunction"

    def window_text(self) -> str:
        """The window as Flink writes it."""
        return window_text(
            self.window,
            self.input.row,
            self.time,
            self.size,
            self.step,
            self.offset,
            self.partition,
        )

    def details(self) -> str:
        return f"window=[{self.window_text()}]"


@dataclass(eq=False, kw_only=True)
class Deduplicate(PhysicalNode):
    """The first or last row per key."""

    keys: tuple[int, ...]
    #: None: by arrival.
    rowtime: int | None
    keep_last: bool
    kind: ClassVar[str] = "Deduplicate"

    def details(self) -> str:
        keep = "LastRow" if self.keep_last else "FirstRow"
        order = "PROCTIME" if self.rowtime is None else "ROWTIME"
        return f"keep=[{keep}], key=[{columns_text(self.row, self.keys)}], order=[{order}]"


@dataclass(eq=False, kw_only=True)
class Rank(PhysicalNode):
    """The rows of each partition whose number is in a range."""

    function: str
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    start: int
    end: int
    outputs_rank: bool
    #: append, retract or update fast; set by the changelog planning.
    strategy: str = "retract"
    #: For update fast.
    row_key: tuple[int, ...] = ()
    kind: ClassVar[str] = "Rank"

    def details(self) -> str:
        below = self.input.row
        strategies = {
            "append": "AppendFastStrategy",
            "retract": "RetractStrategy",
            "update fast": f"UpdateFastStrategy[{columns_text(below, self.row_key)}]",
        }
        return f"strategy=[{strategies[self.strategy]}], {ranked_text(self, self.input.row)}"


@dataclass(eq=False, kw_only=True)
class Limit(PhysicalNode):
    """The first rows as they come."""

    offset: int
    limit: int
    kind: ClassVar[str] = "Limit"

    def details(self) -> str:
        return f"offset=[{self.offset}], fetch=[{self.limit}]"


@dataclass(eq=False, kw_only=True)
class OverAggregate(PhysicalNode):
    """Aggregates over the rows around each row."""

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    calls: tuple[OverCall, ...]
    #: Over a changelog, or in another order than that of time: rows that are given may change.
    updating: bool = False
    #: When all rows are there, over any frame.
    batch: bool = False
    kind: ClassVar[str] = "OverAggregate"

    def details(self) -> str:
        below = self.input.row
        parts = []
        if self.partition:
            parts.append(f"partitionBy=[{columns_text(below, self.partition)}]")
        if self.order:
            parts.append(f"orderBy=[{order_text(below, self.order)}]")
        parts.append(f"window=[{frame_text(self.calls[0])}]")
        names = self.row.names[len(below) :]
        shown = list(below.names)
        shown += [
            f"{aggregate_text(each.call, below, '')} AS {name}"
            for each, name in zip(self.calls, names, strict=True)
        ]
        return ", ".join([*parts, f"select=[{', '.join(shown)}]"])


@dataclass(eq=False, kw_only=True)
class TwoInputs(PhysicalNode):
    """What joins of two streams have in common."""

    join: JoinType
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    #: Over both sides, beside the keys.
    condition: Expression | None
    #: For each pair of keys whether NULL equals nothing.
    filter_nulls: tuple[bool, ...]

    def where(self, *more: str) -> str:
        """The condition, and what else belongs to it."""
        left, right = (each.row for each in self.inputs)
        parts = [
            f"({left.names[one]} = {right_name(left, right, other)})"
            for one, other in zip(self.left_keys, self.right_keys, strict=True)
        ]
        if self.condition is not None:
            parts.append(expression_text(self.condition))
        parts += more
        if not parts:
            return "true"
        return parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})"


@dataclass(eq=False, kw_only=True)
class Join(TwoInputs):
    """A regular join."""

    kind: ClassVar[str] = "Join"
    #: How each side is unique, for EXPLAIN; set by the changelog planning.
    side_texts: tuple[str, str] = ("NoUniqueKey", "NoUniqueKey")
    #: Milliseconds, of a hint; None: as the option says.
    state_ttls: tuple[int | None, int | None] = (None, None)
    #: Whether the changes of a key within a batch are folded.
    mini_batch: bool = False

    def details(self) -> str:
        left, right = self.side_texts
        mini_batch = ", miniBatch=[true]" if self.mini_batch else ""
        return (
            f"joinType=[{self.join.value}], where=[{self.where()}], "
            f"select=[{self.fields_text()}], leftInputSpec=[{left}], "
            f"rightInputSpec=[{right}]{mini_batch}{self._ttl_text()}"
        )

    def _ttl_text(self) -> str:
        given = zip(("LEFT", "RIGHT"), self.state_ttls, strict=True)
        shown = [f"{side}={length_text(ttl)}" for side, ttl in given if ttl is not None]
        return f", stateTtlHints=[{', '.join(shown)}]" if shown else ""


@dataclass(eq=False, kw_only=True)
class Correlate(PhysicalNode):
    """Each row with what a table function makes of it."""

    function: str
    arguments: tuple[Expression, ...]
    join: JoinType
    with_ordinality: bool = False
    kind: ClassVar[str] = "Correlate"

    def details(self) -> str:
        inside = ", ".join(map(expression_text, self.arguments))
        join = "INNER" if self.join is JoinType.INNER else "LEFT"
        return (
            f"invocation=[{self.function}({inside})], select=[{self.fields_text()}], "
            f"joinType=[{join}]"
        )


@dataclass(eq=False, kw_only=True)
class Union(PhysicalNode):
    """All rows of all inputs."""

    kind: ClassVar[str] = "Union"

    def details(self) -> str:
        return f"all=[true], union=[{self.fields_text()}]"


@dataclass(eq=False, kw_only=True)
class SinkNode(PhysicalNode):
    """Writes."""

    #: ``default_catalog.default_database.t``, or what takes the rows.
    name: str
    #: None: a result for the program.
    sink: TableSink | None
    #: The table; None: what takes the rows is none.
    identifier: ObjectIdentifier | None = None
    table: CatalogTable | None = None
    #: The partition that is replaced, as far as the statement says it; None: rows are added.
    overwrite: tuple[tuple[str, object], ...] | None = None
    #: Positions of the primary key.
    key: tuple[int, ...] = ()
    materialize: bool = False
    #: The upsert key of the input, for the materializer.
    upsert_key: tuple[int, ...] | None = None
    #: ``ON CONFLICT DO``: ERROR, NOTHING or DEDUPLICATE; None: the statement has no such clause.
    conflict: str | None = None
    kind: ClassVar[str] = "Sink"

    def details(self) -> str:
        extra = ", upsertMaterialize=[true]" if self.materialize else ""
        extra += "" if self.conflict is None else f", conflictStrategy=[{self.conflict}]"
        extra += "" if self.overwrite is None else ", overwrite=[true]"
        return f"table=[{self.name}], fields=[{self.fields_text()}]{extra}"


@dataclass(eq=False, kw_only=True)
class FinalRows(PhysicalNode):
    """The rows that are there when the input is over, once each, as inserts."""

    order: tuple[SortKey, ...] = ()
    offset: int = 0
    kind: ClassVar[str] = "FinalRows"

    @property
    def shown_kind(self) -> str:
        return "Sort" if self.order else self.kind

    def details(self) -> str:
        parts = []
        if self.order:
            parts.append(f"orderBy=[{order_text(self.row, self.order)}]")
        if self.offset:
            parts.append(f"offset=[{self.offset}]")
        return ", ".join([*parts, f"select=[{self.fields_text()}]"])


@dataclass(eq=False, kw_only=True)
class ChangelogFunction(PhysicalNode):
    """Changes as rows with a code, or rows with a code as changes."""

    #: The column of the codes in the input; None: changes become rows.
    column: int | None
    #: Kinds of changes, by their names, with a code; a code stands once if it is read.
    codes: tuple[tuple[str, str], ...]
    kind: ClassVar[str] = "ProcessTableFunction"

    @property
    def function(self) -> str:
        """Its name in SQL."""
        return "TO_CHANGELOG" if self.column is None else "FROM_CHANGELOG"

    def details(self) -> str:
        codes = ", ".join(f"{kind}={code}" for kind, code in self.codes)
        return f"invocation=[{self.function}({codes})], select=[{self.fields_text()}]"


@dataclass(eq=False, kw_only=True)
class LookupJoin(PhysicalNode):
    """Each row of the left with the rows of a table outside as it is now."""

    join: JoinType
    identifier: ObjectIdentifier
    table: CatalogTable
    lookup: TableLookup
    #: The columns that the table gives, and those that it is asked by.
    table_row: RowType
    names: tuple[str, ...]
    #: The columns of the left with the values.
    keys: tuple[int, ...]
    #: What the keys are, for people.
    texts: tuple[str, ...]
    #: Over the columns of the table: the columns of the right, and which rows count.
    right_row: RowType
    projections: tuple[Expression, ...]
    table_condition: Expression | None
    #: Over both sides, beside the keys.
    condition: Expression | None
    #: Whether there is at most one row for a key.
    is_one_row: bool
    hint: LookupHint = field(default=LookupHint())
    kind: ClassVar[str] = "LookupJoin"

    def details(self) -> str:
        pairs = zip(self.names, self.texts, strict=True)
        path = self.identifier.as_summary_string()
        if len(self.table_row) < len(self.table.schema.stored):
            path += f", project=[{', '.join(self.table_row.names)}]"
        parts = [
            f"table=[{path}]",
            f"joinType=[{self.join.value}]",
            f"lookup=[{', '.join(f'{name}={text}' for name, text in pairs)}]",
        ]
        if self.table_condition is not None:
            parts.append(f"where=[{expression_text(self.table_condition)}]")
        if self.condition is not None:
            parts.append(f"joinCondition=[{expression_text(self.condition)}]")
        return ", ".join([*parts, f"select=[{self.fields_text()}]"]) + self.hint.text


@dataclass(eq=False, kw_only=True)
class IntervalJoin(TwoInputs):
    """Pairs of rows whose times are near each other."""

    left_time: int
    right_time: int
    #: Milliseconds: right - left lies between them.
    lower: int
    upper: int
    is_rowtime: bool
    kind: ClassVar[str] = "IntervalJoin"

    def details(self) -> str:
        bounds = (
            f"isRowTime={str(self.is_rowtime).lower()}, leftLowerBound={-self.upper}, "
            f"leftUpperBound={-self.lower}, leftTimeIndex={self.left_time}, "
            f"rightTimeIndex={self.right_time}"
        )
        return (
            f"joinType=[{self.join.value}], windowBounds=[{bounds}], where=[{self.where()}], "
            f"select=[{self.fields_text()}]"
        )


@dataclass(eq=False, kw_only=True)
class TemporalJoin(TwoInputs):
    """Each row of the left with the version of the right at its event time."""

    left_time: int
    right_time: int
    kind: ClassVar[str] = "TemporalJoin"

    def details(self) -> str:
        left, right = (each.row for each in self.inputs)
        ours = columns_text(left, self.left_keys)
        theirs = ", ".join(right_name(left, right, each) for each in self.right_keys)
        condition = (
            f"__TEMPORAL_JOIN_CONDITION({left.names[self.left_time]}, "
            f"{right_name(left, right, self.right_time)}, "
            f"__TEMPORAL_JOIN_CONDITION_PRIMARY_KEY({theirs}), "
            f"__TEMPORAL_JOIN_LEFT_KEY({ours}), __TEMPORAL_JOIN_RIGHT_KEY({theirs}))"
        )
        where = self.where(condition)
        return f"joinType=[{self.join.value}], where=[{where}], select=[{self.fields_text()}]"


@dataclass(eq=False, kw_only=True)
class TemporalSort(PhysicalNode):
    """Rows that are only added, in order of event time, then of other columns."""

    order: tuple[SortKey, ...]
    kind: ClassVar[str] = "TemporalSort"

    def details(self) -> str:
        return f"orderBy=[{order_text(self.row, self.order)}]"


@dataclass(frozen=True)
class WindowSpec:
    """How windows lie, and by what time; lengths in milliseconds."""

    kind: str
    size: int
    step: int | None
    offset: int
    is_rowtime: bool
    #: Whether they go by the clock of the session's time zone.
    has_zone: bool

    def text(self, row: RowType, start: int, end: int) -> str:
        """Windows that are columns of a row, as Flink writes them."""
        parts = [f"win_start=[{row.names[start]}]", f"win_end=[{row.names[end]}]"]
        words = {"HOP": ("size", "slide"), "CUMULATE": ("max_size", "step"), "SESSION": ("gap", "")}
        size, step = words.get(self.kind, ("size", ""))
        parts.append(f"{size}=[{length_text(self.size)}]")
        if step:
            parts.append(f"{step}=[{length_text(self.step or 0)}]")
        if self.offset:
            parts.append(f"offset=[{length_text(self.offset)}]")
        return f"{self.kind}({', '.join(parts)})"


@dataclass(eq=False, kw_only=True)
class WindowAggregate(TwoPhaseAggregate):
    """Aggregates per window and key, given when it is over: keys, aggregates, properties."""

    window: str
    time: int
    size: int
    step: int | None
    offset: int
    calls: tuple[AggregateCall, ...]
    #: window_start, window_end, window_time behind the aggregates, in this order.
    properties: tuple[str, ...]
    #: Whether the input has the windows' columns already: (start, end).
    attached: tuple[int, int] | None = None
    is_rowtime: bool = True
    kind: ClassVar[str] = "WindowAggregate"

    def local(self) -> PhysicalNode:
        return LocalWindowAggregate(row=self.input.row, inputs=self.input.inputs, aggregate=self)

    def window_text(self) -> str:
        """The window by the columns of the input, as Flink writes it."""
        below = self.input.row
        if self.attached is None:
            keys = self.keys if self.window == "SESSION" else ()
            lengths = (self.size, self.step, self.offset)
            return window_text(self.window, below, self.time, *lengths, keys)
        start, end = (below.names[each] for each in self.attached)
        return f"{self.window}(win_start=[{start}], win_end=[{end}])"

    def details(self) -> str:
        below = self.input.row
        shown = [below.names[key] for key in self.keys]
        names = self.row.names[len(self.keys) :]
        calls = [aggregate_text(call, below, "") for call in self.calls]
        window = self.window_text()
        if self.two_phase:
            calls = [
                f"{call.function}({partial_name(call, at)})" for at, call in enumerate(self.calls)
            ]
            if self.attached is None:
                time = f"time_col=[{below.names[self.time]}]"
                window = window.replace(time, "slice_end=[$slice_end]", 1)
            else:
                window = f"{self.window}(win_end=[$window_end])"
        shown += [f"{call} AS {name}" for call, name in zip(calls, names, strict=False)]
        shown += [
            f"{each} AS {name}"
            for each, name in zip(self.properties, names[len(self.calls) :], strict=True)
        ]
        return f"{self.group_text}window=[{window}], select=[{', '.join(shown)}]"


@dataclass(eq=False, kw_only=True)
class LocalWindowAggregate(PhysicalNode):
    """The aggregates of the slices of each batch by itself, ahead of the exchange.

    It is only shown: what it does is a part of the aggregate that it belongs to.
    """

    aggregate: WindowAggregate
    kind: ClassVar[str] = "LocalWindowAggregate"

    def details(self) -> str:
        whole = self.aggregate
        shown = [self.row.names[key] for key in whole.keys]
        shown += [
            f"{aggregate_text(call, self.row, '')} AS {partial_name(call, number)}"
            for number, call in enumerate(whole.calls)
        ]
        end = "$slice_end" if whole.attached is None else "$window_end"
        shown.append(f"slice_end('w$) AS {end}")
        window = whole.window_text()
        return f"{whole.group_text}window=[{window}], select=[{', '.join(shown)}]"


@dataclass(eq=False, kw_only=True)
class WindowJoin(TwoInputs):
    """Pairs of rows of one window."""

    spec: WindowSpec
    #: window_start and window_end of either side.
    left_window: tuple[int, int]
    right_window: tuple[int, int]
    kind: ClassVar[str] = "WindowJoin"

    def details(self) -> str:
        left, right = (each.row for each in self.inputs)
        return (
            f"leftWindow=[{self.spec.text(left, *self.left_window)}], "
            f"rightWindow=[{self.spec.text(right, *self.right_window)}], "
            f"joinType=[{self.join.value}], where=[{self.where()}], select=[{self.fields_text()}]"
        )


@dataclass(eq=False, kw_only=True)
class WindowRank(PhysicalNode):
    """The rows of each partition and window whose number is in a range."""

    spec: WindowSpec
    window: tuple[int, int]
    function: str
    #: Beside the window.
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    start: int
    end: int
    outputs_rank: bool
    kind: ClassVar[str] = "WindowRank"

    def details(self) -> str:
        below = self.input.row
        return f"window=[{self.spec.text(below, *self.window)}], {ranked_text(self, below)}"
