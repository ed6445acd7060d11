"""Whether RocksDB has, or believes to have, threads in this process.

What it is: RocksDB counts its threads, which a fork does not have, and waits for them for ever.  So
a process that has used it must fork no workers, nor must one that was forked from such a one: this
module is imported with the package, and looks whenever the process forks.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Final

_LIBRARY: Final = "rocksdict"
#: Whether a process that this one was forked from had such threads.  Where the library came before
#: this module, nobody has looked: then it may be so.
_inherited = _LIBRARY in sys.modules
_forking = False


def install() -> None:
    """Look whenever this process forks."""
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def has_rocksdb_threads() -> bool:
    """Whether a database of RocksDB's has been opened here, or before this process was forked."""
    if sys.platform != "linux":
        return _LIBRARY in sys.modules
    return _inherited or _has_threads()


def _has_threads() -> bool:
    if _LIBRARY not in sys.modules:
        return False
    for name in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # the thread has just ended
            if name.read_text().startswith("rocksdb"):
                return True
    return False


def _before_fork() -> None:
    global _forking  # noqa: PLW0603 - what the child is to know
    _forking = _has_threads()


def _after_fork() -> None:
    global _inherited  # noqa: PLW0603 - of this process
    _inherited = _inherited or _forking
