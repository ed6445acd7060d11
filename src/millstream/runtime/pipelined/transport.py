"""How slots send each other frames: over one connection per pair of slots, without I/O threads.

What it is: the ``Transport`` that a slot's main loop calls, and the one over TCP.  ``send`` writes
at once what the socket takes and queues the rest; ``poll`` writes what was queued and reads what
came.

On the wire a frame is the length of its payload (4 bytes, little endian), the caller's header,
which always has the same size, and the payload.  ``_GOODBYE`` in place of a length ends the
connection.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import pyarrow as pa

from millstream.errors import ProgramError, SlotLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


#: From which slot, header, payload.
Received: TypeAlias = "tuple[int, bytes, memoryview]"

#: Bytes: what a frame can hold at most.
MAX_PAYLOAD: Final = 1 << 30

_LENGTH: Final = struct.Struct("<I")
_GOODBYE: Final = 0xFFFF_FFFF
_NOTHING: Final = memoryview(b"")
#: Bytes that are read at once.
_BUFFER_SIZE: Final = 1 << 18
#: A payload of at least this size that is not complete in the buffer is read to where it stays.
_LARGE: Final = 1 << 16
#: Bytes that are read from one connection before the others have their turn.
_TURN: Final = 1 << 20
#: Buffers that are written at once; the least that systems allow is 16, Linux has 1,024.
_MOST_BUFFERS: Final = 64


class Transport(Protocol):
    """What a slot's main loop asks of the connections with all other slots.

    Contract, which ``tests/pipelined/test_transport.py`` checks for each implementation:

    1. Frames of one slot to another arrive once, whole and in order, or the connection is lost.
    2. ``send`` never blocks.  The payload belongs to the transport from then on: it must not
       change.
    3. ``poll`` returns when something came, at ``wake``, or after its time-out; it may return with
       nothing sooner.
    4. When another slot is lost, ``poll`` raises, and so does every ``poll`` after it, unless
       somebody else is to be told.  A slot that has closed its transport is not lost: it has
       nothing more to say.
    5. All but ``wake`` is called by one thread.
    """

    def send(self, slot: int, header: bytes, payload: bytes | memoryview | pa.Buffer) -> None:
        """Send a frame to another slot, behind all that was sent there before.

        Args:
            slot: which; not the own one.
            header: of the size that the transport was made for.
            payload: at most ``MAX_PAYLOAD`` bytes.

        Raises:
            ProgramError: the payload is larger.
        """

    def poll(self, timeout: float) -> list[Received]:
        """Write what is queued, and read.

        Args:
            timeout: seconds to wait for something to come.

        Returns:
            What came, in order per slot.

        Raises:
            SlotLostError: a connection ended; names the slot.
        """

    def wake(self) -> None:
        """Let ``poll`` return, now or when it is called next; from any thread, also when closed."""

    def queued(self) -> int:
        """Bytes that wait to be written, lengths and headers included."""

    def close(self) -> None:
        """Say goodbye to all other slots, as far as that can be done at once, and close."""


class TcpTransport(Transport):
    """Frames over TCP.

    Args:
        slot: the own number.
        connections: to all other slots, authenticated; closed with the transport.
        header_size: bytes of a header.
        on_lost: told of a slot that is lost, in ``poll``, which goes on; what is sent there is
            dropped until ``connected``.
    """

    def __init__(
        self,
        slot: int,
        connections: Mapping[int, socket.socket],
        header_size: int,
        on_lost: Callable[[int], None] | None = None,
    ) -> None:
        self._slot = slot
        self._header_size = header_size
        self._lost: SlotLostError | None = None
        self._on_lost = on_lost
        self._bell = _Bell()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._connections: dict[int, _Connection] = {}
        for number, sock in connections.items():
            self.connected(number, sock)

    def connected(self, slot: int, sock: socket.socket) -> None:
        """Take the connection with another slot, in place of the one that there was.

        Args:
            slot: which.
            sock: authenticated; closed with the transport.
        """
        before = self._connections.get(slot)
        if before is not None:
            self._let_go(before)
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connections[slot] = _Connection(slot, sock, self._header_size)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _let_go(self, connection: _Connection) -> None:
        """Hear nothing more of a connection, and drop what is to be sent on it."""
        # It is not watched any more behind a goodbye.
        if connection.sock.fileno() >= 0 and connection.sock in self._selector.get_map():
            self._selector.unregister(connection.sock)
        connection.abandon()

    def send(self, slot: int, header: bytes, payload: bytes | memoryview | pa.Buffer) -> None:
        connection = self._connections[slot]
        data = payload if type(payload) is bytes else _as_bytes(payload)
        size = len(data)
        if len(header) != self._header_size:
            message = f"a header has {len(header)} bytes, not {self._header_size}"
            raise ValueError(message)
        if size > MAX_PAYLOAD:
            message = (
                f"slot {self._slot} has a frame of {size:,} bytes for slot {slot}, and a frame can"
                f" have {MAX_PAYLOAD:,}: make the records that cross the exchange smaller"
            )
            raise ProgramError(message)
        if connection.send(_LENGTH.pack(size) + header, data):
            self._selector.modify(
                connection.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, connection
            )

    def poll(self, timeout: float) -> list[Received]:
        if self._lost is not None:
            raise self._lost
        came: list[Received] = []
        for key, events in self._selector.select(timeout):
            connection = key.data
            if connection is None:
                self._bell.hear()
                continue
            try:
                if events & selectors.EVENT_WRITE and connection.write():
                    self._selector.modify(connection.sock, selectors.EVENT_READ, connection)
                if events & selectors.EVENT_READ and connection.read(came):
                    self._selector.unregister(connection.sock)
            except OSError as error:
                if self._on_lost is not None:
                    self._let_go(connection)
                    self._on_lost(connection.slot)
                    continue
                self._lost = SlotLostError(
                    f"slot {self._slot} has lost its connection with slot {connection.slot}:"
                    f" {error or type(error).__name__}"
                )
                raise self._lost from error
        return came

    def wake(self) -> None:
        self._bell.ring()

    def queued(self) -> int:
        return sum(connection.queued for connection in self._connections.values())

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._selector.close()
        self._bell.close()


def _as_bytes(payload: memoryview | pa.Buffer | bytes) -> memoryview:
    """A view whose length is its size in bytes."""
    view = memoryview(payload)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


class _Connection:
    """One of the two ends of the connection of a pair of slots."""

    def __init__(self, slot: int, sock: socket.socket, header_size: int) -> None:
        self.slot = slot
        self.sock = sock
        #: Bytes of ``_outgoing``.
        self.queued = 0
        self._outgoing: deque[bytes | memoryview] = deque()
        #: Nothing more can be written.  Reading goes on: what came before tells whether the other
        #: slot is lost or has said goodbye.
        self._is_mute = False
        self._prefix = _LENGTH.size + header_size
        #: What was read and is no whole frame yet is at its beginning, ``_filled`` bytes.
        self._buffer = memoryview(bytearray(_BUFFER_SIZE))
        self._filled = 0
        #: The frame that is being read to where its payload stays, ``_missing`` bytes at its end.
        self._header = b""
        self._payload = _NOTHING
        self._missing = 0

    # -- writing

    def send(self, head: bytes, payload: bytes | memoryview) -> bool:
        """Write or queue a frame; true if it begins a queue, which ``write`` is to go on with."""
        if self._is_mute:
            return False
        if self._outgoing:
            self._queue(head, payload, 0)
            return False
        sent = self._write_some((head, payload))
        if sent == len(head) + len(payload):
            return False
        self._queue(head, payload, sent)
        return bool(self._outgoing)

    def write(self) -> bool:
        """Write of the queue what the socket takes; true when nothing is left."""
        outgoing = self._outgoing
        while outgoing:
            count = min(len(outgoing), _MOST_BUFFERS)
            sent = self._write_some([outgoing[position] for position in range(count)])
            if not sent:
                break
            self.queued -= sent
            while outgoing and sent >= len(outgoing[0]):
                sent -= len(outgoing.popleft())
            if sent:
                outgoing[0] = memoryview(outgoing[0])[sent:]
        return not outgoing

    def _write_some(
        self, buffers: list[bytes | memoryview] | tuple[bytes | memoryview, ...]
    ) -> int:
        try:
            return self.sock.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._fall_silent()
            return 0

    def abandon(self) -> None:
        """Close it without a word."""
        self._fall_silent()
        self.sock.close()

    def _fall_silent(self) -> None:
        self._is_mute = True
        self._outgoing.clear()
        self.queued = 0

    def _queue(self, head: bytes, payload: bytes | memoryview, sent: int) -> None:
        if self._is_mute:
            return
        for part in (head, payload):
            if sent >= len(part):
                sent -= len(part)
                continue
            self._outgoing.append(memoryview(part)[sent:] if sent else part)
            self.queued += len(part) - sent
            sent = 0

    # -- reading

    def read(self, came: list[Received]) -> bool:
        """Read what is there, and append whole frames; true if the other slot has said goodbye.

        Raises:
            OSError: the connection is lost.
        """
        left = _TURN
        while left > 0:
            wanted, got = self._receive()
            if not got:
                return False
            left -= got
            if self._take_payload(got, came) and self._take_frames(came):
                return True
            if got < wanted:
                return False  # there was no more: to ask again would cost a call
        return False

    def _receive(self) -> tuple[int, int]:
        """How many bytes were wanted, and how many came."""
        free = self._buffer[self._filled :]
        try:
            if self._missing:
                # What comes behind the payload as well, so that a row of large frames costs no
                # more calls than bytes of any other kind.
                rest = self._payload[-self._missing :]
                wanted = len(rest) + len(free)
                got = self.sock.recvmsg_into((rest, free))[0]
            else:
                wanted = len(free)
                got = self.sock.recv_into(free)
        except (BlockingIOError, InterruptedError):
            return 1, 0
        if not got:
            message = "the other end closed it"
            raise ConnectionError(message)
        return wanted, got

    def _take_payload(self, got: int, came: list[Received]) -> bool:
        """Count what was read for the payload under way; false if it is not complete."""
        if got < self._missing:
            self._missing -= got
            return False
        self._filled += got - self._missing
        if self._missing:
            came.append((self.slot, self._header, self._payload))
            self._missing, self._payload = 0, _NOTHING
        return True

    def _take_frames(self, came: list[Received]) -> bool:
        """Append the frames that are in the buffer; true at a goodbye."""
        buffer, prefix, slot, filled = self._buffer, self._prefix, self.slot, self._filled
        start = 0
        while filled - start >= prefix:
            (size,) = _LENGTH.unpack_from(buffer, start)
            body = start + prefix
            if size > MAX_PAYLOAD:
                if size == _GOODBYE:
                    self._fall_silent()
                    return True
                message = "what came is no frame"
                raise ConnectionError(message)
            if filled - body < size:
                if size >= _LARGE:
                    self._begin_payload(bytes(buffer[start + 4 : body]), size, body)
                    return False
                break
            # Copied: a few bytes that somebody keeps would keep the whole buffer otherwise.
            payload = memoryview(bytes(buffer[body : body + size])) if size else _NOTHING
            came.append((slot, bytes(buffer[start + 4 : body]), payload))
            start = body + size
        if start:
            buffer[: filled - start] = buffer[start:filled]
            self._filled = filled - start
        return False

    def _begin_payload(self, header: bytes, size: int, body: int) -> None:
        """Let a payload be read to where it stays, behind what has come of it."""
        have = self._filled - body
        self._header = header
        self._payload = memoryview(pa.allocate_buffer(size)).cast("B")
        self._payload[:have] = self._buffer[body : self._filled]
        self._missing = size - have
        self._filled = 0

    def close(self) -> None:
        goodbye = _LENGTH.pack(_GOODBYE) + bytes(self._prefix - _LENGTH.size)
        self.send(goodbye, b"")
        self.write()
        with contextlib.suppress(OSError):  # the other end may have closed already
            self.sock.shutdown(socket.SHUT_WR)
        self.sock.close()


class _Bell:
    """Makes ``select`` return, from any thread."""

    def __init__(self) -> None:
        self._hears, self._rings = socket.socketpair()
        self._lock = threading.Lock()
        self._rung = False
        self._closed = False

    def fileno(self) -> int:
        return self._hears.fileno()

    def ring(self) -> None:
        with self._lock:
            if not self._rung and not self._closed:
                self._rung = True
                self._rings.send(b"!")

    def hear(self) -> None:
        with self._lock:
            self._rung = False
            self._hears.recv(1)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._hears.close()
        self._rings.close()
