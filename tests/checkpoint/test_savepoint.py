"""Savepoints: what starts from one has the same results, and what is no whole one is refused."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.checkpoint.toy_checkpoint_job import Killed
from tests.integration.job_runs import SplitsSource, collect, collected, environment

from millstream.checkpoint.canonical import POSITIONS
from millstream.checkpoint.commit import state_names
from millstream.checkpoint.inspect import inspect_checkpoint, verify_checkpoints
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.model import FramesInFlight, digest_of
from millstream.checkpoint.savepoint import DESCRIPTION, SavepointFormatType, write_savepoint
from millstream.cli.main import main
from millstream.common import Types
from millstream.configuration import options
from millstream.contracts.key_value_store import StateFile
from millstream.crash_points import points_of
from millstream.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    IncompatibleProgramError,
    SignatureError,
    UnknownFormatError,
)
from millstream.execution import savepoints
from millstream.state.canonical.write import write_canonical
from millstream.state_processor import SavepointReader
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.execution.monitor import JobStart
    from millstream.graph.model import JobGraph

COUNT = 60
KEYS = 7
CANONICAL, NATIVE = SavepointFormatType.CANONICAL, SavepointFormatType.NATIVE
PATH = options.SAVEPOINT_PATH.key
CLAIM = options.CLAIM_MODE.key
KEY_FILE = options.CHECKPOINT_HMAC_KEY_FILE.key
IGNORE = options.IGNORE_UNCLAIMED_STATE.key


def number_of(record: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return record[0], record[1] + other[1]


def graph_of(
    directory: Path,
    parallelism: int = 2,
    *,
    name: str = "counts",
    uid: str = "count",
    max_parallelism: int = 0,
    **settings: str,
) -> JobGraph:
    """Running counts of keys; each record has one result."""
    env = environment(parallelism, **settings)
    if max_parallelism:
        env.set_max_parallelism(max_parallelism)
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    splits = [[(n % KEYS, 1) for n in range(first, COUNT, 2)] for first in (0, 1)]
    numbers = env.from_source(SplitsSource(splits, pair), None, "numbers").uid("numbers")
    counts = numbers.key_by(lambda each: each[0]).reduce(number_of).uid(uid)
    collect(counts, directory / "results")
    return env.get_job_graph(name)


def whole() -> Counter[Any]:
    """The results of a job, from plain Python."""
    seen: Counter[int] = Counter()
    found: Counter[Any] = Counter()
    for number in range(COUNT):
        seen[number % KEYS] += 1
        found[number % KEYS, seen[number % KEYS]] += 1
    return found


def results(*directories: Path) -> Counter[Any]:
    return Counter(tuple(each) for one in directories for each in collected(one / "results"))


def start(directory: Path, parallelism: int = 2, **more: Any) -> MiniCluster:
    settings: dict[str, Any] = {key: str(each) for key, each in more.pop("settings", {}).items()}
    backend = more.pop("backend", "hashmap")
    graph = graph_of(directory, parallelism, **more, **settings)
    return MiniCluster(graph, directory / "checkpoints", limits=[14] * 20, state_backend=backend)


def finish(cluster: MiniCluster) -> None:
    cluster.run()
    cluster.coordinator.close()


def save(
    directory: Path, epochs: int = 2, kind: SavepointFormatType = CANONICAL, **more: Any
) -> Path:
    """Run a job for some checkpoints, of which the last is a savepoint."""
    cluster = start(directory, **more)
    for _ in range(epochs - 1):
        assert cluster.run_epoch()
    request = cluster.job.savepoints.ask(str(directory / "savepoints"), kind)
    assert cluster.run_epoch()
    path = Path(request.result())
    cluster.close_instances()
    cluster.coordinator.close()
    assert path.parent == directory / "savepoints"
    assert path.name.startswith(f"savepoint-{cluster.job_id[:6]}-")
    return path


def started(cluster: MiniCluster) -> JobStart:
    return cluster.job.start


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save(tmp_path / "first")


@pytest.fixture(params=SavepointFormatType)
def kind(request: pytest.FixtureRequest) -> SavepointFormatType:
    found: SavepointFormatType = request.param
    return found


# -- what starts from one ------------------------------------------------------------------------


@pytest.mark.both_engines
@pytest.mark.parametrize(
    ("parallelism", "backend"), [(2, "hashmap"), (1, "hashmap"), (3, "rocksdb")]
)
def test_oracle_another_job_goes_on_from_it(
    tmp_path: Path, parallelism: int, backend: str, kind: SavepointFormatType
) -> None:
    saved = save(tmp_path / "first", 2, kind, backend="rocksdb" if parallelism == 1 else "hashmap")
    moved = Path(shutil.move(str(saved), str(tmp_path / "moved")))
    before = results(tmp_path / "first")
    shutil.rmtree(tmp_path / "first" / "checkpoints")
    second = start(
        tmp_path / "second", parallelism, name="another", backend=backend, settings={PATH: moved}
    )
    assert str(started(second)).startswith(
        f"job 'another' starts from savepoint {moved} (checkpoint 1 of job 'counts')"
    )
    shutil.rmtree(moved)  # it is not needed any more
    finish(second)
    assert before + results(tmp_path / "second") == whole()
    assert sum(before.values()) == 28


def test_oracle_two_jobs_from_one_beside_the_first(tmp_path: Path) -> None:
    first = start(tmp_path / "first")
    request = first.job.savepoints.ask(str(tmp_path))
    assert first.run_epoch()
    saved = request.result()
    before = results(tmp_path / "first")
    forks = [start(tmp_path / name, name=name, settings={PATH: saved}) for name in ("a", "b")]
    for _ in range(2):
        for each in (first, *forks):
            each.run_epoch()
    for each in (first, *forks):
        finish(each)
    assert results(tmp_path / "first") == whole()
    for name in ("a", "b"):
        assert before + results(tmp_path / name) == whole()
    ids = {each.job_id for each in (first, *forks)}
    assert len(ids) == 3


def test_oracle_a_job_starts_from_the_checkpoints_of_another(tmp_path: Path) -> None:
    save(tmp_path / "first")
    second = start(tmp_path / "second", settings={PATH: tmp_path / "first" / "checkpoints"})
    finish(second)
    assert results(tmp_path / "first", tmp_path / "second") == whole()


def test_checkpoints_whose_output_may_not_be_committed_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "first")
    checkpoints = tmp_path / "first" / "checkpoints"
    (checkpoints / "committed.json").unlink()  # as after a kill
    with pytest.raises(CheckpointError, match=r"may not be committed.*millstream savepoint"):
        start(tmp_path / "second", settings={PATH: checkpoints})
    assert not (tmp_path / "second" / "checkpoints" / "job.json").exists()


def test_an_older_checkpoint_is_exported_and_started_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = start(tmp_path / "first")
    assert first.run_epoch()
    before = results(tmp_path / "first")
    assert first.run_epoch()
    checkpoints = str(tmp_path / "first" / "checkpoints")
    assert main(["checkpoints", checkpoints, "export", "0", str(tmp_path / "exported")]) == 0
    saved = capsys.readouterr().out.strip()
    # Of the newest one it is not known that its output is committed, while the job runs.
    assert main(["checkpoints", checkpoints, "export", "1", str(tmp_path / "exported")]) == 1
    assert "may not be committed" in capsys.readouterr().err
    assert main(["checkpoints", checkpoints, "export", "7", str(tmp_path / "exported")]) == 1
    assert "has no checkpoint 7; there are: 0, 1" in capsys.readouterr().err
    first.close_instances()
    first.coordinator.close()
    finish(start(tmp_path / "second", settings={PATH: saved}))
    assert before + results(tmp_path / "second") == whole()


def test_a_savepoint_is_inspected_as_checkpoints_are_and_says_what_is_in_it(
    tmp_path: Path, kind: SavepointFormatType
) -> None:
    saved = save(tmp_path / "first", 2, kind)
    storage = LocalStorage(saved)
    assert verify_checkpoints(storage).problems == []
    details = inspect_checkpoint(storage)
    described = json.loads((saved / DESCRIPTION).read_text())
    assert described["complete"] is True
    assert described["checkpoint_id"] == details.summary.epoch == 1
    assert described["job_name"] == "counts"
    assert described["max_parallelism"] == 128
    assert described["operators"]["count"]["kind"] == "operator"
    assert described["operators"]["numbers"]["splits"] == 2
    assert described["format"] == kind.value
    files = [str(each.relative_to(saved)) for each in (saved / "state").rglob("*.*")]
    if kind is NATIVE:
        assert described["state_files"] == len(files) > 0
    else:
        assert sorted(described["files"]) == sorted(files)
        assert {each.rpartition(".")[2] for each in files} == {"parquet"}
    assert str(saved.parent) not in (saved / DESCRIPTION).read_text()
    assert str(saved.parents[1]) not in (saved / "job.json").read_text()


def test_a_job_that_is_started_again_does_not_fall_back(tmp_path: Path, saved: Path) -> None:
    settings = {PATH: saved}
    second = start(tmp_path / "second", settings=settings)
    assert second.run_epoch()
    second.close_instances()
    second.coordinator.close()
    shutil.rmtree(saved)
    again = start(tmp_path / "second", settings=settings)
    assert "continues from checkpoint 2 of run 2" in str(started(again))
    assert f"it has started from savepoint {saved}" in str(started(again))
    finish(again)
    assert results(tmp_path / "first", tmp_path / "second") == whole()


def test_a_copy_of_the_savepoint_counts_as_the_same(tmp_path: Path, saved: Path) -> None:
    second = start(tmp_path / "second", settings={PATH: saved})
    assert second.run_epoch()
    second.close_instances()
    second.coordinator.close()
    copy = shutil.copytree(saved, tmp_path / "copy")
    finish(start(tmp_path / "second", settings={PATH: copy}))
    assert results(tmp_path / "first", tmp_path / "second") == whole()


def test_a_job_goes_on_in_its_own_directory_from_the_savepoint_of_its_stop(tmp_path: Path) -> None:
    saved = save(tmp_path / "first")
    finish(start(tmp_path / "first", settings={PATH: saved}))
    assert results(tmp_path / "first") == whole()


def test_other_checkpoints_are_not_passed_over(tmp_path: Path, saved: Path) -> None:
    cluster = start(tmp_path / "first")
    assert cluster.run_epoch()
    cluster.close_instances()
    cluster.coordinator.close()
    with pytest.raises(CheckpointError, match="has other checkpoints, up to 2"):
        start(tmp_path / "first", settings={PATH: saved})
    finish(start(tmp_path / "first"))
    assert results(tmp_path / "first") == whole()


def test_a_claimed_savepoint_goes_with_the_first_checkpoint(tmp_path: Path, saved: Path) -> None:
    (saved / "notes.txt").write_text("somebody's own")
    second = start(tmp_path / "second", settings={PATH: saved, CLAIM: "CLAIM"})
    assert (saved / DESCRIPTION).exists()
    assert second.run_epoch()
    assert [each.name for each in saved.iterdir()] == ["notes.txt"]
    finish(second)
    assert results(tmp_path / "first", tmp_path / "second") == whole()


def test_the_directory_of_another_job_is_not_claimed(tmp_path: Path) -> None:
    save(tmp_path / "first")
    checkpoints = tmp_path / "first" / "checkpoints"
    with pytest.raises(ConfigurationError, match=r"which owns it\. Take NO_CLAIM"):
        start(tmp_path / "second", settings={PATH: checkpoints, CLAIM: "CLAIM"})
    with pytest.raises(ConfigurationError, match="must be one of NO_CLAIM, CLAIM"):
        start(tmp_path / "second", settings={PATH: checkpoints, CLAIM: "LEGACY"})


# -- changed programs ----------------------------------------------------------------------------


def test_a_program_that_does_not_fit_is_refused(tmp_path: Path, saved: Path) -> None:
    second = tmp_path / "second"
    with pytest.raises(IncompatibleProgramError, match=f"checkpoint 1 in {saved}"):
        start(second, uid="renamed", settings={PATH: saved})
    assert not (second / "checkpoints" / "job.json").exists()
    finish(start(second, uid="renamed", settings={PATH: saved, IGNORE: "true"}))
    # What is read after the savepoint is counted from nothing.
    counted = Counter(key for key, _ in results(second).elements())
    assert sum(counted.values()) == COUNT - 28
    assert results(second) == Counter(
        (key, number) for key, many in counted.items() for number in range(1, many + 1)
    )


# -- what is no savepoint ------------------------------------------------------------------------


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def one_of(saved: Path) -> Path:
    return next(each for each in sorted((saved / "state").rglob("*")) if each.is_file())


def described(saved: Path, **changes: object) -> None:
    file = saved / DESCRIPTION
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def emptied(saved: Path) -> None:
    shutil.rmtree(saved)
    saved.mkdir()


DAMAGE: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "nothing there": (shutil.rmtree, CheckpointError, "there is no savepoint"),
    "another directory": (
        emptied,
        CheckpointError,
        "is neither a savepoint",
    ),
    "incomplete": (
        lambda saved: described(saved, complete=False),
        CorruptCheckpointError,
        "is incomplete",
    ),
    "newer": (
        lambda saved: described(saved, format_version=3),
        UnknownFormatError,
        "has format version 3",
    ),
    "no JSON": (
        lambda saved: (saved / DESCRIPTION).write_text("{"),
        CorruptCheckpointError,
        "savepoint.json in .* is damaged",
    ),
    "no identity": (
        lambda saved: (saved / "job.json").unlink(),
        CorruptCheckpointError,
        "job.json is missing",
    ),
    "damaged state": (
        lambda saved: flip(one_of(saved)),
        CorruptCheckpointError,
        "is damaged: its digest",
    ),
    "missing state": (lambda saved: one_of(saved).unlink(), CorruptCheckpointError, "is missing"),
}


NATIVE_DAMAGE: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "no manifest": (
        lambda saved: shutil.rmtree(saved / "log"),
        CorruptCheckpointError,
        "its manifest is missing",
    ),
    "damaged manifest": (
        lambda saved: flip(saved / ManifestLog.name(0)),
        CorruptCheckpointError,
        "is damaged",
    ),
    "another manifest": (
        lambda saved: described(saved, manifest_checksum="0" * 64),
        CorruptCheckpointError,
        "its manifest is not the one",
    ),
}
CANONICAL_DAMAGE: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "no manifest": (
        lambda saved: described(saved, manifest=None),
        CorruptCheckpointError,
        "savepoint.json in .* is damaged",
    ),
    "no source positions": (
        lambda saved: (saved / POSITIONS).unlink(),
        CorruptCheckpointError,
        "source-positions.parquet in .* is missing",
    ),
    "damaged source positions": (
        lambda saved: flip(saved / POSITIONS),
        CorruptCheckpointError,
        "source-positions.parquet in .* is damaged: its digest",
    ),
    "a file that is not listed": (
        lambda saved: described(saved, files={}),
        CorruptCheckpointError,
        "does not list state/source-positions.parquet",
    ),
    "another job": (
        lambda saved: (saved / "job.json").write_text(
            (saved / "job.json").read_text().replace(identity_of(saved), "0" * 32)
        ),
        CorruptCheckpointError,
        "job.json is of another job",
    ),
}


def identity_of(saved: Path) -> str:
    return str(json.loads((saved / "job.json").read_text())["job_id"])


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        *((kind, what) for what in DAMAGE for kind in SavepointFormatType),
        *((NATIVE, what) for what in NATIVE_DAMAGE),
        *((CANONICAL, what) for what in CANONICAL_DAMAGE),
    ],
)
def test_what_is_no_whole_savepoint_is_refused(
    tmp_path: Path, kind: SavepointFormatType, what: str
) -> None:
    own = NATIVE_DAMAGE if kind is NATIVE else CANONICAL_DAMAGE
    damage, error, message = {**DAMAGE, **own}[what]
    saved = save(tmp_path / "first", 2, kind)
    damage(saved)
    before = content_of(saved)
    with pytest.raises(error, match=message):
        start(tmp_path / "second", settings={PATH: saved})
    assert content_of(saved) == before
    assert not (tmp_path / "second" / "checkpoints" / "job.json").exists()


@pytest.mark.parametrize("is_deleted", [True, False])
def test_what_a_run_has_deleted_meanwhile_is_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_deleted: bool
) -> None:
    save(tmp_path / "first")
    checkpoints = LocalStorage(tmp_path / "first" / "checkpoints")
    manifest = inspect_checkpoint(checkpoints).manifest
    file = next(iter(manifest.files()))
    path = tmp_path / "first" / "checkpoints" / file["remote"]
    if is_deleted:
        path.unlink()
    else:
        flip(path)
    target = LocalStorage(tmp_path / "target")
    target.bind(manifest.job_id)
    with pytest.raises(FileNotFoundError if is_deleted else CorruptCheckpointError):
        write_canonical(target, checkpoints, manifest)
    with pytest.raises(CorruptCheckpointError):
        SavepointReader.read(checkpoints.location)
    place = [checkpoints.location, "export", str(manifest.epoch), str(tmp_path / "exported")]
    assert main(["checkpoints", *place]) == 1
    found = "has deleted checkpoint" in capsys.readouterr().err
    assert found == is_deleted


@pytest.mark.parametrize("is_damaged", [True, False])
def test_frames_in_flight_are_taken_as_they_were_written(
    tmp_path: Path, *, is_damaged: bool
) -> None:
    save(tmp_path / "first")
    checkpoints = LocalStorage(tmp_path / "first" / "checkpoints")
    content = b"frames"
    size, digest = digest_of([content])
    checkpoints.write("state/frames", b"framez" if is_damaged else content)
    file = StateFile(local="frames", remote="state/frames", size=size, digest=digest)
    manifest = inspect_checkpoint(checkpoints).manifest
    manifest = replace(manifest, in_flight=[FramesInFlight(0, 0, (), 1, file)])
    target = LocalStorage(tmp_path / "target")
    target.bind(manifest.job_id)
    if not is_damaged:
        assert write_canonical(target, checkpoints, manifest)["files"]
        return
    with pytest.raises(CorruptCheckpointError, match="is damaged: its digest"):
        write_canonical(target, checkpoints, manifest)


def content_of(directory: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def test_no_job_keeps_its_checkpoints_in_a_savepoint(tmp_path: Path, saved: Path) -> None:
    before = content_of(saved)
    with pytest.raises(CheckpointError, match="is a savepoint, and no checkpoint directory"):
        MiniCluster(graph_of(tmp_path / "second"), saved)
    assert content_of(saved) == before


def test_other_storage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="HDFS is not supported"):
        start(tmp_path, settings={PATH: "hdfs://host/savepoint"})


def test_a_savepoint_is_signed_as_the_checkpoints_are(tmp_path: Path) -> None:
    keys = [tmp_path / "key", tmp_path / "another"]
    for number, each in enumerate(keys):
        each.touch(0o600)
        each.write_text(str(number) * 64)
    saved = save(tmp_path / "first", settings={KEY_FILE: keys[0]})
    with pytest.raises(SignatureError, match="is signed"):
        start(tmp_path / "second", settings={PATH: saved})
    with pytest.raises(SignatureError, match="was not signed with the key"):
        start(tmp_path / "second", settings={PATH: saved, KEY_FILE: keys[1]})
    finish(start(tmp_path / "second", settings={PATH: saved, KEY_FILE: keys[0]}))
    assert results(tmp_path / "first", tmp_path / "second") == whole()


# -- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", points_of("start", "claim"))
def test_oracle_killed_while_it_starts(
    tmp_path: Path, saved: Path, point: str, crash_at: Callable[[str], None]
) -> None:
    settings = {PATH: saved, CLAIM: "CLAIM"}
    crash_at(point)
    with pytest.raises(Killed):
        start(tmp_path / "second", settings=settings).run_epoch()
    crash_at("")
    if point in {"savepoint.restore.before", "savepoint.copy.after"}:
        return_from_scratch(tmp_path / "second")
    finish(start(tmp_path / "second", settings=settings))
    assert results(tmp_path / "first", tmp_path / "second") == whole()
    assert not saved.exists()
    storage = LocalStorage(tmp_path / "second" / "checkpoints")
    assert verify_checkpoints(storage).problems == []


def return_from_scratch(directory: Path) -> None:
    """Without the savepoint it would begin from scratch, unless it has begun to copy it."""
    if (directory / "checkpoints" / "restored.json").exists():
        with pytest.raises(CheckpointError, match=r"was to start from .* and has not come to it"):
            start(directory)


@pytest.mark.parametrize("point", points_of("savepoint"))
def test_oracle_killed_while_one_is_written(
    tmp_path: Path,
    point: str,
    crash_at: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that writes it dies, and with it the process, as it were."""
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    first = start(tmp_path / "first")
    first.job.savepoints.ask(str(tmp_path / "savepoints"))
    crash_at(point)
    assert first.run_epoch()
    for writer in first.job.savepoints._writers:
        writer.join()
    crash_at("")
    first.close_instances()
    first.coordinator.close()
    found = [each for each in (tmp_path / "savepoints").glob("*") if list(each.iterdir())]
    before = results(tmp_path / "first")
    for each in found:
        if point == "savepoint.publish.after":
            finish(start(tmp_path / "second", settings={PATH: each}))
            assert before + results(tmp_path / "second") == whole()
        else:
            with pytest.raises(CorruptCheckpointError, match="is incomplete"):
                start(tmp_path / "second", settings={PATH: each})
    assert len(found) == (point != "savepoint.write.before")
    finish(start(tmp_path / "first"))
    assert results(tmp_path / "first") == whole()


