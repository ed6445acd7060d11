from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint.local_storage import LocalStorage
from millstream.state.backend import open_store
from millstream.state.key_codec import key_group_range

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.contracts.key_value_store import KeyValueStore, StateHandle
    from millstream.state.keyed import KeyedState

MAX_PARALLELISM = 128


class World:
    """A checkpoint directory and the local copies of one operator, over many epochs."""

    def __init__(self, root: Path, backend: str) -> None:
        self.parent = root
        self.backend = backend
        self.start_afresh()

    def start_afresh(self) -> None:
        self.root = self.parent / uuid.uuid4().hex
        self.storage = LocalStorage(self.root / "checkpoint", fsync=False)
        self.local = self.root / "local"
        self.handles: list[StateHandle] = []

    def open(self, subtask: int = 0, parallelism: int = 1, attempt: str = "") -> KeyValueStore:
        return open_store(
            self.backend,
            self.storage,
            "op",
            subtask,
            key_group_range(subtask, MAX_PARALLELISM, parallelism),
            self.handles,
            attempt or uuid.uuid4().hex,
            self.local,
            fsync=False,
        )

    def begin(self, keyed: KeyedState, processing_time: int = 0) -> KeyValueStore:
        store = self.open()
        keyed.begin_epoch(store, processing_time)
        return store

    def finish(self, keyed: KeyedState, store: KeyValueStore) -> None:
        keyed.flush()
        self.handles = [store.snapshot()]
        store.close()

    def lose_local_copies(self) -> None:
        shutil.rmtree(self.local, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


@pytest.fixture(params=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(tmp_path: Path, backend: str) -> Iterator[World]:
    made = World(tmp_path, backend)
    yield made
    made.remove()
