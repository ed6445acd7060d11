"""The TCP connections between slots: setup, and sending frames without I/O threads.

Each slot listens before it registers at the driver; when all have registered, each connects to
those with lower numbers and accepts those with higher ones.  A slot that replaces a lost one
listens and registers too; the others connect to it.

On the wire a frame is the length of its payload (4 bytes, little endian), the caller's header,
which always has the same size, and the payload.  ``_GOODBYE`` in place of a length ends the
connection.
"""

from __future__ import annotations

import contextlib
import hmac
import queue
import secrets
import selectors
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import pyarrow as pa

from millstream.errors import AuthenticationError, ProgramError, SlotLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet


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
_READ_LIMIT: Final = 1 << 20
#: Buffers that are written at once; the least that systems allow is 16, Linux has 1,024.
_MOST_BUFFERS: Final = 64


class Transport(Protocol):
    """The connections to all other slots, as a slot's main loop uses them.

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
        """Send a frame to another slot, after all that was sent there before.

        Args:
            slot: which; not the own one.
            header: of the size that the transport was made for.
            payload: at most ``MAX_PAYLOAD`` bytes.

        Raises:
            ProgramError: the payload is larger.
        """

    def poll(self, timeout: float) -> list[Received]:
        """Write what is queued, and read.

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
        on_lost: told of a slot that is lost, in ``poll``, which continues; what is sent there is
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
        # It is not watched any more after a goodbye.
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
                self._bell.clear()
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
        #: Nothing more can be written.  Reading continues: what came before tells whether the other
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
        left = _READ_LIMIT
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
        """Return how many bytes were wanted, and how many came."""
        free = self._buffer[self._filled :]
        try:
            if self._missing:
                # What comes after the payload as well, so that a row of large frames costs no
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
        """Let a payload be read to where it stays, after what has come of it."""
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
        self._receiver, self._rings = socket.socketpair()
        self._lock = threading.Lock()
        self._rung = False
        self._closed = False

    def fileno(self) -> int:
        return self._receiver.fileno()

    def ring(self) -> None:
        with self._lock:
            if not self._rung and not self._closed:
                self._rung = True
                self._rings.send(b"!")

    def clear(self) -> None:
        with self._lock:
            self._rung = False
            self._receiver.recv(1)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._receiver.close()
        self._rings.close()


#: How long a handshake may take altogether.
HANDSHAKE_SECONDS: Final = 5.0

_MAGIC: Final = b"MILLSTR1"
_NONCE_SIZE: Final = 32
_PROOF_SIZE: Final = 32
#: Magic, role, number, nonce.
_HELLO: Final = struct.Struct(f">{len(_MAGIC)}sBI{_NONCE_SIZE}s")
#: Magic, nonce.
_CHALLENGE: Final = struct.Struct(f">{len(_MAGIC)}s{_NONCE_SIZE}s")
_SIGNED: Final = struct.Struct(f">BIBI{_NONCE_SIZE}s{_NONCE_SIZE}s")
_CONNECTS: Final = b"millstream handshake: connects\0"
_ACCEPTS: Final = b"millstream handshake: accepts\0"
#: A key that could be guessed protects nothing.
_LEAST_TOKEN_SIZE: Final = 16


class Role(IntEnum):
    """The end of a connection: who reads and who writes."""

    DRIVER = 1
    SLOT = 2


@dataclass(frozen=True, slots=True)
class Party:
    """One end of a connection."""

    role: Role
    #: Of the slot; of the driver it is 0.
    number: int = 0

    def __str__(self) -> str:
        return "the driver" if self.role is Role.DRIVER else f"slot {self.number}"


def prove(
    sock: socket.socket,
    token: bytes,
    *,
    run_id: str,
    me: Party,
    peer: Party,
    timeout: float = HANDSHAKE_SECONDS,
) -> None:
    """Do the handshake on a connection that this process has made.

    Args:
        sock: connected, blocking; its timeout is as before when this returns.
        token: the secret of the run, 16 bytes at least.
        run_id: the run.
        me: this end.
        peer: whom the other end has to be.
        timeout: seconds, for all of it.

    Raises:
        AuthenticationError: the other end is not ``peer`` in this run, said nothing in time, or is
            gone.  The connection is of no use any more.
    """
    _require_secret(token)
    with _deadline(sock, timeout, str(peer)) as wire:
        mine = secrets.token_bytes(_NONCE_SIZE)
        wire.send(_HELLO.pack(_MAGIC, me.role, me.number, mine))
        magic, theirs = _CHALLENGE.unpack(wire.receive(_CHALLENGE.size))
        wire.require(magic == _MAGIC, "it sent what is not of this protocol")
        signed = _signed(run_id, me, peer, mine, theirs)
        wire.send(_proof(token, _CONNECTS, signed))
        proof = wire.receive(_PROOF_SIZE)
        wire.require(
            hmac.compare_digest(proof, _proof(token, _ACCEPTS, signed)),
            "it does not know the token of the run, or is another than it should be",
        )


