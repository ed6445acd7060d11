"""The manifest log: round trips, damage, generations and fencing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.checkpoint import LocalStorage, Manifest, ManifestLog, OperatorAck, SplitState
from millstream.checkpoint.model import MANIFEST
from millstream.contracts.operator import OperatorStateHandle, OperatorStateKind
from millstream.errors import (
    CorruptCheckpointError,
    DirectoryError,
    FencedError,
    UnknownFormatError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path


def manifest(epoch: int, generation: int = 1) -> Manifest:
    return Manifest(
        epoch=epoch,
        generation=generation,
        job_id="job",
        started=1,
        published=2,
        offsets={"s": {"a": [1, 2], "checksum": "x"}},
        operators={},
        splits={},
        stages={0: 1, 1: 4},
        max_parallelism=128,
    )


class MemoryStorage:
    """The storage contract in a dictionary."""

    location = "memory"
    poll_interval = 0.5
    pack_below = 0

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        #: Called before each put: a place for another writer to act.
        self.before_put: Callable[[], None] = lambda: None

    def bind(self, job_id: str) -> None:
        pass

    def check(self) -> None:
        pass

    def probe(self) -> None:
        pass

    def is_there(self) -> bool:
        return True

    def gone(self) -> DirectoryError:
        return DirectoryError(self.location)

    def local_file(self, name: str, *, keep: bool = False) -> AbstractContextManager[Path]:
        raise NotImplementedError(name)

    def directory(self, name: str) -> Path | None:
        del name
        return None

    def remove_empty(self, directories: Iterable[str]) -> None:
        del directories

    def put_if_absent(self, name: str, content: bytes) -> bool:
        hook, self.before_put = self.before_put, lambda: None
        hook()
        return self.blobs.setdefault(name, content) is content

    def write(self, name: str, content: bytes) -> None:
        self.blobs[name] = content

    def read(self, name: str) -> bytes:
        try:
            return self.blobs[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def upload(self, local: Path, name: str) -> None:
        self.write(name, local.read_bytes())

    def download(self, name: str, local: Path) -> None:
        local.write_bytes(self.read(name))

    def exists(self, name: str) -> bool:
        return name in self.blobs

    def list_names(self, prefix: str) -> Iterator[str]:
        return iter(sorted(name for name in self.blobs if name.startswith(prefix + "/")))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.blobs.pop(name, None)


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def opened(storage: MemoryStorage) -> ManifestLog:
    log = ManifestLog(storage)
    log.open_generation()
    return log


texts = st.text(max_size=8)
integers = st.integers(-(2**63), 2**63 - 1)
files = st.fixed_dictionaries({"local": texts, "remote": texts, "size": integers, "digest": texts})
state_handles = st.fixed_dictionaries(
    {
        "backend": texts,
        "id": texts,
        "key_groups": st.tuples(integers, integers),
        "files": st.lists(files, max_size=2),
    }
)
operator_states = st.builds(
    OperatorStateHandle,
    st.sampled_from(OperatorStateKind),
    integers,
    st.lists(st.binary(max_size=9), max_size=2).map(tuple),
    type=texts,
) | st.builds(OperatorStateHandle, st.sampled_from(OperatorStateKind), integers, file=files)
operator_acks = st.builds(
    OperatorAck,
    texts,
    integers,
    integers,
    st.booleans(),
    st.none() | state_handles,
    st.dictionaries(texts, operator_states, max_size=2),
    st.lists(st.binary(max_size=9), max_size=2),
    st.dictionaries(texts, integers, max_size=2),
)


@st.composite
def split_maps(draw: st.DrawFn) -> dict[str, dict[str, SplitState]]:
    found: dict[str, dict[str, SplitState]] = {}
    for uid, split in draw(st.sets(st.tuples(texts, texts), max_size=3)):
        found.setdefault(uid, {})[split] = SplitState(
            uid,
            split,
            draw(integers),
            draw(st.booleans()),
            draw(integers),
            draw(st.booleans()),
            draw(st.none() | st.binary(max_size=9)),
            draw(integers),
        )
    return found


manifests = st.builds(
    Manifest,
    epoch=integers,
    generation=integers,
    job_id=texts,
    started=integers,
    published=integers,
    offsets=st.dictionaries(texts, texts | integers | st.lists(integers, max_size=2), max_size=2),
    operators=st.dictionaries(texts, st.lists(operator_acks, max_size=2), max_size=2),
    splits=split_maps(),
    stages=st.dictionaries(integers, integers, max_size=2),
    max_parallelism=integers,
    final=st.booleans(),
    totals=st.dictionaries(texts, integers, max_size=2),
)


@examples(50)
@given(manifests)
def test_json_round_trip(value: Manifest) -> None:
    assert MANIFEST.read(json.loads(json.dumps(MANIFEST.write(value)))) == value


@examples(30)
@given(manifests)
def test_log_round_trip(value: Manifest) -> None:
    log = opened(MemoryStorage())
    value.generation = log.generation
    log.publish(value)
    assert log.latest() == value


def test_versions_and_generations(storage: MemoryStorage) -> None:
    first = opened(storage)
    assert first.latest() is None
    assert first.publish(manifest(0)) == 1
    assert first.publish(manifest(1)) == 2
    second = opened(storage)
    assert (first.generation, second.generation) == (1, 2)
    assert second.publish(manifest(2)) == 4
    assert [(entry.version, entry.generation) for entry in second.entries()] == [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 2),
        (4, 2),
    ]
    assert [value.epoch for value in second.manifests()] == [0, 1, 2]
    latest = second.latest()
    assert latest is not None
    assert (latest.epoch, latest.generation) == (2, 2)
    assert sorted(storage.blobs)[1] == "log/00000000000000000001.json"


def test_the_older_writer_is_fenced(storage: MemoryStorage) -> None:
    old = opened(storage)
    old.publish(manifest(0))
    old.check_fence()
    new = opened(storage)
    with pytest.raises(FencedError, match=r"taken over by generation 2 .*this run is generation 1"):
        old.check_fence()
    with pytest.raises(FencedError):
        old.publish(manifest(1))
    new.publish(manifest(1))
    with pytest.raises(FencedError):
        old.publish(manifest(1))
    assert [value.generation for value in new.manifests()] == [1, 2]


def test_a_writer_that_never_opened_cannot_publish(storage: MemoryStorage) -> None:
    with pytest.raises(FencedError):
        ManifestLog(storage).publish(manifest(0))


def test_fenced_even_after_the_newer_writer_has_cleaned_up(storage: MemoryStorage) -> None:
    old = opened(storage)
    old.publish(manifest(0))
    new = opened(storage)
    versions = [new.publish(manifest(epoch)) for epoch in range(1, 6)]
    new.read(1)
    new.keep(versions[-1:])
    assert len(new.versions()) == 3
    with pytest.raises(FencedError):
        old.publish(manifest(1))


def log_first(log: ManifestLog) -> None:
    log.publish(manifest(0))


def test_open_that_loses_a_race_looks_again(storage: MemoryStorage) -> None:
    old = opened(storage)
    storage.before_put = lambda: log_first(old)
    new = opened(storage)
    assert (new.generation, new.last_version) == (2, 2)
    with pytest.raises(FencedError):
        old.publish(manifest(1))


def test_open_that_slept_until_its_version_was_cleaned_up_still_fences(
    storage: MemoryStorage,
) -> None:
    old = opened(storage)

    def meanwhile() -> None:
        versions = [old.publish(manifest(epoch)) for epoch in range(5)]
        old.keep(versions[-1:])

    storage.before_put = meanwhile
    new = opened(storage)
    assert new.last_version == 6
    with pytest.raises(FencedError):
        old.publish(manifest(5))
    new.publish(manifest(5))
    latest = new.latest()
    assert latest is not None
    assert latest.generation == new.generation


def test_publish_that_was_written_before_it_failed_is_recognised(storage: MemoryStorage) -> None:
    log = opened(storage)
    log.publish(manifest(0))
    log.last_version -= 1  # as if the put had raised after it had written
    log.publish(manifest(0))
    assert [value.epoch for value in log.manifests()] == [0]


@examples(80)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["open", "publish"])), max_size=25))
def test_oracle_only_the_newest_writer_publishes(steps: list[tuple[int, str]]) -> None:
    storage = MemoryStorage()
    logs = [ManifestLog(storage) for _ in range(4)]
    newest: int | None = None
    published: list[int] = []
    for epoch, (index, action) in enumerate(steps):
        if action == "open":
            logs[index].open_generation()
            newest = index
        elif index == newest:
            logs[index].publish(manifest(epoch))
            published.append(epoch)
        else:
            with pytest.raises(FencedError):
                logs[index].publish(manifest(epoch))
    assert [value.epoch for value in logs[0].manifests()] == published
    assert logs[0].versions() == list(range(len(storage.blobs)))


def damage(storage: MemoryStorage, version: int, old: bytes, new: bytes) -> None:
    name = ManifestLog.name(version)
    assert old in storage.blobs[name]
    storage.blobs[name] = storage.blobs[name].replace(old, new)


def test_damaged_checksum(storage: MemoryStorage) -> None:
    log = opened(storage)
    log.publish(manifest(0))
    damage(storage, 1, b'"epoch":0', b'"epoch":1')
    with pytest.raises(CorruptCheckpointError, match=r"1\.json in memory .*checksum"):
        log.latest()
    with pytest.raises(CorruptCheckpointError):
        opened(storage)
    assert log.versions() == [0, 1]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe"])
def test_what_is_no_log_at_all(storage: MemoryStorage, content: bytes) -> None:
    storage.blobs[ManifestLog.name(0)] = content
    with pytest.raises(CorruptCheckpointError, match="damaged"):
        ManifestLog(storage).latest()


def test_truncated_anywhere(storage: MemoryStorage) -> None:
    log = opened(storage)
    log.publish(manifest(0))
    whole = storage.blobs[log.name(1)]
    for length in range(len(whole) - 1):  # the last byte is the line feed
        storage.blobs[log.name(1)] = whole[:length]
        with pytest.raises(CorruptCheckpointError):
            log.latest()


def test_a_version_under_another_number(storage: MemoryStorage) -> None:
    log = opened(storage)
    log.publish(manifest(0))
    storage.blobs[log.name(2)] = storage.blobs[log.name(1)]
    with pytest.raises(CorruptCheckpointError, match="names itself version 1"):
        log.latest()


def test_unknown_format_version_is_refused_before_anything_is_written(
    storage: MemoryStorage,
) -> None:
    log = opened(storage)
    log.publish(manifest(0))
    damage(storage, 1, b'{"format_version":1', b'{"format_version":7')
    before = dict(storage.blobs)
    with pytest.raises(UnknownFormatError, match=r"format version 7.*reads format version 1"):
        opened(storage)
    with pytest.raises(UnknownFormatError):
        log.latest()
    assert storage.blobs == before


def test_other_files_in_the_directory_are_passed_over(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, fsync=False)
    log = ManifestLog(storage)
    log.open_generation()
    log.publish(manifest(0))
    storage.write("log/notes.txt", b"")
    assert log.versions() == [0, 1]
    latest = log.latest()
    assert latest is not None
    assert latest.epoch == 0
