"""A checkpoint that was given up while it was recorded: nothing more is kept for it."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelined.test_failed_checkpoints import handle
from tests.pipelined.test_unaligned import RECORD, job

from millstream.checkpoint.model import OperatorAck
from millstream.contracts.batch import Batch
from millstream.runtime.exchange import DATA_ARROW, encode_batch
from millstream.runtime.pipelined.control import NEVER, Abandoned
from millstream.runtime.pipelined.links import BARRIER, Barrier, Frame
from millstream.state.operator_state import PendingStates
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.runtime.pipelined.links import InLink
    from millstream.runtime.pipelined.main_loop import MainLoop
    from millstream.runtime.pipelined.task import PipelinedTask
    from millstream.runtime.pipelined.uploader import PendingAck


class Overtaken:
    """A task with two producers, one of whose barriers is late."""

    def __init__(self, loop: MainLoop, task: PipelinedTask) -> None:
        self.loop = loop
        self.task = task
        self.first, self.late = task._inputs
        self.taken: list[PendingAck] = []
        task._take = self.taken.append
        self.epoch = task._plan.epoch

    def barrier(self, link: InLink, epoch: int, deadline: int = 0) -> None:
        name = f"{link.link.source}-{epoch}"
        payload = Barrier(name, final=False, deadline=deadline).encode()
        link.put(Frame(BARRIER, -1, -1, epoch, payload, 0))
        self.task.run(1e18)

    def records(self, link: InLink) -> None:
        instance = self.task._instance
        edge = min(e.id for e in instance.edges.values() if e.target in instance.operators)
        kind, payload = encode_batch(Batch(RECORD, values=[(1, 1)]))
        assert kind == DATA_ARROW
        link.put(Frame(kind, edge, link.link.source.subtask, 0, payload, len(payload)))

    @property
    def recorded(self) -> int:
        (held,) = self.task._held
        assert held.recording is not None
        return len(held.recording._frames)


@pytest.fixture
def overtaken(tmp_path: Path) -> Iterator[Overtaken]:
    cluster = MiniCluster(job(tmp_path, mapped=2), tmp_path / "checkpoints", pipelined=True)
    assert cluster.run_epoch()
    tasks = cluster._pipelined_tasks
    assert tasks is not None
    loop = tasks._loops[0]
    yield Overtaken(
        loop, next(each for each in loop.tasks if each._instance.nodes[0].uid == "counts")
    )
    cluster.close_instances()
    cluster.coordinator.close()


def test_records_ahead_of_a_late_barrier_are_kept_until_its_checkpoint_is_given_up(
    overtaken: Overtaken,
) -> None:
    epoch = overtaken.epoch
    overtaken.barrier(overtaken.first, epoch)
    overtaken.records(overtaken.late)
    overtaken.records(overtaken.late)
    assert overtaken.recorded == 2
    assert overtaken.taken == [], "it waits for the late barrier"
    overtaken.loop._handle(Abandoned(epoch))
    (given_up,) = overtaken.taken
    assert given_up.is_given_up
    assert given_up.recording is None
    overtaken.records(overtaken.late)
    assert overtaken.late.recorders == []


@pytest.mark.parametrize("deadline", [0, NEVER])
def test_the_next_checkpoint_is_taken_behind_a_barrier_that_was_late(
    overtaken: Overtaken, deadline: int
) -> None:
    epoch = overtaken.epoch
    overtaken.barrier(overtaken.first, epoch)
    overtaken.loop._handle(Abandoned(epoch))
    overtaken.barrier(overtaken.first, epoch + 1, deadline)
    overtaken.barrier(overtaken.late, epoch)
    overtaken.barrier(overtaken.late, epoch + 1, deadline)
    assert [(each.ack.epoch, each.is_given_up) for each in overtaken.taken] == [
        (epoch, True),
        (epoch + 1, False),
    ]
    sources = {(stage, subtask) for stage, subtask, _ in overtaken.taken[1].ack.consumed}
    assert sources == {overtaken.first.link.source, overtaken.late.link.source}
    assert overtaken.task._alignment._come == {}


def test_no_snapshot_is_kept_whose_checkpoint_was_given_up(overtaken: Overtaken) -> None:
    """As soon as the uploader has done with it."""
    first, task = overtaken.epoch, overtaken.task
    before = [each.ack.epoch for each in task._taken]
    for epoch in range(first, first + 5):
        overtaken.barrier(overtaken.first, epoch)
        overtaken.barrier(overtaken.late, epoch)
        overtaken.loop._handle(Abandoned(epoch))
        kept = [each.ack.epoch for each in task._taken]
        assert kept == [*before, *sorted({first, epoch})]
        if epoch > first:  # that of the first takes long
            overtaken.taken[-1].is_done = True


def test_nothing_is_recorded_for_a_checkpoint_that_was_given_up_before(
    overtaken: Overtaken,
) -> None:
    epoch = overtaken.epoch
    overtaken.loop._handle(Abandoned(epoch))
    overtaken.barrier(overtaken.first, epoch)
    assert overtaken.late.recorders == []
    assert [each.is_given_up for each in overtaken.taken] == [True]
    assert overtaken.task._abandoned == set()


def test_files_of_states_of_a_snapshot_that_is_given_up_come_with_the_next(
    overtaken: Overtaken,
) -> None:
    epoch, states = overtaken.epoch, PendingStates({}, {"state/op/one": b"1"})
    overtaken.task._state.pending = [states]
    overtaken.barrier(overtaken.first, epoch)
    overtaken.loop._handle(Abandoned(epoch))
    overtaken.taken[0].ack.operators[0].operator_states["one"] = handle("state/op/one")
    overtaken.taken[0].give_up()
    assert overtaken.task._unwritten == [states]


def test_frames_and_local_copies_of_a_checkpoint_that_fails_are_deleted_at_once(
    overtaken: Overtaken,
) -> None:
    """The task has acknowledged it; another one could not."""
    epoch = overtaken.epoch
    overtaken.barrier(overtaken.first, epoch)
    overtaken.records(overtaken.late)
    overtaken.barrier(overtaken.late, epoch)
    (pending,) = overtaken.taken
    ack = pending.finish()
    assert ack.in_flight is not None
    name = ack.in_flight.file["remote"]
    assert pending.storage.exists(name)
    dropped: list[str] = []
    copy: Any = SimpleNamespace(abandon=partial(dropped.append, "copy"))
    pending.snapshots = [(OperatorAck("op", 0, 0), copy)]
    overtaken.loop._handle(Abandoned(epoch))
    assert not pending.storage.exists(name)
    assert dropped == ["copy"]
