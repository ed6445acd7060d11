"""Faults at crash points: what else can happen at a step than a kill of the whole driver.

What it is: actions for ``crash_points.arm``, armed in the driver of a job before its worker
processes are forked, so that the process that passes the point meets the fault::

    fault = ArmedFault("sink.commit.after:2", Fault.KILL_WORKER, directory)
    fault.pool = WorkerPool()

On tasks that live on, the workers are slots (``tests/support/disturbed_slots.py``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import socket
import stat
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from tests.support.damage import damage_local_copies

from millstream import crash_points
from millstream.checkpoint import local_storage

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["OF_SLOTS", "ArmedFault", "Fault", "Rendezvous", "cut_connections", "stopped_sign"]

#: Seconds between two looks for a sign.
_POLL: Final = 0.003
#: Seconds that a fault waits for its moment, which need not come.
_MOMENT: Final = 0.5
#: Writes that a full disk refuses.
_MOST_REFUSED: Final = 3
#: Has a process of the group cut its connections.  Slots have a use of their own for SIGUSR1.
_CUT: Final = signal.SIGRTMIN


class Fault(Enum):
    """What happens at the point."""

    #: SIGKILL of the driver and everything that it started.
    KILL_DRIVER = "driver killed"
    #: SIGKILL of the driver alone; its worker goes on with the task when a new one has recovered.
    KILL_DRIVER_ALONE = "driver killed, its worker not"
    #: SIGKILL of the Python worker that passes the point, or of all if the driver does.
    KILL_WORKER = "worker killed"
    #: The connections to the server are cut; without a server, the step fails.
    CONNECTION_CUT = "connection cut"
    #: The step is applied, and what did it is told that it failed.
    APPLIED_BUT_FAILED = "applied, reported failed"
    #: Another driver of the job is started while this one is in the step, then goes on.
    SECOND_DRIVER = "second driver"
    #: SIGSTOP of the driver and everything that it started; it is woken when another driver has
    #: brought the job to its end.
    STOPPED_DRIVER = "driver stopped"
    #: A file of every local copy of state is damaged, and the step goes on.
    LOCAL_COPY_DAMAGED = "local copy damaged"
    #: The checkpoint directory takes no more writes of the process, for a while.
    DISK_FULL = "disk full"
    #: Records take their time to the broker; the step fails, or worse, while some are on the wire.
    SLOW_PRODUCE = "slow produce"
    #: SIGSTOP of a slot that its host cannot reach: the one that passes the point, or any if the
    #: driver does; it is woken, a zombie, when the next run has begun.
    STOPPED_SLOT = "slot stopped"
    #: The connection between slots is cut.
    LINK_CUT = "link cut"
    #: The connection of a slot with its driver is cut.
    CONTROL_CUT = "slot cut off"


#: Of the pipelined engine alone.
OF_SLOTS: Final = (Fault.STOPPED_SLOT, Fault.LINK_CUT, Fault.CONTROL_CUT)


class Workers(Protocol):
    """The processes that do a driver's work."""

    def kill(self) -> None:
        """Kill them."""


class Slots(Workers, Protocol):
    """The same of the pipelined engine."""

    def stop_one(self) -> None:
        """Stop one of them."""


