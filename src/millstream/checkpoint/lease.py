"""The lease of a job: a driver renews it for as long as it lives, and standbys wait for its end.

Blobs ``lease/00000000000000000003.json``, one per *term*.  Terms are created with put-if-absent, so
of several standbys one gets the next.  Only the holder of a term renews it, by writing it again.  A
standby goes by its own clock alone: a term that has not changed for the duration that it names has
expired, whatever the clocks of the two machines show.

The lease says who should run the job.  That nobody else can publish a checkpoint is said by the
manifest log (fencing), also where a driver was paused for longer than its lease.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import threading
import time
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.manifest_log import ManifestLog
from millstream.crash_points import crash_point
from millstream.directories import is_alive
from millstream.errors import DirectoryError, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.checkpoint_storage import CheckpointStorage


_LOG: Final = logging.getLogger("millstream")
LEASE_DIRECTORY: Final = "lease"
_NAME: Final = re.compile(r"lease/(\d{20})\.json")
#: A driver whose engine has ended, or that is to leave the job to a standby, ends its term so.
LEFT: Final = "LEFT"
#: A term lasts so many renewals: one or two may fail.
_RENEWALS: Final = 3
#: How often reading starts again because a newer holder deletes the term that was just listed.
_READ_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class Term:
    """What a blob of the lease says."""

    number: int
    #: "host:pid" of the holder, for messages.
    owner: str
    #: The process, for others of the same machine; empty: they cannot find it.
    process: str
    #: Seconds after which it has expired if it was not renewed.
    duration: float
    renewals: int = 0
    #: Where the job was when the holder left it, such as "FINISHED"; empty: it has not.
    ended: str = ""


def _name(number: int) -> str:
    return f"{LEASE_DIRECTORY}/{number:020d}.json"


def _newest(storage: CheckpointStorage) -> int:
    """The number of the newest term; -1: there is none."""
    found = map(_NAME.fullmatch, storage.list_names(LEASE_DIRECTORY))
    return max((int(match[1]) for match in found if match), default=-1)


def newest_term(storage: CheckpointStorage) -> Term | None:
    """Return the newest term of the lease; None: nobody has ever had it.

    Raises:
        DirectoryError: the directory cannot be read, or holds what is no term.
    """
    for _ in range(_READ_ATTEMPTS):
        number = _newest(storage)
        if number < 0:
            return None
        try:
            return Term(**json.loads(storage.read(_name(number))))
        except FileNotFoundError:
            continue
        except (ValueError, TypeError) as error:
            message = f"{_name(number)} in {storage.location} is damaged ({error!r}): delete it"
            raise DirectoryError(message) from error
    message = f"the lease in {storage.location} changes while it is read"
    raise DirectoryError(message)


def _this_process() -> str:
    """Machine, process namespace, process and its start: never the same twice; empty: unknown."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = Path("/proc/self/ns/pid").stat().st_ino
        # Machines that were cloned while they ran have the same boot id.
        machine = f"{socket.gethostname()}/{boot}"
        return f"{machine} {space} {os.getpid()} {_start_of(os.getpid())}"
    return ""


def _start_of(process: int) -> str:
    """When a process has started, in ticks since the machine has."""
    status = Path(f"/proc/{process}/stat").read_bytes()
    return status.rpartition(b")")[2].split()[19].decode("ascii")


def is_dead(process: str) -> bool:
    """Return whether the holder of a term is known to be dead: only on its own machine."""
    here = _this_process().split()
    there = process.split()
    if len(there) != len(here) or there[:2] != here[:2]:
        return False
    number = int(there[2])
    try:
        return not is_alive(number) or _start_of(number) != there[3]
    except OSError:
        return not is_alive(number)


