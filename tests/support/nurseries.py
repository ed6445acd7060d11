"""Nurseries forked from a process that never uses RocksDB.

What it is: a process that has used RocksDB forks no workers (``millstream/fork_safety.py``), so
each job that it starts begins with a new interpreter, and each process of the job imports what the
test has imported: seconds, where a fork takes milliseconds.  One process runs thousands of tests,
so most of them would come behind one that used RocksDB.  Therefore it forks a twin ahead of the
first test, and that forks nurseries when it is asked to.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from millstream.engines.local import fork_server
from millstream.fork_safety import has_threads_of_libraries

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

__all__ = ["fork_twin", "new_interpreter"]

#: How long a request is; a process id.
_NUMBER: Final = struct.Struct("=q")
#: What workers would import one by one: these, and of these whatever the process of the tests has.
_IMPORTED: Final = (*fork_server._IMPORTED_BEFORE, "millstream.runtime.pipelined.main_loop")
_PACKAGES: Final = ("millstream.", "numpy", "pyarrow")
#: As users have it.
new_interpreter: Final = fork_server._new_interpreter


def fork_twin(directory: Path) -> None:
    """Let nurseries of this process come from a twin of it, where it cannot fork them itself.

    Args:
        directory: where its socket may lie.
    """
    if sys.platform != "linux" or has_threads_of_libraries():
        return
    address = str(directory / f"twin-{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    if not os.fork():
        _be_twin(listener)
    listener.close()

    def ask(
        control: socket.socket, serve: Callable[[Connection], None], *, orphans_die: bool
    ) -> _Nursery:
        imported = [name for name in sys.modules if name.startswith(_PACKAGES)]
        whose = [dict(os.environ), sys.path, str(Path.cwd())]
        what = [serve.__module__, serve.__name__, orphans_die]
        content = pickle.dumps((imported, [*whose, *what]))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            ends = [control.fileno(), 1, 2]
            socket.send_fds(connection, [_NUMBER.pack(len(content))], ends)
            connection.sendall(content)
            return _Nursery(_NUMBER.unpack(connection.recv(_NUMBER.size, socket.MSG_WAITALL))[0])

    fork_server._new_interpreter = ask  # type: ignore[assignment]


class _Nursery:
    """What is used of ``Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._end: int | None = None
        with contextlib.suppress(ProcessLookupError):  # it has ended
            self._end = os.pidfd_open(pid)

    def wait(self) -> None:
        """Wait for its end."""
        if self._end is not None:
            looks = select.poll()
            looks.register(self._end, select.POLLIN)
            looks.poll()
            os.close(self._end)
            self._end = None


def _be_twin(listener: socket.socket) -> NoReturn:
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the tests
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for nurseries
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        while True:
            _answer(listener)
    finally:
        os._exit(1)


def _answer(listener: socket.socket) -> None:
    asker, _ = listener.accept()
    with asker:
        content, ends, _, _ = socket.recv_fds(asker, _NUMBER.size, 3)
        request = asker.recv(_NUMBER.unpack(content)[0], socket.MSG_WAITALL)
        imported, arguments = pickle.loads(request)
        for name in (*_IMPORTED, *imported):
            if name not in sys.modules:
                with contextlib.suppress(ImportError):  # some are what they import themselves
                    importlib.import_module(name)
        pid = os.fork()
        if pid:
            asker.sendall(_NUMBER.pack(pid))
    if not pid:
        listener.close()
        _run_fork_server(ends, *arguments)
    for end in ends:
        os.close(end)


def _run_fork_server(
    ends: list[int], environment: dict[str, str], path: list[str], directory: str, *arguments: Any
) -> NoReturn:
    """Be one, as a new interpreter of the asker's would be."""
    try:
        control, *outputs = ends
        for output, standard in zip(outputs, (1, 2), strict=True):
            os.dup2(output, standard)
            os.close(output)
        sys.stdout, sys.stderr = (os.fdopen(standard, "w") for standard in (1, 2))
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        os.chdir(directory)
        fork_server.run_fork_server(control, *arguments)
    finally:
        os._exit(1)
