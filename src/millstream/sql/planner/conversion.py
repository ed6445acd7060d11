"""Convert the logical to the physical plan, including Top-N, deduplication, OVER and LIMIT.

Projections and filters become calcs that are merged; filters are pushed into and through joins;
rows that are filtered by ROW_NUMBER become Top-N or deduplication; LIMIT with an order is a Top-N.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration.options import CDC_EVENTS_DUPLICATE
from millstream.errors import ValidationError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.sql.catalog.connectors import INSERT_ONLY
from millstream.sql.planner import joins, matches, physical, windows
from millstream.sql.planner import logical as lp
from millstream.sql.planner.aggregates import aggregate_of_nothing, group_aggregate
from millstream.sql.planner.calcs import (
    Converts,
    calc,
    columns_of,
    conjunction,
    conjuncts,
    exchange,
    keeps_time_attribute,
    substituted,
)
from millstream.sql.planner.changelog import kinds_of
from millstream.sql.planner.grouping_sets import expand, grouped_sets, grouping
from millstream.sql.planner.logical import OverNode, ProjectNode, references, row_of
from millstream.sql.planner.physical import ChangelogFunction, FinalRows, TemporalSort
from millstream.sql.planner.windows import window_rank
from millstream.types.logical_types import BigIntType, TimestampKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import RowType


_RANKS = frozenset({"ROW_NUMBER", "RANK", "DENSE_RANK"})
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def rank_of(converter: Converts, node: Any, *, with_number: bool = True) -> PhysicalNode | None:
    """A filter over numbered rows as a Top-N or a deduplication; None if it is no such filter.

    Numbers without an upper bound are those of OVER, if rows are numbered in the order of time or
    all are there.

    Args:
        converter: of what is below.
        node: the filter.
        with_number: whether columns that are made of the number are read; else they are NULL.
    """
    found = _numbered(node)
    if found is None:
        return None
    below, projections, columns = found
    if converter.is_batch and below.calls[0].call.function != "ROW_NUMBER":
        return None
    number = len(below.input.row)
    first, last, rest = _range(node.condition, columns, number)
    if last is None:
        if converter.is_batch or _is_by_time(below):
            return None
        message = "ROW_NUMBER needs an upper bound, such as WHERE rownum <= 10."
        raise ValidationError(message)
    reads = any(number in columns_of(substituted(each, columns)) for each in rest)
    shows = with_number and any(number in columns_of(each) for each in columns)
    wants_number = reads or shows
    ranked = _rank(converter, below, first, last, outputs=wants_number and not (first == last == 1))
    if wants_number and first == last == 1:
        # There is only the first.
        one = Literal(1, BigIntType(nullable=False))
        numbered: list[Expression] = [*references(ranked.row), one]
        row = row_of([*ranked.row.names, "$rank"], [each.type for each in numbered])
        ranked = calc(ranked, numbered, row)
    if not wants_number:
        projections = _unnumbered(projections, number)
    # One after the other, so that what is random and has several readers is computed once.
    for each in projections:
        ranked = calc(ranked, each.expressions, each.row)
    return calc(ranked, references(ranked.row), node.row, conjunction(rest))


def _unnumbered(projections: Sequence[ProjectNode], number: int) -> list[ProjectNode]:
    """Projections over numbered rows without the number: what is made of it is NULL."""
    made, missing = [], {number}
    for each in projections:
        without = {at for at, one in enumerate(each.expressions) if columns_of(one) & missing}
        expressions = tuple(
            Literal(None, one.type) if at in without else one
            for at, one in enumerate(each.expressions)
        )
        made.append(replace(each, expressions=expressions))
        missing = without
    return made


def _numbered(node: Any) -> tuple[OverNode, list[ProjectNode], list[Expression]] | None:
    """What numbers the rows that a filter reads, the projections over it, from below, and columns.

    The columns are those that the filter reads, as they are made of what is numbered.
    """
    projections: list[ProjectNode] = []
    below = node.input
    while isinstance(below, ProjectNode):
        projections.append(below)
        below = below.input
    if not isinstance(below, OverNode):
        return None
    if len(below.calls) != 1 or below.calls[0].call.function not in _RANKS:
        return None
    columns: list[Expression] = list(references(below.row))
    projections.reverse()
    for each in projections:
        columns = [substituted(one, columns) for one in each.expressions]
    return below, projections, columns


def number_columns(node: Any) -> set[int]:
    """The columns of a filter over numbered rows that are made of the number."""
    numbered = _numbered(node)
    if numbered is None:
        return set()
    below, _, columns = numbered
    number = len(below.input.row)
    return {at for at, each in enumerate(columns) if number in columns_of(each)}


def _range(
    condition: Expression, columns: Sequence[Expression], number: int
) -> tuple[int, int | None, list[Expression]]:
    """The first and the last number that a filter leaves, and what else it says."""
    first, last, rest = 1, None, []
    for part in conjuncts(condition):
        bound = _bound(substituted(part, columns), number)
        if bound is None:
            rest.append(part)
            continue
        operator, value = bound
        if operator in {"<", "<=", "="}:
            limit_ = value - 1 if operator == "<" else value
            last = limit_ if last is None else min(last, limit_)
        if operator in {">", ">=", "="}:
            first = max(first, value + 1 if operator == ">" else value)
    return first, last, rest


def _bound(part: Expression, number: int) -> tuple[str, int] | None:
    if not isinstance(part, Call) or part.function not in _FLIPPED:
        return None
    one, other = (_bare(each) for each in part.arguments)
    operator = part.function
    if isinstance(one, Literal):
        one, other, operator = other, one, _FLIPPED[operator]
    if isinstance(one, InputReference) and one.index == number and isinstance(other, Literal):
        return (operator, other.value) if isinstance(other.value, int) else None
    return None


def _bare(expression: Expression) -> Expression:
    if isinstance(expression, Call) and expression.function == "CAST":
        return expression.arguments[0]
    return expression


def _rank(
    converter: Converts, node: OverNode, first: int, last: int, *, outputs: bool
) -> PhysicalNode:
    call = node.calls[0].call
    if last < first or last < 1:
        message = f"ROW_NUMBER between {first} and {last} leaves no rows."
        raise ValidationError(message)
    if call.function != "ROW_NUMBER":
        message = f"{call.function}() on streaming table is not supported currently."
        raise ValidationError(message)
    below = converter.convert(node.input)
    windowed = window_rank(node, below, first, last, outputs=outputs)
    if windowed is not None:
        return windowed
    moved = exchange(below, node.partition)
    time = _time_order(node)
    if time is not None and not keeps_time_attribute(below, node.order[0].column):
        time = None
    if first == last == 1 and time is not None and not outputs:
        attribute, descending = time
        rowtime = node.order[0].column if attribute is TimestampKind.ROWTIME else None
        return physical.Deduplicate(
            row=below.row,
            inputs=(moved,),
            keys=node.partition,
            rowtime=rowtime,
            keep_last=descending,
        )
    row = below.row
    if outputs:
        row = row_of([*row.names, node.row.names[-1]], [*row.children, node.row.children[-1]])
    return physical.Rank(
        row=row,
        inputs=(moved,),
        function=call.function,
        partition=node.partition,
        order=node.order,
        start=first,
        end=last,
        outputs_rank=outputs,
    )


def _time_order(node: OverNode) -> tuple[TimestampKind, bool] | None:
    if len(node.order) != 1:
        return None
    kind = node.input.row.fields[node.order[0].column].type
    attribute = getattr(kind, "kind", TimestampKind.REGULAR)
    if attribute is TimestampKind.REGULAR:
        return None
    return attribute, node.order[0].descending


def _is_by_time(node: OverNode) -> bool:
    """Whether rows are in the order of a time attribute."""
    time = _time_order(node)
    return time is not None and not time[1]


def over(converter: Converts, node: Any) -> PhysicalNode:
    """Aggregates over the rows around each row.

    Raises:
        ValidationError: the order is not one that a stream can have.
    """
    below = converter.convert(node.input)
    if converter.is_batch:
        return _over(node, below, batch=True)
    updating = _is_updating(node, below)
    ranks = [each.call.function for each in node.calls if each.call.function in _RANKS]
    if ranks and updating:
        message = (
            f"{ranks[0]} needs the order of a time attribute over rows that are not updated, or a "
            "filter with an upper bound around it, as in (SELECT a, ROW_NUMBER() OVER (...) AS n "
            "...) WHERE n <= 10."
        )
        raise ValidationError(message)
    return _over(node, below, updating=updating)


def _over(
    node: Any, below: PhysicalNode, *, updating: bool = False, batch: bool = False
) -> PhysicalNode:
    return physical.OverAggregate(
        row=node.row,
        inputs=(exchange(below, node.partition),),
        partition=node.partition,
        order=node.order,
        calls=node.calls,
        updating=updating,
        batch=batch,
    )


def _is_updating(node: OverNode, below: PhysicalNode) -> bool:
    """Whether the rows in front of a row may still change when it is given.

    Raises:
        ValidationError: frames of time are only over inserts, in the order of time.
    """
    time = _time_order(node)
    by_time = time is not None and keeps_time_attribute(below, node.order[0].column)
    if by_time and time is not None:
        attribute, descending = time
        if descending:
            message = "OVER windows can only be ordered by time in ASCENDING mode."
            raise ValidationError(message)
        if attribute is TimestampKind.PROCTIME or kinds_of(below) == frozenset("I"):
            return False
    fields = node.input.row.fields
    kinds = [getattr(fields[each.column].type, "kind", None) for each in node.order]
    by_clock = TimestampKind.PROCTIME in kinds
    if by_clock or any(not each.is_rows and each.preceding for each in node.calls):
        message = (
            "OVER windows' ordering in stream mode must be defined on a time attribute where it is "
            "processing time, or RANGE has a length; then it is over rows that are not updated. "
            "ROWS and RANGE UNBOUNDED PRECEDING go by any other order."
        )
        raise ValidationError(message)
    return True


def limit(converter: Converts, node: Any) -> PhysicalNode:
    """LIMIT, with or without an order; an order alone only by time.

    Raises:
        ValidationError: a stream cannot be sorted so.
    """
    below = converter.convert(node.input)
    if converter.is_batch and node.limit != 0 and (node.order or node.limit is None):
        return _sorted(below, node)
    if node.limit is None:
        return _by_time(below, node)
    if node.limit == 0:
        return physical.ValuesScan(row=below.row, rows=())
    if not node.order:
        single = exchange(below, None)
        return physical.Limit(row=below.row, inputs=(single,), offset=node.offset, limit=node.limit)
    return _first_rows(below, node)


def _by_time(below: PhysicalNode, node: Any) -> PhysicalNode:
    """All rows in the order of time.

    Raises:
        ValidationError: a stream cannot be sorted so.
    """
    if not node.order or node.offset:
        message = "OFFSET without LIMIT is not supported."
        raise ValidationError(message)
    first = node.order[0]
    kind = getattr(below.row.fields[first.column].type, "kind", TimestampKind.REGULAR)
    is_proctime = kind is TimestampKind.PROCTIME and not first.descending
    if (not is_proctime and kind is not TimestampKind.ROWTIME) or not keeps_time_attribute(
        below, first.column
    ):
        message = (
            "Sort on a non-time-attribute field is not supported: a stream has no end; "
            "add LIMIT, or sort the result."
        )
        raise ValidationError(message)
    if first.descending:
        message = "Primary sort order of a streaming table must be ascending on time."
        raise ValidationError(message)
    return TemporalSort(row=below.row, inputs=(exchange(below, None),), order=node.order)


def _first_rows(below: PhysicalNode, node: Any) -> PhysicalNode:
    return physical.Rank(
        row=below.row,
        inputs=(exchange(below, None),),
        function="ROW_NUMBER",
        partition=(),
        order=node.order,
        start=node.offset + 1,
        end=node.offset + node.limit,
        outputs_rank=False,
    )


def _sorted(below: PhysicalNode, node: Any) -> PhysicalNode:
    """The rows in order when all of them are there; of a few first ones no others are kept."""
    offset = node.offset
    if node.limit is not None:
        below, offset = _first_rows(below, node), 0
    single = exchange(below, None)
    return FinalRows(row=below.row, inputs=(single,), order=node.order, offset=offset)


class Converter:
    """Converts one plan; a node that is used twice is converted once."""

    def __init__(
        self,
        *,
        is_batch: bool = False,
        distinct_buckets: int | None = None,
        time_zone: str = "UTC",
        changes_repeat: bool = False,
    ) -> None:
        """Make a converter.

        Args:
            is_batch: whether sources end before anything is given.
            distinct_buckets: over how many the values of DISTINCT are spread; None: they are not.
            time_zone: the session's, in which conditions of constants are.
            changes_repeat: whether sources of changes may repeat them.
        """
        self.is_batch = is_batch
        self.distinct_buckets = distinct_buckets
        self.changes_repeat = changes_repeat
        self._evaluation = EvaluationContext(time_zone=time_zone)
        self._done: dict[int, PhysicalNode] = {}
        #: Numbered rows of which somebody does not read the number.
        self._without_number: dict[int, PhysicalNode] = {}
        #: The nodes, so that their ids stay theirs.
        self._kept: list[lp.LogicalNode] = []

    def convert(self, node: lp.LogicalNode) -> PhysicalNode:
        """The physical plan of a node."""
        known = self._done.get(id(node))
        if known is None:
            known = _CONVERSIONS[type(node)](self, node)
            self._done[id(node)] = known
            self._kept.append(node)
        return known

    # -- leaves ----------------------------------------------------------------------------------

    def _scan(self, node: Any) -> PhysicalNode:
        scan: PhysicalNode = physical.TableSourceScan(
            row=node.row, identifier=node.identifier, table=node.table, source=node.source
        )
        scan.changes = node.source.changes
        key = node.table.schema.key_columns
        keys = tuple(node.row.index_of(name) for name in key) if key else None
        return self._normalized(scan, keys, f"Table '{node.identifier.as_summary_string()}'")

    def _stream(self, node: Any) -> PhysicalNode:
        scan: PhysicalNode = physical.DataStreamScan(
            row=node.row,
            transformation=node.transformation,
            name=node.name,
            given=node.changelog,
            key=node.key,
            rowtime=node.rowtime,
        )
        scan.changes = node.changelog
        return self._normalized(scan, node.key or None, f"Stream '{node.name}'")

    def _normalized(
        self, scan: PhysicalNode, keys: tuple[int, ...] | None, source: str
    ) -> PhysicalNode:
        """Return what makes full changelogs, without repeated changes, of a source of changes.

        Raises:
            ValidationError: its changes need a primary key, which it lacks.
        """
        upserts = "UA" in scan.changes and "UB" not in scan.changes
        repeats = self.changes_repeat and not self.is_batch and scan.changes != INSERT_ONLY
        if not upserts and not repeats:
            return scan
        if keys is None:
            why = (
                "gives upserts and needs a PRIMARY KEY"
                if upserts
                else f"needs a PRIMARY KEY: '{CDC_EVENTS_DUPLICATE.key}' says that its changes may"
                " repeat, and rows are kept by it"
            )
            message = f"{source} {why}."
            raise ValidationError(message)
        return physical.ChangelogNormalize(row=scan.row, inputs=(exchange(scan, keys),), keys=keys)

    def _values(self, node: Any) -> PhysicalNode:
        return physical.ValuesScan(row=node.row, rows=node.rows)

    # -- calcs -----------------------------------------------------------------------------------

    def _project(self, node: Any) -> PhysicalNode:
        below = self._unnumbered(node) or self.convert(node.input)
        return calc(below, node.expressions, node.row)

    def _unnumbered(self, node: Any) -> PhysicalNode | None:
        """Numbered and filtered rows of which the number is not read; None: it is, or is none."""
        below = node.input
        if not isinstance(below, lp.FilterNode):
            return None
        numbers = number_columns(below)
        read = {column for each in node.expressions for column in columns_of(each)}
        if not numbers or numbers & read:
            return None
        if id(below) not in self._without_number:
            found = rank_of(self, below, with_number=False)
            if found is None:  # the numbers of OVER
                return None
            self._without_number[id(below)] = found
            self._kept.append(below)
        return self._without_number[id(below)]

    def _filter(self, node: Any) -> PhysicalNode:
        found = rank_of(self, node)
        if found is not None:
            return found
        pushed = joins.pushed(node)
        if pushed is not None:
            return self.convert(pushed)
        below = self.convert(node.input)
        return calc(below, references(below.row), below.row, node.condition)

    def _watermark(self, node: Any) -> PhysicalNode:
        below = self.convert(node.input)
        return physical.WatermarkAssigner(
            row=node.row, inputs=(below,), rowtime=node.rowtime, expression=node.expression
        )

    # -- aggregates ------------------------------------------------------------------------------

    def _aggregate(self, node: Any) -> PhysicalNode:
        windowed = windows.window_aggregate(self, node)
        if windowed is not None:
            return windowed
        known = aggregate_of_nothing(node, self._evaluation)
        if known is not None:
            return self._values(known)
        below = self.convert(node.input)
        attached = windows.attached_aggregate(node, below)
        if attached is not None:
            return attached
        sets = grouped_sets(node)
        if sets is not None:
            return self._grouping_sets(node, below, sets)
        return self._grouped(node, node.row, below, node.keys)

    def _grouped(
        self, node: Any, row: RowType, below: PhysicalNode, keys: tuple[int, ...]
    ) -> PhysicalNode:
        buckets = self.distinct_buckets
        return group_aggregate(row, below, keys, node.calls, node.state_ttl, buckets)

    def _grouping_sets(
        self, node: Any, below: PhysicalNode, sets: tuple[tuple[int, ...], ...]
    ) -> PhysicalNode:
        width, count = len(below.row), len(node.keys)
        of_sets = tuple(tuple(node.keys[each] for each in part) for part in sets)
        expanded = expand(below, node.keys, node.row.children[:count], of_sets)
        keys = tuple(range(width, len(expanded.row)))
        row = row_of(
            [*expanded.row.names[width:], *(f"$a{i}" for i in range(len(node.calls)))],
            [*expanded.row.children[width:], *(call.type for call in node.calls)],
        )
        grouped = self._grouped(node, row, expanded, keys)
        columns = references(row)
        shown: list[Expression] = [*columns[:count], *columns[count + 1 :]]
        shown += [grouping(columns[count], sets, wanted) for wanted in node.groupings]
        return calc(grouped, shown, node.row)

    def _distinct(self, node: Any) -> PhysicalNode:
        below = self.convert(node.input)
        keys = tuple(range(len(below.row)))
        return physical.GroupAggregate(
            row=node.row,
            inputs=(exchange(below, keys),),
            keys=keys,
            calls=(),
            state_ttl=node.state_ttl,
        )

    def _window(self, node: Any) -> PhysicalNode:
        return windows.window_function(self, node)

    # -- several inputs --------------------------------------------------------------------------

    def _changelog(self, node: Any) -> PhysicalNode:
        below = self.convert(node.input)
        if node.column is None and self.is_batch and kinds_of(below) != frozenset("I"):
            below = FinalRows(row=below.row, inputs=(exchange(below, None),))
        return ChangelogFunction(
            row=node.row, inputs=(below,), column=node.column, codes=node.codes
        )

    def _union(self, node: Any) -> PhysicalNode:
        members = tuple(self.convert(each) for each in node.members)
        # All members have one row: names of the first, types of them all.
        aligned = tuple(
            calc(each, references(each.row), node.row) if each.row != node.row else each
            for each in members
        )
        return physical.Union(row=node.row, inputs=aligned)

    def _join(self, node: Any) -> PhysicalNode:
        return joins.join(self, node)

    def _temporal_join(self, node: Any) -> PhysicalNode:
        return joins.temporal_join(self, node)

    def _correlate(self, node: Any) -> PhysicalNode:
        below = self.convert(node.input)
        return physical.Correlate(
            row=node.row,
            inputs=(below,),
            function=node.function,
            arguments=node.arguments,
            join=node.kind,
            with_ordinality=node.with_ordinality,
        )

    # -- order -----------------------------------------------------------------------------------

    def _over(self, node: Any) -> PhysicalNode:
        return over(self, node)

    def _match(self, node: Any) -> PhysicalNode:
        return matches.match(self, node)

    def _limit(self, node: Any) -> PhysicalNode:
        return limit(self, node)


_CONVERSIONS: Final[dict[type, Callable[[Converter, Any], PhysicalNode]]] = {
    lp.ScanNode: Converter._scan,  # noqa: SLF001 - the table of this class
    lp.StreamScanNode: Converter._stream,  # noqa: SLF001
    lp.ValuesNode: Converter._values,  # noqa: SLF001
    lp.ProjectNode: Converter._project,  # noqa: SLF001
    lp.FilterNode: Converter._filter,  # noqa: SLF001
    lp.WatermarkNode: Converter._watermark,  # noqa: SLF001
    lp.AggregateNode: Converter._aggregate,  # noqa: SLF001
    lp.DistinctNode: Converter._distinct,  # noqa: SLF001
    lp.ChangelogNode: Converter._changelog,  # noqa: SLF001
    lp.WindowNode: Converter._window,  # noqa: SLF001
    lp.UnionNode: Converter._union,  # noqa: SLF001
    lp.JoinNode: Converter._join,  # noqa: SLF001
    lp.TemporalJoinNode: Converter._temporal_join,  # noqa: SLF001
    lp.CorrelateNode: Converter._correlate,  # noqa: SLF001
    lp.OverNode: Converter._over,  # noqa: SLF001
    lp.MatchNode: Converter._match,  # noqa: SLF001
    lp.LimitNode: Converter._limit,  # noqa: SLF001
}