class Lease:
    """A driver's hold on its job.

    Contract:
      1. ``take``, then ``end``; from one thread, ``take`` as often as wanted.  (caller)
      2. Of several calls of ``take`` with the same ``after`` one returns True.  (storage)

    Args:
        storage: the checkpoint directory.
        duration: seconds after which it has expired unless it is renewed.
    """

    def __init__(self, storage: CheckpointStorage, duration: float) -> None:
        self._storage = storage
        self._duration = duration
        self._term: Term | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_held(self) -> bool:
        """Return whether it was taken."""
        return self._term is not None

    def take(self, after: int | None = None) -> bool:
        """Begin a term and renew it from now on; does nothing if one was begun.

        Args:
            after: the number of the term that must be the newest, -1: there must be none; None:
                any may be, and its holder is fenced by the caller.

        Returns:
            Whether this driver has the lease; False: somebody else has taken it.

        Raises:
            DirectoryError: the directory cannot be read or written.
        """
        while self._term is None:
            newest = _newest(self._storage)
            if after is not None and newest != after:
                return False
            owner = f"{socket.gethostname()}:{os.getpid()}"
            term = Term(newest + 1, owner, _this_process(), self._duration)
            crash_point("lease.take.before")
            # Cases:
            # 1. False: another driver has begun this term.  Look again.
            # 2. True, and it is the newest: it is ours.
            # 3. True, and there are newer ones: this one was taken, ended and deleted between our
            #    look and our put.  It means nothing; delete it and look again.
            if not self._storage.put_if_absent(_name(term.number), _encoded(term)):
                continue
            if _newest(self._storage) != term.number:
                self._storage.delete([_name(term.number)])
                continue
            crash_point("lease.take.after")
            self._term = term
            self._delete_older(term.number)
            self._thread = threading.Thread(
                target=self._renew, name="millstream-lease", daemon=True
            )
            self._thread.start()
        return True

    def _delete_older(self, number: int) -> None:
        names = list(self._storage.list_names(LEASE_DIRECTORY))
        self._storage.delete([name for name in names if name < _name(number)])

    def _renew(self) -> None:
        interval = self._duration / _RENEWALS
        began = time.monotonic()
        # The time that a write takes is part of the interval: a slow storage loses no lease.
        while not self._ended.wait(max(0.0, began + interval - time.monotonic())):
            began = time.monotonic()
            term = self._term
            if term is None:
                return
            try:
                self._write(replace(term, renewals=term.renewals + 1))
            except (MillstreamError, OSError) as error:
                # A standby may take over then, by which this driver is fenced: nothing is lost.
                _LOG.warning("the lease of the job cannot be renewed: %s", error)

    def _write(self, term: Term) -> None:
        self._storage.write(_name(term.number), _encoded(term))
        self._term = term

    def end(self, state: str) -> None:
        """Stop renewing it, and note for standbys why; what fails here is logged.

        Args:
            state: where the job is, such as "FINISHED"; ``LEFT``: a standby should take over;
                empty: nothing is noted, since another driver has the job.
        """
        self._ended.set()
        if self._thread is None or self._term is None:
            return
        self._thread.join()
        if not state:
            return
        try:
            self._write(replace(self._term, ended=state))
        except (MillstreamError, OSError) as error:
            _LOG.warning("the end of the job is not noted in its lease: %s", error)


def _encoded(term: Term) -> bytes:
    return (json.dumps(asdict(term)) + "\n").encode()


class Verdict(Enum):
    """What a standby should do."""

    WAIT = "wait"
    #: Nobody runs the job: try to take the lease after the term that was seen.
    TAKE_OVER = "take over"
    #: The job has ended while the standby waited.
    ENDED = "ended"


class LeaseWatch:
    """A standby's view of the lease.

    Cases of a look:

    1. The directory cannot be read -> wait, and count the time from the next look that succeeds:
       the holder may be unable to renew for the same reason.
    2. The term has ended, and was so at the first look -> take over: somebody wants the job to run.
    3. It has ended since -> as the holder says: the job has ended, or is left to a standby.
    4. The holder's process was on this machine and is dead -> take over.
    5. The term has not changed for as long as it lasts -> take over.
    6. There is no term, and never was -> take over if none comes, and no checkpoint, for as long.
    7. There was a term, and it is gone -> wait for as long as it lasts: a holder that lives writes
       it again, and a directory that was unmounted may come back.  Then the job has ended, and its
       checkpoints are deleted, or others have deleted them: nothing can be continued.

    Args:
        storage: the checkpoint directory.
        duration: seconds to wait where nobody has ever had the lease.
        seconds: a clock that never goes back.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        duration: float,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage = storage
        self._duration = duration
        self._seconds = seconds
        #: What was seen last, and since when.
        self._sign: object = None
        self._since = 0.0
        #: The term that was seen last.
        self.term: Term | None = None
        #: The last look has found no term any more.
        self.is_gone = False
        #: Whether a term was seen that somebody had.
        self._was_held = False

    @property
    def newest(self) -> int:
        """The number of the term that was seen last; -1: there was none."""
        return -1 if self.term is None else self.term.number

    def look(self) -> Verdict:
        """Read the lease.

        The time that reading takes does not count, nor a pause of the standby within it: the holder
        may have renewed its lease meanwhile.
        """
        before = self._seconds()
        try:
            term = newest_term(self._storage)
            sign: object = term or tuple(ManifestLog(self._storage).versions())
        except (MillstreamError, OSError) as error:
            if self._sign != str(error):
                _LOG.warning("the lease of the job cannot be read: %s", error)
            self._sign = str(error)
            return Verdict.WAIT
        if sign != self._sign:
            self._sign, self._since = sign, self._seconds()
        if term is None and self.term is not None:
            self.is_gone = True
            return Verdict.ENDED if before - self._since >= self.term.duration else Verdict.WAIT
        self.is_gone, self.term = False, term
        if term is not None and term.ended:
            is_free = term.ended == LEFT or not self._was_held
            return Verdict.TAKE_OVER if is_free else Verdict.ENDED
        if term is not None:
            self._was_held = True
            if is_dead(term.process):
                return Verdict.TAKE_OVER
        lasts = self._duration if term is None else term.duration
        return Verdict.TAKE_OVER if before - self._since >= lasts else Verdict.WAIT
