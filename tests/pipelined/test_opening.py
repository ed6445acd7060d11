"""Functions of a slot that are opened are closed, also if another cannot be opened."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, cast

import cloudpickle
import pytest
from tests.pipelined.test_backpressure import LONG, job, numbers
from tests.support.memory_transport import Network

from millstream.checkpoint.job_directories import JobDirectories
from millstream.checkpoint.local_storage import LocalStorage
from millstream.datastream import MapFunction
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import UserFunctionError
from millstream.execution.job import Job
from millstream.execution.run import Run
from millstream.runtime.pipelined.links import HEADER
from millstream.runtime.pipelined.main_loop import MainLoop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.datastream import RuntimeContext, StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]


class Noting(MapFunction):
    """Notes in a file that it was opened or closed; ``broken``: raises."""

    def __init__(self, name: str, notes: Path, *, broken: bool = False) -> None:
        self.name = name
        self.notes = notes
        self.broken = broken

    def note(self, what: str) -> None:
        with self.notes.open("a") as file:
            file.write(f"{self.name} {what}\n")

    def open(self, runtime_context: RuntimeContext) -> None:
        del runtime_context
        if self.broken:
            message = "cannot be opened"
            raise ConnectionError(message)
        self.note("opened")

    def close(self) -> None:
        if self.broken:
            message = "cannot be closed either"
            raise ValueError(message)
        self.note("closed")

    def map(self, value: object) -> int:
        return cast("int", value)


def test_what_is_open_is_closed_if_another_task_cannot_be_opened(tmp_path: Path) -> None:
    notes = tmp_path / "notes"

    def build(environment: StreamExecutionEnvironment) -> None:
        read = numbers(environment, "numbers").map(Noting("reader", notes, broken=True), LONG)
        keyed = read.key_by(lambda value: value, LONG)
        keyed.map(Noting("consumer", notes), LONG).sink_to(DiscardingSink())

    graph = job(build)
    storage = LocalStorage(tmp_path / "checkpoints", fsync=False)
    directories = JobDirectories(storage, temporary=False, local=tmp_path / "local")
    run = Run(Job(graph, directories, local_root=tmp_path / "local", fsync=False))
    run.open()
    plan = run.plan(run.planner.latest_offset(run.position))
    try:
        with pytest.raises(Exception, match="cannot be opened"):
            MainLoop(
                0,
                partial(cloudpickle.loads, cloudpickle.dumps(graph)),
                partial(cloudpickle.loads, cloudpickle.dumps(plan)),
                Network(2, header_size=HEADER.size).transport(0),
                lambda _: None,
                lambda _: None,
            )
    finally:
        run.close()
    assert notes.read_text().splitlines() == ["consumer opened", "consumer closed"]


class Leaving(MapFunction):
    """Ends its process, as it thinks: when it is opened, or with a record."""

    def __init__(self, *, opened: bool) -> None:
        self.opened = opened

    def open(self, runtime_context: RuntimeContext) -> None:
        del runtime_context
        if self.opened:
            sys.exit("no configuration")

    def map(self, value: object) -> int:
        del value
        sys.exit("no configuration")


@pytest.mark.parametrize("opened", [True, False])
def test_a_function_that_calls_exit_is_named(make: Make, *, opened: bool) -> None:
    env = make(1)
    env.from_sequence(0, 9).map(Leaving(opened=opened), LONG).sink_to(DiscardingSink())
    with pytest.raises(UserFunctionError, match=r"(?s)SystemExit: no configuration.*test_opening"):
        env.execute("leaves")
