"""The factory of window operators: chooses the cheapest one with the same results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.contracts.operator import FUNCTION_STATES
from millstream.functions.triggers import EventTimeTrigger, PurgingTrigger
from millstream.functions.windows import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    FixedEventTimeWindows,
)
from millstream.runtime.operators.windows.aligned import WindowOperator
from millstream.runtime.operators.windows.columnar import BuiltInWindowOperator
from millstream.runtime.operators.windows.columnar_sessions import BuiltInSessionOperator
from millstream.runtime.operators.windows.generic import GeneralWindowOperator
from millstream.runtime.operators.windows.logic import BuiltInSpec, WindowSpec
from millstream.runtime.operators.windows.sessions import SessionWindowOperator
from millstream.runtime.operators.windows.state_migration import (
    FRAGMENTS,
    PANES,
    WindowsAsDeclared,
    aligned_section,
    fragments_section,
    keyed_section,
    panes_section,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.operator import Operator, StateSection
    from millstream.types.output_tag import OutputTag

    _WindowOperator = (
        WindowOperator | BuiltInWindowOperator | BuiltInSessionOperator | GeneralWindowOperator
    )


#: Assigners, and no subclasses, whose windows the operator of sessions can do.
_SESSIONS = (EventTimeSessionWindows, DynamicEventTimeSessionWindows)


@dataclass
class WindowFactory:
    """Factory of window operators: vectorized, aligned or general ones."""

    assigner: Any
    spec: WindowSpec
    key_selector: Any
    #: Milliseconds.
    allowed_lateness: int = 0
    late_tag: OutputTag | str | None = None
    #: None: the assigner's default.
    trigger: Any = None
    evictor: Any = None
    keyed: ClassVar[bool] = True

    def create(self) -> Operator:
        """Make a new, unopened instance.

        This is the place where the kind of window function and the windows choose the operator:
        one that does less is taken where the windows are all of one size and fire by the watermark,
        and must then give the same results.
        """
        tag = getattr(self.late_tag, "tag_id", self.late_tag)
        late_tag = None if tag is None else str(tag)
        if not self.is_general:
            make: Callable[..., _WindowOperator] = _fixed_operator(self.assigner, self.spec)
            return make(
                self.assigner, self.spec, self.key_selector, self.allowed_lateness, late_tag
            )
        make = general_operator(self.assigner, self.trigger, self.allowed_lateness)
        return make(
            self.assigner,
            self.spec,
            self.key_selector,
            self.trigger,
            self.evictor,
            self.allowed_lateness,
            late_tag,
        )

    @property
    def waits_for_watermarks(self) -> bool:
        """Return whether windows fire by the watermark alone."""
        trigger = self.trigger or self.assigner.get_default_trigger(None)
        if isinstance(trigger, PurgingTrigger):
            trigger = trigger.nested_trigger
        return type(trigger) is EventTimeTrigger

    def state_sections(self) -> list[StateSection]:
        """Return what the operator that ``create`` chooses keeps."""
        section = self._section()
        if section.layout in (PANES, FRAGMENTS):
            return [section]
        return [section, FUNCTION_STATES]

    def refusal(self, stored: StateSection) -> str | None:
        """Return why windows of a checkpoint cannot be continued with; None if they can."""
        trigger = self.trigger or self.assigner.get_default_trigger(None)
        declared = WindowsAsDeclared(
            self._section(), self.assigner, self.spec, trigger, self.evictor
        )
        return declared.refusal(stored)

    def _section(self) -> StateSection:
        if self.is_general:
            made = general_operator(self.assigner, self.trigger, self.allowed_lateness)
            return keyed_section(
                self.assigner,
                self.spec,
                self.trigger or self.assigner.get_default_trigger(None),
                lateness=self.allowed_lateness,
                has_evictor=self.evictor is not None,
                moves_timers=made.moves_timers,
            )
        if not isinstance(self.spec, BuiltInSpec):
            return aligned_section(self.assigner, self.spec)
        if type(self.assigner) is EventTimeSessionWindows:
            return fragments_section(self.spec)
        return panes_section(self.assigner, self.spec, self.allowed_lateness)

    @property
    def is_general(self) -> bool:
        """Return whether windows need more than firing by the watermark."""
        trigger = self.trigger or self.assigner.get_default_trigger(None)
        by_watermark = type(trigger) is EventTimeTrigger
        if type(self.assigner) is EventTimeSessionWindows and isinstance(self.spec, BuiltInSpec):
            return not by_watermark or self.evictor is not None
        fixed = isinstance(self.assigner, FixedEventTimeWindows) and (
            type(self.assigner).assign_windows is FixedEventTimeWindows.assign_windows
        )
        return not (fixed and by_watermark and self.evictor is None)


def _fixed_operator(assigner: object, spec: WindowSpec) -> Any:
    """Return the operator of these windows and this kind of function."""
    if type(assigner) is EventTimeSessionWindows:
        return BuiltInSessionOperator
    if isinstance(spec, BuiltInSpec):
        return BuiltInWindowOperator
    return WindowOperator


def general_operator(
    assigner: object, trigger: object, allowed_lateness: int
) -> type[GeneralWindowOperator]:
    """Return the operator of windows that need not fire by the watermark alone."""
    by_watermark = trigger is None or type(trigger) is EventTimeTrigger
    if type(assigner) in _SESSIONS and by_watermark and not allowed_lateness:
        return SessionWindowOperator
    return GeneralWindowOperator
