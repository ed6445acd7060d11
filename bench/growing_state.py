"""What the state of one subtask costs as it grows, without Spark.

What it is: epochs as a task runs them (open the store, prefetch, read and update, flush, snapshot,
close) on one RocksDB of the default settings, in this process.  CPU time is that of the whole
process, compaction in RocksDB's own threads included.

``touched``: 1,000 keys at random out of all, read and written per epoch.
``churned``: 20,000 keys at random out of all, so that compaction has work.
``loaded``: 500,000 keys per epoch that are new, up to so many.
``restored``: an empty local directory, from the checkpoint; seconds per GiB.

Run by ``bench/run.py``.  Read next: ``bench/growing.py``.
"""

from __future__ import annotations

import shutil
import statistics
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from bench.growing import growing_arguments
from bench.measure import Outcome

from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Types
from millstream.datastream.state import ValueStateDescriptor
from millstream.state.backend import open_store
from millstream.state.keyed import KeyedState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.contracts.key_value_store import StateHandle

__all__ = ["WORKLOADS"]

WORKLOADS: Final = ("touched", "churned", "loaded", "restored")

_SEED: Final = 20_260_102
_MAX_PARALLELISM: Final = 128
#: Keys that are new per epoch while a store is filled.
_PER_EPOCH: Final = 500_000
#: Workload -> keys per epoch, epochs.
_UPDATES: Final = {"touched": (1_000, 150), "churned": (20_000, 150)}
_RESTORES: Final = 3
#: Bytes of a value where there has to be something to restore, cut out of so many random ones.
_LONG_VALUE: Final = 200
_NOISE: Final = 1 << 20
_GIBIBYTE: Final = 2**30


@dataclass
class _Stopwatch:
    """Wall and CPU seconds of each of several things."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._started = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall.append(time.perf_counter() - self._started[0])
        self.cpu.append(time.process_time() - self._started[1])

    def figures(self) -> dict[str, float]:
        """What is reported."""
        return {
            "seconds": statistics.median(self.wall),
            "longest_seconds": max(self.wall),
            "cpu_seconds": statistics.mean(self.cpu),
        }


class _Subtask:
    """The keyed state of one subtask, epoch after epoch."""

    def __init__(self, directory: Path) -> None:
        self._storage = LocalStorage(directory / "checkpoint", fsync=False)
        self._local = directory / "local"
        self._groups = (0, _MAX_PARALLELISM)
        self._handles: list[StateHandle] = []
        self._keyed = KeyedState(_MAX_PARALLELISM, self._groups)
        self._value = self._keyed.get_state(
            ValueStateDescriptor("value", Types.PICKLED_BYTE_ARRAY())
        )

    def epoch(self, keys: Sequence[int], *, read: bool = True, noise: bytes = b"") -> None:
        """Update ``keys``: a count, or a long value out of ``noise``."""
        store = open_store(
            "rocksdb",
            self._storage,
            "bench",
            0,
            self._groups,
            self._handles,
            uuid.uuid4().hex,
            self._local,
            fsync=False,
        )
        try:
            self._keyed.begin_epoch(store)
            if read:
                self._keyed.prefetch(list(keys))
            if noise:
                self._fill_long(keys, noise)
            else:
                self._count(keys, read=read)
            self._keyed.flush()
            self._handles = [store.snapshot()]
        finally:
            store.close()
        kept = {file["remote"] for handle in self._handles for file in handle["files"]}
        self._storage.delete(set(self._storage.list_names("state")) - kept)

    def _count(self, keys: Sequence[int], *, read: bool) -> None:
        state, set_key = self._value, self._keyed.set_current_key
        for key in keys:
            set_key(key)
            state.update((state.value() or 0) + 1 if read else 1)

    def _fill_long(self, keys: Sequence[int], noise: bytes) -> None:
        state, set_key = self._value, self._keyed.set_current_key
        for key in keys:
            set_key(key)
            start = key * 8_191 % (len(noise) - _LONG_VALUE)
            state.update(noise[start : start + _LONG_VALUE])

    def fill(self, keys: int, noise: bytes = b"") -> None:
        """So many keys, from 0."""
        for first in range(0, keys, _PER_EPOCH):
            self.epoch(range(first, min(first + _PER_EPOCH, keys)), read=False, noise=noise)

    def lose_local_copies(self) -> None:
        """As on another machine."""
        shutil.rmtree(self._local)

    @property
    def size(self) -> int:
        """Bytes of the last snapshot."""
        return sum(file["size"] for handle in self._handles for file in handle["files"])


def _updated(workload: str, keys: int, directory: Path) -> dict[str, float]:
    subtask, watch = _Subtask(directory), _Stopwatch()
    subtask.fill(keys)
    per_epoch, epochs = _UPDATES[workload]
    generator = np.random.default_rng([_SEED, keys])
    for number in range(epochs + 1):
        touched = generator.integers(0, keys, per_epoch).tolist()
        if number == 0:  # what the filling left to do
            subtask.epoch(touched)
            continue
        with watch:
            subtask.epoch(touched)
    return watch.figures()


def _loaded(keys: int, directory: Path) -> dict[str, float]:
    subtask, watch = _Subtask(directory), _Stopwatch()
    subtask.fill(keys - _PER_EPOCH)
    with watch:
        subtask.epoch(range(keys - _PER_EPOCH, keys))
    return watch.figures()


def _restored(keys: int, directory: Path) -> dict[str, float]:
    subtask, watch = _Subtask(directory), _Stopwatch()
    noise = np.random.default_rng(_SEED).bytes(_NOISE)
    subtask.fill(keys, noise)
    for _ in range(_RESTORES):
        subtask.lose_local_copies()
        with watch:
            subtask.epoch([0], noise=noise)
    gibibytes = subtask.size / _GIBIBYTE
    figures = {name: seconds / gibibytes for name, seconds in watch.figures().items()}
    return figures | {"gibibytes": gibibytes}


def main() -> None:
    """Measure one quantity at one size and save the outcome."""
    arguments = growing_arguments(WORKLOADS)
    if arguments.workload == "loaded":
        figures = _loaded(arguments.size, arguments.scratch)
    elif arguments.workload == "restored":
        figures = _restored(arguments.size, arguments.scratch)
    else:
        figures = _updated(arguments.workload, arguments.size, arguments.scratch)
    Outcome(figures=figures).save(arguments.report)


if __name__ == "__main__":
    main()
