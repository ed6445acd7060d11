"""The control connection, the slot's end: what the driver says, and the sign that the slot lives.

What it is: a thread that reads the driver's messages for the main loop and sends heartbeats.  It is
the *fence*: when the connection ends, the process ends at once, whatever its tasks are doing, for
the driver may be beginning a new run.

What it is not: the driver's end (``engines/pipelined/control_server.py``), nor the connections
between slots (``runtime/pipelined/links.py``).

Read next: ``runtime/pipelined/messages.py``, ``runtime/pipelined/slot.py``.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
import traceback
import weakref
from typing import TYPE_CHECKING, Final, cast

from millstream.errors import EngineError, WorkerLostError
from millstream.runtime.pipelined.control_frames import MessageReader, packed
from millstream.runtime.pipelined.handshake import Party, Role, prove
from millstream.runtime.pipelined.messages import Beat, Begin, End, Joins, Registered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection
    from types import FrameType

    from millstream.runtime.live_counts import RunningMetrics
    from millstream.runtime.pipelined.messages import (
        Address,
        DriverMessage,
        SlotMessage,
        SlotSettings,
        SubtaskTimes,
    )

__all__ = [
    "FENCED",
    "ControlConnection",
    "GivenUpError",
    "close_in_forks",
    "end_process",
    "last_words",
]

#: Exit code of a slot whose driver has let go of it, or is gone.
FENCED: Final = 113
#: Seconds between two heartbeats.
_BEAT: Final = 0.3
#: Seconds between two reports of what tasks have counted.
_COUNTS: Final = 0.9
#: Seconds after which a main loop that does not hear that it is to end is interrupted, and how.
_DEAF: Final = 0.5
_INTERRUPT: Final = signal.SIGUSR1
_LOOK: Final = 0.01
#: Seconds that the driver may take to answer.
_CONNECT: Final = 10.0
#: Milliseconds after which a driver whose machine gives no answer is gone.
_UNREACHABLE: Final = 10_000
_PIECE: Final = 1 << 18
#: What processes that this one forks must not hold open.
_own: Final[weakref.WeakSet[socket.socket | Connection]] = weakref.WeakSet()


class GivenUpError(BaseException):
    """The driver wants the slot to end, and its main loop is at something else for too long."""


#: Called right before the process ends because its driver has let go of it; they must not wait.
last_words: Final[list[Callable[[], None]]] = []


def end_process() -> None:
    """End this process now: no ``finally`` of a task may write anything any more."""
    try:
        for say in last_words:
            say()
    finally:
        os._exit(FENCED)


class ControlConnection:
    """The connection of a slot to its driver.

    Contract:
      1. ``register``, then ``begin``, then all else, then ``close``.  (slot)
      2. When the driver's end is closed, before ``close``, the process ends.  (here)
      3. Heartbeats say that the process runs, and for how long its main loop has been at one turn.
         A loop that is at work for long does not end the run: it may be in a user's function, and
         its checkpoint expires.  (driver)
      4. A main loop that does not hear that it is to end is interrupted, if it has said that it can
         be: GivenUpError in what it is doing.  (here)

    Args:
        settings: of the slot.
        wake: called in another thread when there are messages.
        ended: called in another thread when the driver's end is closed.

    Raises:
        WorkerLostError: the driver cannot be reached; a new run may find it.
        AuthenticationError: what answers is not the driver of this run.
    """

    def __init__(
        self,
        settings: SlotSettings,
        wake: Callable[[], None],
        ended: Callable[[], None] = end_process,
    ) -> None:
        self._slot = settings.slot
        self._wake = wake
        self._ended = ended
        self._socket = _connected(settings)
        self._sending = threading.Lock()
        self._messages: queue.SimpleQueue[DriverMessage | None] = queue.SimpleQueue()
        #: ``time.monotonic`` of the main loop's last turn.
        self._turned = time.monotonic()
        self._times: Mapping[tuple[int, int], SubtaskTimes] = {}
        self._count: Callable[[], tuple[RunningMetrics, ...]] = tuple
        self._counts: tuple[RunningMetrics, ...] = ()
        #: ``time.monotonic`` when they are to be asked for again.
        self._next_counts = 0.0
        self._closing = False
        #: ``time.monotonic`` when the driver wanted the slot to end.
        self._asked_to_end = math.inf
        #: The thread to interrupt then.
        self._interruptible: int | None = None
        close_in_forks(self._socket)
        threading.Thread(target=self._run, name="millstream-control", daemon=True).start()

    def register(self, address: Address) -> None:
        """Tell the driver that the slot is there.

        Args:
            address: where it listens for other slots.
        """
        self.send(Registered(self._slot, address, os.getpid(), socket.gethostname()))

    def begin(self) -> Begin | Joins | None:
        """Wait until all slots are there.

        Returns:
            None: the slot is to end without having begun.

        Raises:
            WorkerLostError: the driver has gone (where that does not end the process).
            EngineError: it has said something else.
        """
        message = self._messages.get()
        if isinstance(message, Begin | Joins):
            return message
        if isinstance(message, End):
            return None
        before = f"before it told slot {self._slot} to begin"
        if message is None:
            gone = f"the driver has gone {before}"
            raise WorkerLostError(gone)
        said = f"the driver has said {type(message).__name__} {before}"
        raise EngineError(said)

    def let_interrupt(self) -> None:
        """Have this thread, the main one, interrupted if it does not hear that it is to end."""
        signal.signal(_INTERRUPT, _give_up)
        self._interruptible = threading.get_ident()

    def wait_for_end(self) -> None:
        """Wait until the driver wants the slot to end; somebody may have taken its message."""
        while self._asked_to_end == math.inf:
            self.alive()
            time.sleep(_LOOK)
        self.alive()  # it has heard: what it closes now is not to be interrupted

    def messages(self) -> list[DriverMessage]:
        """What the driver has said since it was asked last; never waits."""
        found: list[DriverMessage] = []
        while True:
            try:
                message = self._messages.get_nowait()
            except queue.Empty:
                return found
            if message is not None:
                found.append(message)

    def send(self, message: SlotMessage) -> None:
        """Tell the driver something; from any thread."""
        content = packed(message)
        # If nobody takes it, the thread finds the connection ended.
        with contextlib.suppress(OSError), self._sending:
            self._socket.sendall(content)

    def alive(self, times: Mapping[tuple[int, int], SubtaskTimes] | None = None) -> None:
        """The main loop has made a turn.

        Args:
            times: (stage, subtask) -> what it has done in the last second, if that is known again.
        """
        self._turned = time.monotonic()
        if times is not None:
            self._times = times

    def report(self, counts: Callable[[], tuple[RunningMetrics, ...]]) -> None:
        """Send with heartbeats what tasks have counted, also while the main loop is at one turn.

        Args:
            counts: returns it; called in another thread.
        """
        self._count = counts

    def close(self) -> None:
        """Let go of the driver: the slot ends by itself."""
        self._closing = True
        with contextlib.suppress(OSError):  # the driver was first
            self._socket.shutdown(socket.SHUT_RDWR)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            # Reset, or no answer from the driver's machine: as if it were closed.
            with contextlib.suppress(OSError):
                self._read_and_beat()
        except BaseException:  # noqa: BLE001 - there is nobody to raise it to
            traceback.print_exc()
        finally:
            # Whatever happened: a slot that cannot hear its driver must not go on.
            if not self._closing:
                self._ended()
            self._messages.put(None)
            self._wake()
            self._socket.close()

    def _read_and_beat(self) -> None:
        reader, poll = MessageReader(), select.poll()
        poll.register(self._socket, select.POLLIN)
        due = time.monotonic()
        while True:
            now = time.monotonic()
            self._interrupt_if_deaf(now)
            if now >= due:
                if now >= self._next_counts:
                    self._next_counts, self._counts = now + _COUNTS, self._count()
                turn = now - self._turned
                self.send(Beat(self._slot, dict(self._times), self._counts, turn=turn))
                due = now + _BEAT
            if not poll.poll(max(0.0, due - time.monotonic()) * 1000):
                continue
            content = self._socket.recv(_PIECE)
            if not content:
                return
            found = reader.feed(content)
            for message in found:
                if isinstance(message, End):
                    self._asked_to_end = time.monotonic()
                self._messages.put(cast("DriverMessage", message))
            if found:
                self._wake()

    def _interrupt_if_deaf(self, now: float) -> None:
        thread = self._interruptible
        if thread is not None and now - self._asked_to_end > _DEAF:
            self._interruptible = None
            if self._turned < self._asked_to_end:
                signal.pthread_kill(thread, _INTERRUPT)


def _give_up(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise GivenUpError


def _connected(settings: SlotSettings) -> socket.socket:
    host, port = settings.driver
    try:
        connection = socket.create_connection(settings.driver, timeout=_CONNECT)
    except OSError as error:
        message = (
            f"slot {settings.slot} on {socket.gethostname()} cannot reach the driver at"
            f" {host}:{port}: {error}; that address must be reachable from where slots run"
        )
        raise WorkerLostError(message) from error
    try:
        me, driver = Party(Role.SLOT, settings.slot), Party(Role.DRIVER)
        prove(connection, settings.token, run_id=settings.run_id, me=me, peer=driver)
    except BaseException:
        connection.close()
        raise
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":
        # A machine that is gone closes nothing; heartbeats that nobody takes are noticed.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREACHABLE)
    return connection


def close_in_forks(end: socket.socket | Connection) -> None:
    """Let no process that a program or its functions fork hold ``end`` open: it is to end here."""
    _own.add(end)


def _close_all() -> None:
    for end in list(_own):
        end.close()


os.register_at_fork(after_in_child=_close_all)
