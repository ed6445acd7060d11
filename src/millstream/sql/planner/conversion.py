"""From the logical to the physical plan: rules, calcs, exchanges, joins.

What it is: one function per logical node.  Projections and filters become calcs that are merged;
filters are pushed into and through joins; rows with a rank become Top-N or deduplication.
What it is not: the planning of changes (``sql/planner/changelog.py``), which comes behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.configuration.options import CDC_EVENTS_DUPLICATE
from millstream.errors import ValidationError
from millstream.expressions.context import EvaluationContext
from millstream.sql.catalog.connectors import INSERT_ONLY
from millstream.sql.planner import joins, matches, physical, ranks, temporal_joins, windows
from millstream.sql.planner import logical as lp
from millstream.sql.planner.aggregates import aggregate_of_nothing, group_aggregate
from millstream.sql.planner.calcs import calc, columns_of, exchange
from millstream.sql.planner.changelog import kinds_of
from millstream.sql.planner.grouping_sets import expand, grouped_sets, grouping
from millstream.sql.planner.logical import references, row_of
from millstream.sql.planner.physical import ChangelogFunction, FinalRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import RowType


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
        numbers = ranks.number_columns(below)
        read = {column for each in node.expressions for column in columns_of(each)}
        if not numbers or numbers & read:
            return None
        if id(below) not in self._without_number:
            found = ranks.rank_of(self, below, with_number=False)
            if found is None:  # the numbers of OVER
                return None
            self._without_number[id(below)] = found
            self._kept.append(below)
        return self._without_number[id(below)]

    def _filter(self, node: Any) -> PhysicalNode:
        found = ranks.rank_of(self, node)
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
        return temporal_joins.temporal_join(self, node)

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
        return ranks.over(self, node)

    def _match(self, node: Any) -> PhysicalNode:
        return matches.match(self, node)

    def _limit(self, node: Any) -> PhysicalNode:
        return ranks.limit(self, node)


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
