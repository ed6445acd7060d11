"""The control connection of a slot: messages from and to the driver, and heartbeats.

It is the *fence*: when the connection ends, the process ends at once, whatever its tasks are doing,
because the driver may be starting a new run.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import queue
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from millstream.errors import EngineError, WorkerLostError
from millstream.runtime.pipelined.transport import Party, Role, prove
from millstream.runtime.process_use import ProcessUse, this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection
    from types import FrameType

    from millstream.graph.job_files import JobFiles
    from millstream.runtime.plan import SplitAssignment, SplitProgress
    from millstream.runtime.task_metrics import RunningMetrics, SubtaskTimes


_LENGTH: Final = struct.Struct("!Q")


def packed(message: object) -> bytes:
    """A message as it is sent."""
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(content)) + content


class MessageReader:
    """Makes messages of the bytes of one connection, however they are cut."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, content: bytes) -> list[object]:
        """The messages that are whole with ``content``, in order."""
        held = self._bytes
        held += content
        messages: list[object] = []
        at = 0
        while len(held) - at >= _LENGTH.size:
            begin = at + _LENGTH.size
            end = begin + _LENGTH.unpack_from(held, at)[0]
            if len(held) < end:
                break
            messages.append(pickle.loads(held[begin:end]))
            at = end
        del held[:at]
        return messages


#: A deadline that does not come.
NEVER: Final = 2**63 - 1

#: Host and port.
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """The settings that a slot's process is started with."""

    slot: int
    #: How many there are.
    slots: int
    run_id: str
    #: The secret of the run, with which each end of a connection shows that it belongs to it.
    token: bytes
    #: Where the driver listens.
    driver: Address
    #: The address of this machine's that the other slots can reach.
    host: str
    #: The job, pickled.
    graph: bytes
    files: JobFiles
    #: Whether a region is restarted alone when one of its tasks fails.
    restarts_regions: bool = False
    #: Whether the slot continues when others are lost; new ones take their places.
    outlives_others: bool = False
    #: Whether a process was lost that did the same (``runtime/last_given.py``).
    careful: bool = False


# -- from the driver ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """All slots are there: connect to each other, restore, and run."""

    #: The plan of the first epoch, pickled: what is restored.  Its assignments are the splits that
    #: have begun.
    plan: bytes
    #: Of the slots, in order.
    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Joins:
    """In place of ``Begin``, for a slot that takes the place of a lost one: the others are at work.

    Its tasks begin with their regions.
    """

    #: To which it connects: new ones as well.
    connect: dict[int, Address]
    #: Which connect to it.
    accept: frozenset[int]


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A slot has taken the place of a lost one: connect to it."""

    slot: int
    address: Address


@dataclass(frozen=True, slots=True)
class StopRegion:
    """Close the tasks of a region, one of which has failed; all others continue."""

    region: int
    #: The number of the attempt that will follow; the first was 0.
    attempt: int


@dataclass(frozen=True, slots=True)
class BeginRegion:
    """All slots have stopped the tasks of a region: make new ones, restore, and run."""

    region: int
    attempt: int
    #: The plan of its first epoch, pickled: what is restored, and the splits of its sources.
    plan: bytes


@dataclass(frozen=True, slots=True)
class Assigned:
    """Splits that the slot reads from now on."""

    #: ``start`` is where reading begins, ``stop`` how far it can go now; the channel is unique in
    #: the run.
    splits: tuple[SplitAssignment, ...]


@dataclass(frozen=True, slots=True)
class Grown:
    """How far splits can be read now."""

    #: Channel -> offset.
    ends: dict[int, int]
    #: Channels of splits whose end is their last.
    final: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Retired:
    """These splits are read to their ends, and what follows them was assigned ahead of this.

    Until then they hold time back: else nobody would, while the next splits are on their way to
    their readers, and records of these would be late.
    """

    channels: frozenset[int]


@dataclass(frozen=True, slots=True)
class SourceEnded:
    """No split of a source will come any more, and all that it had are read to their ends."""

    source_uid: str


@dataclass(frozen=True, slots=True)
class Paused:
    """Splits that are ahead of their group in event time, and wait; all others do not."""

    channels: frozenset[int]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """How far splits may run in event time before they wait, too, until they are told again."""

    #: Channel -> milliseconds; a split that is not here may run as far as it likes.
    by_channel: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Drain:
    """Take every split for read to its end where it is: the job is to stop, and its time to end."""


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Let a barrier flow after all that was read."""

    #: Its number; all that is processed since the one before belongs to it.
    epoch: int
    #: The input is over: operators are told so ahead of their snapshot.
    final: bool = False
    #: Milliseconds since 1970.
    time: int = 0
    #: Milliseconds since 1970 from which on its barriers overtake what lies before them.
    deadline: int = NEVER


