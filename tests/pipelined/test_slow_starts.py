"""Tasks that take long to be ready: no checkpoint is asked of them, or expires, before they are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.environments import wait_until

from millstream.common import Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.datastream import JobStatus, MapFunction, RuntimeContext
from millstream.engines.pipelined.checkpoints import Checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.datastream import JobClient, StreamExecutionEnvironment
    from millstream.runtime.pipelined.control import TakeCheckpoint

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

#: Seconds that the opening of one task takes once it may: more than ten intervals.
SLOW = 0.6
LONGEST = 60.0


class OpensSlowly(MapFunction):
    """Of which one subtask is ready long after the other, and only when there is a file ``go``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        subtask = runtime_context.get_index_of_this_subtask()
        if subtask == 1:
            (self.directory / "opening").touch()
            wait_until((self.directory / "go").exists, "leave to go on", LONGEST)
            time.sleep(SLOW)
        (self.directory / f"open-{subtask}").touch()

    def map(self, value: int) -> int:
        time.sleep(0.001)
        return value


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Which tasks were open when each checkpoint was triggered."""
    noted: list[list[str]] = []
    trigger = Checkpoints.trigger

    def note(self: Checkpoints, *arguments: Any, **options: Any) -> TakeCheckpoint:
        noted.append(sorted(each.name for each in tmp_path.glob("open-*")))
        return trigger(self, *arguments, **options)

    monkeypatch.setattr(Checkpoints, "trigger", note)
    return noted


def start(make: Make, directory: Path, count: int) -> JobClient:
    checkpoints = {"execution.checkpointing.dir": str(directory / "checkpoints")}
    env = make(2, {"execution.checkpointing.interval": "50", **checkpoints})
    source = NumberSequenceSource(0, count - 1, splits=2)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(OpensSlowly(directory), Types.LONG()).print()
    return env.execute_async("slow")


def test_checkpoints_begin_when_all_tasks_are_ready(
    make: Make, tmp_path: Path, ready: list[list[str]]
) -> None:
    (tmp_path / "go").touch()
    client = start(make, tmp_path, 1000)
    client.get_job_execution_result().result()
    assert len(ready) > 1, "one before the last"
    assert all(each == ["open-0", "open-1"] for each in ready)


@pytest.mark.parametrize("drain", [False, True])
def test_a_job_that_is_to_stop_before_it_is_ready(
    make: Make, tmp_path: Path, ready: list[list[str]], eventually: Eventually, drain: bool
) -> None:
    client = start(make, tmp_path, 10**9)
    eventually((tmp_path / "opening").exists, "a task that is not open")
    stopped = client.stop(drain=drain)
    (tmp_path / "go").touch()
    stopped.result()
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert ready == [["open-0", "open-1"]]
