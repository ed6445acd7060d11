"""The handshake: each end of a connection shows the other that it knows the run's token.

What it is: what happens on a connection of a pipelined run before anything else is read from it,
on those of slots with the driver and on those between slots.  All messages have a fixed size, so no
length is ever taken from somebody who has not shown anything.

What it is not: encryption.  Whoever can read a connection reads records; whoever can change what
flows through it can do so after the handshake.

::

    connects                                   accepts
    magic, who I am, nonce            ->
                                      <-       magic, nonce
    proof of the one that connects    ->
                                      <-       proof of the one that accepts

A proof is the HMAC, with the token as key, of which side of the two made it, of the run, of both
ends' roles and numbers and of both nonces.  So it is of no use in another connection (the nonces
differ), sent back to its maker (the sides differ), with another slot or as another one (the numbers
differ), in another run.  The end that accepts makes none before it has seen one.

Read next: ``runtime/pipelined/transport.py``.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from millstream.errors import AuthenticationError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

__all__ = ["HANDSHAKE_SECONDS", "Party", "Role", "prove", "require_proof"]

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
