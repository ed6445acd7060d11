"""EXPLAIN: plans as text, in Flink's layout.

What it is: trees of nodes, with the kinds of changes if asked for.
What it is not: the planning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.sql.planner import logical as lp
from millstream.sql.planner.costs import cost_text
from millstream.sql.planner.texts import aggregate_text, expression_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.sql.planner.costs import Cost
    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.planner.physical import PhysicalNode, SinkNode

__all__ = ["changes_text", "explain_logical", "explain_physical"]

_ORDER: Final = ("I", "UB", "UA", "D")


def changes_text(changes: frozenset[str]) -> str:
    """``I,UB,UA,D``; NONE if there are none."""
    return ",".join(each for each in _ORDER if each in changes) or "NONE"


def explain_physical(
    sinks: Sequence[SinkNode],
    *,
    with_changes: bool,
    with_costs: bool = False,
    advice: Mapping[int, Sequence[int]] | None = None,
) -> str:
    """The physical plan; nodes that several read are shown where they are first, then by number.

    Args:
        sinks: the ends of the plan.
        with_changes: whether it shows which kinds of changes nodes give.
        with_costs: whether it shows what they are estimated to cost.
        advice: numbers of what is said of nodes, by their ``id``.
    """
    shown = _Shown(with_changes, with_costs, advice or {})
    for sink in sinks:
        shown.count(sink)
    for sink in sinks:
        shown.add(sink, "", "")
        shown.lines.append("")
    return "\n".join(shown.lines)


class _Shown:
    """The lines of physical plans."""

    def __init__(
        self,
        with_changes: bool,  # noqa: FBT001 - made in one place
        with_costs: bool,  # noqa: FBT001
        advice: Mapping[int, Sequence[int]],
    ) -> None:
        self.lines: list[str] = []
        self._with_changes = with_changes
        self._with_costs = with_costs
        self._advice = advice
        #: How many read a node, and the number of one that several read; by its ``id``.
        self._counts: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._costs: dict[int, tuple[float, Cost]] = {}

    def count(self, node: PhysicalNode) -> None:
        """Find out which nodes several read."""
        self._counts[id(node)] = self._counts.get(id(node), 0) + 1
        if self._counts[id(node)] == 1:
            for each in node.shown_inputs:
                self.count(each)

    def add(self, node: PhysicalNode, prefix: str, branch: str) -> None:
        """Show a node and what is below it.

        Args:
            node: the node.
            prefix: the lines on the left.
            branch: what leads to it from them.
        """
        if id(node) in self._numbers:
            self.lines.append(f"{prefix}{branch}Reused(reference_id=[{self._numbers[id(node)]}])")
            return
        self.lines.append(f"{prefix}{branch}{self._line(node)}")
        deeper = prefix
        if branch:
            deeper += "   " if branch == "+- " else ":  "
        *others, last = node.shown_inputs or (None,)
        for each in others:
            if each is not None:
                self.add(each, deeper, ":- ")
        if last is not None:
            self.add(last, deeper, "+- ")

    def _line(self, node: PhysicalNode) -> str:
        parts = [node.details()]
        if id(node) in self._advice:
            parts.insert(0, f"advice=[{', '.join(map(str, self._advice[id(node)]))}]")
        if self._with_changes:
            parts.append(f"changelogMode=[{changes_text(node.changes)}]")
        line = f"{node.shown_kind}({', '.join(each for each in parts if each)})"
        if self._counts[id(node)] > 1:
            number = self._numbers[id(node)] = len(self._numbers) + 1
            line += f"(reuse_id=[{number}])"
        return f"{line}: {cost_text(node, self._costs)}" if self._with_costs else line


def explain_logical(node: LogicalNode, sink: str | None = None) -> str:
    """The logical plan, as Flink's abstract syntax tree is shown."""
    lines: list[str] = []
    if sink is not None:
        names = ", ".join(node.row.names)
        lines.append(f"LogicalSink(table=[{sink}], fields=[{names}])")
    _logical(node, 0 if sink is None else 1, lines)
    return "\n".join(lines) + "\n"


