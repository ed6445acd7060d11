"""Environments on the pipelined engine, and tasks in this process that stand still when told to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.environments import environments, wait_until

from millstream.runtime.pipelined import main_loop
from millstream.runtime.pipelined.task import PipelinedTask
from millstream.testing import mini_cluster
from millstream.testing.mini_cluster import MiniCluster, PipelinedTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.datastream import StreamExecutionEnvironment
    from millstream.graph.model import JobGraph

    Take = Callable[..., Manifest]

#: Seconds.  Only a test that hangs waits so long.
DEADLINE = 60.0


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., StreamExecutionEnvironment]:
    """Make an environment of a parallelism, with settings."""
    engine = {"execution.target": "local", "millstream.execution": "pipelined"}
    return environments(tmp_path, engine)


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Wait for a condition, with a deadline that only a failure reaches."""
    return partial(wait_until, seconds=DEADLINE)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The levels that stand still, for want of credit as it were."""
    closed: set[int] = set()
    process_next = PipelinedTask._process_next

    def gated(self: PipelinedTask) -> bool:
        return self._instance.level not in closed and process_next(self)

    monkeypatch.setattr(PipelinedTask, "_process_next", gated)
    monkeypatch.setattr(mini_cluster, "_MOST_STEPS", 2000)
    # All that is read has room in front of them.
    monkeypatch.setattr(main_loop, "_FIRST_CREDIT", main_loop._CREDIT)
    return closed


@pytest.fixture
def overtaking(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Say how long barriers wait, in milliseconds."""
    return lambda patience: monkeypatch.setattr(PipelinedTasks, "patience", patience)


@pytest.fixture
def take(gate: set[int], overtaking: Callable[[int | None], None]) -> Take:
    """Take a checkpoint while nothing is processed behind the exchange, and go."""

    def taken(graph: JobGraph, directory: Path, levels: Iterable[int] = range(1, 9)) -> Manifest:
        gate.update(levels)
        overtaking(0)
        cluster = MiniCluster(graph, directory / "checkpoints", pipelined=True)
        assert cluster.run_epoch()
        cluster.close_instances()
        cluster.coordinator.close()
        overtaking(None)
        gate.clear()
        manifest = cluster.coordinator.last
        assert manifest is not None
        return manifest

    return taken
