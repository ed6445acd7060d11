"""Translate the physical plan to transformations.

There is one method per physical node; a node that is read twice becomes one transformation.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from millstream.configuration.option import parse_duration
from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.errors import UnsupportedSqlError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.functions.watermark_strategy import (
    FieldTimestampAssigner,
    WatermarkGenerator,
    WatermarkStrategy,
)
from millstream.graph.model import Partitioning
from millstream.graph.transformation import (
    OneInputTransformation,
    PartitionTransformation,
    SinkTransformation,
    SourceTransformation,
    TwoInputTransformation,
    UnionTransformation,
)
from millstream.runtime.columnar.array_utils import limited
from millstream.runtime.operators.sink import SinkFactory
from millstream.runtime.operators.table.calc import (
    CalcFactory,
    ConformFactory,
    ExpandFactory,
    UnnestFactory,
)
from millstream.runtime.operators.table.group_aggregate import (
    GroupAggregateFactory,
    LocalGroupAggregateFactory,
)
from millstream.runtime.operators.table.sink_materializer import (
    DropUpdateBeforeFactory,
    SinkConflictsFactory,
    SinkMaterializerFactory,
    WatermarkTimesFactory,
)
from millstream.runtime.operators.table.sort import (
    FinalRowsFactory,
    ProctimeSortFactory,
    TemporalSortFactory,
)
from millstream.runtime.operators.table.specs import RankStrategy, SortColumn
from millstream.runtime.operators.table.top_n import TopNFactory
from millstream.runtime.operators.timestamps_watermarks import TimestampsWatermarksFactory
from millstream.sql.catalog.connectors import METADATA_PREFIX
from millstream.sql.catalog.options import IDLE_TIMEOUT
from millstream.sql.lowering.conversion import partial_type, partial_window_type, stream_type
from millstream.sql.lowering.operator_uids import MATERIALIZER, OPERATOR, Places
from millstream.sql.lowering.operators import (
    aggregate_calls,
    changelog_factory,
    deduplicate,
    goes_by_clock,
    interval_join,
    local_window_aggregate,
    lookup_join,
    match_factory,
    normalize,
    over_factory,
    parallelism_of,
    regular_join,
    require_bounded,
    session_function,
    sink_parallelism,
    sort_columns,
    temporal_join,
    top_n,
    window_aggregate,
    window_function,
    window_join,
    window_rank,
)
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import keeps_time
from millstream.sql.planner.logical import SOURCE_WATERMARK, JoinType, references, row_of
from millstream.sql.planner.matches import Match
from millstream.sql.planner.physical import (
    ChangelogFunction,
    FinalRows,
    IntervalJoin,
    LookupJoin,
    TableSourceScan,
    TemporalJoin,
    TemporalSort,
    WindowAggregate,
    WindowJoin,
    WindowRank,
)
from millstream.types.field_access import KeyColumns
from millstream.types.logical_types import DayTimeIntervalType, IntType, MultisetType, TimestampKind
from millstream.types.time import MIN_TIMESTAMP
from millstream.types.values import column_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.contracts.sink import Sink
    from millstream.contracts.source import KnownSplits
    from millstream.expressions.nodes import Expression
    from millstream.functions.watermark_strategy import WatermarkOutput
    from millstream.graph.transformation import Transformation
    from millstream.sql.lowering.operators import LoweringOptions
    from millstream.sql.planner.physical import PhysicalNode, SinkNode, WatermarkAssigner
    from millstream.types.logical_types import RowType
    from millstream.types.types import TypeInformation


class DelayedWatermarks(WatermarkGenerator):
    """The watermark is the greatest timestamp less a constant."""

    vectorised: ClassVar[bool] = True

    def __init__(self, delay: int) -> None:
        """Take the delay in milliseconds."""
        self.delay = delay
        self.max_timestamp = MIN_TIMESTAMP

    def on_batch(self, timestamps: NDArray[np.int64]) -> None:
        """Take the timestamps of a batch, in milliseconds."""
        if len(timestamps):
            self.max_timestamp = max(self.max_timestamp, int(timestamps.max()))

    def current_watermark(self) -> int:
        """The watermark after all that was taken, in milliseconds."""
        if self.max_timestamp == MIN_TIMESTAMP:
            return MIN_TIMESTAMP
        return max(self.max_timestamp - self.delay, MIN_TIMESTAMP)

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Take the timestamp of one record."""
        del event, output
        self.max_timestamp = max(self.max_timestamp, event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(self.current_watermark())


def is_of_source(expression: Expression) -> bool:
    """Whether watermarks are those that come with the rows: SOURCE_WATERMARK()."""
    return isinstance(expression, Call) and expression.function == SOURCE_WATERMARK


def delay_of(expression: Expression, rowtime: int) -> int:
    """By how many milliseconds an expression is behind the time column.

    Raises:
        UnsupportedSqlError: it is not the column less a constant.
    """
    if isinstance(expression, InputReference) and expression.index == rowtime:
        return 0
    if isinstance(expression, Call) and keeps_time(expression):
        return delay_of(expression.arguments[0], rowtime)
    if isinstance(expression, Call) and expression.function == "-":
        column, length = expression.arguments
        if isinstance(length, Literal) and isinstance(length.type, DayTimeIntervalType):
            milliseconds: Any = length.value
            return delay_of(column, rowtime) + int(milliseconds)
    message = (
        f"WATERMARK FOR ... AS {expression}: in this release it is the column itself, or the "
        "column less a constant interval."
    )
    raise UnsupportedSqlError(message)


def idle_timeout_of(node: WatermarkAssigner, default: int | None) -> int | None:
    """Return after how many milliseconds without rows the source of watermarks is idle.

    Args:
        node: the node that emits them.
        default: ``table.exec.source.idle-timeout``, unless the table has one; None: never.
    """
    below: PhysicalNode = node
    while len(below.inputs) == 1:
        below = below.inputs[0]
    if not isinstance(below, TableSourceScan):
        return default
    given = below.table.options.get(IDLE_TIMEOUT.key)
    return default if given is None else parse_duration(given) or None


def strategy_of(
    expression: Expression, rowtime: int, idle_timeout: int | None
) -> WatermarkStrategy:
    """The strategy of a WATERMARK clause.

    Args:
        expression: over the table's row.
        rowtime: the column that is event time.
        idle_timeout: ``table.exec.source.idle-timeout``, in milliseconds; None: never.
    """
    delay = delay_of(expression, rowtime)
    made = WatermarkStrategy(
        functools.partial(DelayedWatermarks, delay), FieldTimestampAssigner(rowtime)
    )
    return made.with_idleness(idle_timeout) if idle_timeout else made


class ValuesSource(Source):
    """The rows of VALUES.

    Args:
        row: their type.
        rows: tuples of values.
    """

    def __init__(self, row: RowType, rows: Sequence[tuple[object, ...]]) -> None:
        self.row = row
        self.rows = list(rows)

    @property
    def boundedness(self) -> Boundedness:
        """They end."""
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return stream_type(self.row)

    def discover(self, known: KnownSplits) -> list[Split]:
        """One split."""
        return [] if "values" in known else [Split("values")]

    def end_offset(self, split: Split) -> int:
        """How many rows there are."""
        del split
        return len(self.rows)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        del split
        for at in range(start, min(stop, len(self.rows)), BATCH_SIZE):
            rows = self.rows[at : min(at + BATCH_SIZE, stop)]
            columns = [
                column_of([row[i] for row in rows], field.type)
                for i, field in enumerate(self.row.fields)
            ]
            schema = self.row.to_arrow_schema()
            yield SourceBatch(arrow=pa.RecordBatch.from_arrays(columns, schema=schema))


class Lowering:
    """Makes the transformations of one job."""

    def __init__(
        self,
        next_id: Callable[[], int],
        location: str,
        options: LoweringOptions,
        uids: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        """Take how transformations are numbered, where the statement is, and known uids."""
        self._next_id = next_id
        self._location = location
        self.options = options
        self._done: dict[int, Transformation] = {}
        #: By ``id``: the ends of plans that do not read the timestamps of rows.
        self._timeless: set[int] = set()
        self._places = Places(uids)
        self.evaluation = EvaluationContext(
            time_zone=options.time_zone,
            query_start_time=options.query_start or None,
            job_parameters=options.job_parameters,
            async_calls=options.async_calls,
        )

    # -- what is asked for -----------------------------------------------------------------------

    def take(self, plans: Iterable[PhysicalNode]) -> None:
        """Take all plans of the job, so that operators that are alike can be told apart."""
        self._places.add(plans)

    def stream(self, node: PhysicalNode) -> Transformation:
        """The transformation of a node."""
        known = self._done.get(id(node))
        if known is None:
            self._places.add([node])
            handler = _LOWERINGS.get(type(node))
            if handler is None:
                message = f"{node.kind} is not in this release."
                raise UnsupportedSqlError(message)
            known = handler(self, node)
            self._done[id(node)] = known
        return known

    def sink(
        self, node: SinkNode, sink: Sink, declared: TypeInformation, table: RowType
    ) -> Transformation:
        """The end of a plan.

        Args:
            node: the plan's root.
            sink: of the runtime.
            declared: the type of the stream that it wants.
            table: the sink's own columns, whose NOT NULL is checked.
        """
        self._places.add([node])
        if not sink.reads_timestamps:
            self._timeless.add(id(node))
        below = self.stream(node.input)
        if node.materialize:
            below = self._materialized(node, below)
        pairs = zip(table.fields, node.input.row.fields, strict=True)
        not_null = [
            i
            for i, (want, have) in enumerate(pairs)
            if not want.type.is_nullable and have.type.is_nullable
        ]
        conform = ConformFactory(
            None,
            tuple(not_null),
            self.options.drop_nulls,
            f"'{node.name}'",
            lengths=limited(table) if self.options.trim_pad else (),
        )
        below = self._one("SinkConversion", conform, below, declared)
        name = f"Sink: {node.name}"
        parallelism, alone = sink_parallelism(node, below)
        if node.overwrite is not None:
            require_bounded(node, below)
        return SinkTransformation(
            id=self._next_id(),
            location=self._location,
            output_type=declared,
            name=name,
            kind_name=f"Sink: {type(sink).__name__}",
            uid=self._places.uid(node),
            details=self._places.details(node),
            input=below,
            sink=sink,
            factory=SinkFactory(sink),
            needs_processing_time=sink.wants_ticks is not None,
            parallelism=parallelism,
            non_parallel=alone,
        )

    def _materialized(self, node: SinkNode, below: Transformation) -> Transformation:
        """The rows that a sink has by its own key, which is not the query's."""
        kind = stream_type(node.input.row)
        factory: Any = SinkMaterializerFactory(
            input_type=node.input.row,
            keys=node.key,
            upsert_key=node.upsert_key,
            state_ttl=self.options.state_ttl,
        )
        if node.conflict in {"ERROR", "NOTHING"}:
            below = self._one("WatermarkTimes", WatermarkTimesFactory(), below, kind)
            fails = node.conflict == "ERROR"
            row = node.input.row
            factory = SinkConflictsFactory(row, node.key, node.upsert_key, fails, node.name)
        exchange = physical.Exchange(row=node.input.row, inputs=(node.input,), keys=node.key)
        return self._one(
            "SinkMaterializer",
            factory,
            self._keyed(exchange, below),
            kind,
            of=node,
            operator=MATERIALIZER,
            single=False,
        )

    # -- pieces ----------------------------------------------------------------------------------

    def _one(
        self,
        name: str,
        factory: Any,
        below: Transformation,
        output: TypeInformation,
        *,
        of: PhysicalNode | None = None,
        operator: str = OPERATOR,
        single: bool | None = None,
        ticks: bool = False,
    ) -> Transformation:
        """An operator; ``single`` None: as parallel as what it reads, so that order is kept.

        One ``of`` a node has a uid of what that does.
        """
        parallelism, alone = parallelism_of(below)
        if single is not None:
            parallelism, alone = None, single
        return OneInputTransformation(
            id=self._next_id(),
            location=self._location,
            output_type=output,
            name=name,
            kind_name=name,
            uid=None if of is None else self._places.uid(of, operator),
            details={} if of is None else self._places.details(of, operator),
            input=below,
            factory=factory,
            parallelism=parallelism,
            non_parallel=alone,
            needs_processing_time=ticks,
        )

    def _keyed(self, node: physical.Exchange, below: Transformation) -> Transformation:
        return PartitionTransformation(
            id=self._next_id(),
            location=self._location,
            output_type=below.output_type,
            input=below,
            partitioning=Partitioning.HASH if node.keys else Partitioning.GLOBAL,
            key_selector=KeyColumns(node.keys or ()),
        )

    # -- leaves ----------------------------------------------------------------------------------

    def _scan(self, node: physical.TableSourceScan) -> Transformation:
        source = node.source.create()
        name = f"Source: {node.identifier.object_name}"
        made = SourceTransformation(
            id=self._next_id(),
            location=self._location,
            output_type=source.produced_type,
            name=name,
            kind_name=name,
            uid=self._places.uid(node),
            details=self._places.details(node),
            source=source,
        )
        columns = tuple(
            METADATA_PREFIX + column.key if column.is_metadata() else column.name
            for column in node.read_columns
        )
        conform = ConformFactory(columns, table=f"table '{node.identifier.as_summary_string()}'")
        return self._one("SourceConversion", conform, made, stream_type(node.row))

    def _data_stream(self, node: physical.DataStreamScan) -> Transformation:
        return node.transformation

    def _values(self, node: physical.ValuesScan) -> Transformation:
        kind = stream_type(node.row)
        return SourceTransformation(
            id=self._next_id(),
            location=self._location,
            output_type=kind,
            name="Source: Values",
            kind_name="Source: Values",
            source=ValuesSource(node.row, node.rows),
            non_parallel=True,
        )

    # -- without state ---------------------------------------------------------------------------

    def _calc(self, node: physical.Calc) -> Transformation:
        factory = CalcFactory(
            input_type=node.input.row,
            projections=node.projections,
            condition=node.condition,
            evaluation=self.evaluation,
            keeps_times=self._places.are_times_read(node, self._timeless),
        )
        return self._one("Calc", factory, self.stream(node.input), stream_type(node.row))

    def _watermark(self, node: physical.WatermarkAssigner) -> Transformation:
        if is_of_source(node.expression):
            return self.stream(node.input)  # they come with the rows
        idle_timeout = idle_timeout_of(node, self.options.idle_timeout)
        strategy = strategy_of(node.expression, node.rowtime, idle_timeout)
        are_read = self._places.are_times_read(node, self._timeless)
        factory = TimestampsWatermarksFactory(strategy, keeps_times=are_read)
        below = self.stream(node.input)
        return self._one(
            "WatermarkAssigner",
            factory,
            below,
            stream_type(node.row),
            of=node,
            ticks=strategy.needs_ticks,
        )

    def _exchange(self, node: physical.Exchange) -> Transformation:
        return self._keyed(node, self.stream(node.input))

    def _drop(self, node: physical.DropUpdateBefore) -> Transformation:
        factory = DropUpdateBeforeFactory()
        below = self.stream(node.input)
        return self._one("DropUpdateBefore", factory, below, stream_type(node.row))

    def _union(self, node: physical.Union) -> Transformation:
        members = [self.stream(each) for each in node.inputs]
        return UnionTransformation(
            id=self._next_id(),
            location=self._location,
            output_type=stream_type(node.row),
            members=members,
        )

    def _expand(self, node: physical.Expand) -> Transformation:
        factory = ExpandFactory(node.keys, node.sets)
        return self._one("Expand", factory, self.stream(node.input), stream_type(node.row))

    def _changelog(self, node: ChangelogFunction) -> Transformation:
        below = self.stream(node.input)
        return self._one(node.kind, changelog_factory(node), below, stream_type(node.row))

    def _correlate(self, node: physical.Correlate) -> Transformation:
        below, argument = node.input, node.arguments[0]
        columns = [*references(below.row), argument]
        row = row_of([*below.row.names, "$nested"], [each.type for each in columns])
        calc = physical.Calc(row=row, inputs=(below,), projections=tuple(columns))
        factory = UnnestFactory(
            outer=node.join is JoinType.LEFT,
            ordinality=node.with_ordinality,
            repeats=isinstance(argument.type, MultisetType),
        )
        return self._one("Correlate", factory, self._calc(calc), stream_type(node.row))

    def _window_function(self, node: physical.WindowTableFunction) -> Transformation:
        if node.window == "SESSION":
            sessions = session_function(node, self.evaluation)
            single, ticks = not node.partition, not sessions.is_rowtime
            return self._stateful(node, sessions, single=single, ticks=ticks)
        factory, below = window_function(node, self.evaluation), self.stream(node.input)
        return self._one("WindowTableFunction", factory, below, stream_type(node.row))

    # -- with state ------------------------------------------------------------------------------

    def _stateful(
        self,
        node: PhysicalNode,
        factory: Any,
        *,
        single: bool,
        ticks: bool = False,
        below: Transformation | None = None,
    ) -> Transformation:
        return self._one(
            node.kind,
            factory,
            self.stream(node.input) if below is None else below,
            stream_type(node.row),
            of=node,
            single=single,
            ticks=ticks,
        )

    def _group_aggregate(self, node: physical.GroupAggregate) -> Transformation:
        retracts = not node.input.is_insert_only
        parameters = self.evaluation.job_parameters
        calls = aggregate_calls(node.calls, parameters, retracts=retracts)
        factory = GroupAggregateFactory(
            input_type=node.input.row,
            keys=node.keys,
            aggregates=calls,
            retracts=retracts,
            update_before=node.update_before,
            mini_batch=self.options.mini_batch,
            state_ttl=self._ttl(node.state_ttl),
            merges=node.two_phase,
        )
        below = None
        if node.two_phase:
            local = LocalGroupAggregateFactory(
                factory.input_type, factory.keys, calls, retracts=retracts
            )
            below = self._ahead(node, "LocalGroupAggregate", local, partial_type(local))
        return self._stateful(node, factory, single=not node.keys, below=below)

    def _ttl(self, hint: int | None) -> int:
        """How long state is kept: as a hint says, or as the option."""
        return self.options.state_ttl if hint is None else hint

    def _ahead(self, node: Any, name: str, factory: Any, output: TypeInformation) -> Transformation:
        """What is aggregated of each batch, its keys first, and the exchange behind it."""
        local = self._one(name, factory, self.stream(node.input.input), output)
        exchange = physical.Exchange(row=node.row, keys=tuple(range(len(node.keys))) or None)
        return self._keyed(exchange, local)

    def _window_aggregate(self, node: WindowAggregate) -> Transformation:
        factory = window_aggregate(node, self.evaluation)
        below = None
        if node.two_phase:
            local = local_window_aggregate(factory)
            below = self._ahead(node, "LocalWindowAggregate", local, partial_window_type(local))
        return self._stateful(
            node, factory, single=not node.keys, ticks=not node.is_rowtime, below=below
        )

    def _limit(self, node: physical.Limit) -> Transformation:
        """The first rows as they come: a Top-N by a constant."""
        below = node.input.row
        zero = Literal(0, IntType(nullable=False))
        row = row_of([*below.names, "$zero"], [*below.children, zero.type])
        columns: tuple[Expression, ...] = (*references(below), zero)
        before = physical.Calc(row=row, inputs=(node.input,), projections=columns)
        append = node.input.is_insert_only
        factory = TopNFactory(
            input_type=row,
            keys=(),
            order=(SortColumn(len(below)),),
            start=node.offset + 1,
            end=node.offset + node.limit,
            output_rank=False,
            strategy=RankStrategy.APPEND if append else RankStrategy.RETRACT,
            update_before=node.update_before,
            state_ttl=self.options.state_ttl,
            mini_batch=self.options.mini_batch,
        )
        ranked = self._one(
            "Limit",
            factory,
            self._calc(before),
            stream_type(row),
            of=node,
            single=True,
        )
        drop = CalcFactory(
            input_type=row, projections=tuple(references(below)), evaluation=self.evaluation
        )
        return self._one("Calc", drop, ranked, stream_type(node.row))

    def _over(self, node: physical.OverAggregate) -> Transformation:
        factory = over_factory(node, self.evaluation.job_parameters, self.options.state_ttl)
        ticks = goes_by_clock(factory)
        return self._stateful(node, factory, single=not node.partition, ticks=ticks)

    def _match(self, node: Match) -> Transformation:
        factory = match_factory(node, self.evaluation)
        by_clock = factory.rowtime is None and node.pattern.within is not None
        return self._stateful(node, factory, single=not node.partition, ticks=by_clock)

    def _deduplicate(self, node: physical.Deduplicate) -> Transformation:
        factory = deduplicate(node, self.options)
        return self._stateful(node, factory, single=not node.keys)

    def _rank(self, node: physical.Rank) -> Transformation:
        return self._stateful(node, top_n(node, self.options), single=not node.partition)

    def _final_rows(self, node: FinalRows) -> Transformation:
        order = sort_columns(node.order)
        factory = FinalRowsFactory(node.input.row, order, node.offset)
        return self._stateful(node, factory, single=True)

    def _temporal_sort(self, node: TemporalSort) -> Transformation:
        order = sort_columns(node.order)
        first: Any = node.input.row.fields[order[0].index].type
        if first.kind is TimestampKind.PROCTIME:
            below, kind = self.stream(node.input), stream_type(node.row)
            return self._one(
                "TemporalSort", ProctimeSortFactory(order[1:]), below, kind, single=True
            )
        return self._stateful(node, TemporalSortFactory(node.input.row, order), single=True)

    def _normalize(self, node: physical.ChangelogNormalize) -> Transformation:
        return self._stateful(node, normalize(node, self.options), single=False)

    def _join(self, node: physical.Join) -> Transformation:
        ttls = self._ttl(node.state_ttls[0]), self._ttl(node.state_ttls[1])
        factory = regular_join(node, self.evaluation, ttls)
        return self._two(node, factory, single=not node.left_keys)

    def _interval_join(self, node: IntervalJoin) -> Transformation:
        factory = interval_join(node, self.evaluation)
        return self._two(node, factory, single=not node.left_keys, ticks=not node.is_rowtime)

    def _temporal_join(self, node: TemporalJoin) -> Transformation:
        return self._two(node, temporal_join(node, self.evaluation), single=False)

    def _lookup_join(self, node: LookupJoin) -> Transformation:
        factory = lookup_join(node, self.evaluation)
        below = self.stream(node.input)
        return self._one("LookupJoin", factory, below, stream_type(node.row), ticks=True)

    def _window_join(self, node: WindowJoin) -> Transformation:
        factory = window_join(node, self.evaluation)
        return self._two(node, factory, single=not node.left_keys)

    def _window_rank(self, node: WindowRank) -> Transformation:
        factory = window_rank(node, self.evaluation)
        return self._stateful(node, factory, single=not node.partition)

    def _two(
        self, node: PhysicalNode, factory: Any, *, single: bool, ticks: bool = False
    ) -> Transformation:
        below = [self.stream(each) for each in node.inputs]
        return TwoInputTransformation(
            id=self._next_id(),
            location=self._location,
            output_type=stream_type(node.row),
            name=node.kind,
            kind_name=node.kind,
            uid=self._places.uid(node),
            details=self._places.details(node),
            input1=below[0],
            input2=below[1],
            factory=factory,
            non_parallel=single,
            needs_processing_time=ticks,
        )


_LOWERINGS: Final[dict[type, Callable[[Lowering, Any], Transformation]]] = {
    physical.TableSourceScan: Lowering._scan,  # noqa: SLF001 - the table of this class
    physical.DataStreamScan: Lowering._data_stream,  # noqa: SLF001
    physical.ValuesScan: Lowering._values,  # noqa: SLF001
    physical.Calc: Lowering._calc,  # noqa: SLF001
    ChangelogFunction: Lowering._changelog,  # noqa: SLF001
    physical.WatermarkAssigner: Lowering._watermark,  # noqa: SLF001
    physical.Exchange: Lowering._exchange,  # noqa: SLF001
    physical.DropUpdateBefore: Lowering._drop,  # noqa: SLF001
    physical.Union: Lowering._union,  # noqa: SLF001
    physical.GroupAggregate: Lowering._group_aggregate,  # noqa: SLF001
    physical.Expand: Lowering._expand,  # noqa: SLF001
    physical.Correlate: Lowering._correlate,  # noqa: SLF001
    physical.WindowTableFunction: Lowering._window_function,  # noqa: SLF001
    WindowAggregate: Lowering._window_aggregate,  # noqa: SLF001
    physical.Limit: Lowering._limit,  # noqa: SLF001
    physical.OverAggregate: Lowering._over,  # noqa: SLF001
    Match: Lowering._match,  # noqa: SLF001
    physical.Deduplicate: Lowering._deduplicate,  # noqa: SLF001
    physical.Rank: Lowering._rank,  # noqa: SLF001
    physical.ChangelogNormalize: Lowering._normalize,  # noqa: SLF001
    IntervalJoin: Lowering._interval_join,  # noqa: SLF001
    TemporalJoin: Lowering._temporal_join,  # noqa: SLF001
    LookupJoin: Lowering._lookup_join,  # noqa: SLF001
    FinalRows: Lowering._final_rows,  # noqa: SLF001
    TemporalSort: Lowering._temporal_sort,  # noqa: SLF001
    WindowJoin: Lowering._window_join,  # noqa: SLF001
    WindowRank: Lowering._window_rank,  # noqa: SLF001
    physical.Join: Lowering._join,  # noqa: SLF001
}