def test_state_files_are_kept_while_they_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, write = threading.Event(), write_savepoint

    def write_late(*arguments: Any) -> str:
        assert going.wait(60)
        return write(*arguments)

    monkeypatch.setattr(savepoints, "write_savepoint", write_late)
    first = start(tmp_path / "first", settings={options.NUM_RETAINED.key: 1})
    request = first.job.savepoints.ask(str(tmp_path / "savepoints"))
    assert first.run_epoch()
    before = results(tmp_path / "first")
    for _ in range(3):
        assert first.run_epoch()
    going.set()
    saved = request.result()
    for writer in first.job.savepoints._writers:
        writer.join()
    finish(first)
    finish(start(tmp_path / "second", settings={PATH: saved}))
    assert before + results(tmp_path / "second") == whole()
    # Behind it they are deleted as all that no checkpoint needs.
    storage = LocalStorage(tmp_path / "first" / "checkpoints")
    (manifest,) = ManifestLog(storage).manifests()
    assert set(storage.list_names("state")) == state_names(manifest)


def test_a_savepoint_that_fails_leaves_nothing_and_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(tmp_path / "first")
    request = first.job.savepoints.ask(str(tmp_path / "savepoints"))
    upload = LocalStorage.upload

    def full(self: LocalStorage, local: Path, name: str) -> None:
        if "savepoints" in self.location:
            raise OSError(28, "No space left on device")
        upload(self, local, name)

    monkeypatch.setattr(LocalStorage, "upload", full)
    assert first.run_epoch()
    with pytest.raises(OSError, match="No space left"):
        request.result()
    finish(first)
    assert results(tmp_path / "first") == whole()
    assert list((tmp_path / "savepoints").iterdir()) == []
