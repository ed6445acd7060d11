"""The Python stacks of a slot: all threads at once, or samples of the thread that runs its tasks.

They are taken by another thread and only on request, so tasks pay nothing for it.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Final

from millstream.runtime.pipelined.control import Stack, StackRequest, Stacks
from millstream.runtime.pipelined.task import PipelinedTask

if TYPE_CHECKING:
    from types import FrameType

#: Seconds before a sample for which it is observed whether the thread uses a processor, and the
#: part of them that counts as such.
_OBSERVED: Final = 0.002
_BUSY: Final = 0.2


def thread_stacks() -> dict[str, str]:
    """Return the stack of each thread of this process as text, by the name of the thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found: dict[str, str] = {}
    for number, frame in sys._current_frames().items():  # noqa: SLF001 - documented so
        name = names.get(number, f"thread {number}")
        title = name if name not in found else f"{name} ({number})"
        stack = "".join(traceback.format_stack(frame))
        found[title] = f'"{name}" Id={number}\n{stack}'
    return found


class StackSampler:
    """Answers requests for stacks in the process of a slot.

    Contract:
      1. It is made by the thread that runs the tasks.  (slot)
      2. ``answer`` is called from other threads.  (control connection)
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread)

    def answer(self, request: StackRequest) -> Stacks:
        """Take the stacks that are wanted; of samples this takes as long as these do."""
        if not request.samples:
            return Stacks(request.number, threads=thread_stacks())
        taken: Counter[Stack] = Counter()
        for _ in range(request.samples):
            time.sleep(max(0.0, request.delay - _OBSERVED))
            began, used = time.perf_counter(), time.clock_gettime(self._clock)
            time.sleep(_OBSERVED)
            frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented so
            share = (time.clock_gettime(self._clock) - used) / (time.perf_counter() - began)
            if frame is not None:
                taken[_stack_of(frame, request.depth, on_cpu=share > _BUSY)] += 1
        return Stacks(request.number, samples=dict(taken))


def _stack_of(frame: FrameType, depth: int, *, on_cpu: bool) -> Stack:
    """Return a stack from the task that is at work on; the whole one between tasks."""
    frames: list[str] = []
    whole: FrameType | None = frame
    while whole is not None:
        code = whole.f_code
        module = whole.f_globals.get("__name__", code.co_filename)
        frames.append(f"{module}.{code.co_qualname}:{whole.f_lineno or code.co_firstlineno}")
        if module == PipelinedTask.__module__:
            task = whole.f_locals.get("self")
            if isinstance(task, PipelinedTask) and not _is_within_task(whole.f_back):
                return Stack((task.id.stage, task.id.subtask), on_cpu, _innermost(frames, depth))
        whole = whole.f_back
    return Stack(None, on_cpu, _innermost(frames, depth))


def _is_within_task(frame: FrameType | None) -> bool:
    """Return whether a frame is of a task as well, which has called its own method."""
    return frame is not None and frame.f_globals.get("__name__") == PipelinedTask.__module__


def _innermost(frames: list[str], depth: int) -> tuple[str, ...]:
    """Return frames with the outermost first; of a deep stack those at its end."""
    return tuple(reversed(frames[:depth]))
