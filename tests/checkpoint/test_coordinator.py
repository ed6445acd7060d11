"""The coordinator's refusals, fencing between two of them, cleanup, and the reader for the CLI."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.checkpoint.toy_checkpoint_job import ToyJob, visible_output

from millstream.checkpoint import (
    Coordinator,
    JobIdentity,
    LocalStorage,
    Manifest,
    ManifestLog,
    OperatorAck,
    TaskAck,
)
from millstream.checkpoint.commit import state_names
from millstream.checkpoint.inspect import (
    inspect_checkpoint,
    list_checkpoints,
    verify_checkpoints,
)
from millstream.checkpoint.model import OperatorRecord, digest_of
from millstream.checkpoint.publish import EpochMetadata
from millstream.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    FencedError,
    ForeignCheckpointError,
    InconsistentEpochError,
    SinkError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from millstream.contracts.key_value_store import StateHandle


def coordinator(storage: LocalStorage, job_id: str = "job") -> Coordinator:
    found = Coordinator(storage, job_id, {}, 2)
    found.open()
    found.recover()
    return found


def complete(
    target: Coordinator,
    epoch: int,
    handle: StateHandle | None = None,
    committables: int = 0,
    program: Mapping[str, OperatorRecord] | None = None,
) -> Manifest:
    operator = OperatorAck("u", 0, 0, state=handle, committables=[b"N."] * committables)
    metadata = EpochMetadata(epoch, 0, {"p": epoch}, {0: 1}, 8, program=program or {})
    target.begin_epoch(metadata)
    return target.complete_epoch(metadata, [TaskAck(epoch, 0, 0, "a", [operator])], {(0, 0)})


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "checkpoint", fsync=False)


def test_order_of_calls(storage: LocalStorage) -> None:
    target = Coordinator(storage, "job", {}, 1)
    with pytest.raises(CheckpointError, match="after open"):
        target.recover()
    assert target.open() == 1
    assert target.generation == 1
    with pytest.raises(CheckpointError, match="before any checkpoint"):
        target.handle_replay(0)
    with pytest.raises(CheckpointError, match="opened before"):
        target.open()
    assert target.recover() is None
    assert target.last is None
    with pytest.raises(CheckpointError, match="once"):
        target.recover()


def test_retained_is_checked(storage: LocalStorage) -> None:
    with pytest.raises(ConfigurationError, match="num-retained is 0"):
        Coordinator(storage, "job", {}, 0)


def test_epochs_are_consecutive(storage: LocalStorage) -> None:
    target = coordinator(storage)
    assert not target.handle_replay(0)
    with pytest.raises(CorruptCheckpointError, match="ends before checkpoint 0"):
        target.handle_replay(1)
    complete(target, 0)
    assert target.handle_replay(0)
    assert not target.handle_replay(1)
    with pytest.raises(CheckpointError, match="published already"):
        complete(target, 0)
    with pytest.raises(CorruptCheckpointError, match="checkpoint 3 is to be run"):
        complete(target, 3)


def test_replay_of_other_offsets_is_refused(storage: LocalStorage) -> None:
    target = coordinator(storage)
    complete(target, 0)
    assert target.handle_replay(0, {"p": 0})
    with pytest.raises(CorruptCheckpointError, match="not of the same history"):
        target.handle_replay(0, {"p": 9})


def test_nothing_is_published_without_all_acknowledgements(storage: LocalStorage) -> None:
    target = coordinator(storage)
    with pytest.raises(InconsistentEpochError):
        target.complete_epoch(EpochMetadata(0, 0, {}, {0: 1}, 8), [], {(0, 0)})
    assert ManifestLog(storage).latest() is None


def test_output_of_a_sink_that_is_gone_is_not_lost_silently(storage: LocalStorage) -> None:
    target = coordinator(storage)
    with pytest.raises(SinkError, match=r"sink u .*may not be committed yet"):
        complete(target, 0, committables=1)
    with pytest.raises(SinkError):
        coordinator(storage)


def test_log_of_another_job(storage: LocalStorage) -> None:
    complete(coordinator(storage), 0)
    target = Coordinator(storage, "other", {}, 2)
    target.open()
    with pytest.raises(ForeignCheckpointError, match="written by job job, this is job other"):
        target.recover()


def test_damaged_newest_checkpoint_is_not_replaced_by_an_older_one(storage: LocalStorage) -> None:
    target = coordinator(storage)
    complete(target, 0)
    complete(target, 1)
    waiting = Coordinator(storage, "job", {}, 2)
    waiting.open()
    storage.write(ManifestLog.name(2), storage.read(ManifestLog.name(2))[:-20])
    with pytest.raises(CorruptCheckpointError, match=r"2\.json"):
        waiting.recover()


def test_damaged_older_checkpoint_does_not_stop_the_job(storage: LocalStorage) -> None:
    target = coordinator(storage)
    complete(target, 0)
    complete(target, 1)
    storage.write(ManifestLog.name(1), b"{}")
    last = coordinator(storage).last
    assert last is not None
    assert last.epoch == 1


def test_two_drivers_the_older_is_fenced_and_harms_nothing(tmp_path: Path) -> None:
    old = ToyJob(tmp_path)
    old.start()
    for _ in range(3):
        old.step()
    new = ToyJob(tmp_path)
    new.start()
    seen = visible_output(tmp_path)
    # The newer driver's next epoch is pre-committed but not published yet.
    pending = tmp_path / "pending" / "99999-0-new.jsonl"
    pending.write_text("")
    with pytest.raises(FencedError):
        old.step()
    assert pending.exists()
    assert visible_output(tmp_path) == seen
    last = ManifestLog(new.storage).latest()
    assert last == new.coordinator.last


def test_driver_fenced_between_commit_and_abort_drops_nothing(tmp_path: Path) -> None:
    old = ToyJob(tmp_path)
    old.start()
    commit = old.committer.commit

    def commit_slowly(requests: object) -> None:
        commit(requests)  # type: ignore[arg-type]
        ToyJob(tmp_path).start()
        (tmp_path / "pending" / "of the newer run").write_text("")

    old.committer.commit = commit_slowly  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        old.step()
    assert (tmp_path / "pending" / "of the newer run").exists()


def upload(storage: LocalStorage, tmp_path: Path, name: str) -> None:
    local = tmp_path / name
    local.write_bytes(b"x")
    storage.upload(local, f"state/u/{name}")


#: Of the files that ``upload`` writes.
DIGEST = digest_of([b"x"])[1]


def handle(*names: str) -> StateHandle:
    return {
        "backend": "rocksdb",
        "id": names[-1],
        "key_groups": (0, 8),
        "files": [
            {"local": name, "remote": f"state/u/{name}", "size": 1, "digest": DIGEST}
            for name in names
        ],
    }


def test_cleanup_keeps_exactly_what_retained_manifests_need(
    storage: LocalStorage, tmp_path: Path
) -> None:
    target = coordinator(storage)
    epochs = [("a",), ("a", "b"), ("a", "b", "c"), ("d",), ("d", "e"), ("d", "f"), ("a2",)]
    for epoch, names in enumerate(epochs):
        for name in names:
            if not storage.exists(f"state/u/{name}"):
                upload(storage, tmp_path, name)
        complete(target, epoch, handle(*names))
        kept = set(epochs[max(0, epoch - 1)]) | set(names)
        assert {Path(name).name for name in storage.list_names("state")} == kept
    assert [manifest.epoch for manifest in ManifestLog(storage).manifests()] == [5, 6]
    assert ManifestLog(storage).versions() == [0, 6, 7]
    assert not [p for p in verify_checkpoints(storage).problems if p.name != "job.json"]


def test_unnamed_files_go_at_recovery_but_not_those_of_a_newer_run(
    storage: LocalStorage, tmp_path: Path
) -> None:
    target = coordinator(storage)
    upload(storage, tmp_path, "a")
    complete(target, 0, handle("a"))
    upload(storage, tmp_path, "orphan")
    storage.write("temporary/left", b"")
    slow = Coordinator(storage, "job", {}, 2)
    slow.open()
    coordinator(storage)  # overtakes, and its task uploads
    storage.write("temporary/left", b"")
    upload(storage, tmp_path, "newer")
    with pytest.raises(FencedError):
        # A sink is needed for the fence to be looked at; without one, cleaning must be safe too.
        slow._log.check_fence()
    slow.recover()
    assert list(storage.list_names("state")) == ["state/u/a", "state/u/newer"]


def test_unnamed_files_go_after_two_sweeps_with_an_epoch_in_between(
    storage: LocalStorage, tmp_path: Path
) -> None:
    target = Coordinator(storage, "job", {}, 2, sweep_interval=2)
    target.open()
    target.recover()
    complete(target, 0)
    upload(storage, tmp_path, "late")
    complete(target, 1)  # first sweep
    assert storage.exists("state/u/late")
    upload(storage, tmp_path, "running")
    complete(target, 2)
    assert storage.exists("state/u/late")
    complete(target, 3)  # second sweep
    assert list(storage.list_names("state")) == ["state/u/running"]


def test_inspect(storage: LocalStorage, tmp_path: Path) -> None:
    JobIdentity.claim(storage, "toy", {"u": OperatorRecord("u", "operator")})
    program = {"u": OperatorRecord("u", "operator")}
    job_id = JobIdentity.claim(storage, "toy", program)
    with pytest.raises(CheckpointError, match="has no checkpoint; there are: none"):
        inspect_checkpoint(storage)
    target = coordinator(storage, job_id)
    upload(storage, tmp_path, "a")
    complete(target, 0, handle("a"))
    upload(storage, tmp_path, "b")
    complete(target, 1, handle("a", "b"), program=program)
    content = list_checkpoints(storage)
    assert content.identity is not None
    assert (content.identity.job_name, content.runs) == ("toy", 1)
    assert [
        (line.epoch, line.state_files, line.state_size, line.new_state_size)
        for line in content.checkpoints
    ] == [(0, 1, 1, 1), (1, 2, 2, 1)]
    assert content.checkpoints[0].duration == content.checkpoints[0].published
    details = inspect_checkpoint(storage)
    assert details.summary == content.checkpoints[1]
    (operator,) = details.operators
    assert (operator.uid, operator.kind, operator.state_size) == ("u", "operator", 2)
    assert operator.backends == ["rocksdb"]
    assert inspect_checkpoint(storage, 0).summary.epoch == 0
    with pytest.raises(CheckpointError, match="no checkpoint 7; there are: 0, 1"):
        inspect_checkpoint(storage, 7)


def test_verify_reports_everything_wrong(storage: LocalStorage, tmp_path: Path) -> None:
    target = coordinator(storage)
    for name in ("a", "b", "c"):
        upload(storage, tmp_path, name)
    complete(target, 0, handle("a", "b", "c"))
    storage.write("state/u/a", b"y")
    storage.write("state/u/b", b"xx")
    storage.delete(["state/u/c"])
    storage.write(ManifestLog.name(9), b"{}")
    result = verify_checkpoints(storage)
    assert (result.checkpoints, result.files, result.ok) == (1, 2, False)
    found = {problem.name: problem.reason for problem in result.problems}
    assert "missing" in found["job.json"]
    assert "its digest is sha256:" in found["state/u/a"]
    assert "2 bytes instead of 1" in found["state/u/b"]
    assert "cannot be read" in found["state/u/c"]
    assert "damaged" in found[ManifestLog.name(9)]
    assert [problem.epoch for problem in result.problems if problem.name.startswith("state")] == [
        0,
        0,
        0,
    ]


def test_a_manifest_is_readable_json(storage: LocalStorage) -> None:
    complete(coordinator(storage), 0)
    value = json.loads(storage.read(ManifestLog.name(1)))
    assert (value["kind"], value["generation"], value["manifest"]["epoch"]) == ("checkpoint", 1, 0)


def test_state_names_are_those_of_all_operators() -> None:
    manifest = Manifest(0, 1, "job", 0, 0, {}, {"u": [], "v": []}, {}, {}, 8)
    manifest.operators["u"] = [OperatorAck("u", 0, 0, state=handle("a", "b"))]
    manifest.operators["v"] = [OperatorAck("v", 0, 0, state=handle("c")), OperatorAck("v", 1, 0)]
    assert state_names(manifest) == {"state/u/a", "state/u/b", "state/u/c"}


class Counted(LocalStorage):
    """Counts what waits for the disk, or grows with what is there."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, fsync=False)
        self.calls: Counter[str] = Counter()

    def put_if_absent(self, name: str, content: bytes) -> bool:
        self.calls["written"] += 1
        return super().put_if_absent(name, content)

    def write(self, name: str, content: bytes) -> None:
        self.calls["written"] += 1
        super().write(name, content)

    def read(self, name: str) -> bytes:
        self.calls["read"] += 1
        return super().read(name)

    def list_names(self, prefix: str) -> Iterator[str]:
        self.calls["listed"] += 1
        return super().list_names(prefix)

    def delete(self, names: Iterable[str]) -> None:
        self.calls["deleted"] += 1
        super().delete(names)


def test_an_idle_epoch_costs_little(tmp_path: Path) -> None:
    """One write, whatever the number of files of state and of epochs before."""
    storage = Counted(tmp_path)
    target = coordinator(storage)
    costs = []
    for epoch in range(20):
        storage.calls.clear()
        complete(target, epoch, handle(*(f"{number}" for number in range(50))))
        costs.append(dict(storage.calls))
    assert costs == [{"written": 1}] * 2 + [{"written": 1, "deleted": 1}] * 18
