"""The slot's end of the control connection: what it hears, what it says, and how it ends."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from millstream.errors import AuthenticationError, EngineError, WorkerLostError
from millstream.graph.job_files import JobFiles
from millstream.runtime.pipelined.control import (
    FENCED,
    Acknowledged,
    Beat,
    Begin,
    Completed,
    ControlConnection,
    End,
    MessageReader,
    Registered,
    SlotSettings,
    packed,
)
from millstream.runtime.pipelined.transport import Party, Role, require_proof

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = secrets.token_bytes(32)
DEADLINE = 20.0


class Driver:
    """The other end, by hand."""

    def __init__(self, token: bytes = TOKEN) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(DEADLINE)
        self.token = token
        self.reader = MessageReader()
        self.heard: list[object] = []
        self.connection: socket.socket | None = None
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    @property
    def settings(self) -> SlotSettings:
        host, port = self.listener.getsockname()
        address = (str(host), int(port))
        return SlotSettings(1, 2, "run", TOKEN, address, "127.0.0.1", b"", JobFiles())

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        connection.settimeout(DEADLINE)
        try:
            require_proof(connection, self.token, run_id="run", me=Party(Role.DRIVER))
        except AuthenticationError:
            connection.close()
            return
        self.connection = connection

    def wire(self) -> socket.socket:
        self.accepting.join(DEADLINE)
        assert self.connection is not None
        return self.connection

    def say(self, message: object) -> None:
        self.wire().sendall(packed(message))

    def hear(self, kind: type) -> object:
        """The next message of a kind."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            for place, message in enumerate(self.heard):
                if isinstance(message, kind):
                    del self.heard[: place + 1]
                    return message
            self.heard += self.reader.feed(self.wire().recv(1 << 16))
        raise AssertionError(kind)

    def close(self) -> None:
        self.listener.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.close()


class Woken:
    """Notes that it was called."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def __call__(self) -> None:
        self.event.set()

    def wait(self) -> None:
        assert self.event.wait(DEADLINE)
        self.event.clear()


def test_a_slot_registers_begins_and_hears_what_follows(driver: Driver) -> None:
    wake, ended = Woken(), Woken()
    control = ControlConnection(driver.settings, wake, ended)
    control.register(("127.0.0.1", 7))
    registered = driver.hear(Registered)
    assert registered == Registered(1, ("127.0.0.1", 7), os.getpid(), socket.gethostname())
    begin = Begin(b"plan", (("127.0.0.1", 6), ("127.0.0.1", 7)))
    driver.say(begin)
    assert control.begin() == begin
    wake.wait()
    assert control.messages() == []
    driver.say(Completed(3))
    wake.wait()
    assert control.messages() == [Completed(3)]
    control.send(Acknowledged(1, b"ack"))
    assert driver.hear(Acknowledged) == Acknowledged(1, b"ack")
    control.close()
    assert not ended.event.wait(0.05)


def test_messages_are_whole_however_they_are_cut() -> None:
    sent = [Completed(1), Begin(b"x" * 1000, ()), End()]
    content = b"".join(map(packed, sent))
    for size in (1, 7, 100, len(content)):
        reader = MessageReader()
        pieces = [content[at : at + size] for at in range(0, len(content), size)]
        assert [message for piece in pieces for message in reader.feed(piece)] == sent


def test_a_main_loop_that_does_not_turn_is_told_of(driver: Driver) -> None:
    control = ControlConnection(driver.settings, Woken(), Woken())
    turns: list[float] = []
    while not turns or turns[-1] < 0.5:
        turns.append(turn(driver.hear(Beat)))
    assert turns == sorted(turns)
    control.alive()
    assert turn(driver.hear(Beat)) < 0.5
    control.close()


def turn(beat: object) -> float:
    assert isinstance(beat, Beat)
    return beat.step


def test_a_driver_that_closes_ends_the_slot_but_not_one_that_ends_itself(driver: Driver) -> None:
    ended = Woken()
    control = ControlConnection(driver.settings, Woken(), ended)
    driver.wire().close()
    ended.wait()
    with pytest.raises(WorkerLostError, match="the driver has gone before it told slot 1 to begin"):
        control.begin()


def test_who_waits_for_the_end_hears_of_it_though_another_has_taken_the_message(
    driver: Driver,
) -> None:
    """A task fails in the turn in which the slot has heard that it is to end; it closes then."""
    wake = Woken()
    control = ControlConnection(driver.settings, wake, Woken())
    driver.say(End())
    wake.wait()
    assert control.messages() == [End()]
    waiting = threading.Thread(target=control.wait_for_end, daemon=True)
    waiting.start()
    waiting.join(DEADLINE)
    assert not waiting.is_alive()
    assert control._last_step >= control._asked_to_end, "it has heard, and is not interrupted"
    control.close()


def test_a_driver_that_says_something_else_first(driver: Driver) -> None:
    control = ControlConnection(driver.settings, Woken(), Woken())
    driver.say(Completed(3))
    with pytest.raises(EngineError, match="has said Completed before it told slot 1 to begin"):
        control.begin()
    control.close()


def test_somebody_else_is_not_taken_for_the_driver() -> None:
    other = Driver(token=secrets.token_bytes(32))
    settings = other.settings
    with pytest.raises(AuthenticationError):
        ControlConnection(settings, Woken(), Woken())
    other.close()
    with pytest.raises(WorkerLostError, match=r"slot 1 .* cannot reach the driver at 127\.0\.0\.1"):
        ControlConnection(settings, Woken(), Woken())


def test_the_process_ends_at_once_whatever_it_does(driver: Driver) -> None:
    with forked_slot(driver) as (pid, grandchild):
        driver.wire().shutdown(socket.SHUT_WR)
        started = time.monotonic()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == FENCED
        assert time.monotonic() - started < 1
        os.kill(grandchild, 0)


def test_a_slot_that_is_killed_is_seen_although_a_process_that_it_forked_lives(
    driver: Driver,
) -> None:
    with forked_slot(driver) as (pid, grandchild):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while driver.wire().recv(1 << 16):
            pass
        os.kill(grandchild, 0)


@contextlib.contextmanager
def forked_slot(driver: Driver) -> Iterator[tuple[int, int]]:
    """A process with a control connection and a main loop that is busy, and one that it forked."""
    ready, told = os.pipe()
    program = (
        "import os, pickle, signal, sys\n"
        "from millstream.runtime.pipelined.control import ControlConnection\n"
        "control = ControlConnection(pickle.loads(sys.stdin.buffer.read()), lambda: None)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    signal.pause()\n"
        f"os.write({told}, str(child).encode())\n"
        "try:\n"
        "    while True:\n"
        "        pass\n"
        "finally:\n"
        "    os._exit(1)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program], stdin=subprocess.PIPE, pass_fds=[told]
    )
    assert process.stdin is not None
    process.stdin.write(pickle.dumps(driver.settings))
    process.stdin.close()
    os.close(told)
    grandchild = int(os.read(ready, 100))
    os.close(ready)
    try:
        yield process.pid, grandchild
    finally:
        os.kill(grandchild, signal.SIGKILL)
        process.kill()
        process.wait()
