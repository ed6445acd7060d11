"""Which windows of a checkpoint a changed program goes on with, and which it refuses.

What it is: the rules, over what both say of their windows (``sections.py``):

* The windows themselves must be the same; sessions may have another gap.
* Content goes on as it is, or is made of elements: of these, any function makes what it keeps.
  Elements cannot be made of accumulators, nor one function's accumulators of another's.  Built-in
  aggregates are the same whether they are kept as columns or as values.
* Windows that overlap cannot be cut into panes.
* A trigger takes over from another one if it has ``on_restore``, as all of Millstream's have.  It
  knows nothing of elements that came before.
* Another lateness needs nothing of the content: what is over by it ends, the rest is kept longer.

What it is not: the conversion (``adoption.py``).

Read next: ``runtime/operators/windows/adoption.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.functions.evictors import CountEvictor, DeltaEvictor
from millstream.functions.windows import FixedWindows
from millstream.runtime.columnar.aggregates import Collect, First, Last, named_aggregates
from millstream.runtime.operators.windows.sections import (
    ELEMENTS,
    FRAGMENTS,
    KEYED,
    PANES,
    SECTION,
    TIMED_ELEMENTS,
)
from millstream.runtime.operators.windows.specs import BuiltInSpec

if TYPE_CHECKING:
    from millstream.contracts.operator import StateSection
    from millstream.runtime.operators.windows.specs import WindowSpec

__all__ = ["WindowsAsDeclared", "trigger_of"]

#: The trigger of the layouts that have no other.
_ON_TIME: Final = "EventTimeTrigger"
#: Evictors that look at no timestamp, and no subclasses of them.
_TIMELESS: Final = (CountEvictor, DeltaEvictor)


def trigger_of(section: StateSection) -> str:
    """The trigger whose timers and state a section has."""
    return section.details.get("trigger", _ON_TIME)


@dataclass(frozen=True, slots=True)
class WindowsAsDeclared:
    """What a program declares, as far as it decides what it can go on with."""

    section: StateSection
    assigner: Any
    spec: WindowSpec
    trigger: Any
    evictor: Any

    def refusal(self, stored: StateSection) -> str | None:
        """Why the windows of ``stored`` cannot be gone on with; None if they can."""
        if stored.name != SECTION or stored.version != self.section.version:
            return ""
        if stored == self.section:
            return None
        if _windows(stored) != _windows(self.section):
            return "these are other windows"
        return self._content_refusal(stored) or self._trigger_refusal(stored)

    def _content_refusal(self, stored: StateSection) -> str | None:
        old, new = stored.details["content"], self.section.details["content"]
        if self.section.layout == PANES != stored.layout and self._overlap:
            return "windows that overlap cannot be cut into panes"
        if old in (new, TIMED_ELEMENTS):
            return None
        if old != ELEMENTS:
            return f"of {old}, {new} cannot be made"
        if new == TIMED_ELEMENTS:
            looking = None if type(self.evictor) in _TIMELESS else type(self.evictor).__name__
        else:
            looking = self._looks_at_time()
        if looking is None:
            return None
        return f"the elements are stored without timestamps, which {looking} looks at"

    def _looks_at_time(self) -> str | None:
        """The built-in aggregate that needs the timestamps of elements, if there is one."""
        if not isinstance(self.spec, BuiltInSpec):
            return None
        kinds = map(type, named_aggregates(self.spec.aggregates).values())
        return next((each.__name__ for each in kinds if each in (First, Last, Collect)), None)

    def _trigger_refusal(self, stored: StateSection) -> str | None:
        if self.section.layout != KEYED or trigger_of(stored) == trigger_of(self.section):
            return None
        if self.trigger.can_restore():
            return None
        return (
            f"{trigger_of(self.section)} cannot take windows over from {trigger_of(stored)}: give"
            " it a method on_restore(window, ctx)"
        )

    @property
    def _overlap(self) -> bool:
        return isinstance(self.assigner, FixedWindows) and self.assigner.slide < self.assigner.size


def _windows(section: StateSection) -> str:
    """What windows these are; fragments are of one kind of sessions."""
    windows = section.details["windows"]
    return "sessions, event time" if section.layout == FRAGMENTS else windows