class Rendezvous:
    """Signs between processes: files in a directory.

    Contract:
      1. A sign that is given stays given.  (here)
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def give(self, sign: str) -> None:
        """Give a sign."""
        (self._directory / sign).touch()

    def given(self, sign: str) -> bool:
        """Whether a sign was given."""
        return (self._directory / sign).exists()

    def wait(self, sign: str, seconds: float) -> None:
        """Wait for a sign.

        Raises:
            TimeoutError: it was not given in time.
        """
        limit = time.monotonic() + seconds
        while not self.given(sign):
            if time.monotonic() > limit:
                message = f"no sign {sign!r} in {self._directory} within {seconds} s"
                raise TimeoutError(message)
            time.sleep(_POLL)


class ArmedFault:
    """One fault, armed in a driver until it has happened.

    Args:
        point: ``name:n``: the n-th passing of a crash point, counted over all processes.
        fault: what happens there.
        directory: where passings are counted and signs are given; a fresh one for each run.
        server_error: what the client of the sink's server raises when a connection breaks; None:
            there is no server, and steps fail with OSError.
        own_parts: the parts of ``CRASH_POINTS`` that talk to the server.
        patience: seconds that a process which was stopped in the step waits for ``GO``.
        local_root: the directory of the job's local copies of state, for their damage.
        seed: chooses what is damaged, and how.
        moment: a file for whose being there the fault waits, but not for long.
    """

    #: Sign that the point was reached.
    REACHED: Final = "reached"
    #: Sign that a process that was stopped in the step may go on.
    GO: Final = "go"
    #: Sign that there were local copies, which are damaged now.
    DAMAGED: Final = "damaged"
    #: Signs that a connection is to be cut between processes, and that it is.
    CUT: Final = "cut"
    IS_CUT: Final = "is-cut"

    def __init__(
        self,
        point: str,
        fault: Fault,
        directory: Path,
        *,
        server_error: type[Exception] | None = None,
        own_parts: Sequence[str] = (),
        patience: float = 60.0,
        local_root: Path | None = None,
        seed: int = 0,
        moment: Path | None = None,
    ) -> None:
        self.signs = Rendezvous(directory)
        #: The workers to kill, set in the driver alone: in a worker it stays None.
        self.pool: Workers | None = None
        #: Those of the pipelined engine, in the driver alone.
        self.slots: Slots | None = None
        self._fault = fault
        self._server_error = server_error
        self._own_points = set(crash_points.points_of(*own_parts))
        self._patience = patience
        self._local_root = local_root
        self._seed = seed
        self._moment = moment
        self._driver = os.getpid()
        os.environ[crash_points.COUNT_VARIABLE] = str(directory)
        os.environ[crash_points.GROUP_VARIABLE] = str(os.getpgrp())
        signal.signal(_CUT, lambda *_: cut_connections(socket.SHUT_RDWR))
        crash_points.arm(point, self._meet)

    def _meet(self, name: str) -> None:
        self._wait_for_moment()
        self.signs.give(self.REACHED)
        if self._fault in {Fault.CONNECTION_CUT, Fault.APPLIED_BUT_FAILED, Fault.SLOW_PRODUCE}:
            self._disturb_step(name)
        else:
            self._disturb_process()

    def _disturb_step(self, name: str) -> None:
        if self._fault is Fault.CONNECTION_CUT:
            self._cut(name)
        elif self._fault is Fault.APPLIED_BUT_FAILED:
            self._report_failure(name)
        else:
            raise self._failure(name)

    def _disturb_process(self) -> None:
        {
            Fault.KILL_DRIVER: crash_points.kill_driver_group,
            Fault.STOPPED_DRIVER: self._stop_driver,
            Fault.KILL_DRIVER_ALONE: self._kill_driver_alone,
            Fault.KILL_WORKER: self._kill_worker,
            Fault.SECOND_DRIVER: self._wait_to_go_on,
            Fault.LOCAL_COPY_DAMAGED: self._damage,
            Fault.DISK_FULL: self._fill_disk,
            Fault.STOPPED_SLOT: self._stop_slot,
            Fault.LINK_CUT: self._have_cut,
            Fault.CONTROL_CUT: self._have_cut,
        }[self._fault]()

    def _wait_to_go_on(self) -> None:
        self.signs.wait(self.GO, self._patience)

    def _stop_driver(self) -> None:
        os.killpg(os.getpgrp(), signal.SIGSTOP)
        # The thread that says so may run on for a moment: it must not leave the step.
        self._wait_to_go_on()

    def _kill_driver_alone(self) -> None:
        os.kill(self._driver, signal.SIGKILL)
        self._wait_to_go_on()

    def _wait_for_moment(self) -> None:
        limit = time.monotonic() + _MOMENT
        while self._moment is not None and not self._moment.exists() and time.monotonic() < limit:
            time.sleep(_POLL)

    def _kill_worker(self) -> None:
        if self.pool is not None:
            self.pool.kill()
        elif os.getpid() != self._driver:
            os.kill(os.getpid(), signal.SIGKILL)

    def _stop_slot(self) -> None:
        if self.slots is not None:
            self.slots.stop_one()
        elif os.getpid() != self._driver:
            self.signs.give(stopped_sign(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)

    def _have_cut(self) -> None:
        self.signs.give(self.CUT)
        self.signs.wait(self.IS_CUT, self._patience)

    def _damage(self) -> None:
        chance = random.Random(self._seed)
        if self._local_root is not None and damage_local_copies(self._local_root, chance):
            self.signs.give(self.DAMAGED)

    def _fill_disk(self) -> None:
        """Refuse the next writes; there is room again by the time of the last restart."""
        left = random.Random(self._seed).randint(1, _MOST_REFUSED)
        create = local_storage._create

        def refuse(path: Path) -> BinaryIO:
            nonlocal left
            if left:
                left -= 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return create(path)

        local_storage._create = refuse

    def _cut(self, name: str) -> None:
        if self._server_error is None:
            raise self._failure(name)
        cut_connections(socket.SHUT_RDWR)
        os.killpg(os.getpgrp(), _CUT)  # the others' connections

    def _report_failure(self, name: str) -> None:
        """After the step: an error.  Before it: the server's answer will not be heard."""
        if name.endswith(".after"):
            raise self._failure(name)
        cut_connections(socket.SHUT_RD)

    def _failure(self, name: str) -> Exception:
        if self._server_error is not None and name in self._own_points:
            return self._server_error(f"injected at {name}")
        return OSError(errno.EIO, f"injected at {name}")


def stopped_sign(pid: int) -> str:
    """The sign that a slot is, or is about to be, stopped."""
    return f"stopped-{pid}"


def cut_connections(how: int) -> int:
    """Shut down every TCP connection of this process.

    Args:
        how: ``SHUT_RDWR``: the server sees the end, too.  ``SHUT_RD``: what is sent still
            arrives and is applied, and no answer comes back.

    Returns:
        How many there were.
    """
    number = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            descriptor = int(entry.name)
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            copy = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # closed since it was listed, as the listing's own
            continue
        with copy:
            listens = copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if copy.family in {socket.AF_INET, socket.AF_INET6} and not listens:
                # One that is not connected has nothing to cut.
                with contextlib.suppress(OSError):
                    copy.shutdown(how)
                    number += 1
    return number
