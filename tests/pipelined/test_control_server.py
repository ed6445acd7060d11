"""The driver's end of the control connections: who is let in, who is lost, and the fence."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import secrets
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.pipelined.processes import stopped
from tests.support.environments import wait_until

from millstream.engines.pipelined import control_server
from millstream.engines.pipelined.control_server import ControlServer, LostSlot
from millstream.errors import AuthenticationError, WorkerLostError
from millstream.graph.job_files import JobFiles
from millstream.runtime.pipelined.control import (
    Acknowledged,
    Assigned,
    Beat,
    Completed,
    ControlConnection,
    End,
    Joins,
    Progress,
    Registered,
    SlotSettings,
    packed,
)
from millstream.runtime.pipelined.transport import Party, Role, prove
from millstream.runtime.plan import SplitProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Serve = Callable[..., "Driver"]

TOKEN = secrets.token_bytes(32)
DEADLINE = 20.0


class Driver:
    """A server, and what it has handed on."""

    def __init__(self, slots: int = 2, timeout: float = 60.0, *, outlive: bool = False) -> None:
        self.events: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.server = ControlServer(
            *("127.0.0.1", slots, "run", TOKEN, timeout, self.events.put), outlive=outlive
        )
        self.slots = slots

    def settings(self, slot: int, token: bytes = TOKEN) -> SlotSettings:
        address = self.server.address
        return SlotSettings(slot, self.slots, "run", token, address, "127.0.0.1", b"", JobFiles())

    def next(self) -> object:
        return self.events.get(timeout=DEADLINE)

    def enter(self, slot: int) -> ControlConnection:
        """A slot in this process, registered."""
        made = ControlConnection(self.settings(slot), lambda: None, lambda: None)
        made.register(("127.0.0.1", slot))
        assert isinstance(self.next(), Registered)
        return made

    def raw(self, slot: int) -> socket.socket:
        """A slot that gives no heartbeats."""
        connection = socket.create_connection(self.server.address, timeout=DEADLINE)
        prove(connection, TOKEN, run_id="run", me=Party(Role.SLOT, slot), peer=Party(Role.DRIVER))
        return connection


@pytest.fixture
def serve() -> Iterator[Serve]:
    with contextlib.ExitStack() as closing:

        def make(slots: int = 2, timeout: float = 60.0, *, outlive: bool = False) -> Driver:
            driver = Driver(slots, timeout, outlive=outlive)
            closing.callback(driver.server.close)
            return driver

        yield make


def until(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, what, seconds=DEADLINE)


def test_slots_are_told_one_address_and_the_driver_listens_at_another() -> None:
    events: queue.SimpleQueue[object] = queue.SimpleQueue()
    server = ControlServer("localhost", 1, "run", TOKEN, 60.0, events.put, "127.0.0.1")
    try:
        assert server.address[0] == "localhost"
        with socket.create_connection(("127.0.0.1", server.address[1]), timeout=DEADLINE):
            pass
    finally:
        server.close()


def test_slots_register_say_and_hear(serve: Serve) -> None:
    driver = serve()
    one, zero = driver.enter(1), driver.enter(0)
    assert [each.slot for each in driver.server.registered] == [0, 1]
    progress = Progress(1, {3: SplitProgress(7, 5, idle=False, over=False)})
    one.send(progress)
    assert driver.next() == progress
    driver.server.send(0, Completed(1))
    driver.server.broadcast(Completed(2))
    heard: list[object] = []

    def have_come() -> bool:
        heard.extend(zero.messages())
        return len(heard) == 2

    until(have_come, "both messages")
    assert heard == [Completed(1), Completed(2)]
    zero.close()
    one.close()


def test_a_large_message_arrives_though_the_slot_reads_slowly(serve: Serve) -> None:
    driver = serve()
    slow = driver.raw(0)
    slow.sendall(packed(Registered(0, ("127.0.0.1", 1), 1, "here")))
    driver.next()
    message = Acknowledged(0, secrets.token_bytes(20_000_000))
    started = time.monotonic()
    driver.server.send(0, message)  # type: ignore[arg-type]
    assert time.monotonic() - started < 5, "to tell must not wait for the slot"
    content = packed(message)
    got = bytearray()
    while len(got) < len(content):
        piece = slow.recv(1 << 20)
        assert piece
        got += piece
    assert bytes(got) == content
    slow.close()


def test_a_stranger_is_not_let_in_and_holds_nobody_up(serve: Serve) -> None:
    driver = serve(slots=1)
    silent = socket.create_connection(driver.server.address)
    with pytest.raises(AuthenticationError):
        ControlConnection(driver.settings(0, secrets.token_bytes(32)), lambda: None, lambda: None)
    driver.enter(0).close()
    silent.close()


def handshakes() -> int:
    """How many connections are in the middle of one."""
    names = [thread.name for thread in threading.enumerate()]
    return names.count("millstream-handshake")


def connections(driver: Driver, count: int, closing: contextlib.ExitStack) -> list[socket.socket]:
    """Connections that have said nothing."""
    address = driver.server.address
    return [
        closing.enter_context(socket.create_connection(address, DEADLINE)) for _ in range(count)
    ]


def enter(connection: socket.socket, slot: int) -> None:
    """Be a slot that registers."""
    me, server = Party(Role.SLOT, slot), Party(Role.DRIVER)
    prove(connection, TOKEN, run_id="run", me=me, peer=server, timeout=DEADLINE)
    connection.sendall(packed(Registered(slot, ("127.0.0.1", slot), 1, "here")))


def test_many_slots_come_at_once(serve: Serve) -> None:
    driver = serve(slots=100)
    with contextlib.ExitStack() as closing:
        there = connections(driver, driver.slots, closing)
        until(lambda: handshakes() >= driver.slots, "all to be met")
        for slot, connection in enumerate(there):
            enter(connection, slot)
        until(lambda: len(driver.server.registered) == driver.slots, "all slots")


def test_a_slot_waits_while_there_are_too_many_strangers(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: handshakes() == 0, "the end of what other tests have begun")
    monkeypatch.setattr(control_server, "_MOST_STRANGERS", 2)
    driver = serve(slots=1)
    with contextlib.ExitStack() as closing:
        strangers = connections(driver, 3, closing)
        until(lambda: handshakes() == len(strangers), "as many as there may be")
        (slot,) = connections(driver, 1, closing)
        slot.settimeout(0.2)
        with pytest.raises(TimeoutError):
            slot.recv(1)  # neither met nor closed
        assert handshakes() <= len(strangers)
        slot.settimeout(None)
        strangers[0].close()
        enter(slot, 0)
        until(lambda: len(driver.server.registered) == 1, "the slot")


def test_a_number_that_is_taken_or_that_there_is_not_is_refused(serve: Serve) -> None:
    driver = serve(slots=1)
    first = driver.enter(0)
    ended = threading.Event()
    ControlConnection(driver.settings(0), lambda: None, ended.set)
    assert ended.wait(DEADLINE), "a second slot of the same number must end"
    ended.clear()
    with contextlib.suppress(AuthenticationError):  # its proof is right, but it is closed at once
        ControlConnection(driver.settings(5), lambda: None, ended.set)
        assert ended.wait(DEADLINE)
    progress = Progress(0, {})
    first.send(progress)
    assert driver.next() == progress, "the first slot is not disturbed"
    first.close()


def test_a_slot_that_ends_fences_all_others_at_once(serve: Serve) -> None:
    driver = serve()
    ended = threading.Event()
    ControlConnection(driver.settings(1), lambda: None, ended.set)
    lost = driver.enter(0)
    lost.close()
    error = driver.next()
    assert isinstance(error, WorkerLostError)
    assert f"slot 0 (process {os.getpid()} on {socket.gethostname()}) ended" in str(error)
    assert ended.wait(DEADLINE)


def test_where_slots_outlive_others_one_is_lost_alone_and_another_takes_its_place(
    serve: Serve,
) -> None:
    driver = serve(outlive=True)
    stays, lost = driver.enter(0), driver.enter(1)
    lost.close()
    event = driver.next()
    assert isinstance(event, LostSlot)
    assert event.slot == 1
    assert "slot 1 (process" in str(event.error)
    driver.server.broadcast(Completed(1))
    until(lambda: stays.messages() == [Completed(1)], "what is told to the one that stays")
    ended = threading.Event()
    ControlConnection(driver.settings(1), lambda: None, ended.set)
    assert ended.wait(DEADLINE), "nobody is let in before the lost one is known to be gone"
    driver.server.readmit(1)
    new = driver.enter(1)
    driver.server.broadcast(Completed(2))
    joins = Joins({}, frozenset({0}))
    driver.server.send(1, joins)
    driver.server.broadcast(Completed(3))
    assert new.begin() == joins, "it is told nothing ahead of that"
    until(lambda: new.messages() == [Completed(3)], "what follows")
    again = threading.Event()
    ControlConnection(driver.settings(1), lambda: None, again.set)
    assert again.wait(DEADLINE), "its place is taken"
    new.close()
    stays.close()


def test_a_slot_that_is_silent_is_lost_alone_and_what_it_says_later_is_not_heard(
    serve: Serve,
) -> None:
    driver = serve(timeout=1.0, outlive=True)
    stays = driver.enter(0)
    silent = driver.raw(1)
    silent.sendall(packed(Registered(1, ("127.0.0.1", 1), 4711, "worker-3")))
    assert isinstance(driver.next(), Registered)
    event = driver.next()
    assert isinstance(event, LostSlot)
    assert event.slot == 1
    with contextlib.suppress(OSError):
        silent.sendall(packed(Progress(1, {})))
    progress = Progress(0, {})
    stays.send(progress)
    assert driver.next() == progress
    silent.close()
    stays.close()


def test_a_slot_without_heartbeats_is_lost(serve: Serve) -> None:
    driver = serve(timeout=1.0)
    silent = driver.raw(1)
    silent.sendall(packed(Registered(1, ("127.0.0.1", 1), 4711, "worker-3")))
    assert isinstance(driver.next(), Registered)
    started = time.monotonic()
    error = driver.next()
    assert isinstance(error, WorkerLostError)
    assert "slot 1 (process 4711 on worker-3) gave no sign of life for" in str(error)
    assert 0.5 < time.monotonic() - started < 5
    silent.close()


def test_a_process_of_this_machine_that_is_busy_is_not_taken_for_one_that_is_stopped(
    serve: Serve,
) -> None:
    driver = serve(slots=1, timeout=1.0)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        silent = driver.raw(0)
        here = Registered(0, ("127.0.0.1", 1), busy.pid, socket.gethostname())
        silent.sendall(packed(here))
        assert isinstance(driver.next(), Registered)
        with pytest.raises(queue.Empty):
            driver.events.get(timeout=2.0)
        with stopped(busy.pid):
            error = driver.next()
        assert isinstance(error, WorkerLostError)
        silent.close()
    finally:
        busy.kill()
        busy.wait()


def test_slots_that_were_told_to_end_may_go(serve: Serve) -> None:
    driver = serve()
    slots = [driver.enter(0), driver.enter(1)]
    driver.server.allow_end()
    driver.server.broadcast(End())
    for slot in slots:
        until(lambda slot=slot: slot.messages() == [End()], "the end")  # type: ignore[misc]
        assert not driver.server.are_gone
        slot.close()
    until(lambda: driver.server.are_gone, "the slots to be gone")
    assert driver.events.empty()


def test_nobody_is_let_in_behind_the_fence(serve: Serve) -> None:
    driver = serve()
    ended = threading.Event()
    ControlConnection(driver.settings(0), lambda: None, ended.set)
    until(lambda: driver.server.are_gone is False, "the slot to be taken in")
    driver.server.fence()
    assert ended.wait(DEADLINE)
    with pytest.raises(AuthenticationError):
        ControlConnection(driver.settings(1), lambda: None, lambda: None)


def test_a_main_loop_that_does_not_turn_is_spoken_of_and_nothing_else(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    driver = serve(slots=1)
    slot = driver.raw(0)
    slot.sendall(packed(Registered(0, ("127.0.0.1", 1), 4711, "worker-3")))
    driver.next()
    with caplog.at_level(logging.WARNING):
        for turn in (11.0, 12.0):
            slot.sendall(packed(Beat(0, step=turn)))
        slot.sendall(packed(Progress(0, {})))
        assert driver.next() == Progress(0, {})
    (said,) = caplog.messages
    assert "slot 0 (process 4711 on worker-3) has been at one thing for 11 s" in said
    slot.close()


def test_what_is_told_to_a_slot_that_is_gone_is_dropped(serve: Serve) -> None:
    driver = serve()
    driver.enter(0).close()
    assert isinstance(driver.next(), WorkerLostError)
    for _ in range(100):
        driver.server.send(0, Assigned(()))
