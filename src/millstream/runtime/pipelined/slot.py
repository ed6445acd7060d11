"""A slot: a process that hosts one subtask of every stage of a pipelined run.

What it is: from the driver's word to the end of the process: connections, tasks, threads.  One
thread runs all operators (``runtime/pipelined/main_loop.py``); the control connection and the
uploader have threads of their own.
"""

from __future__ import annotations

import contextlib
import gc
import queue
import threading
from typing import TYPE_CHECKING, Final, cast

import cloudpickle

from millstream.runtime.job_files import bring_files, working_directory
from millstream.runtime.pipelined.batch_sizing import WorkClock
from millstream.runtime.pipelined.connect import connect_slots, connect_to, join_slots, listen
from millstream.runtime.pipelined.control import (
    ControlConnection,
    Failed,
    GivenUpError,
    Joins,
    Met,
    Newcomer,
    Running,
    Unreachable,
)
from millstream.runtime.pipelined.links import HEADER
from millstream.runtime.pipelined.main_loop import MainLoop
from millstream.runtime.pipelined.transport import TcpTransport
from millstream.runtime.pipelined.uploader import Uploader
from millstream.runtime.user_code import exit_error, portable_error

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from millstream.graph.model import JobGraph
    from millstream.runtime.pipelined.control import Begin, DriverMessage, SlotMessage, SlotSettings
    from millstream.runtime.plan import EpochPlan


class Newcomers:
    """Connects a slot with newcomers.

    Contract:
      1. ``hear`` is called by the thread that calls the transport.  (slot)
      2. When the driver is told that they have met, what is sent to the newcomer arrives.  (here)

    Args:
        settings: of the slot.
        transport: to the other slots.
        send: tells the driver something.
        fail: told why a newcomer cannot be reached; in another thread.
    """

    def __init__(
        self,
        settings: SlotSettings,
        transport: TcpTransport,
        send: Callable[[SlotMessage], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._send = send
        self._fail = fail
        self._made: queue.SimpleQueue[tuple[int, socket.socket]] = queue.SimpleQueue()

    def hear(self, messages: Sequence[DriverMessage]) -> list[DriverMessage]:
        """Take what the driver says of newcomers, and those that are connected by now.

        Args:
            messages: what the driver has said.

        Returns:
            What it has said of anything else.
        """
        while not self._made.empty():
            slot, connection = self._made.get()
            self._transport.connected(slot, connection)
            self._send(Met(self._settings.slot, slot))
        if not messages:
            return []
        for each in messages:
            if isinstance(each, Newcomer):
                threading.Thread(
                    target=self._connect, args=(each,), name="millstream-meet", daemon=True
                ).start()
        return [each for each in messages if not isinstance(each, Newcomer)]

    def _connect(self, newcomer: Newcomer) -> None:
        own, token, run_id = self._settings.slot, self._settings.token, self._settings.run_id
        try:
            made = connect_to(own, newcomer.slot, newcomer.address, token, run_id)
        except BaseException as error:  # noqa: BLE001 - the main loop's to raise
            self._fail(error)
            return
        self._made.put((newcomer.slot, made))
        self._transport.wake()


#: Those that are not ``Exception`` come from functions: no interrupt from outside is for slots.
_FAILURES: Final = (Exception, SystemExit, KeyboardInterrupt)


def run_slot(settings: SlotSettings) -> None:
    """Run a slot until its job is over; returns, or ends the process with its driver.

    Args:
        settings: of the slot.
    """
    listener = listen(settings.host, settings.slots)
    transport: TcpTransport | None = None

    def wake() -> None:
        if transport is not None:
            transport.wake()

    control = ControlConnection(settings, wake)
    control.register(listener.getsockname()[:2])
    begin = control.begin()
    if begin is None:
        control.close()
        return
    try:
        control.let_interrupt()
        bring_files(settings.files)
        with working_directory(settings.files):
            connections = _connected(settings, listener, begin)
            on_lost = _teller(settings, control) if settings.outlives_others else None
            transport = TcpTransport(settings.slot, connections, HEADER.size, on_lost)
            _run(settings, control, transport, begin)
    except GivenUpError:
        pass  # nothing had begun
    except _FAILURES as error:  # the driver's to raise
        _fail(settings, control, error)
    control.close()


def _connected(
    settings: SlotSettings, listener: socket.socket, begin: Begin | Joins
) -> dict[int, socket.socket]:
    own, token, run_id = settings.slot, settings.token, settings.run_id
    if isinstance(begin, Joins):
        return join_slots(own, listener, begin.connect, begin.accept, token, run_id)
    return connect_slots(own, listener, begin.addresses, token, run_id)


def _teller(settings: SlotSettings, control: ControlConnection) -> Callable[[int], None]:
    return lambda other: control.send(Unreachable(settings.slot, other))


def _fail(settings: SlotSettings, control: ControlConnection, error: BaseException) -> None:
    """Tell the driver, and do nothing until it has fenced, or wants the slot to end."""
    if not isinstance(error, Exception):
        error = exit_error(error)
    control.send(Failed(settings.slot, portable_error(error)))
    control.wait_for_end()


def _run(
    settings: SlotSettings,
    control: ControlConnection,
    transport: TcpTransport,
    begin: Begin | Joins,
) -> None:
    failures: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        transport.wake()

    uploader = Uploader(settings.slot, control.send, fail)
    newcomers = Newcomers(settings, transport, control.send, fail)
    plan = None if isinstance(begin, Joins) else begin.plan
    # Records are many short-lived objects without cycles: collecting them often only costs.
    gc.set_threshold(200_000, 20, 100)
    loop = MainLoop(
        settings.slot,
        lambda: cast("JobGraph", cloudpickle.loads(settings.graph)),
        None if plan is None else lambda: cast("EpochPlan", cloudpickle.loads(plan)),
        transport,
        control.send,
        uploader.take,
        work_seconds=WorkClock().seconds,
        restarts_regions=settings.restarts_regions,
        do_aside=uploader.do,
    )
    try:
        loop.restore()
        control.report(loop.counts)
        control.send(Running(settings.slot))
        wait = 0.0
        while not loop.ended:
            wait = loop.turn(newcomers.hear(control.messages()), wait)
            control.alive(loop.times())
            _raise_first(failures)
        uploader.close()
    except BaseException as error:
        if isinstance(error, _FAILURES):
            _fail(settings, control, error)
        elif not isinstance(error, GivenUpError):
            raise
        # As far as it goes: what functions raise now is of no use to anybody.
        with contextlib.suppress(Exception):
            loop.close()
        return
    try:
        loop.close()
    except Exception as error:  # noqa: BLE001 - the driver's to tell
        control.send(Failed(settings.slot, portable_error(error)))
    transport.close()


def _raise_first(failures: list[BaseException]) -> None:
    if failures:
        raise failures[0]
