"""Ends of sources in flight: after a restart all subtasks hear of them, however many there are.

One source is over while the other goes on, so that no end of the input tells of it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelined.test_unaligned import (
    RECORD,
    RESULT,
    SIZE,
    Gather,
    Timed,
    finish,
    results,
)

from millstream.common import Configuration, Time, Types
from millstream.connectors.basic.collect import CollectSink
from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.runtime.pipelined.task import PipelinedTask
from millstream.testing.mini_cluster import MiniCluster
from millstream.testing.sources import EPOCH, WATERMARK, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.graph.model import JobGraph

OVER = [Timed((n % 6, n), n % SIZE) for n in range(24)]
#: It has come to 100, and goes on for some epochs.
GOES_ON = [
    *[Timed((n % 6, 100 + n), 20 + n % SIZE) for n in range(3)],
    EPOCH,
    *[Timed((n % 6, 103 + n), 20 + n % SIZE) for n in range(3)],
    EPOCH,
    WATERMARK(100),
    *[each for n in range(5) for each in (EPOCH, Timed((1, 900 + n), 200 + n))],
]

both_engines = pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "epochs"])


class TwoSources:
    """Makes jobs of a source that is over and one that goes on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._env = StreamExecutionEnvironment.get_execution_environment(Configuration())
        self._env.set_parallelism(2)
        self.over = self._read("over", OVER)
        self.is_long_running = self._read("goes on", GOES_ON)

    def _read(self, name: str, script: list[Any]) -> Any:
        source = ScriptedSource(script, RECORD, self._directory / name)
        stream = self._env.from_source(source, source.watermark_strategy(), name).uid(name)
        return stream.set_parallelism(1)

    def windows(self, stream: Any, parallelism: int) -> None:
        keyed = stream.key_by(lambda record: record[0], Types.LONG())
        windowed = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE)))
        made = windowed.process(Gather(), RESULT).uid("windows").set_parallelism(parallelism)
        sink = CollectSink(self._directory / "windows", fsync=False)
        made.sink_to(sink).uid("windowed").set_parallelism(parallelism)

    def graph(self) -> JobGraph:
        return self._env.get_job_graph("ends")


def joined_job(directory: Path, parallelism: int) -> JobGraph:
    """Windows of both, of which the one that is over comes through a map."""
    made = TwoSources(directory)
    mapped = made.over.rebalance().map(tuple, RECORD).uid("mapped").set_parallelism(parallelism)
    made.windows(mapped.union(made.is_long_running), 2)
    return made.graph()


def apart_job(directory: Path, parallelism: int) -> JobGraph:
    """Windows of the one that is over; the other goes elsewhere."""
    made = TwoSources(directory)
    made.windows(made.over, parallelism)
    rest = made.is_long_running.key_by(lambda record: record[0], Types.LONG())
    rest = rest.map(tuple, RECORD).uid("rest")
    rest.sink_to(CollectSink(directory / "rest", fsync=False)).uid("rest out")
    return made.graph()


def take_two(graph: JobGraph, directory: Path, then: Callable[[], None] = lambda: None) -> Manifest:
    """Run an epoch, then another one, and end as by a failure."""
    cluster = MiniCluster(graph, directory / "checkpoints", pipelined=True)
    assert cluster.run_epoch()
    then()
    assert cluster.run_epoch()
    cluster.close_instances()
    cluster.coordinator.close()
    last = cluster.coordinator.last
    assert last is not None
    assert last.in_flight != []
    return last


def run_three(graph: JobGraph, directory: Path, *, pipelined: bool) -> Manifest:
    cluster = MiniCluster(graph, directory / "checkpoints", pipelined=pipelined)
    for _ in range(3):
        assert cluster.run_epoch()
    cluster.close_instances()
    cluster.coordinator.close()
    last = cluster.coordinator.last
    assert last is not None
    assert not last.final
    return last


def windows_before(script: list[Any], time: int) -> list[tuple[int, int]]:
    items = (item for item in script if isinstance(item, Timed) and item.timestamp < time)
    return sorted(
        Counter(item.value[0] * 1000 + item.timestamp // SIZE * SIZE for item in items).items()
    )


@both_engines
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_time_goes_on_behind_the_end_of_a_source_in_flight(
    tmp_path: Path,
    gate: set[int],
    overtaking: Callable[[int | None], None],
    parallelism: int,
    *,
    pipelined: bool,
) -> None:
    gate.update({1, 2, 3})
    overtaking(0)
    take_two(joined_job(tmp_path, 2), tmp_path)
    gate.clear()
    overtaking(None)
    run_three(joined_job(tmp_path, parallelism), tmp_path, pipelined=pipelined)
    assert results(tmp_path, "windows") == windows_before([*OVER, *GOES_ON], 100)
    finish(joined_job(tmp_path, parallelism), tmp_path, pipelined=pipelined)
    assert results(tmp_path, "windows") == windows_before([*OVER, *GOES_ON], MAX_TIMESTAMP)


@both_engines
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_an_end_that_some_subtasks_have_heard_is_heard_by_all(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overtaking: Callable[[int | None], None],
    parallelism: int,
    *,
    pipelined: bool,
) -> None:
    """One of two has processed all, to the other all is in flight."""
    process_next = PipelinedTask._process_next
    # The first in its second epoch: what it wrote between its barrier and the commit would go with
    # what nobody names, as in the engine of epochs.
    standing = {0, 1}

    def process_unless_told(self: PipelinedTask) -> bool:
        uids = {node.uid for node in self._instance.nodes}
        stands_still = "rest" in uids or ("windows" in uids and self._instance.subtask in standing)
        return not stands_still and process_next(self)

    overtaking(0)
    with monkeypatch.context() as patch:
        patch.setattr(PipelinedTask, "_process_next", process_unless_told)
        take_two(apart_job(tmp_path, 2), tmp_path, then=lambda: standing.remove(0))
    overtaking(None)
    last = run_three(apart_job(tmp_path, parallelism), tmp_path, pipelined=pipelined)
    assert results(tmp_path, "windows") == windows_before(OVER, MAX_TIMESTAMP)
    found = {each.watermark for each in last.operators["windows"]}
    assert found == {MAX_TIMESTAMP}, "else all that lies behind stands still"