def require_proof(
    sock: socket.socket,
    token: bytes,
    *,
    run_id: str,
    me: Party,
    timeout: float = HANDSHAKE_SECONDS,
) -> Party:
    """Do the handshake on a connection that was accepted.

    Returns:
        Who has connected.  Whether that one is wanted here is for the caller to say.

    Raises:
        AuthenticationError: the other end does not know the token, or says nothing in time.  The
            connection is to be closed, without a word to whoever it is.
    """
    _require_secret(token)
    with _deadline(sock, timeout, "whoever has connected") as wire:
        magic, role, number, theirs = _HELLO.unpack(wire.receive(_HELLO.size))
        known = magic == _MAGIC and role in set(Role)
        wire.require(known, "it sent what is not of this protocol")
        peer = Party(Role(role), number)
        mine = secrets.token_bytes(_NONCE_SIZE)
        wire.send(_CHALLENGE.pack(_MAGIC, mine))
        signed = _signed(run_id, peer, me, theirs, mine)
        proof = wire.receive(_PROOF_SIZE)
        wire.require(
            hmac.compare_digest(proof, _proof(token, _CONNECTS, signed)),
            f"it says that it is {peer}, and does not know the token of the run",
        )
        wire.send(_proof(token, _ACCEPTS, signed))
        return peer


def _require_secret(token: bytes) -> None:
    if len(token) < _LEAST_TOKEN_SIZE:
        message = f"the token of a run has {len(token)} bytes, and needs {_LEAST_TOKEN_SIZE}"
        raise ValueError(message)


def _signed(run_id: str, connects: Party, accepts: Party, hers: bytes, his: bytes) -> bytes:
    """Fixed sizes first: where the run's id begins and ends is no question."""
    ends = (connects.role, connects.number, accepts.role, accepts.number)
    return _SIGNED.pack(*ends, hers, his) + run_id.encode()


def _proof(token: bytes, side: bytes, signed: bytes) -> bytes:
    return hmac.digest(token, side + signed, "sha256")


@contextlib.contextmanager
def _deadline(sock: socket.socket, seconds: float, whom: str) -> Iterator[_Wire]:
    before = sock.gettimeout()
    try:
        yield _Wire(sock, time.monotonic() + seconds, whom)
    except TimeoutError as error:
        message = f"{whom} did not show within {seconds:g} s that it belongs to the run"
        raise AuthenticationError(message) from error
    except OSError as error:
        message = f"the connection with {whom} broke before it was authenticated: {error}"
        raise AuthenticationError(message) from error
    sock.settimeout(before)


class _Wire:
    """A connection with one deadline for everything: a byte now and then gains no time."""

    def __init__(self, sock: socket.socket, deadline: float, whom: str) -> None:
        self._sock = sock
        self._deadline = deadline
        self._whom = whom

    def send(self, data: bytes) -> None:
        self._arm()
        self._sock.sendall(data)

    def receive(self, size: int) -> bytes:
        """Exactly ``size`` bytes; what comes after them stays where it is."""
        data = b""
        while len(data) < size:
            self._arm()
            piece = self._sock.recv(size - len(data))
            if not piece:
                message = "it was closed by the other end, which is of another run or has ended"
                raise ConnectionError(message)
            data += piece
        return data

    def require(self, condition: bool, reason: str) -> None:  # noqa: FBT001 - like an assertion
        if not condition:
            message = f"{self._whom} cannot take part in the run: {reason}"
            raise AuthenticationError(message)

    def _arm(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)


#: How long a slot may be out of reach: all of them have registered, so all listen.
_REACH_SECONDS: Final = 30.0
#: How long slots may take until all take part: one of them may have to install what the program
#: requires.  If one dies meanwhile the driver ends the others.
_READY_SECONDS: Final = 600.0
#: Connections in the middle of a handshake.  More come only from outside, and wait.
_MOST_HANDSHAKES: Final = 64


def listen(host: str, backlog: int) -> socket.socket:
    """A socket that listens on a free port of an address of this machine."""
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

    Returns:
        Slot -> an authenticated connection.

    Raises:
        SlotLostError: a slot cannot be reached or did not connect in time; names it.
    """
    deadline = time.monotonic() + timeout
    made: dict[int, socket.socket] = {}
    # Accepting continues while this slot connects: whoever waits for its answer has a deadline.
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
    """Takes connections, in threads: nobody who says nothing holds up the others."""

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
        self._steps = threading.BoundedSemaphore(_MOST_HANDSHAKES)
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
            self._steps.acquire()
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
            self._steps.release()
        if peer.role is Role.SLOT and peer.number in self._wanted:
            self._arrived.put((peer.number, sock))
        else:
            sock.close()
