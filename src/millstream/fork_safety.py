"""Whether libraries have, or believe to have, threads in this process.

RocksDB counts its threads and waits for them, and clients of object stores leave all requests to
theirs.  A forked process does not have them, so both would wait for ever.  A process that has used
one of them must fork no workers, nor must one that was forked from such a one: this module is
imported with the package, and looks whenever the process forks.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Final

#: Module -> what the names of its threads begin with.
_LIBRARIES: Final = {"rocksdict": "rocksdb", "obstore": "tokio"}
#: Whether a process that this one was forked from had such threads.  Where a library came before
#: this module, nobody has looked: then it may be so.
_inherited = any(name in sys.modules for name in _LIBRARIES)
_forking = False


def install() -> None:
    """Look whenever this process forks."""
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def has_threads_of_libraries() -> bool:
    """Whether such a library has been used here, or before this process was forked."""
    if sys.platform != "linux":
        return any(name in sys.modules for name in _LIBRARIES)
    return _inherited or _has_threads()


def _has_threads() -> bool:
    names = tuple(thread for module, thread in _LIBRARIES.items() if module in sys.modules)
    if not names:
        return False
    for name in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # the thread has just ended
            if name.read_text().startswith(names):
                return True
    return False


def _before_fork() -> None:
    global _forking  # noqa: PLW0603 - what the child is to know
    _forking = _has_threads()


def _after_fork() -> None:
    global _inherited  # noqa: PLW0603 - of this process
    _inherited = _inherited or _forking
