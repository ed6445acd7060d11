"""How the slots of a run come by their connections with each other.

What it is: each slot listens before it registers at the driver; when all have registered, each
connects to those with lower numbers and is connected to by those with higher ones.

A slot that takes the place of a lost one listens and registers as well; the others connect to it.
"""

from __future__ import annotations

import contextlib
import hmac
import queue
import secrets
import socket
import struct
import threading
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from millstream.errors import AuthenticationError, SlotLostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet


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
    """What an end of a connection is."""

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

    Args:
        sock: connected, blocking; its timeout is as before when this returns.
        token: the secret of the run, 16 bytes at least.
        run_id: the run.
        me: this end.
        timeout: seconds, for all of it.

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
        """Exactly ``size`` bytes; what comes behind them stays where it is."""
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
