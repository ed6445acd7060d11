"""Who gets which operator state when a job is restored.

What it is: a pure function from what the subtasks of a checkpoint left to what those of the job to
come are given, as Flink's ``RoundRobinOperatorStateRepartitioner``:

* Elements of a list are dealt out in runs, in order: every new subtask gets as many as the others,
  the first ones one more where that does not come out even.  Where those of one name end, the next
  name begins, so that not always the same subtasks get more.  At the same parallelism each subtask
  keeps its own.
* Of a union, every subtask gets the elements of all.  What subtasks have left as they were given
  it, for nobody asked for it, is in each of them, and counts once.
* Of broadcast state, every subtask gets a copy, another one where there are more.

Flink takes the names in the order of a hash table; here they are in order.

What it is not: the moving of anything.  A part names elements of what is in the checkpoint.

Read next: ``state/operator_state_files.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.contracts.operator import OperatorStateKind, StatePart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.contracts.operator import OperatorStateHandle

__all__ = ["own_states", "redistribute"]

#: Name -> the parts that one subtask is given.
Parts = dict[str, list[StatePart]]


def own_states(states: Mapping[str, OperatorStateHandle]) -> Parts:
    """What a subtask goes on with that was not restored: its own."""
    return {name: [StatePart.whole(handle)] for name, handle in states.items()}


def redistribute(old: Sequence[Mapping[str, OperatorStateHandle]], parallelism: int) -> list[Parts]:
    """What each subtask is given.

    Args:
        old: what each subtask of the checkpoint left, by name.
        parallelism: how many subtasks there are from now on.
    """
    found: list[Parts] = [{} for _ in range(parallelism)]
    start = 0
    for name in sorted({name for states in old for name in states}):
        # A name has one kind: the store refuses another one.
        handles = [states[name] for states in old if name in states]
        kind = handles[0].kind
        if kind is OperatorStateKind.UNION:
            own = [handle for handle in handles if not handle.is_copy] or handles[:1]
            for parts in found:
                parts[name] = [StatePart.whole(replace(handle, is_copy=True)) for handle in own]
        elif kind is OperatorStateKind.BROADCAST:
            copies = [states.get(name) for states in old]
            for subtask, parts in enumerate(found):
                copy = copies[subtask] if parallelism == len(old) else None
                parts[name] = [StatePart.whole(copy or handles[subtask % len(handles)])]
        elif parallelism == len(old):
            for states, parts in zip(old, found, strict=True):
                if name in states:
                    parts[name] = [StatePart.whole(states[name])]
        else:
            start = _deal(name, handles, start, found)
    return found


def _deal(name: str, handles: Sequence[OperatorStateHandle], start: int, found: list[Parts]) -> int:
    """Deal out the elements of a list from subtask ``start`` on; returns where the next begins."""
    parallelism = len(found)
    share, rest = divmod(sum(handle.count for handle in handles), parallelism)
    position = first = 0
    for turn in range(parallelism):
        wanted = share + (turn < rest)
        parts: list[StatePart] = []
        while wanted:
            handle = handles[position]
            taken = min(wanted, handle.count - first)
            if taken:
                parts.append(StatePart(handle, first, first + taken))
            wanted -= taken
            first += taken
            if first == handle.count:
                position, first = position + 1, 0
        if parts:
            found[(start + turn) % parallelism][name] = parts
    return (start + rest) % parallelism
