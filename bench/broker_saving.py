"""Keeping the broker of the measurements from saving itself while it is measured.

What it is: ``noida-db`` has a thread that wakes each second and, if anything has changed, copies
all that it holds, makes one JSON text of it and writes that.  While a job runs something always
has, so it takes a whole core from about a million messages on, and requests wait for the copying.
Kafka appends to its log instead.  So that thread is stopped by ``ptrace`` while it sleeps, before
there is anything to save; the other threads do not notice.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["saving_stopped"]

_THREAD: Final = "autosave"
#: Seconds that it may take to begin: a broker may listen before.
_PATIENCE: Final = 5.0
_POLL_SECONDS: Final = 0.005
#: From Linux's ``ptrace.h`` and ``wait.h``.
_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL: Final = 0x40000000


@contextlib.contextmanager
def saving_stopped(process: int) -> Iterator[None]:
    """Have a broker not save itself for as long as the block runs.

    Where that cannot be (no Linux, or nobody may trace) it is said, and the broker saves itself.

    Args:
        process: the broker's, which holds nothing yet.  Only the thread that enters the block may
            leave it: the kernel lets go what was traced by a thread that ends.
    """
    thread = _saving_thread(process)
    reason = "it has no such thread" if thread is None else _trace(_SEIZE, thread)
    if thread is None or reason is not None:
        print(f"The broker saves itself, which costs a core: {reason}", file=sys.stderr)
        yield
        return
    _trace(_INTERRUPT, thread)
    os.waitpid(thread, _WALL)
    try:
        yield
    finally:
        # Else nobody could wait for the end of the process, nor if it has died meanwhile.
        if _trace(_DETACH, thread) is not None:
            os.waitpid(thread, _WALL)


def _saving_thread(process: int) -> int | None:
    """The thread, once it sleeps: what it holds before is to be had by others."""
    threads = Path(f"/proc/{process}/task")
    deadline = time.monotonic() + _PATIENCE
    while threads.is_dir() and time.monotonic() < deadline:
        for thread in threads.glob("*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                before, _, rest = (thread / "stat").read_text().rpartition(")")
                if before.partition("(")[2] == _THREAD and rest.split()[0] == "S":
                    return int(thread.name)
        time.sleep(_POLL_SECONDS)
    return None


def _trace(request: int, thread: int) -> str | None:
    """One request of ``ptrace``; returns why it failed, if it did."""
    libc = ctypes.CDLL(None, use_errno=True)
    nothing = ctypes.c_void_p()
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread), nothing, nothing) == 0:
        return None
    return os.strerror(ctypes.get_errno())
