"""Create the operator factories of physical nodes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.source import Boundedness
from millstream.errors import UnsupportedSqlError, ValidationError
from millstream.expressions.context import AsyncCalls
from millstream.graph.transformation import (
    PhysicalTransformation,
    SideOutputTransformation,
    SourceTransformation,
    UnionTransformation,
)
from millstream.runtime.columnar.aggregate_kernels import check_user_aggregate
from millstream.runtime.columnar.table_windows import WindowKind, WindowSpec
from millstream.runtime.operators.table.base import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from millstream.runtime.operators.table.batch_over import BatchOverFactory, Frame
from millstream.runtime.operators.table.calc import (
    FromChangelogFactory,
    ToChangelogFactory,
)
from millstream.runtime.operators.table.deduplicate import (
    ChangelogNormalizeFactory,
    DeduplicateFactory,
)
from millstream.runtime.operators.table.factories import (
    SessionFunctionFactory,
    WindowAggregateFactory,
    WindowFunctionFactory,
)
from millstream.runtime.operators.table.join import JoinFactory
from millstream.runtime.operators.table.joins_by_time import (
    IntervalJoinFactory,
    TemporalJoinFactory,
)
from millstream.runtime.operators.table.lookup_join import LookupJoinFactory, LookupPolicy
from millstream.runtime.operators.table.match import Aggregation, MatchFactory, Navigation
from millstream.runtime.operators.table.over import OverFactory, UpdatingOverFactory
from millstream.runtime.operators.table.specs import (
    AggregateCall,
    JoinKind,
    JoinSide,
    RankStrategy,
    SortColumn,
)
from millstream.runtime.operators.table.top_n import TopNFactory, WindowRankFactory
from millstream.runtime.operators.table.window_aggregate import LocalWindowAggregateFactory
from millstream.runtime.operators.table.window_join import WindowJoinFactory
from millstream.sql.planner.calcs import is_rowtime
from millstream.sql.planner.changelog import smallest, upsert_keys
from millstream.types.logical_types import TimestampKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.contracts.operator import OperatorFactory
    from millstream.expressions.context import EvaluationContext
    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation
    from millstream.runtime.operators.table.match import Slot
    from millstream.sql.planner import physical
    from millstream.sql.planner.matches import Match
    from millstream.sql.planner.physical import (
        ChangelogFunction,
        IntervalJoin,
        LookupJoin,
        SinkNode,
        TemporalJoin,
        WindowAggregate,
        WindowJoin,
        WindowRank,
        WindowTableFunction,
    )


def parallelism_of(below: Transformation) -> tuple[int | None, bool]:
    """How parallel what is read is: a number (None: as the job), and whether it is alone.

    Rows that are dealt out anew lose their order, and changes of one row with it.
    """
    if isinstance(below, PhysicalTransformation):
        return below.parallelism, below.non_parallel
    if isinstance(below, UnionTransformation):
        members = [parallelism_of(each) for each in below.members]
        if any(alone for _, alone in members):
            return None, True
        found = {parallelism for parallelism, _ in members}
        return (found.pop(), False) if len(found) == 1 else (1, False)
    if isinstance(below, SideOutputTransformation):
        return parallelism_of(below.input)
    return None, False


def sink_parallelism(node: SinkNode, below: Transformation) -> tuple[int | None, bool]:
    """How parallel a sink is, as ``parallelism_of`` says it.

    Raises:
        UnsupportedSqlError: its option says it, and changes would lose their order.
    """
    wanted = None if node.sink is None else node.sink.parallelism
    parallelism, alone = parallelism_of(below)
    if wanted is None:
        return parallelism, alone
    if not node.input.is_insert_only and wanted != (1 if alone else parallelism) != 1:
        message = (
            f"'sink.parallelism' of table sink '{node.name}' is not in this release for "
            "queries that update or delete rows; it would lose their order."
        )
        raise UnsupportedSqlError(message)
    return wanted, False


def require_bounded(node: SinkNode, below: Transformation) -> None:
    """Refuse INSERT OVERWRITE of what never ends: what was there is replaced at the end.

    Raises:
        ValidationError: a source has no end.
    """
    seen: set[int] = set()
    left = [below]
    while left:
        each = left.pop()
        if each.id in seen:
            continue
        seen.add(each.id)
        left += each.inputs
        if isinstance(each, SourceTransformation):
            source = each.source
            if source is None or source.boundedness is not Boundedness.BOUNDED:
                message = (
                    f"Streaming mode not support overwrite: '{each.name}', which INSERT OVERWRITE "
                    f"of '{node.name}' reads, has no end."
                )
                raise ValidationError(message)


def aggregate_calls(
    calls: Sequence[Any],
    parameters: Mapping[str, str] | None = None,
    *,
    retracts: bool = False,
    merges: bool = False,
) -> tuple[AggregateCall, ...]:
    """Aggregates as the runtime takes them.

    Args:
        calls: of the plan.
        parameters: of the job, for functions of users.
        retracts: whether rows may be taken back.
        merges: whether accumulators are put together.

    Raises:
        ProgramError: a function of a user lacks what that needs.
    """
    found = []
    for call in calls:
        user = call.user
        if user is not None:
            check_user_aggregate(user, retracts=retracts, merges=merges)
            user = replace(user, job_parameters=dict(parameters or {}))
        found.append(
            AggregateCall(
                call.function, call.arguments, call.type, call.filter, call.distinct, user=user
            )
        )
    return tuple(found)


def sort_columns(order: Sequence[Any]) -> tuple[SortColumn, ...]:
    """An order as the runtime takes it."""
    return tuple(SortColumn(each.column, each.descending, each.nulls_first) for each in order)


def window_function(
    node: WindowTableFunction, evaluation: EvaluationContext
) -> WindowFunctionFactory:
    """The operator of TUMBLE, HOP or CUMULATE by itself."""
    return WindowFunctionFactory(
        input_type=node.input.row,
        window=WindowSpec(WindowKind[node.window], node.size, node.step, node.offset),
        time=node.time,
        is_rowtime=is_rowtime(node.input.row.fields[node.time].type),
        time_zone=evaluation.time_zone,
    )


def session_function(
    node: WindowTableFunction, evaluation: EvaluationContext
) -> SessionFunctionFactory:
    """The operator of SESSION by itself."""
    return SessionFunctionFactory(
        input_type=node.input.row,
        window=WindowSpec(WindowKind.SESSION, node.size),
        time=node.time,
        keys=node.partition,
        is_rowtime=is_rowtime(node.input.row.fields[node.time].type),
        time_zone=evaluation.time_zone,
    )


def window_aggregate(
    node: WindowAggregate, evaluation: EvaluationContext
) -> WindowAggregateFactory:
    """The operator of an aggregate per window."""
    is_session = node.window == "SESSION" and node.attached is None
    return WindowAggregateFactory(
        input_type=node.input.row,
        window=WindowSpec(WindowKind[node.window], node.size, node.step, node.offset),
        time=node.time,
        keys=node.keys,
        aggregates=aggregate_calls(node.calls, evaluation.job_parameters, merges=is_session),
        properties=node.properties,
        is_rowtime=node.is_rowtime,
        attached=node.attached,
        time_zone=evaluation.time_zone,
        merges=node.two_phase,
    )


def local_window_aggregate(final: WindowAggregateFactory) -> LocalWindowAggregateFactory:
    """The operator ahead of the exchange, of an aggregate in two phases."""
    return LocalWindowAggregateFactory(
        final.input_type,
        final.window,
        final.time,
        final.keys,
        final.aggregates,
        final.attached,
        final.time_zone,
    )


def window_join(node: WindowJoin, evaluation: EvaluationContext) -> WindowJoinFactory:
    """The operator of a join of rows of one window."""
    left, right = node.inputs
    return WindowJoinFactory(
        left_type=left.row,
        right_type=right.row,
        kind=JoinKind[node.join.name],
        left=JoinSide(node.left_keys),
        right=JoinSide(node.right_keys),
        filter_nulls=node.filter_nulls,
        ends=(node.left_window[1], node.right_window[1]),
        condition=node.condition,
        evaluation=evaluation,
        time_zone=evaluation.time_zone if node.spec.has_zone else None,
    )


def window_rank(node: WindowRank, evaluation: EvaluationContext) -> WindowRankFactory:
    """The operator of numbered rows of one window."""
    return WindowRankFactory(
        input_type=node.input.row,
        keys=node.partition,
        order=sort_columns(node.order),
        start=node.start,
        end=node.end,
        output_rank=node.outputs_rank,
        window_end=node.window[1],
        time_zone=evaluation.time_zone if node.spec.has_zone else None,
    )


@dataclass(frozen=True)
class LoweringOptions:
    """Options of the session that operators are made with; times in milliseconds."""

    time_zone: str = "UTC"
    state_ttl: int = 0
    mini_batch: bool = False
    idle_timeout: int | None = None
    drop_nulls: bool = False
    #: Whether what is written is brought to the length of its column.
    trim_pad: bool = False
    query_start: int = 0
    job_parameters: dict[str, str] = field(default_factory=dict)
    async_calls: AsyncCalls = field(default_factory=AsyncCalls)


def goes_by_clock(factory: OperatorFactory) -> bool:
    """Return whether an operator has frames that end when the clock has gone on."""
    if not isinstance(factory, OverFactory) or factory.rowtime is not None:
        return False
    return not factory.is_rows and factory.preceding is not None


def over_factory(
    node: physical.OverAggregate, parameters: Mapping[str, str], state_ttl: int
) -> OperatorFactory:
    """Return what makes the operator of a node.

    Args:
        node: the aggregates, their order and frame.
        parameters: of the job, for functions of users.
        state_ttl: after how many milliseconds state goes; 0: never.

    Raises:
        UnsupportedSqlError: there is a FILTER.
    """
    first = node.calls[0]
    if any(each.call.filter is not None for each in node.calls):
        message = "FILTER with OVER is not in this release."
        raise UnsupportedSqlError(message)
    retracts = first.preceding is not None and not (node.updating or node.batch)
    calls = aggregate_calls([each.call for each in node.calls], parameters, retracts=retracts)
    below = node.input.row
    preceding = None if first.preceding is None else int(first.preceding)
    if node.batch:
        return BatchOverFactory(
            input_type=below,
            keys=node.partition,
            order=sort_columns(node.order),
            calls=calls,
            frame=Frame(first.is_rows, first.preceding, first.following),
        )
    if node.updating:
        return UpdatingOverFactory(
            input_type=below,
            keys=node.partition,
            order=sort_columns(node.order),
            aggregates=calls,
            is_rows=first.is_rows,
            preceding=preceding,
            update_before=node.update_before,
            state_ttl=state_ttl,
        )
    time = node.order[0].column
    attribute = getattr(below.fields[time].type, "kind", None)
    return OverFactory(
        input_type=below,
        keys=node.partition,
        aggregates=calls,
        rowtime=time if attribute is TimestampKind.ROWTIME else None,
        is_rows=first.is_rows,
        preceding=preceding,
        state_ttl=state_ttl,
    )


def interval_join(node: IntervalJoin, evaluation: EvaluationContext) -> IntervalJoinFactory:
    """The operator of an interval join, by event time or by processing time."""
    return IntervalJoinFactory(
        **_sides(node, evaluation),
        lower=node.lower,
        upper=node.upper,
        is_rowtime=node.is_rowtime,
    )


def temporal_join(node: TemporalJoin, evaluation: EvaluationContext) -> TemporalJoinFactory:
    """The operator of a join with the versions of a table."""
    return TemporalJoinFactory(**_sides(node, evaluation))


def lookup_join(node: LookupJoin, evaluation: EvaluationContext) -> LookupJoinFactory:
    """The operator of a join with a table that is asked for rows."""
    return LookupJoinFactory(
        left_type=node.input.row,
        table_type=node.table_row,
        right_type=node.right_row,
        kind=JoinKind[node.join.name],
        source=node.lookup.source,
        table=node.identifier.as_summary_string(),
        names=node.names,
        keys=node.keys,
        projections=node.projections,
        table_condition=node.table_condition,
        condition=node.condition,
        caching=node.lookup.caching,
        asking=_asking(node),
        evaluation=evaluation,
    )


def _asking(node: LookupJoin) -> LookupPolicy:
    hint, lookup = node.hint, node.lookup
    return LookupPolicy(
        max_retries=lookup.max_retries,
        miss_attempts=hint.max_attempts,
        miss_delay=hint.retry_delay,
        capacity=hint.capacity if hint.is_async else 0,
        unordered=hint.is_unordered,
        timeout=hint.timeout,
    )


def _sides(node: Any, evaluation: EvaluationContext) -> dict[str, Any]:
    left, right = node.inputs
    return {
        "left_type": left.row,
        "right_type": right.row,
        "kind": JoinKind[node.join.name],
        "left": JoinSide(node.left_keys),
        "right": JoinSide(node.right_keys),
        "filter_nulls": node.filter_nulls,
        "left_time": node.left_time,
        "right_time": node.right_time,
        "condition": node.condition,
        "evaluation": evaluation,
    }


#: By their names in plans.
_STRATEGIES: Final = {
    "append": RankStrategy.APPEND,
    "retract": RankStrategy.RETRACT,
    "update fast": RankStrategy.UPDATE_FAST,
}


def deduplicate(node: physical.Deduplicate, options: LoweringOptions) -> DeduplicateFactory:
    """The operator that keeps the first or the last row of each key."""
    return DeduplicateFactory(
        input_type=node.input.row,
        keys=node.keys,
        rowtime=node.rowtime,
        keep_last=node.keep_last,
        update_before=node.update_before,
        mini_batch=options.mini_batch,
        state_ttl=options.state_ttl,
    )


def top_n(node: physical.Rank, options: LoweringOptions) -> TopNFactory:
    """The operator that keeps the first rows of each partition."""
    return TopNFactory(
        input_type=node.input.row,
        keys=node.partition,
        order=sort_columns(node.order),
        start=node.start,
        end=node.end,
        output_rank=node.outputs_rank,
        strategy=_STRATEGIES[node.strategy],
        update_before=node.update_before,
        row_key=node.row_key,
        state_ttl=options.state_ttl,
        mini_batch=options.mini_batch,
    )


def normalize(
    node: physical.ChangelogNormalize, options: LoweringOptions
) -> ChangelogNormalizeFactory:
    """The operator that makes a changelog by keys one in which rows are taken back whole."""
    return ChangelogNormalizeFactory(
        input_type=node.input.row,
        keys=node.keys,
        update_before=node.update_before,
        mini_batch=options.mini_batch,
        state_ttl=options.state_ttl,
    )


def regular_join(
    node: physical.Join, evaluation: EvaluationContext, ttls: tuple[int, int]
) -> JoinFactory:
    """The operator of a join that keeps the rows of both sides.

    Args:
        node: of the plan.
        evaluation: of its condition.
        ttls: milliseconds for which the rows of each side are kept; 0: for good.
    """
    left, right = node.inputs
    keys = smallest(upsert_keys(left)), smallest(upsert_keys(right))
    return JoinFactory(
        left_type=left.row,
        right_type=right.row,
        kind=JoinKind[node.join.name],
        left=JoinSide(node.left_keys, keys[0]),
        right=JoinSide(node.right_keys, keys[1]),
        filter_nulls=node.filter_nulls,
        condition=node.condition,
        evaluation=evaluation,
        left_ttl=ttls[0],
        right_ttl=ttls[1],
        mini_batch=node.mini_batch,
    )


def match_factory(node: Match, evaluation: EvaluationContext) -> MatchFactory:
    """The factory of the operator of a node."""
    below = node.input.row
    time = node.order[0].column
    return MatchFactory(
        input_type=below,
        keys=node.partition,
        pattern=node.pattern,
        conditions=node.conditions,
        measures=node.measures,
        slots=node.slots,
        rowtime=time if is_rowtime(below.fields[time].type) else None,
        order=sort_columns(node.order[1:]),
        evaluation=evaluation,
    )


def slot_texts(
    node: Match, below: Sequence[str], text: Callable[[Expression | None, Sequence[str]], str]
) -> list[str]:
    """What each slot is made of, by what the columns of the input are made of."""

    def variable(slot: Any) -> str:
        return "*" if slot.variable is None else node.pattern.variables[slot.variable].name

    def shown(slot: Slot) -> str:
        if isinstance(slot, Navigation):
            end = "FIRST" if slot.first else "LAST"
            return f"{end}({variable(slot)}.[{below[slot.column]}], {slot.offset})"
        if isinstance(slot, Aggregation):
            inside = ", ".join(text(each, below) for each in slot.arguments)
            return f"{slot.function}({variable(slot)}.[{inside}])"
        return "MATCH_ROWTIME"

    return [shown(slot) for slot in node.slots]


_KINDS: Final = {
    "INSERT": INSERT,
    "UPDATE_BEFORE": UPDATE_BEFORE,
    "UPDATE_AFTER": UPDATE_AFTER,
    "DELETE": DELETE,
}


def changelog_factory(node: ChangelogFunction) -> OperatorFactory:
    """What makes the operator of a node."""
    if node.column is None:
        return ToChangelogFactory(tuple((int(_KINDS[kind]), code) for kind, code in node.codes))
    kinds = tuple((code, int(_KINDS[kind])) for kind, code in node.codes)
    return FromChangelogFactory(node.column, kinds)
