"""A split that is over holds time back until what follows it is assigned."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import cloudpickle
from tests.integration.job_runs import SplitsSource, environment, event_time
from tests.support.memory_transport import Network

from millstream.checkpoint.job_directories import JobDirectories
from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Types
from millstream.datastream.connectors import DiscardingSink
from millstream.execution.job import Job
from millstream.execution.run import Run
from millstream.runtime.pipelined.links import HEADER
from millstream.runtime.pipelined.main_loop import MainLoop
from millstream.runtime.pipelined.messages import Assigned, Retired
from millstream.runtime.plan import SplitAssignment

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.runtime.pipelined.messages import DriverMessage

#: Event times of three splits that follow each other.
TIMES = [range(10), range(100, 110), range(200, 210)]


def test_time_waits_for_the_split_that_follows(tmp_path: Path) -> None:
    """Else the split that goes on would move it past what the next one has."""
    env = environment(2)
    events = [[("key", time, time) for time in times] for times in TIMES]
    stream = env.from_source(SplitsSource(events), event_time(0), "events").uid("events")
    keyed = stream.key_by(lambda value: value[0], Types.STRING())
    keyed.map(lambda value: value).uid("reader").sink_to(DiscardingSink())
    graph = env.get_job_graph("retired")
    storage = LocalStorage(tmp_path / "checkpoints", fsync=False)
    directories = JobDirectories(storage, temporary=False, local=tmp_path / "local")
    run = Run(Job(graph, directories, local_root=tmp_path / "local", fsync=False))
    run.open()
    source = next(node.source for node in graph.nodes.values() if node.source is not None)
    plan = run.plan(run.planner.latest_offset(run.position))
    splits = source.discover(())
    made = [
        SplitAssignment("events", split, channel % 2, 0, 10, channel, finished=True)
        for channel, split in enumerate(splits)
    ]
    plan.assignments = made[:2]
    network = Network(2, header_size=HEADER.size)
    shipped = cloudpickle.dumps(graph), cloudpickle.dumps(plan)
    loops = [
        MainLoop(
            slot,
            partial(cloudpickle.loads, shipped[0]),
            partial(cloudpickle.loads, shipped[1]),
            network.transport(slot),
            lambda _: None,
            lambda _: None,
        )
        for slot in range(2)
    ]
    reader = next(node.id for node in graph.nodes.values() if node.uid == "reader")

    def times(*messages: DriverMessage) -> list[Any]:
        """The reader's event time in both subtasks, when nothing moves any more."""
        for turn in range(20):
            network.step()
            for loop in loops:
                loop.turn(messages if turn == 0 else [], 0.0)
                for task in loop.tasks:
                    task.flush()
        instances = [task._instance for loop in loops for task in loop.tasks if task.id.stage == 1]
        return [instance.watermarks[reader] for instance in instances]

    for loop in loops:
        loop.restore()
    # The splits are at 9 and 109: the first one is over, and holds time all the same.
    assert times() == [8, 8]
    # The next one is assigned before the first is let go: nothing moves time past it.
    loops[0].turn([Assigned((made[2],))], 0.0)
    assert times(Retired(frozenset({0}))) == [108, 108]
    assert times(Retired(frozenset({1}))) == [208, 208]
    for loop in loops:
        loop.close()
    run.close()
