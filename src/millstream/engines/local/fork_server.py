"""A process without threads, from which worker processes are forked.

It is forked early, by the thread that submits a job: later the driver has threads (the job,
committers, clients of servers), and a fork of those may find locks held for ever.  It has imported
what workers need, so a worker starts in milliseconds, and it kills its workers when the driver is
gone.

Where the program has a RocksDB database or a client of an object store in its own process, or was
forked from one that had, the fork server is a new interpreter (``fork_safety.py``).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import traceback
import warnings
import weakref
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final, NoReturn

from millstream.errors import WorkerLostError
from millstream.fork_safety import has_threads_of_libraries

if TYPE_CHECKING:
    from collections.abc import Callable


#: An operation and a process id.
_MESSAGE: Final = struct.Struct("=cq")
_FORK: Final = b"f"
_WAIT: Final = b"w"
#: In place of a process id.
_FAILED: Final = -1
#: Seconds between two looks whether the driver lives, should its end of the socket be held open by
#: a process that the program has forked.
_LOOK_SECONDS: Final = 1.0
#: What the fork server imports, while the driver continues.
_IMPORTED_BEFORE: Final = (
    "millstream.engines.local.worker",
    "millstream.state.backends.rocksdb",
    "millstream.state.backends.hashmap",
)
#: The driver's ends of sockets to nurseries and workers: another nursery must not hold them open.
_driver_ends: Final[weakref.WeakSet[socket.socket | Connection]] = weakref.WeakSet()


class ForkServer:
    """Forks worker processes.

    Args:
        serve: what a worker does with its connection, until that ends.
        orphans_die: whether workers are killed when the driver is gone.
    """

    def __init__(self, serve: Callable[[Connection], None], *, orphans_die: bool = True) -> None:
        here, there = socket.socketpair()
        _driver_ends.add(here)
        self._control = here
        self._process: subprocess.Popen[bytes] | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        if has_threads_of_libraries():
            self._process = _new_interpreter(there, serve, orphans_die=orphans_die)
            self._pid = self._process.pid
            there.close()
            return
        with warnings.catch_warnings():
            # Python 3.12 warns of threads, of which the child uses none.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if not self._pid:
            _run_fork_server(there, serve, orphans_die=orphans_die)
        there.close()

    def fork(self) -> tuple[int, Connection]:
        """A new worker: its process id and the connection to it.

        Raises:
            OSError: the fork server is gone.
            WorkerLostError: the system has no room for another process.
        """
        here, there = socket.socketpair()
        with there:
            socket.send_fds(self._control, [_MESSAGE.pack(_FORK, 0)], [there.fileno()])
            pid = self._answer()
        if pid == _FAILED:
            here.close()
            message = "no worker process can be forked: the system has no resources for one more"
            raise WorkerLostError(message)
        connection = Connection(here.detach())
        _driver_ends.add(connection)
        return pid, connection

    def wait(self, pid: int) -> int | None:
        """Wait for the end of a worker: its exit code, negative for a signal; None: nobody knows.

        Until then, its process id is nobody else's.
        """
        with contextlib.suppress(OSError):
            self._control.sendall(_MESSAGE.pack(_WAIT, pid))
            return self._answer()
        return None

    def close(self) -> None:
        """Let it end; it kills the workers that are left."""
        with contextlib.suppress(OSError):
            # To close it would not do where a process that the program has forked holds it, too.
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        if self._process is not None:
            self._process.wait()
            return
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def _answer(self) -> int:
        content = self._control.recv(_MESSAGE.size, socket.MSG_WAITALL)
        if len(content) < _MESSAGE.size:
            message = "the process that forks workers is gone"
            raise OSError(message)
        number: int = _MESSAGE.unpack(content)[1]
        return number


def _run_fork_server(
    control: socket.socket, serve: Callable[[Connection], None], *, orphans_die: bool
) -> NoReturn:
    workers: set[int] = set()
    try:
        driver = os.getppid()
        _prepare()
        _answer_until_it_ends(control, serve, driver, workers)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the driver has gone in the middle of a word
    except BaseException:  # noqa: BLE001 - there is nobody to raise it to
        traceback.print_exc()
    finally:
        try:
            for pid in workers if orphans_die else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        finally:
            # Whatever happens: a forked process must not continue as the user's program.
            os._exit(0)


def _prepare() -> None:
    """Release what is the driver's, and import what workers need."""
    for end in list(_driver_ends):
        end.close()
    # Interrupts are for the driver; who ends the fork server ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else nobody can wait for workers
    signal.set_wakeup_fd(-1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor is wanted
        os.dup2(nothing.fileno(), 0)
    for name in _IMPORTED_BEFORE:
        importlib.import_module(name)
    # At its first conversion Arrow imports pandas, if that is there: each worker of each run would
    # do so at its first records, for half a second.
    importlib.import_module("pyarrow").array([0])
    gc.freeze()  # shared with the workers


def _answer_until_it_ends(
    control: socket.socket, serve: Callable[[Connection], None], driver: int, workers: set[int]
) -> None:
    """Fork workers and wait for them, as the driver asks; ``workers`` has those that live."""
    ended: dict[int, int] = {}
    while _is_there(control, driver):
        content, descriptors, _, _ = socket.recv_fds(control, _MESSAGE.size, 1)
        if len(content) < _MESSAGE.size:
            break
        operation, pid = _MESSAGE.unpack(content)
        if operation == _FORK:
            number = _fork(control, descriptors[0], serve)
            if number != _FAILED:
                workers.add(number)
        else:
            if pid in workers:
                ended[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                workers.discard(pid)
            number = ended[pid]
        control.sendall(_MESSAGE.pack(operation, number))


def _new_interpreter(
    control: socket.socket, serve: Callable[[Connection], None], *, orphans_die: bool
) -> subprocess.Popen[bytes]:
    """A fork server that has nothing of this process but what it can import."""
    program = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        f"from {__name__} import run_fork_server\n"
        f"run_fork_server({control.fileno()}, {serve.__module__!r}, {serve.__name__!r},"
        f" {orphans_die})"
    )
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, pass_fds=[control.fileno()])  # noqa: S603


def run_fork_server(descriptor: int, module: str, name: str, orphans_die: bool) -> None:  # noqa: FBT001
    """Return what a new interpreter runs."""
    serve = getattr(importlib.import_module(module), name)
    _run_fork_server(socket.socket(fileno=descriptor), serve, orphans_die=orphans_die)


def _is_there(control: socket.socket, driver: int) -> bool:
    """Wait for a word of the driver; False if it has gone without one."""
    while not select.select([control], [], [], _LOOK_SECONDS)[0]:
        if os.getppid() != driver:
            return False
    return True


def _fork(control: socket.socket, descriptor: int, serve: Callable[[Connection], None]) -> int:
    try:
        pid = os.fork()
    except OSError:
        os.close(descriptor)
        return _FAILED
    if pid:
        os.close(descriptor)
        return pid
    try:
        control.close()
        if "numpy.random" in sys.modules:
            # Else all would draw the same numbers; Python's own does this by itself.
            sys.modules["numpy.random"].seed()
        serve(Connection(descriptor))
    except BaseException:  # noqa: BLE001 - there is nobody to raise it to
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
