"""EXPLAIN: plans as text, in Flink's layout.

What it is: trees of nodes, with the kinds of changes if asked for.
What it is not: the planning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.sql.planner import logical as lp
from millstream.sql.planner.texts import aggregate_text, expression_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
    advice: Mapping[int, Sequence[int]] | None = None,
) -> str:
    """The physical plan; nodes that several read are shown where they are first, then by number.

    Args:
        sinks: the ends of the plan.
        with_changes: whether it shows which kinds of changes nodes give.
        advice: numbers of what is said of nodes, by their ``id``.
    """
    counts: dict[int, int] = {}

    def count(node: PhysicalNode) -> None:
        counts[id(node)] = counts.get(id(node), 0) + 1
        if counts[id(node)] == 1:
            for each in node.shown_inputs:
                count(each)

    for sink in sinks:
        count(sink)
    numbers: dict[int, int] = {}
    lines: list[str] = []
    for sink in sinks:
        _physical(
            sink, "", "", counts, numbers, lines, with_changes=with_changes, advice=advice or {}
        )
        lines.append("")
    return "\n".join(lines)


def _physical(
    node: PhysicalNode,
    prefix: str,
    branch: str,
    counts: dict[int, int],
    numbers: dict[int, int],
    lines: list[str],
    *,
    with_changes: bool,
    advice: Mapping[int, Sequence[int]],
) -> None:
    if id(node) in numbers:
        lines.append(f"{prefix}{branch}Reused(reference_id=[{numbers[id(node)]}])")
        return
    details = node.details()
    if id(node) in advice:
        told = f"advice=[{', '.join(map(str, advice[id(node)]))}]"
        details = f"{told}, {details}" if details else told
    if with_changes:
        changes = f"changelogMode=[{changes_text(node.changes)}]"
        details = f"{details}, {changes}" if details else changes
    mark = ""
    if counts[id(node)] > 1:
        numbers[id(node)] = len(numbers) + 1
        mark = f"(reuse_id=[{numbers[id(node)]}])"
    lines.append(f"{prefix}{branch}{node.shown_kind}({details}){mark}")
    deeper = prefix
    if branch:
        deeper += "   " if branch == "+- " else ":  "
    below = node.shown_inputs
    for position, each in enumerate(below):
        last = position == len(below) - 1
        _physical(
            each,
            deeper,
            "+- " if last else ":- ",
            counts,
            numbers,
            lines,
            with_changes=with_changes,
            advice=advice,
        )


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
    lp.LimitNode: _limit,
}
