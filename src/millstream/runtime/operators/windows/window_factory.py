"""The factory of window operators: chooses the cheapest one with the same results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.contracts.operator import FUNCTION_STATES
from millstream.functions.triggers import EventTimeTrigger, PurgingTrigger
from millstream.functions.window_assigners import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    FixedEventTimeWindows,
)
from millstream.runtime.operators.windows.aligned import AlignedWindowOperator
from millstream.runtime.operators.windows.columnar import BuiltInWindowOperator
from millstream.runtime.operators.windows.columnar_sessions import BuiltInSessionOperator
from millstream.runtime.operators.windows.generic import (
    GeneralWindowOperator,
    SessionWindowOperator,
)
from millstream.runtime.operators.windows.logic import BuiltInSpec, DeclaredWindows
from millstream.runtime.operators.windows.state_migration import (
    COLUMNAR,
    refusal_of,
    window_section,
)

if TYPE_CHECKING:
    from millstream.contracts.operator import Operator, StateSection

    _WindowOperator = BuiltInWindowOperator | BuiltInSessionOperator | GeneralWindowOperator


#: Assigners, and no subclasses, whose windows the operator of sessions can do.
_SESSIONS = (EventTimeSessionWindows, DynamicEventTimeSessionWindows)


@dataclass
class WindowFactory(DeclaredWindows):
    """Factory of window operators: vectorized, aligned or general ones."""

    keyed: ClassVar[bool] = True

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return self._operator(self)

    @property
    def waits_for_watermarks(self) -> bool:
        """Return whether windows fire by the watermark alone."""
        trigger = self.chosen_trigger
        if isinstance(trigger, PurgingTrigger):
            trigger = trigger.nested_trigger
        return type(trigger) is EventTimeTrigger

    def state_sections(self) -> list[StateSection]:
        """Return what the operator that ``create`` chooses keeps."""
        section = self.section
        return [section] if section.layout in COLUMNAR else [section, FUNCTION_STATES]

    @property
    def section(self) -> StateSection:
        """What is kept of windows."""
        return window_section(self, self._operator)

    def refusal(self, stored: StateSection) -> str | None:
        """Return why windows of a checkpoint cannot be continued with; None if they can."""
        return refusal_of(self, self.section, stored)

    @property
    def _operator(self) -> type[_WindowOperator]:
        """The operator of these windows and this kind of function.

        One that does less is taken where the windows are all of one size and fire by the watermark,
        and must then give the same results.
        """
        if self.is_general:
            by_watermark = type(self.chosen_trigger) is EventTimeTrigger
            if type(self.assigner) in _SESSIONS and by_watermark and not self.allowed_lateness:
                return SessionWindowOperator
            return GeneralWindowOperator
        if not isinstance(self.spec, BuiltInSpec):
            return AlignedWindowOperator
        if type(self.assigner) is EventTimeSessionWindows:
            return BuiltInSessionOperator
        return BuiltInWindowOperator

    @property
    def is_general(self) -> bool:
        """Return whether windows need more than firing by the watermark."""
        by_watermark = type(self.chosen_trigger) is EventTimeTrigger
        if type(self.assigner) is EventTimeSessionWindows and isinstance(self.spec, BuiltInSpec):
            return not by_watermark or self.evictor is not None
        fixed = isinstance(self.assigner, FixedEventTimeWindows) and (
            type(self.assigner).assign_windows is FixedEventTimeWindows.assign_windows
        )
        return not (fixed and by_watermark and self.evictor is None)
