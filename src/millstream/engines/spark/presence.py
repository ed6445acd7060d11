"""Detect when the processes of slots are gone: each holds a connection that only its end closes.

Spark reports a cancelled or failed job as over while Python workers still run for 2 to 3 s, and it
has no way to ask for a process.  The kernel closes a connection when the process ends, however it
does, and never before.  If a machine does not answer, the connection counts as ended after
``_UNREACHABLE`` seconds, within which a slot there ends by itself, because it does not hear its
driver either (``runtime/pipelined/control.py``).

A process that was fenced, or whose task ends or raises, sends a byte first: all others were killed
or have crashed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from typing import TYPE_CHECKING, Final

from millstream.errors import AuthenticationError
from millstream.runtime.pipelined.control import before_exit
from millstream.runtime.pipelined.transport import Party, Role, listen, prove, require_proof

if TYPE_CHECKING:
    from millstream.runtime.pipelined.control import Address, SlotSettings


#: Connections in the middle of a handshake.  More come only from outside, and wait.
_MOST_HANDSHAKES: Final = 64
#: Seconds that a process may take to connect.
_CONNECT: Final = 10.0
#: Seconds after which a machine that gives no answer is gone; a look each of ``_PROBES`` parts.
_UNREACHABLE: Final = 12
_PROBES: Final = 4

#: What a process says that does not crash.
_GOODBYE: Final = b"."

#: Of this process, for as long as it lives.
_held: list[socket.socket] = []


class Presence:
    """The processes of the slots of one run.

    Contract:
      1. ``close`` is called once, after all else.  (host)
      2. After ``refuse`` no slot can come any more, however late Spark starts it.  (here)
    """

    def __init__(self, host: str, listen_at: str, settings: list[SlotSettings]) -> None:
        self._settings = settings
        self._listener = listen(listen_at, len(settings))
        #: Where the slots connect to.
        self.address: Address = (host, self._listener.getsockname()[1])
        self._changed = threading.Condition()
        self._refusing = False
        #: Connections in the middle of a handshake.
        self._arriving = 0
        self._steps = threading.BoundedSemaphore(_MOST_HANDSHAKES)
        self._came: set[int] = set()
        self._crashed: list[int] = []
        self._here: dict[socket.socket, int] = {}
        threading.Thread(target=self._accept, name="millstream-presence", daemon=True).start()

    @property
    def came(self) -> int:
        """Return how many slots have come, gone or not."""
        with self._changed:
            return len(self._came)

    @property
    def crashed(self) -> list[int]:
        """Slots whose process has ended without a word, in that order."""
        with self._changed:
            return list(self._crashed)

    def wait_for_all(self, seconds: float) -> bool:
        """Wait until every slot has come, or none can any more; whether every slot has."""
        with self._changed:
            self._changed.wait_for(lambda: self._refusing or self._all_came(), seconds)
            return self._all_came()

    def wait_until_gone(self, seconds: float) -> bool:
        """Wait until none is here; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._here and not self._arriving, seconds)

    def here(self) -> list[int]:
        """Slots whose process lives."""
        with self._changed:
            return sorted(self._here.values())

    def refuse(self) -> None:
        """Let no process come any more."""
        with self._changed:
            self._refusing = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):  # wakes the thread
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        """Release the connections."""
        self.refuse()
        with self._changed:
            for connection in self._here:
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    connection.shutdown(socket.SHUT_RDWR)

    def _all_came(self) -> bool:
        return len(self._came) == len(self._settings)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            self._steps.acquire()  # not with the lock: who is in a handshake needs that
            with self._changed:
                if self._refusing:
                    connection.close()
                    return
                self._arriving += 1
            threading.Thread(target=self._follow, args=(connection,), daemon=True).start()

    def _follow(self, connection: socket.socket) -> None:
        """One connection, from its handshake to its end."""
        slot: int | None = None
        try:
            one = self._settings[0]
            me = Party(Role.DRIVER)
            peer = require_proof(connection, one.token, run_id=one.run_id, me=me)
            with self._changed:
                known = peer.role is Role.SLOT and peer.number < len(self._settings)
                if known and not self._refusing:
                    slot = peer.number
                    self._came.add(slot)
                    self._here[connection] = slot
        except AuthenticationError:
            slot = None  # somebody who does not belong here
        finally:
            self._steps.release()
            with self._changed:
                self._arriving -= 1
                self._changed.notify_all()
        if slot is not None:
            _watch(connection)
            word = _wait_for_end(connection)
            with self._changed:
                del self._here[connection]
                if word != _GOODBYE:
                    self._crashed.append(slot)
                self._changed.notify_all()
        connection.close()


def be_present(settings: SlotSettings, address: Address) -> None:
    """Connect this process, for as long as it lives.

    Raises:
        OSError, AuthenticationError: the run is over, or the driver cannot be reached.
    """
    connection = socket.create_connection(address, timeout=_CONNECT)
    me, driver = Party(Role.SLOT, settings.slot), Party(Role.DRIVER)
    prove(connection, settings.token, run_id=settings.run_id, me=me, peer=driver)
    connection.settimeout(None)
    _watch(connection)
    _held.append(connection)
    before_exit.append(say_goodbye)
    # What a user's function forks may live longer.
    os.register_at_fork(after_in_child=connection.close)


def say_goodbye() -> None:
    """Tell the driver that this process is about to end, and why is known; does not wait."""
    for connection in _held:
        with contextlib.suppress(OSError):  # the driver is gone
            connection.send(_GOODBYE, socket.MSG_DONTWAIT)


def _wait_for_end(connection: socket.socket) -> bytes:
    """Return what a process has said before it ended."""
    said = b""
    with contextlib.suppress(OSError):  # reset, or no answer: it is gone as well
        while word := connection.recv(1):
            said = word
    return said


def _watch(connection: socket.socket) -> None:
    """Have the kernel look now and then whether the other machine answers."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        seconds = _UNREACHABLE // _PROBES
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES - 1)
