"""Processes in tests of the pipelined engine: stopped for a while, and asked whether they live."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["lives", "stopped"]


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Have a process stopped."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def lives(pid: int) -> bool:
    """Whether a process is there; one that is dead and not waited for is not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