@dataclass(frozen=True, slots=True)
class Completed:
    """A checkpoint is published and committed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A checkpoint was aborted: nothing more is kept for it alone."""

    epoch: int


@dataclass(frozen=True, slots=True)
class End:
    """Close the user functions, and end: the last checkpoint is complete."""


@dataclass(frozen=True, slots=True)
class StackRequest:
    """Send the Python stacks of the process; answered beside the main loop."""

    #: That of the answer.
    number: int
    #: How many samples of the tasks; 0: one stack of each thread.
    samples: int = 0
    #: Seconds between two samples.
    delay: float = 0.0
    #: Most frames of a sample.
    depth: int = 100


DriverMessage = (
    Begin
    | Joins
    | Newcomer
    | StopRegion
    | BeginRegion
    | Assigned
    | Grown
    | Retired
    | SourceEnded
    | Paused
    | Ceilings
    | Drain
    | TakeCheckpoint
    | Completed
    | Abandoned
    | StackRequest
    | End
)

# -- from a slot -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Registered:
    """A slot is there."""

    slot: int
    #: Where it listens for other slots.
    address: Address
    pid: int
    #: Name of its machine.
    machine: str


@dataclass(frozen=True, slots=True)
class Running:
    """The tasks of a slot are restored: from now on it hears what the driver says, and reads."""

    slot: int
    #: That of ``BeginRegion``; None: those of all regions, for the first time.
    region: int | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Connected:
    """A slot that was told of a newcomer is connected with it."""

    slot: int
    other: int


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The connection with another slot has ended; what is sent to it is dropped."""

    slot: int
    other: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """No task of a region's older attempts is left in the slot, nor anything that it uploads."""

    slot: int
    region: int
    #: That of ``StopRegion``.
    attempt: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the splits of a slot are; those only that have moved since it was said last."""

    slot: int
    #: By channel.
    splits: dict[int, SplitProgress]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One task's part of a checkpoint is durable."""

    slot: int
    #: A ``TaskAck``, pickled.
    ack: bytes


@dataclass(frozen=True, slots=True)
class Declined:
    """One task's part of a checkpoint cannot be made durable; the task continues."""

    slot: int
    epoch: int
    #: (stage, subtask).
    task: tuple[int, int]
    #: The exception, pickled.
    error: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """A task raised; the slot does nothing more."""

    slot: int
    #: The exception, pickled.
    error: bytes
    #: Whose task it was; the slot goes on with all others.  None: nobody's, or there is one region.
    region: int | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Beat:
    """The slot's process lives."""

    slot: int
    #: (stage, subtask) -> what it has done.
    times: dict[tuple[int, int], SubtaskTimes] = field(default_factory=dict)
    #: What each task has counted.
    counts: tuple[RunningMetrics, ...] = ()
    #: Seconds that the main loop has been at one step.
    step: float = 0.0
    #: Of the slot's process; None: it is not known yet.
    use: ProcessUse | None = None


@dataclass(frozen=True, slots=True)
class Stack:
    """Where the thread that runs the tasks was at one moment."""

    #: (stage, subtask) that was at work; None: none was.
    task: tuple[int, int] | None
    #: It used a processor; else it waited.
    on_cpu: bool
    #: ``module.function:line``, the outermost first.
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stacks:
    """The answer to a StackRequest."""

    number: int
    #: Name of the thread -> its stack as text.
    threads: Mapping[str, str] = field(default_factory=dict)
    #: How often each was seen.
    samples: Mapping[Stack, int] = field(default_factory=dict)


SlotMessage = (
    Registered
    | Running
    | Connected
    | Unreachable
    | Stopped
    | Progress
    | Acknowledged
    | Declined
    | Failed
    | Stacks
    | Beat
)


#: Exit code of a slot whose driver has released it, or is gone.
FENCED: Final = 113
#: Seconds between two heartbeats.
_BEAT: Final = 0.3
#: Seconds between two reports of what tasks have counted.
_COUNTS: Final = 0.9
#: Seconds after which a main loop that does not hear that it is to end is interrupted, and how.
_UNRESPONSIVE: Final = 0.5
_INTERRUPT: Final = signal.SIGUSR1
_POLL_SECONDS: Final = 0.01
#: Seconds that the driver may take to answer.
_CONNECT: Final = 10.0
#: Milliseconds after which a driver whose machine gives no answer is gone.
_UNREACHABLE: Final = 10_000
_RECEIVE_BYTES: Final = 1 << 18
#: What processes that this one forks must not hold open.
_own: Final[weakref.WeakSet[socket.socket | Connection]] = weakref.WeakSet()


class InterruptedSlotError(BaseException):
    """The driver wants the slot to end, and its main loop is at something else for too long."""


