"""A slot that its host cannot reach, stopped, and woken when another run has ended the job.

What it is: a job that writes to a store in which the last write counts, as at-least-once sinks do.
No name of a run and no transaction keeps an older run's writes apart from a newer one's: only that
the slots of the older one have ended does.
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.common import Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.datastream import MapFunction, RuntimeContext
from millstream.datastream.connectors import DiscardingSink
from millstream.engines.pipelined.engine import LocalSlots, PipelinedEngine, serve_slot
from millstream.execution.driver import check_job, start_job
from millstream.runtime.pipelined import main_loop
from millstream.runtime.pipelined.control import FENCED, ControlConnection

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

    from millstream.datastream import StreamExecutionEnvironment
    from millstream.engines.pipelined.engine import _Process

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

NUMBERS: Final = 60
KEYS: Final = 4
#: The number at which the first slot waits, is stopped, and goes on later.
HELD: Final = 30
#: Seconds that a slot which was woken may take to end.
PATIENCE: Final = 30.0


class Put(MapFunction):
    """Writes each number under its key; the last write counts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        self.is_first = not (self.directory / "waits").exists()

    def map(self, value: int) -> int:
        if value == HELD and self.is_first:
            (self.directory / "pid").write_text(str(os.getpid()))
            (self.directory / "pid").rename(self.directory / "waits")
            self.wait_for("go-on")
        time.sleep(0.005)
        new = self.directory / f"{value % KEYS}.new"
        new.write_text(str(value))
        new.rename(self.directory / f"{value % KEYS}.value")
        if value == HELD and self.is_first:
            (self.directory / "wrote").touch()
            self.wait_for("its end")
        return value

    def wait_for(self, sign: str) -> None:
        while not (self.directory / sign).exists():
            time.sleep(0.001)


def serve_unfenced(connection: Connection) -> None:
    """As a slot that does not end when its driver is gone; in a process of its own."""
    setattr(main_loop, "ControlConnection", partial(ControlConnection, ended=lambda: None))  # noqa: B010
    serve_slot(connection)


class OutOfReach(LocalSlots):
    """Leaves the slot of the first run alone, and wakes it when that of the second has ended."""

    def __init__(self, directory: Path, *, is_fenced: bool) -> None:
        super().__init__(None if is_fenced else serve_unfenced)
        self.directory = directory
        self.is_fenced = is_fenced
        self.zombie: _Process | None = None
        #: With which the first slot ended when it was woken; None: it went on.
        self.code: int | None = None

    def stop(self, patience: float) -> None:
        if self.zombie is None:
            (self.zombie,) = self._processes
            return
        super().stop(patience)
        os.kill(self.zombie.pid, signal.SIGCONT)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self.zombie.connection.poll(0.05):
                self.code = self._fork_server.wait(self.zombie.pid)
                return
            if not self.is_fenced:
                (self.directory / "go-on").touch()
            if (self.directory / "wrote").exists():
                return


def values_of(directory: Path) -> dict[int, int]:
    """Key -> value."""
    return {key: int((directory / f"{key}.value").read_text()) for key in range(KEYS)}


def run_with_a_stopped_slot(
    make: Make, directory: Path, eventually: Eventually, *, is_fenced: bool = True
) -> OutOfReach:
    """Run the job to its end; the directory is that of the store."""
    settings = {
        "heartbeat.timeout": "1000",
        "execution.checkpointing.interval": "20",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 ms",
    }
    env = make(1, settings)
    source = NumberSequenceSource(0, NUMBERS - 1, splits=1)  # one number after the other
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.map(Put(directory), Types.LONG()).sink_to(DiscardingSink())
    graph = env.get_job_graph("store")
    check_job(graph)
    host = OutOfReach(directory, is_fenced=is_fenced)
    job = start_job(graph, PipelinedEngine(1, host))
    eventually((directory / "waits").exists, "the slot to have come half way")
    os.kill(int((directory / "waits").read_text()), signal.SIGSTOP)
    job.get_job_execution_result()
    return host


LAST: Final = {value % KEYS: value for value in range(NUMBERS)}


def test_a_slot_that_wakes_up_writes_nothing(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    host = run_with_a_stopped_slot(make, tmp_path, eventually)
    assert host.code == FENCED
    assert values_of(tmp_path) == LAST


def test_without_the_fence_it_writes_older_values_over_newer_ones(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    host = run_with_a_stopped_slot(make, tmp_path, eventually, is_fenced=False)
    assert host.code is None
    assert values_of(tmp_path) == {**LAST, HELD % KEYS: HELD}
