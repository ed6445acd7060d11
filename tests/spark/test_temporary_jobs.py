"""A job without a checkpoint directory leaves nothing behind: no other run could clear it away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint.publish import EpochMetadata
from millstream.common import Types
from millstream.connectors.files.sink import FileSink
from millstream.contracts.batch import Batch
from millstream.contracts.sink import WriterContext
from millstream.datastream import StreamExecutionEnvironment
from millstream.execution.job import Job

if TYPE_CHECKING:
    from millstream.contracts.sink import Committable

ROW = Types.ROW_NAMED(["n"], [Types.LONG()])


def job_of(directory: Path) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_collection([(1,)], ROW).uid("rows")
    rows.sink_to(FileSink.csv(str(directory))).uid("out")
    return Job(env.get_job_graph("temporary"))


def prepare(job: Job, epoch: int, generation: int) -> list[Committable]:
    (sink,) = [node.sink for node in job.graph.nodes.values() if node.sink is not None]
    where = WriterContext(job.job_id, "out", 0, 1, epoch, "a", generation)
    writer = sink.create_writer(where)
    writer.write(Batch(ROW, values=[(epoch,)]))
    return list(writer.prepare_commit())


@pytest.mark.parametrize("sink_fails", [False, True])
def test_what_failed_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, sink_fails: bool
) -> None:
    job = job_of(tmp_path / "out")
    coordinator = job.new_coordinator()
    generation = coordinator.open()
    coordinator.recover()
    coordinator.begin_epoch(EpochMetadata(0, 0, {}, {0: 1}, 8))
    prepare(job, 0, generation)
    coordinator.close()
    if sink_fails:
        monkeypatch.setattr(Path, "iterdir", refuse)
    job.clean_up(finished=False)
    monkeypatch.undo()
    assert bool(list((tmp_path / "out").glob(".pending*"))) == sink_fails
    assert not Path(job.storage.location).exists()


def refuse(_: Path) -> None:
    message = "the disk is away"
    raise OSError(message)
