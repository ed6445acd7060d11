"""Windows and their assigners, under PyFlink's import path.

What it is: re-exports.  What it is not: where they are written: ``runtime/windows.py``.

Read next: ``runtime/windows.py``.
"""

from __future__ import annotations

from millstream.runtime.windows import (
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    Window,
    WindowAssigner,
)

__all__ = [
    "SlidingEventTimeWindows",
    "TimeWindow",
    "TumblingEventTimeWindows",
    "Window",
    "WindowAssigner",
]
