"""Manifests that say only what has changed: size, reading, cleaning up, damage, older formats."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.checkpoint import LocalStorage, Manifest, ManifestLog, OperatorAck, SplitState
from millstream.checkpoint.commit import Cleaner, read_checkpoints, state_names
from millstream.checkpoint.inspect import list_checkpoints, verify_checkpoints
from millstream.checkpoint.manifest_log import apply, difference
from millstream.checkpoint.model import digest_of
from millstream.errors import CorruptCheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.key_value_store import StateFile

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON, JSON)
def test_oracle_changes_make_the_new_value_of_the_old(old: Any, new: Any) -> None:
    before = repr(old)
    assert apply(old, difference(old, new)) == new
    assert repr(old) == before


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"a": 1, "b": 2, "c": {"d": 1}}, {"a": 1, "c": {"d": 2}}, None),
        ({"a": 1}, {"a": 1}, {}),
        ([1, 2, 3, 4], [1, 2, 9, 4], {"cut": [2, 1], "put": [9]}),
        ([{"a": 1}, {"a": 2}], [{"a": 1}, {"a": 3}], {"at": {"1": {"+": {"a": 3}}}}),
        ([1, 1, 1], [1, 1], {"cut": [2, 1], "put": []}),
    ],
)
def test_changes_are_few(old: Any, new: Any, changes: Any) -> None:
    expected = changes if changes is not None else {"~": {"c": {"+": {"d": 2}}}, "-": ["b"]}
    assert difference(old, new) == expected
    assert apply(old, expected) == new


class Job:
    """A sequence of manifests such as a job makes: some splits and files change per epoch."""

    def __init__(self, directory: Path, *, splits: int, subtasks: int, retained: int = 2) -> None:
        self.storage = LocalStorage(directory, fsync=False)
        self.retained = retained
        self.random = random.Random(splits)
        self.last = Manifest(
            epoch=-1,
            generation=0,
            job_id="job",
            started=0,
            published=0,
            offsets={"epoch": -1, "sources": {"s": {"at": {}, "known": splits, "idle": []}}},
            operators={},
            splits={"s": {f"topic-{n}": self.split(f"topic-{n}", 0) for n in range(splits)}},
            stages={0: subtasks},
            max_parallelism=128,
        )
        self.subtasks = subtasks
        self.files: list[list[StateFile]] = [[] for _ in range(subtasks)]
        self.open()

    def open(self) -> None:
        """Begin a run: what was cleaned up is no concern of it."""
        self.log = ManifestLog(self.storage)
        self.cleaner = Cleaner(self.storage, self.log, self.retained, sweep_interval=1000)
        self.cleaner.list_before_open()
        self.log.open_generation()
        self.cleaner.recovered(read_checkpoints(self.log, "job"))

    def split(self, name: str, position: int) -> SplitState:
        generator = self.random.randbytes(20) + b"state of a watermark generator" * 4
        return SplitState("s", name, position, finished=False, watermark=position * 10,
                          generator=generator)  # fmt: skip

    def ack(self, subtask: int) -> OperatorAck:
        files = self.files[subtask]
        del files[: len(files) - 3]
        name = f"{self.random.randbytes(16).hex()}-000012.sst"
        self.storage.write(f"state/o/{name}", b"x")
        digest = digest_of([b"x"])[1]
        files.append({"local": name[-20:], "remote": f"state/o/{name}", "size": 1,
                      "digest": digest})  # fmt: skip
        return OperatorAck("o", subtask, watermark=self.last.epoch, state={
            "backend": "rocksdb", "id": name[:32], "key_groups": (subtask, subtask + 1),
            "files": list(files),
        })  # fmt: skip

    def publish(self, active: int) -> int:
        """Publish the next epoch, in which ``active`` splits were read; its bytes."""
        last = self.last
        splits = dict(last.splits["s"])
        for name in self.random.sample(sorted(splits), active):
            splits[name] = self.split(name, splits[name].position + 7)
        self.last = Manifest(
            epoch=last.epoch + 1,
            generation=self.log.generation,
            job_id="job",
            started=last.started + 1,
            published=last.published + 1,
            offsets={"epoch": last.epoch + 1, "sources": last.offsets["sources"]},
            operators={"o": [self.ack(subtask) for subtask in range(self.subtasks)]},
            splits={"s": splits},
            stages=last.stages,
            max_parallelism=128,
            totals={"s.numRecordsIn": last.epoch},
        )
        version = self.log.publish(self.last, self.cleaner.oldest_beside_next())
        self.cleaner.published(version, self.last)
        return len(self.storage.read(ManifestLog.name(version)))


def test_an_epoch_costs_what_it_changes(tmp_path: Path) -> None:
    """Whole manifests take 370 bytes per split: 74 KB for 200, and 3.9 MB for 10,000."""
    small = Job(tmp_path / "small", splits=200, subtasks=2)
    sizes = [small.publish(active=5) for _ in range(100)]
    assert sum(sizes) / len(sizes) < 5_000
    large = Job(tmp_path / "large", splits=2_000, subtasks=2)
    grown = [large.publish(active=5) for _ in range(40)]
    assert sorted(grown)[20] < 3_000
    assert sum(grown) / len(grown) < 10_000
    everything = [small.publish(active=200) for _ in range(10)]
    assert sum(everything) / len(everything) < 20_000
    verified = verify_checkpoints(small.storage)
    assert [each.name for each in verified.problems] == ["job.json"]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("retained", [1, 2, 5])
def test_every_manifest_reads_as_it_was_published(tmp_path: Path, retained: int) -> None:
    """Over ends of chains and restarts; as many versions are left as chains need."""
    job = Job(tmp_path, splits=300, subtasks=2, retained=retained)
    published: list[Manifest] = []
    for epoch in range(90):
        if epoch % 47 == 46:
            job.open()
        job.publish(active=3)
        published.append(job.last)
        if epoch % 10 == 9:
            reader = ManifestLog(job.storage)
            assert reader.manifests() == published[-retained:]
            assert reader.latest() == published[-1]
            known = [manifest for _, manifest in read_checkpoints(reader, "job")]
            assert known == published[-retained:]
            assert len(reader.versions()) <= retained + 2 * 33 + 3
    names = set().union(*map(state_names, published[-retained:]))
    assert set(job.storage.list_names("state")) == names
    assert [each.epoch for each in list_checkpoints(job.storage).checkpoints] == [
        manifest.epoch for manifest in published[-retained:]
    ]


def chained(path: Path, splits: int = 300) -> Job:
    """A job whose newest manifest lies on others."""
    job = Job(path, splits=splits, subtasks=2)
    for _ in range(6):
        job.publish(active=3)
    return job


def test_a_version_that_others_lie_on_is_not_taken_for_a_checkpoint(tmp_path: Path) -> None:
    job = chained(tmp_path)
    assert len(job.log.versions()) == 7
    assert [manifest.epoch for manifest in ManifestLog(job.storage).manifests()] == [4, 5]
    assert "state/o" not in {problem.name for problem in verify_checkpoints(job.storage).problems}


@pytest.mark.parametrize("harm", ["missing", "damaged", "another"])
def test_a_damaged_base_refuses_what_lies_on_it(tmp_path: Path, harm: str) -> None:
    job = chained(tmp_path / "one")
    name = ManifestLog.name(2)
    if harm == "missing":
        job.storage.delete([name])
    elif harm == "damaged":
        job.storage.write(name, job.storage.read(name)[:-20])
    else:  # the file of another history, whole in itself
        other = chained(tmp_path / "two", splits=301)
        job.storage.write(name, other.storage.read(name))
    reader = ManifestLog(job.storage)
    with pytest.raises(CorruptCheckpointError, match=r"version 2|00002\.json"):
        reader.latest()
    with pytest.raises(CorruptCheckpointError):
        read_checkpoints(reader, "job")


def test_a_crash_before_the_clean_up_leaves_no_checkpoint_without_its_files(tmp_path: Path) -> None:
    """The newest manifest says which checkpoints there are, also if older ones are not deleted."""
    job = chained(tmp_path)
    kept = [manifest.epoch for manifest in job.log.manifests()]
    job.cleaner.published = lambda *_: None  # type: ignore[method-assign]
    job.publish(active=3)
    job.open()
    assert [manifest.epoch for manifest in job.log.manifests()] == [kept[-1], kept[-1] + 1]
    names = set().union(*map(state_names, job.log.manifests()))
    assert set(job.storage.list_names("state")) == names


def test_more_checkpoints_are_kept_from_the_next_one_on(tmp_path: Path) -> None:
    job = chained(tmp_path)
    job.retained = 4
    job.open()
    for wanted in ([4, 5, 6], [4, 5, 6, 7], [5, 6, 7, 8]):
        job.publish(active=3)
        assert [manifest.epoch for manifest in ManifestLog(job.storage).manifests()] == wanted
    assert not [each for each in verify_checkpoints(job.storage).problems if each.epoch is not None]
