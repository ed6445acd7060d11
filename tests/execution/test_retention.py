"""What becomes of the checkpoints of a job that is cancelled, fails, or finishes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from millstream.configuration.configuration import Configuration
from millstream.connectors.files.pending_files import PendingFileCommitter
from millstream.connectors.files.sink import FileSink
from millstream.datastream import ExternalizedCheckpointRetention, StreamExecutionEnvironment
from millstream.errors import SinkError
from millstream.execution.job import Job
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.types import Types

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.graph.model import JobGraph

DELETE = ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
RETAIN = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
NONE = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS


def program(tmp_path: Path, retention: ExternalizedCheckpointRetention | None) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration()).set_parallelism(1)
    config = env.get_checkpoint_config().set_checkpoint_storage_dir(str(tmp_path / "checkpoints"))
    if retention is not None:
        config.set_externalized_checkpoint_retention(retention)
    numbers = env.from_sequence(1, 10).map(lambda n: (n,), Types.TUPLE([Types.LONG()]))
    numbers.sink_to(FileSink.csv(str(tmp_path / "out")))
    return env.get_job_graph("retention")


def refuse(*_: object) -> NoReturn:
    message = "the disk is away"
    raise SinkError(message)


def stopped_before_its_commit(tmp_path: Path, graph: JobGraph, patch: pytest.MonkeyPatch) -> Job:
    """A job that has published an epoch and not committed it."""
    cluster = MiniCluster(graph, tmp_path / "checkpoints", limits=[5])
    with patch.context() as broken:
        broken.setattr(PendingFileCommitter, "commit", refuse)
        with pytest.raises(SinkError):
            cluster.run(1)
    cluster.coordinator.close()
    (tmp_path / "checkpoints" / "notes.txt").write_text("somebody's own")
    assert not list((tmp_path / "out").glob("*.csv"))
    return Job(graph)


@pytest.mark.parametrize(
    ("retention", "cancelled", "kept"),
    [
        *((None, True, True), (None, False, True)),
        *((RETAIN, True, True), (RETAIN, False, True)),
        *((DELETE, True, False), (DELETE, False, True)),
        *((NONE, True, False), (NONE, False, False)),
    ],
)
def test_what_is_published_is_committed_before_checkpoints_go(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    retention: ExternalizedCheckpointRetention | None,
    cancelled: bool,
    kept: bool,
) -> None:
    job = stopped_before_its_commit(tmp_path, program(tmp_path, retention), monkeypatch)
    job.clean_up(finished=False, cancelled=cancelled)
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert (left != ["notes.txt"]) == kept
    # Who keeps them commits at the next run.
    assert bool(list((tmp_path / "out").glob("*.csv"))) != kept
    if kept:
        return
    # Nothing is known of it any more: the program begins anew.
    again = MiniCluster(program(tmp_path, None), tmp_path / "checkpoints")
    last = again.run()
    assert last is not None
    assert last.final
    again.coordinator.close()


def test_checkpoints_stay_if_what_is_published_cannot_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = stopped_before_its_commit(tmp_path, program(tmp_path, NONE), monkeypatch)
    with monkeypatch.context() as broken:
        broken.setattr(PendingFileCommitter, "commit", refuse)
        job.clean_up(finished=False)
    assert list((tmp_path / "checkpoints" / "log").iterdir())


def test_checkpoints_stay_for_a_newer_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = stopped_before_its_commit(tmp_path, program(tmp_path, NONE), monkeypatch)
    job.clean_up(finished=False, cancelled=True, taken_over=True)
    assert list((tmp_path / "checkpoints" / "log").iterdir())


@pytest.mark.parametrize(("retention", "kept"), [(RETAIN, True), (DELETE, True), (NONE, False)])
def test_checkpoints_of_a_job_that_has_finished(
    tmp_path: Path, retention: ExternalizedCheckpointRetention, kept: bool
) -> None:
    graph = program(tmp_path, retention)
    cluster = MiniCluster(graph, tmp_path / "checkpoints")
    cluster.run()
    cluster.coordinator.close()
    Job(graph).clean_up(finished=True)
    assert (tmp_path / "checkpoints").exists() == kept
