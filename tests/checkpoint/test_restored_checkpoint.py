"""A job goes back to an older checkpoint: what comes after it is computed and written again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.checkpoint.test_savepoint import COUNT, finish, results, start, whole
from tests.checkpoint.toy_checkpoint_job import Killed
from tests.integration.job_runs import SplitsSource, environment

from millstream.checkpoint.inspect import verify_checkpoints
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.restore import restore_checkpoint
from millstream.cli.main import main
from millstream.configuration import options
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.crash_points import points_of
from millstream.errors import CheckpointError, CorruptCheckpointError, FencedError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RETAIN = {options.NUM_RETAINED.key: "5"}


def begin(directory: Path, **more: Any) -> MiniCluster:
    return start(directory, settings=RETAIN, **more)


def run_four(directory: Path, **more: Any) -> list[Counter[Any]]:
    """Run four checkpoints; returns the results up to each of them."""
    cluster, found = begin(directory, **more), []
    for _ in range(4):
        assert cluster.run_epoch()
        found.append(results(directory))
    cluster.close_instances()
    cluster.coordinator.close()
    return found


def storage_of(directory: Path) -> LocalStorage:
    return LocalStorage(directory / "checkpoints")


@pytest.mark.both_engines
@pytest.mark.parametrize(
    ("epoch", "backend", "parallelism"), [(0, "hashmap", 2), (1, "rocksdb", 2), (2, "hashmap", 3)]
)
def test_oracle_what_comes_after_it_is_computed_again(
    tmp_path: Path, epoch: int, backend: str, parallelism: int
) -> None:
    before = run_four(tmp_path, backend=backend)
    restored = restore_checkpoint(storage_of(tmp_path), epoch, repeats_output=True)
    assert (restored.epoch, restored.copy) == (epoch, 4)
    assert list(restored.repeated) == ["sink-out"]
    assert restored.uncommitted == []
    second = begin(tmp_path, parallelism=parallelism, backend=backend)
    assert second.job.start.checkpoint_id == 4
    finish(second)
    # As if the run after the checkpoint had not been; its output is there besides.
    repeated = before[3] - before[epoch]
    assert results(tmp_path) == whole() + repeated
    assert repeated.total() == 14 * (3 - epoch)
    assert verify_checkpoints(storage_of(tmp_path)).problems == []


@pytest.mark.both_engines
def test_output_that_was_not_committed_is_dropped(
    tmp_path: Path, crash_at: Callable[[str], None]
) -> None:
    cluster = begin(tmp_path)
    assert cluster.run_epoch()
    crash_at("sink.commit.before")
    with pytest.raises(Killed):
        cluster.run_epoch()
    crash_at("")
    assert [each.epoch for each in ManifestLog(storage_of(tmp_path)).manifests()] == [0, 1]
    restore_checkpoint(storage_of(tmp_path), 0, repeats_output=True)
    finish(begin(tmp_path))
    assert results(tmp_path) == whole()


def test_the_command_refuses_to_repeat_output_and_goes_back_if_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_four(tmp_path)
    where = str(tmp_path / "checkpoints")
    log = sorted((tmp_path / "checkpoints" / "log").iterdir())
    assert main(["checkpoints", where, "restore", "1"]) == 1
    refused = capsys.readouterr().err
    assert "output of checkpoints 2 to 3" in refused
    assert "of sink 'sink-out'" in refused
    assert "--repeat-output" in refused
    assert main(["checkpoints", where, "restore", "3"]) == 1
    assert "is the newest one: the job continues from it anyway" in capsys.readouterr().err
    assert main(["checkpoints", where, "restore", "9"]) == 1
    assert "has no checkpoint 9; there are: 0, 1, 2, 3" in capsys.readouterr().err
    assert sorted((tmp_path / "checkpoints" / "log").iterdir()) == log
    assert main(["checkpoints", where, "restore", "1", "--repeat-output"]) == 0
    told = capsys.readouterr().out
    assert "continues from checkpoint 4, a copy of checkpoint 1" in told
    assert "is written again" in told
    assert main(["checkpoints", where]) == 0
    assert main(["checkpoints", where, "verify"]) == 0


def test_a_sink_without_commit_is_named(tmp_path: Path) -> None:
    env = environment(2, **RETAIN)
    numbers = env.from_source(SplitsSource([[(n, n) for n in range(60)]]), None, "numbers")
    numbers.uid("numbers").sink_to(BlackholeSink()).uid("nothing")
    graph = env.get_job_graph("uncommitted")
    cluster = MiniCluster(graph, tmp_path / "checkpoints", limits=[14] * 20)
    for _ in range(3):
        assert cluster.run_epoch()
    cluster.close_instances()
    cluster.coordinator.close()
    restored = restore_checkpoint(storage_of(tmp_path), 0)
    assert restored.repeated == {}
    assert restored.uncommitted == ["nothing"]


def test_a_run_that_is_still_active_publishes_nothing_more(tmp_path: Path) -> None:
    first = begin(tmp_path)
    for _ in range(3):
        assert first.run_epoch()
    before = results(tmp_path)
    restore_checkpoint(storage_of(tmp_path), 1, repeats_output=True)
    with pytest.raises(FencedError, match="taken over"):
        first.run_epoch()
    assert results(tmp_path) == before
    first.close_instances()
    first.coordinator.close()
    finish(begin(tmp_path))
    assert results(tmp_path).total() == COUNT + 14


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    run_four(tmp_path)
    storage = storage_of(tmp_path)
    oldest = ManifestLog(storage).manifests()[0]
    name = next(iter(oldest.files()))["remote"]
    (tmp_path / "checkpoints" / name).unlink()
    with pytest.raises(CorruptCheckpointError, match=r"checkpoint 0 .* damaged: .*Nothing was"):
        restore_checkpoint(storage, 0, repeats_output=True)
    finish(begin(tmp_path))
    assert results(tmp_path) == whole()


def test_a_directory_of_no_job_has_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoint 3; there are: none"):
        restore_checkpoint(LocalStorage(tmp_path), 3)


@pytest.mark.parametrize("point", points_of("restore"))
def test_oracle_killed_while_it_goes_back(
    tmp_path: Path, point: str, crash_at: Callable[[str], None]
) -> None:
    before = run_four(tmp_path)
    crash_at(point)
    with pytest.raises(Killed):
        restore_checkpoint(storage_of(tmp_path), 2, repeats_output=True)
    crash_at("")
    finish(begin(tmp_path))
    repeated = before[3] - before[2] if point.endswith("after") else Counter[Any]()
    assert results(tmp_path) == whole() + repeated
