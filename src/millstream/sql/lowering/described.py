"""What operators with state do, in words: for the checkpoint, so that a changed query can be told.

What it is: for a node of a physical plan its keys, aggregates, orders, conditions and the columns
that it keeps, each column as the expression that it is made of.
What it is not: what uids are made of (``sql/lowering/places.py``).

Read next: ``checkpoint/program.py``, which compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.sql.lowering.matches import slot_texts
from millstream.sql.planner import physical
from millstream.sql.planner.matches import Match
from millstream.sql.planner.physical_joins import IntervalJoin, TemporalJoin
from millstream.sql.planner.physical_sorts import TemporalSort
from millstream.sql.planner.physical_windows import WindowAggregate, WindowJoin, WindowRank
from millstream.sql.planner.texts import length_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import AggregateCall
    from millstream.sql.planner.physical import PhysicalNode

    Details = dict[str, tuple[str, ...]]

__all__ = ["Texts", "described", "described_materializer"]


@dataclass(frozen=True)
class Texts:
    """How columns, expressions and aggregates are said."""

    columns_of: Callable[[PhysicalNode], list[str]]
    text: Callable[[Expression | None, Sequence[str]], str]
    call: Callable[[PhysicalNode, AggregateCall], str]

    def columns(self, node: PhysicalNode, which: Iterable[int]) -> tuple[str, ...]:
        """Some columns of a node."""
        found = self.columns_of(node)
        return tuple(found[each] for each in which)

    def order(self, node: Any) -> tuple[str, ...]:
        """What rows are in the order of."""
        names = self.columns_of(node.input)
        return tuple(
            f"{names[each.column]} {'DESC' if each.descending else 'ASC'}" for each in node.order
        )

    def kept(self, node: PhysicalNode) -> tuple[str, ...]:
        """The columns that a node reads."""
        return tuple(each for below in node.inputs for each in self.columns_of(below))

    def condition(self, node: Any) -> tuple[str, ...]:
        """The condition of a join."""
        if node.condition is None:
            return ()
        sides = enumerate(node.inputs)
        names = [f"{side}.{name}" for side, below in sides for name in self.columns_of(below)]
        return (self.text(node.condition, names),)


def described(node: PhysicalNode, texts: Texts, reads: Iterable[str]) -> Details:
    """What a node's operator does.

    Args:
        node: of the plan.
        texts: how columns are said.
        reads: the operators that it reads.
    """
    make = _KINDS.get(type(node))
    found = make(node, texts) if make is not None else {}
    found["reads"] = tuple(reads)
    return {name: parts for name, parts in found.items() if parts}


def described_materializer(
    node: PhysicalNode, columns_of: Callable[[PhysicalNode], list[str]]
) -> Details:
    """What the operator before a sink does whose key is not the query's."""
    assert isinstance(node, physical.SinkNode)  # noqa: S101 - no other node has one
    names = columns_of(node.input)
    return {
        "keys": tuple(names[each] for each in node.key),
        "columns": tuple(names),
    }


def _group(node: Any, texts: Texts) -> Details:
    return {
        "keys": texts.columns(node.input, node.keys),
        "aggregates": tuple(texts.call(node, each) for each in node.calls),
    }


def _window(node: Any, texts: Texts) -> Details:
    lengths = [length_text(each) for each in (node.size, node.step, node.offset) if each]
    time = texts.columns(node.input, [node.time])
    return {"window": (f"{node.window}({', '.join([*time, *lengths])})",), **_group(node, texts)}


def _over(node: Any, texts: Texts) -> Details:
    frames = (
        f"{texts.call(node, each.call)} over {'ROWS' if each.is_rows else 'RANGE'} "
        f"{'UNBOUNDED' if each.preceding is None else each.preceding}"
        f"{'' if each.following == 0 else f' to {each.following}'}"
        for each in node.calls
    )
    return {
        "keys": texts.columns(node.input, node.partition),
        "order": texts.order(node),
        "aggregates": tuple(frames),
        "columns": texts.kept(node),
    }


def _match(node: Any, texts: Texts) -> Details:
    slots = slot_texts(node, texts.columns_of(node.input), texts.text)
    within = "" if node.pattern.within is None else f" WITHIN {length_text(node.pattern.within)}"
    return {
        "keys": texts.columns(node.input, node.partition),
        "order": texts.order(node),
        "pattern": (f"{node.pattern} {node.pattern.skip_text}{within}",),
        "conditions": tuple(texts.text(each, slots) for each in node.conditions),
        "columns": texts.kept(node),
    }


def _deduplicate(node: Any, texts: Texts) -> Details:
    time = () if node.rowtime is None else texts.columns(node.input, [node.rowtime])
    return {
        "keeps": ("the last row" if node.keep_last else "the first row",),
        "keys": texts.columns(node.input, node.keys),
        "order": time,
        "columns": texts.kept(node),
    }


def _rank(node: Any, texts: Texts) -> Details:
    found: Details = {
        "keeps": (f"{node.function} {node.start} to {node.end}",),
        "keys": texts.columns(node.input, node.partition),
        "order": texts.order(node),
        "columns": texts.kept(node),
    }
    if isinstance(node, physical.Rank):
        found["strategy"] = (node.strategy,)
    else:
        found["window"] = (str(node.spec), *texts.columns(node.input, node.window))
    return found


def _join(node: Any, texts: Texts) -> Details:
    left, right = node.inputs
    found: Details = {
        "kind": (node.join.value,),
        "left keys": texts.columns(left, node.left_keys),
        "right keys": texts.columns(right, node.right_keys),
        "condition": texts.condition(node),
        "left columns": tuple(texts.columns_of(left)),
        "right columns": tuple(texts.columns_of(right)),
    }
    if isinstance(node, WindowJoin):
        found["window"] = (str(node.spec),)
    elif not isinstance(node, physical.Join):
        times = texts.columns(left, [node.left_time]) + texts.columns(right, [node.right_time])
        found["times"] = times
    if isinstance(node, IntervalJoin):
        found["bounds"] = (f"{node.lower} ms to {node.upper} ms",)
    return found


_KINDS: Final[dict[type, Callable[[Any, Texts], Details]]] = {
    physical.TableSourceScan: lambda node, texts: {
        "table": (str(node.identifier),),
        "partitions": ()
        if node.partitions is None
        else (texts.text(node.partitions, texts.columns_of(node)),),
    },
    physical.SinkNode: lambda node, _: {"table": (node.name,)},
    physical.WatermarkAssigner: lambda node, texts: {"time": texts.columns(node, [node.rowtime])},
    physical.GroupAggregate: _group,
    WindowAggregate: _window,
    physical.OverAggregate: _over,
    Match: _match,
    physical.Deduplicate: _deduplicate,
    physical.Rank: _rank,
    WindowRank: _rank,
    TemporalSort: lambda node, texts: {"order": texts.order(node), "columns": texts.kept(node)},
    physical.Limit: lambda node, texts: {
        "keeps": (f"{node.limit} rows behind {node.offset}",),
        "columns": texts.kept(node),
    },
    physical.ChangelogNormalize: lambda node, texts: {
        "keys": texts.columns(node, node.keys),
        "columns": texts.kept(node),
    },
    physical.Join: _join,
    IntervalJoin: _join,
    TemporalJoin: _join,
    WindowJoin: _join,
}
