"""Nobody takes part in a run who does not know its token, and nobody holds it up."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import AuthenticationError
from millstream.runtime.pipelined.transport import Party, Role, prove, require_proof

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKEN = b"t" * 32
RUN = "run-1"
DRIVER = Party(Role.DRIVER)
SLOT = Party(Role.SLOT, 3)
HELLO, CHALLENGE, PROOF = 8 + 1 + 4 + 32, 8 + 32, 32


class InThread:
    """Calls a function in a thread; ``result`` returns or raises what it did."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._value: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._function()
        except Exception as error:  # noqa: BLE001 - raised by result()
            self._error = error

    def result(self) -> Any:
        self._thread.join(20)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self._value


Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    pair = socket.socketpair()
    for each in pair:
        each.settimeout(20)
    yield pair
    for each in pair:
        each.close()


def accept(sock: socket.socket, me: Party = DRIVER, **changed: Any) -> Party:
    """As the end that accepts does: whoever fails is left without a word."""
    arguments: dict[str, Any] = {"token": TOKEN, "run_id": RUN, "timeout": 10.0, **changed}
    try:
        return require_proof(sock, arguments.pop("token"), me=me, **arguments)
    except AuthenticationError:
        sock.shutdown(socket.SHUT_RDWR)
        raise


def connect(sock: socket.socket, me: Party = SLOT, peer: Party = DRIVER, **changed: Any) -> None:
    arguments: dict[str, Any] = {"token": TOKEN, "run_id": RUN, "timeout": 10.0, **changed}
    try:
        prove(sock, arguments.pop("token"), me=me, peer=peer, **arguments)
    except AuthenticationError:
        sock.shutdown(socket.SHUT_RDWR)
        raise


def exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := sock.recv(size - len(data))):
        data += piece
    return data


def test_both_ends_are_convinced_and_nothing_else_was_read(ends: Ends) -> None:
    accepting = InThread(lambda: accept(ends[1]))
    connect(ends[0])
    ends[0].sendall(b"what follows")
    assert accepting.result() == SLOT
    assert exactly(ends[1], 12) == b"what follows"
    # As they were before.
    assert ends[0].gettimeout() == ends[1].gettimeout() == 20


@pytest.mark.parametrize(
    "changed",
    [
        {"token": b"u" * 32},
        {"token": TOKEN[:-1]},
        {"run_id": "run-2"},
        # Connected to another than was meant.
        {"peer": Party(Role.SLOT, 0)},
        {"peer": Party(Role.DRIVER, 1)},
    ],
)
def test_what_does_not_fit_convinces_neither_end(ends: Ends, changed: dict[str, Any]) -> None:
    accepting = InThread(lambda: accept(ends[1]))
    with pytest.raises(AuthenticationError, match=r"the driver|slot 0"):
        connect(ends[0], **changed)
    with pytest.raises(AuthenticationError, match="says that it is slot 3"):
        accepting.result()


def test_one_that_connects_believes_nobody_without_the_token(ends: Ends) -> None:
    def impostor() -> None:
        exactly(ends[1], HELLO)
        ends[1].sendall(b"MILLSTR1" + b"n" * 32)
        exactly(ends[1], PROOF)
        ends[1].sendall(b"p" * PROOF)

    accepting = InThread(impostor)
    with pytest.raises(AuthenticationError, match="the driver cannot take part"):
        connect(ends[0])
    accepting.result()


def test_a_proof_is_of_no_use_in_another_connection(ends: Ends) -> None:
    """All that a genuine slot said, said again."""
    before, behind = socket.socketpair()
    genuine = InThread(lambda: connect(before))
    accepting = InThread(lambda: accept(ends[1]))
    hello = exactly(behind, HELLO)
    ends[0].sendall(hello)
    behind.sendall(exactly(ends[0], CHALLENGE))
    proof = exactly(behind, PROOF)
    ends[0].sendall(proof)
    behind.sendall(exactly(ends[0], PROOF))
    genuine.result()
    assert accepting.result() == SLOT  # what was recorded is right

    with contextlib.closing(before), contextlib.closing(behind):
        again, there = socket.socketpair()
        with contextlib.closing(again), contextlib.closing(there):
            replayed = InThread(lambda: accept(there))
            again.sendall(hello + proof)
            with pytest.raises(AuthenticationError, match="does not know the token"):
                replayed.result()
            exactly(again, CHALLENGE)
            assert again.recv(1) == b""  # and no proof came back


