"""That a job is to stop behind a last checkpoint: asked in one thread, looked at in another.

What it is not: a cancellation, which gives up what runs.

Read next: ``execution/driver.py``, ``engines/pipelined/run_loop.py``.
"""

from __future__ import annotations

import threading

__all__ = ["StopRequest"]


class StopRequest:
    """Whether a job is to stop, and how; it holds over restarts."""

    def __init__(self) -> None:
        """Begin without one."""
        self._asked = threading.Event()
        #: Around the first question: of two at a time one says how.
        self._asking = threading.Lock()
        self._drains = False

    @property
    def is_asked(self) -> bool:
        """Whether the job is to stop behind a last checkpoint."""
        return self._asked.is_set()

    @property
    def drains(self) -> bool:
        """Whether time is to end first: windows fire, and nothing can go on from the checkpoint."""
        return self._drains

    def ask(self, *, drain: bool) -> None:
        """Have it stop; who has asked first has said how."""
        with self._asking:
            if not self._asked.is_set():
                self._drains = drain
                self._asked.set()