#: Called right before the process ends because its driver has released it; they must not wait.
before_exit: Final[list[Callable[[], None]]] = []


def end_process() -> None:
    """End this process now: no ``finally`` of a task may write anything any more."""
    try:
        for say in before_exit:
            say()
    finally:
        os._exit(FENCED)


class ControlConnection:
    """The connection of a slot to its driver.

    Contract:
      1. ``register``, then ``begin``, then all else, then ``close``.  (slot)
      2. When the driver's end is closed, before ``close``, the process ends.  (here)
      3. Heartbeats say that the process runs, and for how long its main loop has been at one step.
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
        self._last_step = time.monotonic()
        self._times: Mapping[tuple[int, int], SubtaskTimes] = {}
        self._count: Callable[[], tuple[RunningMetrics, ...]] = tuple
        self._counts: tuple[RunningMetrics, ...] = ()
        self._use: ProcessUse | None = None
        #: ``time.monotonic`` when they are to be asked for again.
        self._next_counts = 0.0
        self._take_stacks: Callable[[StackRequest], Stacks] | None = None
        self._closing = False
        #: ``time.monotonic`` when the driver wanted the slot to end.
        self._asked_to_end = math.inf
        #: The thread to interrupt then.
        self._interruptible: int | None = None
        close_in_forks(self._socket)
        threading.Thread(target=self._run, name="millstream-control", daemon=True).start()

    def register(self, address: Address) -> None:
        """Tell the driver that the slot is there."""
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

    def allow_interrupt(self) -> None:
        """Have this thread, the main one, interrupted if it does not hear that it is to end."""
        signal.signal(_INTERRUPT, _interrupt)
        self._interruptible = threading.get_ident()

    def wait_for_end(self) -> None:
        """Wait until the driver wants the slot to end; somebody may have taken its message."""
        while self._asked_to_end == math.inf:
            self.alive()
            time.sleep(_POLL_SECONDS)
        self.alive()  # it has heard: what it closes now is not to be interrupted

    def messages(self) -> list[DriverMessage]:
        """Return what the driver has said since it was asked last; never waits."""
        found: list[DriverMessage] = []
        while True:
            try:
                message = self._messages.get_nowait()
            except queue.Empty:
                return found
            if message is not None:
                found.append(message)

    def send(self, message: SlotMessage) -> None:
        """Send the driver a message; from any thread."""
        content = packed(message)
        # If nobody takes it, the thread finds the connection ended.
        with contextlib.suppress(OSError), self._sending:
            self._socket.sendall(content)

    def alive(self, times: Mapping[tuple[int, int], SubtaskTimes] | None = None) -> None:
        """The main loop has made a step.

        Args:
            times: (stage, subtask) -> what it has done in the last second, if that is known again.
        """
        self._last_step = time.monotonic()
        if times is not None:
            self._times = times

    def report(self, counts: Callable[[], tuple[RunningMetrics, ...]]) -> None:
        """Send with heartbeats what tasks have counted, also while the main loop is at one step."""
        self._count = counts

    def send_stacks(self, take: Callable[[StackRequest], Stacks]) -> None:
        """Answer requests for stacks from now on.

        Args:
            take: takes them; called in a thread for each request.
        """
        self._take_stacks = take

    def close(self) -> None:
        """Release the driver: the slot ends by itself."""
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
            # Whatever happened: a slot that cannot hear its driver must not continue.
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
            self._interrupt_if_unresponsive(now)
            if now >= due:
                if now >= self._next_counts:
                    self._next_counts, self._counts = now + _COUNTS, self._count()
                    self._use = this_process()
                step = now - self._last_step
                times = dict(self._times)
                self.send(Beat(self._slot, times, self._counts, step=step, use=self._use))
                due = now + _BEAT
            if not poll.poll(max(0.0, due - time.monotonic()) * 1000):
                continue
            content = self._socket.recv(_RECEIVE_BYTES)
            if not content:
                return
            found = reader.feed(content)
            for message in found:
                if isinstance(message, StackRequest):
                    self._answer(message)
                    continue
                if isinstance(message, End):
                    self._asked_to_end = time.monotonic()
                self._messages.put(cast("DriverMessage", message))
            if found:
                self._wake()

    def _answer(self, request: StackRequest) -> None:
        """Take stacks in a thread: samples take seconds, and heartbeats go on."""
        take = self._take_stacks
        if take is not None:
            threading.Thread(
                target=lambda: self.send(take(request)), name="millstream-stacks", daemon=True
            ).start()

    def _interrupt_if_unresponsive(self, now: float) -> None:
        thread = self._interruptible
        if thread is not None and now - self._asked_to_end > _UNRESPONSIVE:
            self._interruptible = None
            if self._last_step < self._asked_to_end:
                signal.pthread_kill(thread, _INTERRUPT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise InterruptedSlotError


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