def test_a_proof_is_of_no_use_when_sent_back_to_its_maker(ends: Ends) -> None:
    """Two slots with the same number and role, so that only the sides differ."""
    twin = Party(Role.SLOT, 3)

    def mirror() -> None:
        hello = exactly(ends[1], HELLO)
        ends[1].sendall(b"MILLSTR1" + hello[-32:])  # the same nonce
        ends[1].sendall(exactly(ends[1], PROOF))

    reflecting = InThread(mirror)
    with pytest.raises(AuthenticationError, match="cannot take part"):
        connect(ends[0], me=twin, peer=twin)
    reflecting.result()


def test_one_connection_cannot_answer_for_another() -> None:
    """Who accepts makes no proof for anybody who has not shown one: it is no oracle."""
    mine, theirs = socket.socketpair()
    with contextlib.closing(mine), contextlib.closing(theirs):
        accepting = InThread(lambda: accept(theirs, timeout=0.3))
        mine.sendall(struct.pack(">8sBI32s", b"MILLSTR1", 2, 3, b"n" * 32))
        mine.settimeout(20)
        assert len(exactly(mine, CHALLENGE + PROOF)) == CHALLENGE
        with pytest.raises(AuthenticationError):
            accepting.result()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n",
        b"\x80\x05" + b"." * 100,  # a pickle
        b"\xff" * 10_000,  # as a length this would be all memory there is
        b"MILLSTR2" + bytes(37),
        b"MILLSTR1\x09" + bytes(36),  # no such role
        b"\0" * 45,
    ],
)
def test_garbage_is_refused_and_no_more_of_it_read_than_a_greeting(ends: Ends, sent: bytes) -> None:
    accepting = InThread(lambda: require_proof(ends[1], TOKEN, run_id=RUN, me=DRIVER, timeout=10))
    ends[0].sendall(sent)
    with pytest.raises(AuthenticationError, match="not of this protocol"):
        accepting.result()
    ends[0].shutdown(socket.SHUT_WR)
    assert len(exactly(ends[1], 20_000)) == len(sent) - HELLO


def test_garbage_is_refused_by_one_that_connects(ends: Ends) -> None:
    ends[1].sendall(b"HTTP/1.1 400 Bad Request" + bytes(100))
    with pytest.raises(AuthenticationError, match="not of this protocol"):
        connect(ends[0])


@pytest.mark.parametrize("role", ["connects", "accepts"])
def test_silence_has_an_end(ends: Ends, role: str) -> None:
    started = time.monotonic()
    handshake = connect if role == "connects" else accept
    with pytest.raises(AuthenticationError, match=r"did not show within 0\.2 s"):
        handshake(ends[0], timeout=0.2)
    assert time.monotonic() - started < 5


def test_one_byte_at_a_time_gains_no_time(ends: Ends) -> None:
    accepting = InThread(lambda: accept(ends[1], timeout=0.3))
    started = time.monotonic()
    stopped = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):  # cut off
            while not stopped.wait(0.05):
                ends[0].sendall(b"M")

    dripping = InThread(drip)
    with pytest.raises(AuthenticationError, match="did not show"):
        accepting.result()
    assert time.monotonic() - started < 1.5  # all bytes would take 45 x 0.05 s = 2.25 s
    stopped.set()
    dripping.result()


def test_one_byte_at_a_time_is_enough_if_it_is_in_time(ends: Ends) -> None:
    near, far = socket.socketpair()
    with contextlib.closing(near), contextlib.closing(far):

        def piecewise(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while byte := source.recv(1):
                    target.sendall(byte)

        pumps = [
            InThread(lambda: piecewise(far, ends[0])),
            InThread(lambda: piecewise(ends[0], far)),
        ]
        accepting = InThread(lambda: accept(ends[1]))
        connect(near)
        assert accepting.result() == SLOT
        for each in (near, ends[1]):
            each.shutdown(socket.SHUT_RDWR)
        for pump in pumps:
            pump.result()


def test_one_that_leaves_is_found_at_once(ends: Ends) -> None:
    ends[0].close()
    with pytest.raises(AuthenticationError, match="whoever has connected broke"):
        require_proof(ends[1], TOKEN, run_id=RUN, me=DRIVER)


@pytest.mark.parametrize("token", [b"", b"short"])
def test_a_token_that_could_be_guessed_is_refused(ends: Ends, token: bytes) -> None:
    with pytest.raises(ValueError, match="needs 16"):
        prove(ends[0], token, run_id=RUN, me=SLOT, peer=DRIVER)
    with pytest.raises(ValueError, match="needs 16"):
        require_proof(ends[1], token, run_id=RUN, me=DRIVER)
