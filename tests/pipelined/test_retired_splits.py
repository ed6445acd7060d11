"""Splits that are over hold time until what follows them is assigned, and no longer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import cloudpickle
from tests.integration.job_runs import SplitsSource, environment, event_time
from tests.support.memory_transport import Network

from millstream.checkpoint.job_directories import JobDirectories
from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Duration, Types
from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.datastream.connectors import DiscardingSink
from millstream.execution.job import Job
from millstream.execution.run import Run
from millstream.runtime.pipelined.control import Assigned, Grown, Retired, SourceEnded
from millstream.runtime.pipelined.links import HEADER
from millstream.runtime.pipelined.main_loop import MainLoop
from millstream.runtime.plan import SplitAssignment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from millstream.contracts.source import Split
    from millstream.graph.model import JobGraph
    from millstream.runtime.pipelined.control import DriverMessage

#: Event times of three splits that follow each other.
TIMES = [range(10), range(100, 110), range(200, 210)]


class Tasks:
    """The two slots of a job, given turns one by one, of 10 ms each.

    Args:
        graph: of the job, which has an operator ``reader``.
        directory: for checkpoints and state.
        assign: makes of the splits of all sources, by uid, those that have begun.
    """

    def __init__(
        self,
        graph: JobGraph,
        directory: Path,
        assign: Callable[[dict[str, list[Split]]], list[SplitAssignment]],
    ) -> None:
        storage = LocalStorage(directory / "checkpoints", fsync=False)
        directories = JobDirectories(storage, temporary=False, local=directory / "local")
        self.run = Run(Job(graph, directories, local_root=directory / "local", fsync=False))
        self.run.open()
        nodes = graph.nodes.values()
        splits = {node.uid: node.source.discover(()) for node in nodes if node.source is not None}
        plan = self.run.plan(self.run.planner.latest_offset(self.run.position))
        plan.assignments = assign(splits)
        self.reader = next(node.id for node in nodes if node.uid == "reader")
        self.network = Network(2, header_size=HEADER.size)
        shipped = cloudpickle.dumps(graph), cloudpickle.dumps(plan)
        self.now = 0
        self.loops = [
            MainLoop(
                slot,
                partial(cloudpickle.loads, shipped[0]),
                partial(cloudpickle.loads, shipped[1]),
                self.network.transport(slot),
                lambda _: None,
                lambda _: None,
                lambda: self.now,
                lambda: self.now / 1000,
            )
            for slot in range(2)
        ]
        for loop in self.loops:
            loop.restore()

    def times(self, *messages: DriverMessage) -> list[int]:
        """The reader's event time in both subtasks, when nothing moves any more."""
        for turn in range(30):
            self.now += 10
            self.network.step()
            for loop in self.loops:
                loop.step(messages if turn == 0 else [], 0.0)
                for task in loop.tasks:
                    task.flush()
        instances = [task._instance for loop in self.loops for task in loop.tasks]
        return [
            instance.watermarks[self.reader]
            for instance in instances
            if self.reader in instance.watermarks
        ]

    def close(self) -> None:
        for loop in self.loops:
            loop.close()
        self.run.close()


def test_time_waits_for_the_split_that_follows(tmp_path: Path) -> None:
    """Else the split that goes on would move it past what the next one has."""
    env = environment(2)
    events = [[("key", time, time) for time in times] for times in TIMES]
    stream = env.from_source(SplitsSource(events), event_time(0), "events").uid("events")
    keyed = stream.key_by(lambda value: value[0], Types.STRING())
    keyed.map(lambda value: value).uid("reader").sink_to(DiscardingSink())
    made: list[SplitAssignment] = []

    def assign(splits: dict[str, list[Split]]) -> list[SplitAssignment]:
        made[:] = [
            SplitAssignment("events", split, channel % 2, 0, 10, channel, finished=True)
            for channel, split in enumerate(splits["events"])
        ]
        return made[:2]

    tasks = Tasks(env.get_job_graph("retired"), tmp_path, assign)
    # The splits are at 9 and 109: the first one is over, and holds time all the same.
    assert tasks.times() == [8, 8]
    # The next one is assigned before the first is let go: nothing moves time past it.
    tasks.loops[0].step([Assigned((made[2],))], 0.0)
    assert tasks.times(Retired(frozenset({0}))) == [108, 108]
    assert tasks.times(Retired(frozenset({1}))) == [208, 208]
    tasks.close()


def test_an_input_of_idle_and_ended_splits_holds_no_union_back(tmp_path: Path) -> None:
    env = environment(2)
    sources = {
        "quiet": ([range(10), range(10)], event_time(0).with_idleness(Duration.of_millis(100))),
        "busy": ([range(500)], event_time(0)),
    }
    inputs = []
    for uid, (splits, strategy) in sources.items():
        events = [[("key", time, time) for time in times] for times in splits]
        stream = env.from_source(SplitsSource(events), strategy, uid).uid(uid)
        keyed = stream.key_by(lambda value: value[0], Types.STRING())
        # In a stage of its own: it is told of the splits by frames.
        inputs.append(keyed.map(lambda value: value).uid(f"{uid} alone"))
    union = inputs[0].union(inputs[1]).key_by(lambda value: value[0], Types.STRING())
    union.map(lambda value: value).uid("reader").sink_to(DiscardingSink())

    def assign(splits: dict[str, list[Split]]) -> list[SplitAssignment]:
        ended, idle = splits["quiet"]
        return [
            SplitAssignment("quiet", ended, 0, 0, 10, 0, finished=True),
            SplitAssignment("quiet", idle, 1, 0, 10, 1),
            SplitAssignment("busy", splits["busy"][0], 0, 0, 20, 2),
        ]

    tasks = Tasks(env.get_job_graph("idle"), tmp_path, assign)
    assert tasks.times() == [8, 8], "what is over is not let go yet"
    assert tasks.times(Retired(frozenset({0}))) == [18, 18]
    assert tasks.times(Grown({2: 100}, frozenset())) == [98, 98]
    tasks.close()


def test_a_source_that_is_told_to_be_over_twice_ends_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a job is stopped, and drained, of which one source has ended before."""
    env = environment(2)
    events = [[("key", time, time) for time in range(10)]]
    stream = env.from_source(SplitsSource(events), event_time(0), "events").uid("events")
    chained = stream.map(lambda value: value).uid("chained")
    keyed = chained.key_by(lambda value: value[0], Types.STRING())
    keyed.map(lambda value: value).uid("reader").sink_to(DiscardingSink())
    graph = env.get_job_graph("ended")

    def assign(splits: dict[str, list[Split]]) -> list[SplitAssignment]:
        return [SplitAssignment("events", splits["events"][0], 0, 0, 10, 0, finished=True)]

    tasks = Tasks(graph, tmp_path, assign)
    (node,) = (node.id for node in graph.nodes.values() if node.uid == "chained")
    seen: list[int] = []
    for loop in tasks.loops:
        operator = loop.tasks[-1]._instance.operators[node]
        heard = operator.process_watermark

        def process_watermark(time: int, heard: Callable[[int], None] = heard) -> None:
            seen.append(time)
            heard(time)

        monkeypatch.setattr(operator, "process_watermark", process_watermark)
    assert tasks.times(Retired(frozenset({0}))) == [8, 8]
    for _ in range(2):
        assert tasks.times(SourceEnded("events")) == [MAX_TIMESTAMP] * 2
    assert seen.count(MAX_TIMESTAMP) == 2, "once in each subtask"
    tasks.close()
