"""Epoch sizing: how much an epoch reads so that it takes about the target time.

What it is: a small controller.  It fits ``seconds = fixed + units * per_unit`` to the epochs seen
and chooses the units.  A backlog is caught up in larger epochs, because each epoch has a fixed
cost; and an epoch is never made so small that most of it is fixed cost, however loaded the
machine is: that would only make the backlog grow.
What it is not: a rate limit of the user's; that is up to the source.
"""

from __future__ import annotations

from typing import Final

__all__ = ["EpochSizer"]

#: Epochs of a backlog may take this many times the target duration.
_BACKLOG_FACTOR: Final = 5.0
#: One step changes the limit by at most these factors, so that one slow epoch does not upset it.
_GROW: Final = 4.0
_SHRINK: Final = 0.5
#: First guess of the seconds of an epoch that do not depend on its size.
_FIXED_SECONDS: Final = 0.3
#: Weight of a new observation.
_WEIGHT: Final = 0.3
#: The limit never falls below this part of the initial one.
_LEAST_PART: Final = 64
#: An epoch takes at least this many times its fixed cost.
_LEAST_TOTAL: Final = 2.0


class EpochSizer:
    """Adapts a limit (in units of a source's offsets) to a target duration in seconds."""

    def __init__(self, initial: int, target_seconds: float) -> None:
        self.limit = initial
        #: A machine that stands still for a while must not lead to epochs of single records.
        self._least = max(1, initial // _LEAST_PART)
        self._target = target_seconds
        self._units = 0
        self._backlog = False
        self._fixed = _FIXED_SECONDS
        self._first = True
        self._last: tuple[int, float] | None = None

    def planned(self, units: int, *, backlog: bool) -> None:
        """The next epoch reads ``units``; ``backlog`` says that the limit held more back."""
        self._units = units
        self._backlog = backlog

    def finished(self, seconds: float) -> None:
        """The epoch took ``seconds``."""
        if not self._units:
            return
        if self._first:
            # It started the workers, so its time tells nothing of the fixed cost; but the next ones
            # will not take longer.
            self._first = False
            if not self._backlog:
                return
            self.limit = max(self.limit, self._wanted(seconds))
            return
        self._learn(self._units, seconds)
        if not self._backlog and seconds <= self._target:
            return
        self.limit = max(self._wanted(seconds), self._least)

    def _wanted(self, seconds: float) -> int:
        """How many units would take the time an epoch should take, if these took ``seconds``."""
        target = self._target * (_BACKLOG_FACTOR if self._backlog else 1.0)
        target = max(target, _LEAST_TOTAL * self._fixed)
        work = max(seconds - self._fixed, 0.01)
        factor = min(max((target - self._fixed) / work, _SHRINK), _GROW)
        return int(min(self._units, self.limit) * factor)

    def _learn(self, units: int, seconds: float) -> None:
        """Estimate the fixed cost from this epoch and the last one of clearly another size."""
        if self._last is not None:
            last_units, last_seconds = self._last
            if max(units, last_units) < 1.2 * min(units, last_units):
                return
            # Not negative: a smaller epoch that took longer tells of load, so of fixed cost.
            per_unit = max((seconds - last_seconds) / (units - last_units), 0.0)
            fixed = min(max(seconds - units * per_unit, 0.0), seconds)
            self._fixed += _WEIGHT * (fixed - self._fixed)
        self._last = (units, seconds)
