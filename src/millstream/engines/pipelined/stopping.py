"""The progress of a stop: what the last checkpoint waits for, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.runtime.pipelined.control import SubtaskTimes

__all__ = ["Stopping"]

#: Seconds between two messages.
_REPORT: Final = 5.0


class Stopping:
    """A stop that was asked for.

    Args:
        names: stage -> the operator that it begins with.
        timeout: seconds that it may take.
        now: monotonic seconds.
    """

    def __init__(self, names: Mapping[int, str], timeout: float, now: float) -> None:
        self._names = names
        self._began = now
        self._next = now + _REPORT
        self._deadline = now + timeout
        #: Bytes that waited at the message before.
        self._waited: int | None = None

    def is_late(self, now: float) -> bool:
        """Whether it has taken as long as it may."""
        return now >= self._deadline

    def report(self, now: float, times: Mapping[tuple[int, int], SubtaskTimes]) -> str | None:
        """Describe what is left; None: not now.

        Args:
            now: monotonic seconds.
            times: (stage, subtask) -> what is known of it.
        """
        if now < self._next:
            return None
        waiting = {task: each.waiting for task, each in sorted(times.items()) if each.waiting}
        total, before = sum(waiting.values()), self._waited
        self._waited, self._next = total, now + _REPORT
        stages = {stage: 0 for stage, _ in waiting}
        for (stage, _), size in waiting.items():
            stages[stage] += size
        parts = [f"{size:,} bytes for {self._names.get(s, s)!r}" for s, size in stages.items()]
        words = f"the job has been stopping for {now - self._began:.0f} s;"
        if not parts:
            return f"{words} nothing waits between its tasks: the last checkpoint is under way"
        words = f"{words} {total:,} bytes wait to be processed ({', '.join(parts)})"
        if before is not None and total < before:
            left = total * _REPORT / (before - total)
            words = f"{words}, about {left:.0f} s at the rate of the last {_REPORT:.0f} s"
        return f"{words}; it has {max(0.0, self._deadline - now):.0f} s left"
