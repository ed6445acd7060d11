"""The nursery: a process without threads, from which worker processes are forked.

What it is: forked once, early, from the thread that submits a job; later the driver has threads of
its own (the job, committers, clients of servers), and a fork of those may find locks held for ever.
It has imported what workers need, so a worker is there in milliseconds, and it kills its workers
when the driver is gone.

What it is not: part of what workers say to the driver (``engines/local/worker.py``).

Read next: ``engines/local/pool.py``.
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
import sys
import traceback
import warnings
import weakref
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Nursery"]

#: An operation and a process id.
_MESSAGE: Final = struct.Struct("=cq")
_FORK: Final = b"f"
_WAIT: Final = b"w"
#: Seconds between two looks whether the driver lives, should its end of the socket be held open by
#: a process that the program has forked.
_LOOK_SECONDS: Final = 1.0
#: What the nursery imports, while the driver goes on.
_IMPORTED_BEFORE: Final = (
    "millstream.engines.local.worker",
    "millstream.state.backends.rocksdb",
    "millstream.state.backends.hashmap",
)
#: The driver's ends of sockets to nurseries and workers: another nursery must not hold them open.
_driver_ends: Final[weakref.WeakSet[socket.socket | Connection]] = weakref.WeakSet()


class Nursery:
    """Forks worker processes.

    Args:
        serve: what a worker does with its connection, until that ends.
        orphans_die: whether workers are killed when the driver is gone.
    """

    def __init__(self, serve: Callable[[Connection], None], *, orphans_die: bool = True) -> None:
        here, there = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # Python 3.12 warns of threads, of which the child uses none.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if not self._pid:
            here.close()
            _be_nursery(there, serve, orphans_die=orphans_die)
        there.close()
        self._control = here
        _driver_ends.add(here)

    def fork(self) -> tuple[int, Connection]:
        """A new worker: its process id and the connection to it.

        Raises:
            OSError: the nursery is gone.
        """
        here, there = socket.socketpair()
        with there:
            socket.send_fds(self._control, [_MESSAGE.pack(_FORK, 0)], [there.fileno()])
            pid = self._answer()
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
        self._control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def _answer(self) -> int:
        content = self._control.recv(_MESSAGE.size, socket.MSG_WAITALL)
        if len(content) < _MESSAGE.size:
            message = "the process that forks workers is gone"
            raise OSError(message)
        number: int = _MESSAGE.unpack(content)[1]
        return number


def _be_nursery(
    control: socket.socket, serve: Callable[[Connection], None], *, orphans_die: bool
) -> NoReturn:
    workers: set[int] = set()
    ended: dict[int, int] = {}
    try:
        driver = os.getppid()
        for end in list(_driver_ends):
            end.close()
        # Interrupts are for the driver; who ends the nursery ends its workers.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor is wanted
            os.dup2(nothing.fileno(), 0)
        for name in _IMPORTED_BEFORE:
            importlib.import_module(name)
        gc.freeze()  # shared with the workers
        while _is_there(control, driver):
            content, descriptors, _, _ = socket.recv_fds(control, _MESSAGE.size, 1)
            if len(content) < _MESSAGE.size:
                break
            operation, pid = _MESSAGE.unpack(content)
            if operation == _FORK:
                number = _fork(control, descriptors[0], serve)
                workers.add(number)
            else:
                if pid in workers:
                    ended[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    workers.discard(pid)
                number = ended[pid]
            control.sendall(_MESSAGE.pack(operation, number))
    except (BrokenPipeError, ConnectionResetError):
        pass  # the driver has gone in the middle of a word
    except BaseException:  # noqa: BLE001 - there is nobody to raise it to
        traceback.print_exc()
    finally:
        for pid in workers if orphans_die else ():
            os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _is_there(control: socket.socket, driver: int) -> bool:
    """Wait for a word of the driver; False if it has gone without one."""
    while not select.select([control], [], [], _LOOK_SECONDS)[0]:
        if os.getppid() != driver:
            return False
    return True


def _fork(control: socket.socket, descriptor: int, serve: Callable[[Connection], None]) -> int:
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return pid
    try:
        control.close()
        serve(Connection(descriptor))
    except BaseException:  # noqa: BLE001 - there is nobody to raise it to
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
