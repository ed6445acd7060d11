"""A proxy between slots, and between slots and their driver: delays, throttles, stalls, cuts.

What it is: for each end that is to be reached through it, a port; one thread passes on what comes
there, direction by direction, with a seeded delay.  Who has connected is told by the handshake's
first message, which is not secret.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from millstream.runtime.pipelined import transport

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DRIVER", "Conditions", "SlotProxy"]

#: The driver's number among the slots'.
DRIVER: Final = -1
#: Bytes that are read at once, and that may wait in one direction.
_PIECE: Final = 1 << 16
_MOST_WAITING: Final = 1 << 22
#: Seconds between two looks at what may go on: conditions may have been changed meanwhile.
_POLL_SECONDS: Final = 0.001

Address = tuple[str, int]


@dataclass(slots=True)
class Conditions:
    """What happens to bytes in one direction; may be changed at any time, from any thread."""

    #: Seconds that they take at least, and at most.
    least_delay: float = 0.0
    most_delay: float = 0.0
    bytes_per_second: float = float("inf")
    #: Nothing is passed on.
    stalled: bool = False
    #: Bytes that were passed on, and the most that have waited here.
    passed: int = 0
    most_waiting: int = 0
    #: The connection ends when so many bytes were passed on, wherever a frame is then.
    cut_at: int | None = None


@dataclass(slots=True, eq=False)
class _Direction:
    source: socket.socket
    target: socket.socket
    conditions: Conditions
    chance: random.Random
    #: When it may go on, and what; empty bytes at the end.
    pieces: deque[tuple[float, memoryview]] = field(default_factory=deque)
    waiting: int = 0
    last: float = 0.0
    ended: bool = False

    def take(self, data: bytes, now: float) -> None:
        how = self.conditions
        due = now + self.chance.uniform(how.least_delay, how.most_delay)
        self.last = max(due, self.last) + len(data) / how.bytes_per_second
        self.pieces.append((self.last, memoryview(data)))
        self.waiting += len(data)
        how.most_waiting = max(how.most_waiting, self.waiting)

    def pass_on(self, now: float) -> None:
        how = self.conditions
        while self.pieces and self.pieces[0][0] <= now and not how.stalled:
            due, data = self.pieces[0]
            if not data:
                self.ended = True
                self.target.shutdown(socket.SHUT_WR)
                return
            left = None if how.cut_at is None else how.cut_at - how.passed
            if left is not None and left <= 0:
                message = "cut as asked"
                raise ConnectionAbortedError(message)
            try:
                sent = self.target.send(data[:left])
            except BlockingIOError:
                return
            self.waiting -= sent
            how.passed += sent
            if sent < len(data):
                self.pieces[0] = due, data[sent:]
            else:
                self.pieces.popleft()


@dataclass(slots=True, eq=False)
class _Pair:
    """A connection: from one end to the proxy, from there to the other."""

    ends: tuple[int, int]
    there: _Direction
    back: _Direction

    def close(self) -> None:
        self.there.source.close()
        self.back.source.close()


class SlotProxy:
    """Stands between the slots of a run.

    Args:
        seed: of all delays.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._conditions: dict[tuple[int, int], Conditions] = {}
        self._pairs: list[_Pair] = []
        self._newcomers: dict[socket.socket, tuple[int, Address, bytes]] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._listeners: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, name="slot-proxy", daemon=True)
        self._thread.start()

    def route(self, end: int, address: Address) -> Address:
        """Where to connect to, to reach ``address`` through the proxy.

        Args:
            end: the number of the slot that listens there, or ``DRIVER``.
            address: where it listens.
        """
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        listener.setblocking(False)
        with self._lock:
            self._listeners.append(listener)
            self._selector.register(listener, selectors.EVENT_READ, (end, address))
        found: Address = listener.getsockname()[:2]
        return found

    def conditions(self, source: int, target: int) -> Conditions:
        """Of what ``source`` sends to ``target``, in connections of now and later."""
        with self._lock:
            return self._conditions.setdefault((source, target), Conditions())

    def cut(self, one: int, other: int) -> int:
        """End all connections of two ends; returns how many there were."""
        with self._lock:
            found = [pair for pair in self._pairs if set(pair.ends) == {one, other}]
            for pair in found:
                self._remove(pair)
        return len(found)

    def connections(self) -> list[tuple[int, int]]:
        """Who is connected with whom; those that have connected first in each."""
        with self._lock:
            return [pair.ends for pair in self._pairs]

    def close(self) -> None:
        """End everything."""
        self._ending.set()
        self._thread.join()
        for pair in self._pairs:
            pair.close()
        for sock in [*self._listeners, *self._newcomers]:
            sock.close()
        self._selector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            events = self._selector.select(_POLL_SECONDS)
            with self._lock:
                for key, _ in events:
                    # What was cut meanwhile is not registered any more.
                    if self._selector.get_map().get(key.fd) is key:
                        self._read(key)
                self._pass_on()

    def _read(self, key: selectors.SelectorKey) -> None:
        sock = key.fileobj
        assert isinstance(sock, socket.socket)
        if isinstance(key.data, _Direction):
            self._take(sock, key.data)
        elif sock in self._newcomers:
            self._introduce(sock)
        else:
            newcomer, _ = sock.accept()
            newcomer.setblocking(False)
            self._newcomers[newcomer] = (*key.data, b"")
            self._selector.register(newcomer, selectors.EVENT_READ, None)

    def _introduce(self, sock: socket.socket) -> None:
        """Learn who has connected, and go on to where that one wants to."""
        end, address, said = self._newcomers[sock]
        try:
            piece = sock.recv(_PIECE)
            said += piece
            if piece and len(said) < transport._HELLO.size:
                self._newcomers[sock] = end, address, said
                return
            _, _, number, _ = transport._HELLO.unpack(said[: transport._HELLO.size])
            other = socket.create_connection(address, timeout=10)
        except (OSError, ValueError):
            piece = b""
        del self._newcomers[sock]
        self._selector.unregister(sock)
        if not piece:
            sock.close()
            return
        self._join(number, end, sock, other, said)

    def _join(
        self, number: int, end: int, sock: socket.socket, other: socket.socket, said: bytes
    ) -> None:
        directions = []
        for source, target, ends in ((sock, other, (number, end)), (other, sock, (end, number))):
            source.setblocking(False)
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            chance = random.Random(f"{self._seed} {ends}")
            how = self._conditions.setdefault(ends, Conditions())
            direction = _Direction(source, target, how, chance)
            directions.append(direction)
            self._selector.register(source, selectors.EVENT_READ, direction)
        self._pairs.append(_Pair((number, end), *directions))
        directions[0].take(said, time.monotonic())

    def _take(self, sock: socket.socket, direction: _Direction) -> None:
        try:
            data = sock.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:  # reset: the other end hears no more either
            data = b""
        direction.take(data, time.monotonic())
        if not data or direction.waiting >= _MOST_WAITING:
            self._selector.unregister(sock)

    def _pass_on(self) -> None:
        now = time.monotonic()
        for pair in list(self._pairs):
            try:
                for direction in (pair.there, pair.back):
                    if direction.ended:
                        continue
                    before = direction.waiting
                    direction.pass_on(now)
                    if before >= _MOST_WAITING > direction.waiting:
                        source = direction.source
                        self._selector.register(source, selectors.EVENT_READ, direction)
            except OSError:  # one of them is gone
                self._remove(pair)
                continue
            if pair.there.ended and pair.back.ended:
                self._remove(pair)

    def _remove(self, pair: _Pair) -> None:
        self._pairs.remove(pair)
        for direction in (pair.there, pair.back):
            with contextlib.suppress(KeyError):
                self._selector.unregister(direction.source)
        pair.close()


@contextlib.contextmanager
def stalled(conditions: Conditions) -> Iterator[None]:
    """Let one direction stand still for a while."""
    conditions.stalled = True
    try:
        yield
    finally:
        conditions.stalled = False
