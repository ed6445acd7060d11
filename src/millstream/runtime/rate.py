"""Epoch sizing: how much an epoch reads so that it takes about the target time.

What it is: a small controller.  A backlog is caught up in larger epochs, because each epoch has a
fixed cost.
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
#: Seconds of an epoch that do not depend on its size.
_FIXED_SECONDS: Final = 0.3


class EpochSizer:
    """Adapts a limit (in units of a source's offsets) to a target duration in seconds."""

    def __init__(self, initial: int, target_seconds: float) -> None:
        self.limit = initial
        self._target = target_seconds
        self._units = 0
        self._backlog = False

    def planned(self, units: int, *, backlog: bool) -> None:
        """The next epoch reads ``units``; ``backlog`` says that the limit held more back."""
        self._units = units
        self._backlog = backlog

    def finished(self, seconds: float) -> None:
        """The epoch took ``seconds``."""
        if not self._units or (not self._backlog and seconds <= self._target):
            return
        target = self._target * (_BACKLOG_FACTOR if self._backlog else 1.0)
        work = max(seconds - _FIXED_SECONDS, 0.01)
        wanted = max(target - _FIXED_SECONDS, 0.05) / work
        factor = min(max(wanted, _SHRINK), _GROW)
        self.limit = max(1, int(min(self._units, self.limit) * factor))
