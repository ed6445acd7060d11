"""Partition pruning: scans of partitioned tables that read only what their filter may let through.

What it is: the conjuncts of a filter right above a scan that are about columns of the partition
alone, and give the same at any time, go to the source; the filter stays as it is.
What it is not: a filter of rows within partitions, or of scans that several read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.expressions.evaluator import is_deterministic
from millstream.expressions.nodes import Call, walk
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import columns_of, conjunction, conjuncts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.physical import PhysicalNode

__all__ = ["prune_partitions"]


def prune_partitions(sinks: Iterable[PhysicalNode]) -> None:
    """Let scans read fewer partitions.

    Args:
        sinks: the ends of the plans of a job, whose scans are changed.
    """
    readers: dict[int, list[PhysicalNode]] = {}
    scans: dict[int, physical.TableSourceScan] = {}
    seen: set[int] = set()

    def look(node: PhysicalNode) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        for below in node.inputs:
            readers.setdefault(id(below), []).append(node)
            if isinstance(below, physical.TableSourceScan):
                scans[id(below)] = below
            look(below)

    for sink in sinks:
        look(sink)
    for number, scan in scans.items():
        above = readers[number]
        if scan.table.partition_keys and len(above) == 1 and isinstance(above[0], physical.Calc):
            _prune(scan, above[0])


def _prune(scan: physical.TableSourceScan, calc: physical.Calc) -> None:
    keys = {scan.row.index_of(name) for name in scan.table.partition_keys}
    condition = conjunction([e for e in conjuncts(calc.condition) if _is_about(e, keys)])
    if condition is None:
        return
    pruned = scan.source.with_partitions(condition)
    if pruned is not None:
        scan.source, scan.partitions = pruned, condition


def _is_about(condition: Expression, keys: set[int]) -> bool:
    """Whether some columns decide a condition, and a function of a user is not asked."""
    columns = columns_of(condition)
    of_user = any(isinstance(e, Call) and e.definition is not None for e in walk(condition))
    return bool(columns) and columns <= keys and not of_user and is_deterministic(condition)
