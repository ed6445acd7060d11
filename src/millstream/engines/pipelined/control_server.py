"""The driver's end of the control connections: registration, heartbeats, and the fence.

One thread accepts the slots of one run, forwards their messages, and detects the slot whose
connection ends or whose heartbeats fail to come.  The first such loss *fences* at once: all
connections are closed, by which all slots end.  Where slots outlive others, only that one is
fenced.

Cases of a connection:

1. The peer does not authenticate as part of the run -> closed, without a message.
2. It is the first slot of its number -> its messages are forwarded.
3. It is another of the same number (a host that has started one twice) -> closed, which ends it.
4. It ends, or is silent for ``heartbeat.timeout``, before the slots were allowed to end -> the run
   is lost: WorkerLostError, and the fence.
5. As 4, where slots outlive others -> this connection is closed, and ``LostSlot`` forwarded.  When
   its process is known to be gone, another of its number is admitted, which gets no message until
   it is to join.
6. The driver itself did not run for so long (a machine that slept) -> slots get the time again.

Invariant: after ``fence``, a slot that still runs cannot send the driver anything.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import AuthenticationError, WorkerLostError
from millstream.runtime.pipelined.control import (
    Beat,
    End,
    Joins,
    MessageReader,
    Registered,
    StackRequest,
    Stacks,
    close_in_forks,
    packed,
)
from millstream.runtime.pipelined.transport import Party, Role, listen, require_proof

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from millstream.runtime.pipelined.control import (
        Address,
        DriverMessage,
        SlotMessage,
    )
    from millstream.runtime.process_use import ProcessUse
    from millstream.runtime.task_metrics import RunningMetrics, SubtaskTimes


_LOG: Final = logging.getLogger("millstream")
_RECEIVE_BYTES: Final = 1 << 18
#: Connections, beyond those of the slots, that have not shown yet that they belong to the run;
#: more wait to be accepted: a slot may be among them.
_MOST_STRANGERS: Final = 64
#: Seconds of one step of a main loop that are worth a word.
_LONG_STEP: Final = 10.0
#: Seconds between two checks whether the run is fenced while slots take their stacks.
_ANSWER_POLL: Final = 0.2
#: Seconds that a process of this machine may be silent though the system says that it is at work.
_BUSY: Final = 30.0


@dataclass(slots=True, eq=False)
class _Slot:
    """A slot and its connection."""

    number: int
    connection: socket.socket
    reader: MessageReader = field(default_factory=MessageReader)
    #: What the system has not taken yet.
    outgoing: bytearray = field(default_factory=bytearray)
    #: Around ``outgoing`` and each ``send``: parts of two messages must not mix.
    sending: threading.Lock = field(default_factory=threading.Lock)
    #: ``time.monotonic``.
    heard: float = field(default_factory=time.monotonic)
    registered: Registered | None = None
    ended: bool = False
    times: Mapping[tuple[int, int], SubtaskTimes] = field(default_factory=dict)
    counts: tuple[RunningMetrics, ...] = ()
    use: ProcessUse | None = None
    #: A long turn was spoken of.
    warned: bool = False
    #: Fenced, while others continue.
    lost: bool = False
    #: Takes the place of a lost one, and was not told to join the others.
    is_new: bool = False

    @property
    def title(self) -> str:
        """``slot 1 (process 4711 on worker-3)``."""
        if self.registered is None:
            return f"slot {self.number}"
        who = self.registered
        return f"slot {self.number} (process {who.pid} on {who.machine})"


@dataclass(frozen=True, slots=True)
class LostSlot:
    """A slot is lost and fenced; the others continue."""

    slot: int
    error: WorkerLostError


class ControlServer:
    """Accepts the slots of one run.

    Args:
        host: the address that slots are told.
        slots: how many slots there are.
        run_id: the run.
        token: its secret.
        timeout: seconds without a word after which a slot is lost.
        hand_on: called in another thread with each message, in the order of its slot; with a
            WorkerLostError, or where slots outlive others a LostSlot, when one is lost.
        listen_at: the address to listen at, if it is another.
        outlive: slots continue when others are lost.

    Raises:
        OSError: nobody can listen at that address.
    """

    def __init__(
        self,
        host: str,
        slots: int,
        run_id: str,
        token: bytes,
        timeout: float,
        hand_on: Callable[[SlotMessage | WorkerLostError | LostSlot], None],
        listen_at: str | None = None,
        *,
        outlive: bool = False,
    ) -> None:
        self._host = host
        self._count = slots
        self._run_id, self._token = run_id, token
        self._timeout = timeout
        self._hand_on = hand_on
        self._listener = listen(listen_at or host, max(16, 2 * slots))
        self._listener.settimeout(0.0)
        self._waking, self._wakes = socket.socketpair()
        self._waking.settimeout(0.0)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._waking, selectors.EVENT_READ)
        #: Proved, not yet taken in by the thread.
        self._arrived: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
        self._strangers = threading.Semaphore(_MOST_STRANGERS + slots)
        #: So many that the next has to wait.
        self._is_full = False
        self._slots: dict[int, _Slot] = {}
        self._requests = itertools.count()
        #: Number of a request for stacks -> where its answers go, with the slot that has sent each.
        self._asked: dict[int, queue.SimpleQueue[tuple[int, Stacks]]] = {}
        self._outlive = outlive
        #: The numbers of lost slots that others may take.
        self._vacant: set[int] = set()
        #: Slots may end now.
        self._ending = False
        self._fenced = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="millstream-slots", daemon=True)
        self._thread.start()

    @property
    def address(self) -> Address:
        """Return where slots find it."""
        return self._host, int(self._listener.getsockname()[1])

    @property
    def registered(self) -> list[Registered]:
        """The slots that are there, in order."""
        found = [slot.registered for slot in list(self._slots.values()) if slot.registered]
        return sorted(found, key=lambda each: each.slot)

    @property
    def times(self) -> dict[tuple[int, int], SubtaskTimes]:
        """(stage, subtask) -> what it has done in the last second."""
        return {
            task: times for slot in list(self._slots.values()) for task, times in slot.times.items()
        }

    @property
    def counts(self) -> list[RunningMetrics]:
        """What the tasks have counted since the last checkpoint that each knows to be complete."""
        return [each for slot in list(self._slots.values()) for each in slot.counts]

    @property
    def uses(self) -> dict[int, tuple[str, ProcessUse]]:
        """The machine, CPU time and memory of each slot's process."""
        return {
            number: (slot.registered.machine, slot.use)
            for number, slot in list(self._slots.items())
            if slot.registered is not None and slot.use is not None and not slot.ended
        }

    @property
    def are_gone(self) -> bool:
        """Return whether every slot that was there has closed its connection."""
        return all(slot.ended for slot in list(self._slots.values()))

    def send(self, slot: int, message: DriverMessage) -> None:
        """Send a message to a slot; never waits.

        Args:
            slot: one that is there.  If it is gone, nothing happens: it is lost anyway.  Nor if it
                is new and not told to join the others: its tasks begin later, with what is known
                by then.
            message: what to say.
        """
        found = self._slots[slot]
        if found.lost or (found.is_new and not isinstance(message, Joins | End)):
            return
        found.is_new = False
        with found.sending:
            found.outgoing += packed(message)
            _send(found)
            left = bool(found.outgoing)
        if left:
            self._wake()

    def broadcast(self, message: DriverMessage) -> None:
        """Send a message to all slots."""
        for slot in sorted(self._slots):
            self.send(slot, message)

    def ask_stacks(
        self, slots: Collection[int], request: StackRequest, seconds: float
    ) -> dict[int, Stacks]:
        """Ask slots for their stacks, and wait; from any thread.

        Args:
            slots: which of them.
            request: what to take; its number is replaced.
            seconds: how long to wait.

        Returns:
            Slot -> its answer; without those that are not there, or do not answer.
        """
        number = next(self._requests)
        answers = self._asked[number] = queue.SimpleQueue()
        found: dict[int, Stacks] = {}
        deadline = time.monotonic() + seconds
        try:
            asked = [each for each in slots if each in self._slots]
            for each in asked:
                self.send(each, replace(request, number=number))
            while len(found) < len(asked) and not self._fenced:
                with contextlib.suppress(queue.Empty):
                    slot, answer = answers.get(timeout=_ANSWER_POLL)
                    found[slot] = answer
                if time.monotonic() > deadline:
                    break
        finally:
            del self._asked[number]
        return found

    def readmit(self, slot: int) -> None:
        """Let another take the number of a lost slot, whose process is about to be ended."""
        self._vacant.add(slot)

    def allow_end(self) -> None:
        """From now on slots may close their connections: they are told to end."""
        self._ending = True

    def fence(self) -> None:
        """Close all connections, from any thread: the slots end at once."""
        self._fenced = self._ending = True
        for slot in list(self._slots.values()):
            # Not closed: its number could be another connection's while the thread waits for it.
            with contextlib.suppress(OSError):
                slot.connection.shutdown(socket.SHUT_RDWR)
        self._wake()

    def close(self) -> None:
        """Fence, and release everything."""
        self._closed = True
        self.fence()
        self._thread.join()
        self._wakes.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is closed, or has been woken often enough
            self._wakes.send(b"w", socket.MSG_DONTWAIT)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            last = time.monotonic()
            while not self._closed:
                events = self._selector.select(min(0.1, self._timeout / 4))
                for key, mask in events:
                    self._serve(key, mask)
                self._admit()
                self._accept_again()
                now = time.monotonic()
                if now - last > self._timeout / 2:
                    self._forgive(now)
                last = now
                self._check_heartbeats(now)
                self._register_writers()
        except BaseException as error:  # noqa: BLE001 - the run's to raise
            self._lose(WorkerLostError(f"the driver cannot serve its slots any more: {error!r}"))
        finally:
            for slot in self._slots.values():
                slot.connection.close()
            while not self._arrived.empty():
                self._arrived.get().connection.close()
            self._selector.close()
            self._listener.close()
            self._waking.close()

    def _serve(self, key: selectors.SelectorKey, mask: int) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._waking:
            with contextlib.suppress(BlockingIOError):
                self._waking.recv(4096)
        else:
            slot: _Slot = key.data
            if mask & selectors.EVENT_WRITE:
                with slot.sending:
                    _send(slot)
            if mask & selectors.EVENT_READ:
                self._read(slot)

    def _accept(self) -> None:
        if not self._strangers.acquire(blocking=False):
            self._is_full = True
            self._selector.unregister(self._listener)
            return
        try:
            connection, _ = self._listener.accept()
        except OSError:  # whoever it was is gone
            self._strangers.release()
            return
        if self._fenced:
            self._strangers.release()
            connection.close()
            return
        close_in_forks(connection)
        threading.Thread(
            target=self._authenticate, args=(connection,), name="millstream-handshake", daemon=True
        ).start()

    def _accept_again(self) -> None:
        if self._is_full and self._strangers.acquire(blocking=False):
            self._strangers.release()
            self._is_full = False
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _authenticate(self, connection: socket.socket) -> None:
        """The handshake, in a thread: a stranger that says nothing must not hold up the others."""
        try:
            number = self._require_slot(connection)
            connection.settimeout(0.0)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (AuthenticationError, OSError) as error:
            _LOG.debug("a connection to the slots' port was refused: %s", error)
            connection.close()
        else:
            self._arrived.put(_Slot(number, connection))
        finally:
            self._strangers.release()
            self._wake()

    def _require_slot(self, connection: socket.socket) -> int:
        """The number of the slot that has connected; raises AuthenticationError if it is none."""
        connection.settimeout(None)
        peer = require_proof(connection, self._token, run_id=self._run_id, me=Party(Role.DRIVER))
        if peer.role is not Role.SLOT or peer.number >= self._count:
            message = f"{peer} is none of the {self._count} slots of this run"
            raise AuthenticationError(message)
        return peer.number

    def _admit(self) -> None:
        while not self._arrived.empty():
            slot = self._arrived.get()
            before = self._slots.get(slot.number)
            is_twice = before is not None and not (before.lost and slot.number in self._vacant)
            if self._fenced or is_twice:
                slot.connection.close()
                continue
            self._vacant.discard(slot.number)
            slot.is_new = before is not None
            slot.heard = time.monotonic()
            self._slots = {**self._slots, slot.number: slot}  # others read it meanwhile
            self._selector.register(slot.connection, selectors.EVENT_READ, slot)

    def _read(self, slot: _Slot) -> None:
        try:
            content = slot.connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if not content:
            slot.ended = True
            self._selector.unregister(slot.connection)
            if slot.lost:
                slot.connection.close()
            elif not self._ending:
                self._lose_slot(slot, WorkerLostError(f"{slot.title} ended, or its machine did"))
            return
        slot.heard = time.monotonic()
        if slot.lost:
            return  # it was taken for lost: what it says comes too late
        for message in slot.reader.feed(content):
            self._handle(slot, message)

    def _handle(self, slot: _Slot, message: object) -> None:
        if isinstance(message, Beat):
            slot.times, slot.counts, slot.use = message.times, message.counts, message.use
            self._warn_of_long_step(slot, message.step)
            return
        if isinstance(message, Stacks):
            answers = self._asked.get(message.number)
            if answers is not None:  # else nobody waits any more
                answers.put((slot.number, message))
            return
        if isinstance(message, Registered):
            slot.registered = message
        self._hand_on(message)  # type: ignore[arg-type]

    def _warn_of_long_step(self, slot: _Slot, seconds: float) -> None:
        if seconds < _LONG_STEP:
            slot.warned = False
        elif not slot.warned and not self._ending:
            slot.warned = True
            _LOG.warning(
                "%s has been at one thing for %.0f s (a user's function, restoring, the input or"
                " the output); its checkpoint waits for it",
                *(slot.title, seconds),
            )

    def _forgive(self, now: float) -> None:
        for slot in self._slots.values():
            slot.heard = now

    def _check_heartbeats(self, now: float) -> None:
        if self._ending:
            return
        for slot in self._slots.values():
            silent = now - slot.heard
            if slot.lost:
                continue
            if silent > self._timeout and not (silent < _BUSY and _is_at_work(slot.registered)):
                message = (
                    f"{slot.title} gave no sign of life for {silent:.1f} s (heartbeat.timeout): it"
                    " is stopped, its machine or the network is gone, or one call of a function of"
                    " its held Python's lock for so long; raise the option then"
                )
                self._lose_slot(slot, WorkerLostError(message))
                return

    def _register_writers(self) -> None:
        for slot in self._slots.values():
            if not slot.ended:
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if slot.outgoing else 0)
                self._selector.modify(slot.connection, wanted, slot)

    def _lose_slot(self, slot: _Slot, error: WorkerLostError) -> None:
        if not self._outlive:
            self._lose(error)
            return
        slot.lost = True
        with contextlib.suppress(OSError):
            slot.connection.shutdown(socket.SHUT_RDWR)
        self._hand_on(LostSlot(slot.number, error))

    def _lose(self, error: WorkerLostError) -> None:
        self.fence()
        self._hand_on(error)


def _send(slot: _Slot) -> None:
    """Send what the system takes; what is said to a slot that is gone is dropped."""
    try:
        while slot.outgoing:
            del slot.outgoing[: slot.connection.send(slot.outgoing)]
    except BlockingIOError:
        return
    except OSError:
        slot.outgoing.clear()


def _is_at_work(slot: Registered | None) -> bool:
    """Return whether a slot on this machine runs, as the system sees it: neither stopped nor dead.

    One call that holds Python's lock, such as sorting a long list, keeps heartbeats back.  To run
    the job again would only come to the same call.
    """
    if slot is None or slot.machine != socket.gethostname():
        return False
    try:
        state = Path(f"/proc/{slot.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return False
    return state in {"R", "S", "D"}
