"""Frames between two stages: written by one task into a file, read by all tasks behind it.

What it is: Arrow files that readers map into memory, and the frames of one subtask out of several
of them, in processing order.  Nothing of a payload is copied on the way.

What it is not: frames themselves (``runtime/frames.py``).

Read next: ``engines/local/epoch_tasks.py``.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.frames import ACKNOWLEDGEMENT_STAGE, FRAME_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["FrameFiles", "StageFrames", "write_frames"]

#: Exact order of what a task reads: the channel that lags first, each channel in its order.
_ORDER: Final = ("sequence", "channel", "edge", "watermark")
_NONE: Final = np.zeros(0, dtype=np.int64)


def write_frames(batches: Iterable[pa.RecordBatch], path: Path) -> list[bytes]:
    """Write the frames that a task makes, as it makes them.

    Args:
        batches: the frames.
        path: a new file.

    Returns:
        The payloads of its acknowledgements, which go to the driver instead.
    """
    acks: list[bytes] = []
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, FRAME_SCHEMA) as writer:
        for batch in batches:
            found = _payloads_of_acks(batch)
            acks += found
            if len(found) < batch.num_rows:
                writer.write_batch(batch)
    return acks


def _payloads_of_acks(batch: pa.RecordBatch) -> list[bytes]:
    """The acknowledgements among some frames."""
    stages = batch.column("stage").to_numpy()
    (found,) = np.nonzero(stages == ACKNOWLEDGEMENT_STAGE)
    payloads = batch.column("payload")
    return [payloads[int(row)].as_py() for row in found]


class StageFrames:
    """The frames of all producers of a stage, mapped into memory, and which of them a task reads.

    The frames are put in order once for all subtasks: a worker runs several of them, and each task
    would otherwise open the file of each producer, which takes longest where there are many.
    """

    def __init__(self, paths: Sequence[Path], parallelism: int) -> None:
        """Map the files.

        Args:
            paths: of the files.
            parallelism: of the stage.  Frames for later stages go through a task of it, always the
                same one.
        """
        self._batches: list[pa.RecordBatch] = []
        for path in paths:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            numbers = range(reader.num_record_batches)
            self._batches += [reader.get_batch(number) for number in numbers]
        rows = [np.arange(batch.num_rows) for batch in self._batches]
        origins = [np.full(len(each), number) for number, each in enumerate(rows)]
        targets = self._column("subtask") % parallelism
        order = np.lexsort([*(self._column(name) for name in _ORDER), targets])
        order = order[self._column("stage")[order] != ACKNOWLEDGEMENT_STAGE]
        self._targets = targets[order]
        self._origins = np.concatenate([_NONE, *origins])[order]
        self._rows = np.concatenate([_NONE, *rows])[order]

    def _column(self, name: str) -> NDArray[np.int64]:
        return np.concatenate([_NONE, *(each.column(name).to_numpy() for each in self._batches)])

    def addressed(self, subtask: int) -> Iterator[pa.RecordBatch]:
        """Give the frames for one subtask, in processing order, as slices of what is mapped."""
        begin, end = np.searchsorted(self._targets, [subtask, subtask + 1]).tolist()
        origins, rows = self._origins[begin:end], self._rows[begin:end]
        # Neighbors that were neighbors before go on together.
        apart = (np.diff(origins) != 0) | (np.diff(rows) != 1)
        for first, last in itertools.pairwise([0, *(np.flatnonzero(apart) + 1), len(rows)]):
            if first < last:
                batch = self._batches[int(origins[first])]
                yield batch.slice(int(rows[first]), int(last - first))


class FrameFiles:
    """Reads what tasks read; keeps the frames of a stage until another one is read."""

    def __init__(self) -> None:
        """Have read nothing."""
        self._key: tuple[object, ...] = ()
        self._frames: StageFrames | None = None

    def read(
        self, paths: Sequence[Path], subtask: int, parallelism: int
    ) -> Iterator[pa.RecordBatch]:
        """Give the frames for one subtask of a stage, in processing order.

        Args:
            paths: what the tasks before have written.
            subtask: the one that reads.
            parallelism: of the stage.
        """
        found = [path.stat() for path in paths]
        # An epoch that is repeated has the names of its first attempt.
        files = [
            (path, each.st_ino, each.st_mtime_ns) for path, each in zip(paths, found, strict=True)
        ]
        key = (*files, parallelism)
        if self._frames is None or key != self._key:
            self._frames, self._key = StageFrames(paths, parallelism), key
        return self._frames.addressed(subtask)
