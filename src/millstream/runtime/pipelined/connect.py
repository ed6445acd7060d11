"""How the slots of a run come by their connections with each other.

What it is: each slot listens before it registers at the driver; when all have registered, each
connects to those with lower numbers and is connected to by those with higher ones.

A slot that takes the place of a lost one listens and registers as well; the others connect to it.

What it is not: a way to come back: a connection that is lost while both its slots live ends the
run.

Read next: ``runtime/pipelined/handshake.py``, ``runtime/pipelined/newcomers.py``.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from millstream.errors import AuthenticationError, SlotLostError
from millstream.runtime.pipelined.handshake import (
    HANDSHAKE_SECONDS,
    Party,
    Role,
    prove,
    require_proof,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

__all__ = ["connect_slots", "connect_to", "join_slots", "listen"]

#: How long a slot may be out of reach: all of them have registered, so all listen.
_REACH_SECONDS: Final = 30.0
#: How long slots may take until all take part: one of them may have to install what the program
#: requires.  If one dies meanwhile the driver ends the others.
_READY_SECONDS: Final = 600.0
#: Connections in the middle of a handshake.  More come only from outside, and wait.
_MOST_HANDSHAKES: Final = 64


def listen(host: str, backlog: int) -> socket.socket:
    """A socket that listens on a free port of an address of this machine.

    Args:
        host: the address, or a name that stands for it.
        backlog: how many may connect before the first is accepted.
    """
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, 0), family=family, backlog=backlog)


def connect_slots(
    slot: int,
    listener: socket.socket,
    addresses: Sequence[tuple[str, int]],
    token: bytes,
    run_id: str,
    timeout: float = _READY_SECONDS,
) -> dict[int, socket.socket]:
    """Connect to all other slots of a run.

    Args:
        slot: the own number.
        listener: where slots with higher numbers connect to; it is closed.
        addresses: of all slots, in order.
        token: the secret of the run.
        run_id: the run.
        timeout: seconds, for all of them.

    Returns:
        Slot -> an authenticated connection.

    Raises:
        SlotLostError: a slot cannot be reached or did not connect in time; names it.
    """
    lower = dict(enumerate(addresses[:slot]))
    higher = frozenset(range(slot + 1, len(addresses)))
    return join_slots(slot, listener, lower, higher, token, run_id, timeout)


def join_slots(
    slot: int,
    listener: socket.socket,
    connect: Mapping[int, tuple[str, int]],
    accept: AbstractSet[int],
    token: bytes,
    run_id: str,
    timeout: float = _READY_SECONDS,
) -> dict[int, socket.socket]:
    """Connect to some slots of a run, and be connected to by others.

    Args:
        slot: the own number.
        listener: where others connect to; it is closed.
        connect: slot -> its address.
        accept: the slots that connect to this one.
        token: the secret of the run.
        run_id: the run.
        timeout: seconds, for all of them.

    Returns:
        Slot -> an authenticated connection.

    Raises:
        SlotLostError: a slot cannot be reached or did not connect in time; names it.
    """
    deadline = time.monotonic() + timeout
    made: dict[int, socket.socket] = {}
    # Accepting goes on while this slot connects: whoever waits for its answer has a deadline.
    accepting = _Accepting(slot, listener, token, run_id, frozenset(accept))
    try:
        for other, address in connect.items():
            left = deadline - time.monotonic()
            made[other] = connect_to(slot, other, address, token, run_id, left)
        made.update(accepting.wait(deadline, set(accept)))
    except BaseException:
        for sock in made.values():
            sock.close()
        raise
    finally:
        accepting.close()
    return made


def connect_to(
    slot: int,
    other: int,
    address: tuple[str, int],
    token: bytes,
    run_id: str,
    timeout: float = _READY_SECONDS,
) -> socket.socket:
    """Connect to one slot of a run.

    Args:
        slot: the own number.
        other: its number.
        address: where it listens.
        token: the secret of the run.
        run_id: the run.
        timeout: seconds that it may take.

    Raises:
        SlotLostError: it cannot be reached, or is none of the run.
    """
    sock: socket.socket | None = None
    deadline = time.monotonic() + timeout
    try:
        left = max(0.001, deadline - time.monotonic())
        sock = socket.create_connection(address, min(left, _REACH_SECONDS))
        sock.settimeout(None)
        me, peer = Party(Role.SLOT, slot), Party(Role.SLOT, other)
        left = max(0.001, deadline - time.monotonic())
        prove(sock, token, run_id=run_id, me=me, peer=peer, timeout=left)
    except (OSError, AuthenticationError) as error:
        if sock is not None:
            sock.close()
        host, port = address
        message = f"slot {slot} cannot connect to slot {other} at {host}:{port}: {error}"
        raise SlotLostError(message) from error
    return sock


class _Accepting:
    """Takes connections, in threads: nobody who says nothing holds up the others.

    Args:
        slot: the own number.
        listener: closed with this.
        token: the secret of the run.
        run_id: the run.
        wanted: the slots that will connect.
    """

    def __init__(
        self,
        slot: int,
        listener: socket.socket,
        token: bytes,
        run_id: str,
        wanted: frozenset[int],
    ) -> None:
        self._me = Party(Role.SLOT, slot)
        self._listener = listener
        self._token = token
        self._run_id = run_id
        self._wanted = wanted
        self._arrived: queue.SimpleQueue[tuple[int, socket.socket]] = queue.SimpleQueue()
        self._turns = threading.BoundedSemaphore(_MOST_HANDSHAKES)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="accept-slots", daemon=True)
        if wanted:
            self._thread.start()

    def wait(self, deadline: float, missing: set[int]) -> dict[int, socket.socket]:
        """The connections of all ``missing`` slots.

        Raises:
            SlotLostError: one of them did not connect.
        """
        found: dict[int, socket.socket] = {}
        while missing:
            try:
                left = max(0.0, deadline - time.monotonic())
                other, sock = self._arrived.get(timeout=left)
            except queue.Empty:
                for sock in found.values():
                    sock.close()
                names = ", ".join(map(str, sorted(missing)))
                message = f"slot {self._me.number} was not connected to by slot {names} in time"
                raise SlotLostError(message) from None
            if other in missing:
                missing.discard(other)
                found[other] = sock
            else:
                sock.close()
        return found

    def close(self) -> None:
        """Take no more connections, and end those that nobody has taken."""
        self._closed.set()
        with contextlib.suppress(OSError):  # wakes the thread
            self._listener.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join()
        self._listener.close()
        with contextlib.suppress(queue.Empty):
            while True:
                self._arrived.get_nowait()[1].close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:  # closed
                return
            self._turns.acquire()
            threading.Thread(target=self._authenticate, args=(sock,), daemon=True).start()

    def _authenticate(self, sock: socket.socket) -> None:
        try:
            peer = require_proof(
                sock,
                self._token,
                run_id=self._run_id,
                me=self._me,
                timeout=HANDSHAKE_SECONDS,
            )
        except AuthenticationError:
            # Somebody who does not belong here.  That one who does is missing is found by waiting.
            sock.close()
            return
        finally:
            self._turns.release()
        if peer.role is Role.SLOT and peer.number in self._wanted:
            self._arrived.put((peer.number, sock))
        else:
            sock.close()
