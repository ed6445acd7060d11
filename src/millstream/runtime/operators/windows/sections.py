"""What the window operators keep, as a checkpoint records it.

What it is: one section, "windows", per window operator.  There are four layouts, of which the
windows, the trigger, the evictor, the lateness and the function together choose one
(``WindowFactory.create``).  What the section says decides whether the open windows of a checkpoint
are found as they are, are converted, or are refused (``conversions.py``).

What it does not say may change without any of that: the function itself, the gap of sessions, what
``PurgingTrigger`` adds, which evictor it is, where late records go.

What it is not: the layouts, which are described in ``accumulators.py``, ``chunks.py``,
``session_state.py`` and ``contents.py``.

Read next: ``runtime/operators/windows/conversions.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.operator import StateSection
from millstream.functions.triggers import PurgingTrigger
from millstream.functions.windows import (
    FixedEventTimeWindows,
    FixedWindows,
    GlobalWindows,
    MergingWindowAssigner,
    merges_sessions,
)
from millstream.runtime.columnar.aggregates import named_aggregates
from millstream.runtime.operators.windows.specs import AggregateSpec, BuiltInSpec, ReduceSpec

if TYPE_CHECKING:
    from millstream.runtime.columnar.aggregates import Aggregates, BuiltInAggregate
    from millstream.runtime.operators.windows.specs import WindowSpec

__all__ = [
    "ACCUMULATED",
    "ALIGNED",
    "ELEMENTS",
    "FRAGMENTS",
    "KEYED",
    "PANES",
    "REDUCED",
    "SECTION",
    "TIMED_ELEMENTS",
    "aligned_section",
    "fragments_section",
    "keyed_section",
    "panes_section",
]

#: The name of the section.
SECTION: Final = "windows"
#: Layouts.
ALIGNED: Final = "by window, then key"
PANES: Final = "panes of partial aggregates"
FRAGMENTS: Final = "session fragments of partial aggregates"
KEYED: Final = "by key, then window"
#: Contents, beside those of built-in aggregates, which are named.
ELEMENTS: Final = "elements"
TIMED_ELEMENTS: Final = "elements with timestamps"
REDUCED: Final = "reduced values"
ACCUMULATED: Final = "accumulators of an AggregateFunction"


def aligned_section(assigner: FixedEventTimeWindows, spec: WindowSpec) -> StateSection:
    """Of windows that all keys share, with the user's function."""
    details = {"windows": _grid(assigner), "content": _content(spec)}
    return StateSection(SECTION, ALIGNED, details=details)


def panes_section(
    assigner: FixedEventTimeWindows, spec: BuiltInSpec, lateness: int
) -> StateSection:
    """Of windows that all keys share, with built-in aggregates."""
    details = {"windows": _grid(assigner), "content": _aggregates(spec.aggregates)}
    # Of windows that overlap, a pane says nothing of which of them are over.
    if assigner.slide < assigner.size:
        details["lateness"] = _length(lateness)
    return StateSection(SECTION, PANES, details=details)


def fragments_section(spec: BuiltInSpec) -> StateSection:
    """Of sessions with built-in aggregates."""
    details = {"windows": "event-time sessions", "content": _aggregates(spec.aggregates)}
    return StateSection(SECTION, FRAGMENTS, details=details)


def keyed_section(
    assigner: object,
    spec: WindowSpec,
    trigger: object,
    *,
    lateness: int,
    has_evictor: bool,
    moves_timers: bool,
) -> StateSection:
    """Of windows of any kind, kept key by key.

    Args:
        assigner: of windows.
        spec: the function.
        trigger: the one that runs; what is stored has the timers that it wanted.
        lateness: how long windows are kept behind their end; their timers are then.
        has_evictor: then elements are kept, with their timestamps, whatever the function.
        moves_timers: whether a session that grows gets a timer of its new end.  Where it keeps the
            old one, an operator that does not expect that would never fire it.
    """
    details = {
        "windows": _family(assigner),
        "content": TIMED_ELEMENTS if has_evictor else _content(spec),
        "trigger": _timers_of(trigger),
        "lateness": _length(lateness),
    }
    if merges_sessions(assigner):
        details["timers"] = "of the session's end" if moves_timers else "of any window within it"
    return StateSection(SECTION, KEYED, details=details)


def _length(lateness: int) -> str:
    return f"{lateness} ms"


def _grid(assigner: FixedWindows) -> str:
    """Where windows begin and end.

    Those of another grid have no place in what is stored, or lack the records before the change.
    """
    offset = assigner.offset % assigner.slide
    behind = f", {offset} ms behind the full one" if offset else ""
    time = "event" if assigner.is_event_time() else "processing"
    return f"{assigner.size} ms of {time} time, one every {assigner.slide} ms{behind}"


def _family(assigner: Any) -> str:
    """What kind of windows these are; sessions with another gap are found beside others."""
    if isinstance(assigner, FixedWindows):
        return _grid(assigner)
    if merges_sessions(assigner):
        kind = "sessions"
    elif isinstance(assigner, GlobalWindows):
        return "global"
    else:
        merging = ", merging" if isinstance(assigner, MergingWindowAssigner) else ""
        kind = f"of {type(assigner).__name__}{merging}"
    return f"{kind}, {'event' if assigner.is_event_time() else 'processing'} time"


def _timers_of(trigger: Any) -> str:
    """The trigger whose timers and state are stored; purging has none of its own."""
    while isinstance(trigger, PurgingTrigger):
        trigger = trigger.nested_trigger
    return type(trigger).__name__


def _content(spec: WindowSpec) -> str:
    if isinstance(spec, ReduceSpec):
        return REDUCED
    if isinstance(spec, AggregateSpec):
        return ACCUMULATED
    if isinstance(spec, BuiltInSpec):
        return _aggregates(spec.aggregates)
    return ELEMENTS


def _aggregates(aggregates: Aggregates) -> str:
    return ", ".join(map(_aggregate, named_aggregates(aggregates).values()))


def _aggregate(aggregate: BuiltInAggregate) -> str:
    """``Sum('delay')``; the name of the output column and a filter are no part of what is kept."""
    field = "" if aggregate.field is None else repr(aggregate.field)
    return f"{type(aggregate).__name__}({field})"