def _logical(node: Any, depth: int, lines: list[str]) -> None:
    indent = "   " * (depth - 1) + "+- " if depth else ""
    lines.append(indent + _LOGICAL[type(node)](node))
    for each in node.inputs:
        _logical(each, depth + 1, lines)


def _columns(columns: Sequence[int]) -> str:
    return ", ".join(f"${column}" for column in columns)


def _project(node: Any) -> str:
    pairs = zip(node.row.names, node.expressions, strict=True)
    shown = ", ".join(f"{name}=[{expression_text(each)}]" for name, each in pairs)
    return f"LogicalProject({shown})"


def _aggregate(node: Any) -> str:
    parts = [f"group=[{{{', '.join(map(str, node.keys))}}}]"]
    names = node.row.names[len(node.keys) :]
    parts += [
        f"{name}=[{aggregate_text(call, node.input.row, '')}]"
        for name, call in zip(names, node.calls, strict=False)
    ]
    return f"LogicalAggregate({', '.join(parts)})"


def _window(node: Any) -> str:
    time = node.input.row.names[node.time]
    return f"LogicalTableFunctionScan(invocation=[{node.kind}(DESCRIPTOR({time}))])"


def _join(node: Any) -> str:
    condition = "true" if node.condition is None else expression_text(node.condition)
    word = node.kind.value.removesuffix("Join").removesuffix("Outer").lower()
    word = {"leftsemi": "semi", "leftanti": "anti"}.get(word, word)
    return f"LogicalJoin(condition=[{condition}], joinType=[{word}])"


def _limit(node: Any) -> str:
    parts = [
        f"sort{number}=[${each.column}], dir{number}=[{'DESC' if each.descending else 'ASC'}]"
        for number, each in enumerate(node.order)
    ]
    parts += [f"offset=[{node.offset}]"] if node.offset else []
    parts += [] if node.limit is None else [f"fetch=[{node.limit}]"]
    return f"LogicalSort({', '.join(parts)})"


_LOGICAL: Final[dict[type, Callable[[Any], str]]] = {
    lp.ScanNode: lambda node: f"LogicalTableScan(table=[[{', '.join(node.identifier.parts)}]])",
    lp.StreamScanNode: lambda node: f"LogicalTableScan(table=[[{node.name}]])",
    lp.ValuesNode: lambda node: f"LogicalValues(tuples=[{len(node.rows)} rows])",
    lp.ProjectNode: _project,
    lp.FilterNode: lambda node: f"LogicalFilter(condition=[{expression_text(node.condition)}])",
    lp.WatermarkNode: lambda node: (
        f"LogicalWatermarkAssigner(rowtime=[{node.row.names[node.rowtime]}], "
        f"watermark=[{expression_text(node.expression)}])"
    ),
    lp.AggregateNode: _aggregate,
    lp.DistinctNode: lambda node: (
        f"LogicalAggregate(group=[{{{', '.join(map(str, range(len(node.row))))}}}])"
    ),
    lp.WindowNode: _window,
    lp.MatchNode: lambda node: (
        f"LogicalMatch(partition=[{_columns(node.partition)}], "
        f"outputFields=[[{', '.join(node.row.names)}]], after=[{node.pattern.skip_text}], "
        f"pattern=[{node.pattern}])"
    ),
    lp.OverNode: lambda node: f"LogicalOver(partition=[{_columns(node.partition)}])",
    lp.JoinNode: _join,
    lp.TemporalJoinNode: lambda node: f"LogicalTemporalJoin({_join(node)[12:]}",
    lp.CorrelateNode: lambda node: f"LogicalCorrelate(function=[{node.function}])",
    lp.UnionNode: lambda _: "LogicalUnion(all=[true])",
    lp.ChangelogNode: lambda node: (
        f"LogicalTableFunctionScan(invocation=["
        f"{'TO' if node.column is None else 'FROM'}_CHANGELOG(TABLE(#0))])"
    ),
    lp.LimitNode: _limit,
}
