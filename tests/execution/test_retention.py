"""What becomes of the checkpoints of a job that is cancelled, fails, or finishes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from millstream.checkpoint.commit import delete_checkpoints
from millstream.checkpoint.local_storage import LocalStorage
from millstream.configuration.configuration import Configuration
from millstream.connectors.files.pending_files import PendingFileCommitter
from millstream.connectors.files.sink import FileSink
from millstream.datastream import ExternalizedCheckpointRetention, StreamExecutionEnvironment
from millstream.errors import SinkError
from millstream.execution.job import Job
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.checkpoint.coordinator import Coordinator
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


def stopped_before_its_commit(
    tmp_path: Path, graph: JobGraph, patch: pytest.MonkeyPatch
) -> tuple[Job, Coordinator]:
    """A job that has published an epoch and not committed it, and its run."""
    cluster = MiniCluster(graph, tmp_path / "checkpoints", limits=[5])
    with patch.context() as broken:
        broken.setattr(PendingFileCommitter, "commit", refuse)
        with pytest.raises(SinkError):
            cluster.run(1)
    cluster.coordinator.close()
    (tmp_path / "checkpoints" / "notes.txt").write_text("somebody's own")
    assert not list((tmp_path / "out").glob("*.csv"))
    return Job(graph), cluster.coordinator


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
    job, last = stopped_before_its_commit(tmp_path, program(tmp_path, retention), monkeypatch)
    job.clean_up(finished=False, cancelled=cancelled, last=last)
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert (left != ["notes.txt"]) == kept
    # Who keeps them commits at the next run.
    assert bool(list((tmp_path / "out").glob("*.csv"))) != kept
    if kept:
        return
    # Nothing is known of it any more: the program begins anew.
    again = MiniCluster(program(tmp_path, None), tmp_path / "checkpoints")
    done = again.run()
    assert done is not None
    assert done.final
    again.coordinator.close()


def test_checkpoints_stay_if_what_is_published_cannot_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, last = stopped_before_its_commit(tmp_path, program(tmp_path, NONE), monkeypatch)
    with monkeypatch.context() as broken:
        broken.setattr(PendingFileCommitter, "commit", refuse)
        job.clean_up(finished=False, last=last)
    assert list((tmp_path / "checkpoints" / "log").iterdir())


def files_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "moment", ["before it settles", "before it deletes", "after it has looked"]
)
@pytest.mark.parametrize("finished", [False, True])
def test_checkpoints_stay_for_a_newer_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, *, finished: bool
) -> None:
    graph = program(tmp_path, NONE)
    job, last = stopped_before_its_commit(tmp_path, graph, monkeypatch)
    job.local_root.mkdir(parents=True)
    (job.local_root / "copy").write_text("a local copy of state")
    checkpoints = tmp_path / "checkpoints"
    found = files_below(checkpoints)
    newer = Job(program(tmp_path, None)).new_coordinator()

    def after_it_is_there(storage: LocalStorage, is_fenced: Callable[[], bool]) -> bool:
        def looked() -> bool:
            answer = is_fenced()
            if moment == "after it has looked":
                newer.open()
            return answer

        if moment == "before it deletes":
            newer.open()
        return delete_checkpoints(storage, looked)

    if moment == "before it settles":
        newer.open()
    monkeypatch.setattr("millstream.execution.job.delete_checkpoints", after_it_is_there)
    job.clean_up(finished=finished, cancelled=not finished, last=last)
    left = files_below(checkpoints)
    # At the last moment the log goes, but not what the newer run knows of and needs.
    log = set() if moment != "after it has looked" else {n for n in found if n.startswith("log/")}
    pending = {"pending-commit.json"}  # of an epoch that is committed meanwhile
    assert found - log - pending <= left
    assert (job.local_root / "copy").exists()
    assert not newer.is_fenced()
    newer.check_fence()
    newer.recover()
    newer.close()


def test_checkpoints_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was cancelled before it has taken over what is there."""
    job, _ = stopped_before_its_commit(tmp_path, program(tmp_path, NONE), monkeypatch)
    found = files_below(tmp_path / "checkpoints")
    job.clean_up(finished=False, cancelled=True)
    assert files_below(tmp_path / "checkpoints") == found


def test_a_deletion_that_is_cut_short_leaves_a_directory_to_begin_anew_in(tmp_path: Path) -> None:
    for calls in range(2, 5):
        directory = tmp_path / str(calls)
        graph = program(directory, None)
        cluster = MiniCluster(graph, directory / "checkpoints", limits=[5])
        cluster.run(1)
        cluster.coordinator.close()
        offsets = directory / "checkpoints" / "spark" / "offsets"
        offsets.mkdir(parents=True)
        (offsets / "7").write_text("of Spark")
        assert deletions_cut_short(cluster.storage, calls)
        assert not list((directory / "checkpoints" / "log").glob("*"))
        assert not (directory / "checkpoints" / "job.json").exists()
        assert (offsets / "7").exists() == (calls < 3)
        again = MiniCluster(program(directory, None), directory / "checkpoints")
        last = again.run()
        assert last is not None
        assert last.final
        again.coordinator.close()


def deletions_cut_short(storage: LocalStorage, calls: int) -> bool:
    """Delete the checkpoints up to a number of calls; whether it came to that."""

    class Dying(LocalStorage):
        left = calls

        def delete(self, names: Iterable[str]) -> None:
            super().delete(names)
            self.left -= 1
            if not self.left:
                raise InterruptedError

    try:
        delete_checkpoints(Dying(Path(storage.location), fsync=False), lambda: False)
    except InterruptedError:
        return True
    return False


@pytest.mark.parametrize(("retention", "kept"), [(RETAIN, True), (DELETE, True), (NONE, False)])
def test_checkpoints_of_a_job_that_has_finished(
    tmp_path: Path, retention: ExternalizedCheckpointRetention, kept: bool
) -> None:
    graph = program(tmp_path, retention)
    cluster = MiniCluster(graph, tmp_path / "checkpoints")
    cluster.run()
    cluster.coordinator.close()
    Job(graph).clean_up(finished=True, last=cluster.coordinator)
    assert (tmp_path / "checkpoints").exists() == kept
