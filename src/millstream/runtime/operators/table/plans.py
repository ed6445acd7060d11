"""Plans of operators over changelogs: what each of them is to do.

What it is: picklable data, one class per kind of operator, which its factory
(``runtime/operators/table/factories.py``) is a subclass of.  A keyed one needs an edge partitioned
by ``KeyColumns`` (``types/field_access.py``) with the same columns.

``update_before`` says everywhere whether the node's readers want -U in front of +U.  ``state_ttl``
is in milliseconds of processing time, 0: what is kept is kept for good.  Every operator gives
columns of ``output_type`` of its context, in the order that its plan tells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from millstream.contracts.operator import StateSection
from millstream.expressions.context import EvaluationContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.runtime.columnar.table_windows import WindowSpec
    from millstream.runtime.operators.table.row_patterns import RowPattern, Slot
    from millstream.runtime.operators.table.specs import (
        AggregateCall,
        JoinKind,
        JoinSide,
        RankStrategy,
        SortColumn,
    )
    from millstream.types.logical_types import RowType


@dataclass(frozen=True)
class CalcPlan:
    """Filters rows, then computes columns of them.  Kinds of rows stay as they are."""

    input_type: RowType
    #: One per output column.
    projections: tuple[Expression, ...]
    #: BOOLEAN; rows stay for which it is true.  None: all do.
    condition: Expression | None = None
    #: Time zone, start of the query and parameters; the operator sets time.
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    #: Whether somebody behind it reads the rows' timestamps, which no operator of tables does.
    keeps_times: bool = True
    keyed: ClassVar[bool] = False


@dataclass(frozen=True)
class DropUpdateBeforePlan:
    """Drops -U: behind it, +U replaces the row of its key."""

    keyed: ClassVar[bool] = False


@dataclass(frozen=True)
class GroupAggregatePlan:
    """GROUP BY without windows.  Gives the key columns, then the aggregates."""

    input_type: RowType
    #: None: all rows are one group.
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    #: Whether the input has -U or -D.
    retracts: bool
    update_before: bool
    #: One change per key and batch instead of one per row.
    mini_batch: bool = False
    state_ttl: int = 0
    #: Whether the input is partial aggregates of LocalGroupAggregatePlan (needs mini_batch);
    #: input_type, keys and aggregates are those of the latter.
    merges: bool = False
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        calls = _calls_text(self.aggregates)
        details = {"aggregates": calls, "retracts": str(self.retracts).lower()}
        return [StateSection("groups", "packed accumulators by key", details=details)]


@dataclass(frozen=True)
class LocalGroupAggregatePlan:
    """Partial aggregates per batch, ahead of the exchange; for mini-batches.

    Gives the key columns and those that ``partial_fields`` (``aggregate_calls.py``) says;
    ``can_be_partial`` says whether all aggregates can be computed that way.
    """

    input_type: RowType
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    retracts: bool
    keyed: ClassVar[bool] = False


@dataclass(frozen=True)
class DeduplicatePlan:
    """The first or the last row per key, by arrival or by a time attribute.  Columns stay.

    By arrival and ``keep_last`` it also takes changelogs, as Flink's does; else inserts only.
    """

    input_type: RowType
    keys: tuple[int, ...]
    #: The column of the time attribute; None: by arrival (processing time).
    rowtime: int | None
    keep_last: bool
    update_before: bool
    #: Whether the input has only +I.
    insert_only: bool = True
    #: Whether the first row of a key has to be +I; +U otherwise, which saves keeping rows.
    generate_insert: bool = True
    mini_batch: bool = False
    state_ttl: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [_one_row(self.input_type)]


@dataclass(frozen=True)
class TopNPlan:
    """ROW_NUMBER() OVER (PARTITION BY keys ORDER BY order) BETWEEN start AND end.

    Gives the input's columns, then the number (BIGINT) if ``output_rank``.
    """

    input_type: RowType
    keys: tuple[int, ...]
    order: tuple[SortColumn, ...]
    #: First and last number, counted from 1.
    start: int
    end: int
    output_rank: bool
    strategy: RankStrategy
    update_before: bool
    #: The key of the input's rows, for UPDATE_FAST.
    row_key: tuple[int, ...] = ()
    state_ttl: int = 0
    #: Only what is different behind a batch is given, not every step to there.
    mini_batch: bool = False
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {
            "columns": _columns_text(self.input_type),
            "order": ", ".join(map(str, self.order)),
            "strategy": self.strategy.value,
        }
        return [StateSection("ranking", "packed rows by key, then order", details=details)]


@dataclass(frozen=True)
class JoinPlan:
    """A regular join of two changelogs.  Gives the left columns, then the right ones.

    SEMI and ANTI give the left columns.  Input 0 is left, input 1 right.
    """

    left_type: RowType
    right_type: RowType
    kind: JoinKind
    left: JoinSide
    right: JoinSide
    #: For each pair of key columns whether NULL equals nothing, not even NULL (``=``); False is
    #: IS NOT DISTINCT FROM.
    filter_nulls: tuple[bool, ...]
    #: Over the columns of both sides; None: equal keys suffice.
    condition: Expression | None = None
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    left_ttl: int = 0
    right_ttl: int = 0
    #: Whether the changes of a key within a batch are folded.
    mini_batch: bool = False
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        keys = [f" by {side.unique_key or 'row'}" for side in (self.left, self.right)]
        return [joined_section("joined rows", self.left_type, self.right_type, keys)]


@dataclass(frozen=True)
class ChangelogNormalizePlan:
    """Makes a full changelog of upserts (+I/+U and -D by key).  Columns stay."""

    input_type: RowType
    keys: tuple[int, ...]
    update_before: bool
    mini_batch: bool = False
    #: BOOLEAN, pushed into it; rows for which it is not true do not exist.
    condition: Expression | None = None
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    state_ttl: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [_one_row(self.input_type)]


@dataclass(frozen=True)
class SinkMaterializerPlan:
    """Brings a changelog whose key is not that of the sink in an order that the sink can take.

    Keeps all rows per key of the sink in order of arrival; the last of them is what the sink has.
    """

    input_type: RowType
    #: The sink's primary key.
    keys: tuple[int, ...]
    #: The upsert key of the input, None if there is none: then whole rows are compared.
    upsert_key: tuple[int, ...] | None
    state_ttl: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {"columns": _columns_text(self.input_type), "upsert key": str(self.upsert_key)}
        return [StateSection("rows", "packed rows by key", details=details)]


@dataclass(frozen=True)
class OverPlan:
    """Aggregates over the rows in front of each row.  Gives the input's columns, then these.

    Rows are in the order of a time attribute; the frame ends at the current row.
    """

    input_type: RowType
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    #: The column of the time attribute; None: processing time.
    rowtime: int | None
    #: ROWS; False: RANGE, in which rows of one time are together.
    is_rows: bool
    #: How many rows, or milliseconds, the frame begins before the current row; None: UNBOUNDED.
    preceding: int | None = None
    state_ttl: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        frame = f"{'ROWS' if self.is_rows else 'RANGE'} {self.preceding}"
        calls = _calls_text(self.aggregates)
        details = {
            "columns": _columns_text(self.input_type),
            "aggregates": calls,
            "frame": frame,
        }
        return [StateSection("frames", "packed accumulators and rows by key", details=details)]


@dataclass(frozen=True)
class UpdatingOverPlan:
    """Aggregates over the rows in front of each row of a changelog.

    Gives the input's columns, then these.  The frame ends at the current row.
    """

    input_type: RowType
    keys: tuple[int, ...]
    order: tuple[SortColumn, ...]
    aggregates: tuple[AggregateCall, ...]
    #: ROWS; False: RANGE, in which rows of one order are together.
    is_rows: bool
    update_before: bool
    #: How many rows the frame begins before the current row; None: UNBOUNDED.  RANGE: None or 0.
    preceding: int | None = None
    state_ttl: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {
            "columns": _columns_text(self.input_type),
            "order": ", ".join(map(str, self.order)),
        }
        return [StateSection("ordered rows", "packed rows by key, then order", details=details)]


@dataclass(frozen=True)
class MatchPlan:
    """MATCH_RECOGNIZE with one row per match: gives the key columns, then the measures.

    Rows are in the order of a time attribute.
    """

    input_type: RowType
    keys: tuple[int, ...]
    pattern: RowPattern
    #: Per variable of the pattern, over ``slots``; None: every row meets it.
    conditions: tuple[Expression | None, ...]
    #: Over ``slots``.
    measures: tuple[Expression, ...]
    slots: tuple[Slot, ...]
    #: The column of the time attribute; None: processing time.
    rowtime: int | None
    #: How rows of one time are ordered; none: as they come.
    order: tuple[SortColumn, ...] = ()
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {"columns": _columns_text(self.input_type), "pattern": str(self.pattern)}
        return [StateSection("matches", "packed rows and matches by key", details=details)]


@dataclass(frozen=True)
class WindowFunctionPlan:
    """TUMBLE, HOP or CUMULATE by itself.

    Gives the input's columns, then window_start and window_end (TIMESTAMP(3)) and window_time (of
    the kind of the time attribute, with precision 3).
    """

    input_type: RowType
    window: WindowSpec
    #: The column of the time attribute.
    time: int
    #: Whether that is event time; else it is processing time, and its values do not count.
    is_rowtime: bool = True
    #: Whose clock windows over TIMESTAMP_LTZ go by.
    time_zone: str = "UTC"
    keyed: ClassVar[bool] = False


@dataclass(frozen=True)
class SessionFunctionPlan:
    """SESSION by itself.  Gives each row when its session is over, columns as of the others.

    Rows keep their kinds: a session of a changelog is of all changes.
    """

    input_type: RowType
    window: WindowSpec
    time: int
    #: Rows of one session have the same values in these columns.
    keys: tuple[int, ...]
    is_rowtime: bool = True
    time_zone: str = "UTC"
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [session_rows_section(self.input_type, self.window)]


def session_rows_section(input_type: RowType, window: WindowSpec) -> StateSection:
    """Return what operators keep that have the rows of sessions."""
    details = {"columns": _columns_text(input_type), "windows": str(window)}
    return StateSection("sessions", "packed rows by key and session", details=details)


@dataclass(frozen=True)
class WindowAggregatePlan:
    """GROUP BY a window and keys.  Gives the keys, the aggregates, then ``properties``."""

    input_type: RowType
    window: WindowSpec
    time: int
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    #: Of window_start, window_end, window_time, in any order.
    properties: tuple[str, ...]
    is_rowtime: bool = True
    #: Columns of the input that have start and end of each row's window already.
    attached: tuple[int, int] | None = None
    retracts: bool = False
    time_zone: str = "UTC"
    #: Whether the input is partial aggregates of LocalWindowAggregatePlan; all else is as of that.
    merges: bool = False
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {
            "aggregates": _calls_text(self.aggregates),
            "windows": str(self.window),
            "attached": str(self.attached is not None).lower(),
        }
        layout = "packed accumulators by key and window"
        return [StateSection("windows", layout, details=details)]

    @property
    def _is_sliced(self) -> bool:
        return self.attached is None and self.window.shares_slices

    @property
    def _goes_by_arrival(self) -> bool:
        return any(call.goes_by_arrival for call in self.aggregates)

    @property
    def shares_slices(self) -> bool:
        """Whether windows are made of slices that are kept, if aggregates can be added up."""
        return self._is_sliced and not self._goes_by_arrival

    @property
    def has_local_half(self) -> bool:
        """Whether slices, or windows that no row shares, may be aggregated ahead of the exchange.

        The other half knows no rows: it takes what it gets for whole slices or windows.
        """
        apart = self.window.is_tumbling or self.attached is not None
        return self.is_rowtime and (apart or self.shares_slices)


@dataclass(frozen=True)
class LocalWindowAggregatePlan:
    """Partial aggregates of the slices of a batch, ahead of the exchange; of event time alone.

    Gives the key columns, those that ``partial_fields`` (``aggregate_calls.py``) says, then start
    and end of the slice (or window, of ``attached``), BIGINT milliseconds of its clock.
    ``can_be_partial`` says whether all aggregates can be computed that way.
    """

    input_type: RowType
    window: WindowSpec
    time: int
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    attached: tuple[int, int] | None = None
    time_zone: str = "UTC"
    keyed: ClassVar[bool] = False


@dataclass(frozen=True)
class IntervalJoinPlan:
    """A join of inserts whose times are near each other.  Gives the left columns, then the right.

    INNER, LEFT, RIGHT and FULL.  The operator holds watermarks back.
    """

    left_type: RowType
    right_type: RowType
    kind: JoinKind
    left: JoinSide
    right: JoinSide
    #: As of JoinPlan.
    filter_nulls: tuple[bool, ...]
    left_time: int
    right_time: int
    #: Milliseconds: the time of the right row less that of the left lies between them, inclusive.
    lower: int
    upper: int
    is_rowtime: bool = True
    condition: Expression | None = None
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [joined_section("joined by interval", self.left_type, self.right_type)]


@dataclass(frozen=True)
class TemporalJoinPlan:
    """Each left row with the version of the right at its event time.  INNER or LEFT.

    Gives the left columns, then the right ones.  The right is a changelog with a time attribute.
    """

    left_type: RowType
    right_type: RowType
    kind: JoinKind
    left: JoinSide
    right: JoinSide
    #: As of JoinPlan.
    filter_nulls: tuple[bool, ...]
    left_time: int
    right_time: int
    condition: Expression | None = None
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [joined_section("versions", self.left_type, self.right_type)]


@dataclass(frozen=True)
class WindowRankPlan:
    """The rows numbered START to END of each key and window, given when that is over.

    The input has its windows already.  Gives its columns, then the number if ``output_rank``.
    """

    input_type: RowType
    keys: tuple[int, ...]
    order: tuple[SortColumn, ...]
    start: int
    end: int
    output_rank: bool
    #: The column of window_end.
    window_end: int
    #: Whose clock windows go by; None where their time attribute is a TIMESTAMP.
    time_zone: str | None = None
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {
            "columns": _columns_text(self.input_type),
            "order": ", ".join(map(str, self.order)),
        }
        layout = "packed rows by key and window, then order"
        return [StateSection("ranking of windows", layout, details=details)]


def _one_row(row_type: RowType) -> StateSection:
    details = {"columns": _columns_text(row_type)}
    return StateSection("rows", "packed row by key", details=details)


def joined_section(
    name: str,
    left: RowType,
    right: RowType,
    keys: Sequence[str] = ("", ""),
    layout: str = "packed rows by join key",
) -> StateSection:
    """The rows of both sides, and the keys that they are kept by."""
    texts = [
        _columns_text(row_type) + key for row_type, key in zip((left, right), keys, strict=True)
    ]
    details = {"left": texts[0], "right": texts[1]}
    return StateSection(name, layout, details=details)


def ordered_section(
    name: str, layout: str, row_type: RowType, order: Sequence[SortColumn]
) -> StateSection:
    """Rows in an order."""
    columns = ", ".join(f"{each.name} {each.type.as_summary_string()}" for each in row_type.fields)
    details = {"columns": columns, "order": ", ".join(map(str, order))}
    return StateSection(name, layout, details=details)


def _call_text(call: AggregateCall) -> str:
    distinct = "DISTINCT " if call.distinct else ""
    arguments = ", ".join(map(str, call.arguments))
    condition = "" if call.filter is None else f" FILTER {call.filter}"
    return f"{call.function}({distinct}{arguments}){condition} {call.type}"


def _calls_text(calls: Sequence[AggregateCall]) -> str:
    return "; ".join(map(_call_text, calls))


def _columns_text(row_type: RowType) -> str:
    return ", ".join(str(field.type) for field in row_type)
