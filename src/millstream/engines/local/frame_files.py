"""Frames between two stages: written by one task into a file, read by all tasks behind it.

What it is: Arrow files that readers map into memory, and the frames of one subtask out of several
of them, in processing order.  Nothing of a payload is copied on the way.

What it is not: frames themselves (``runtime/frames.py``).

Read next: ``engines/local/epoch_tasks.py``.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.runtime.frames import ACKNOWLEDGEMENT_STAGE, FRAME_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["addressed", "read_frames", "write_frames"]

#: Exact order of what a task reads: the channel that lags first, each channel in its order.
_ORDER = ("sequence", "channel", "edge", "watermark")


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


def read_frames(paths: Iterable[Path]) -> list[pa.RecordBatch]:
    """What the files hold, mapped into memory."""
    batches = []
    for path in paths:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        batches += [reader.get_batch(number) for number in range(reader.num_record_batches)]
    return batches


def addressed(
    batches: Sequence[pa.RecordBatch], subtask: int, parallelism: int
) -> Iterator[pa.RecordBatch]:
    """The frames for one subtask of a stage, in processing order, as slices of ``batches``.

    Those for later stages go through this one, to any subtask of it, always the same.
    """
    columns: dict[str, list[np.ndarray]] = {name: [] for name in _ORDER}
    origins: list[np.ndarray] = []
    rows: list[np.ndarray] = []
    for origin, batch in enumerate(batches):
        stages = batch.column("stage").to_numpy()
        targets = batch.column("subtask").to_numpy() % parallelism
        (mine,) = np.nonzero((targets == subtask) & (stages != ACKNOWLEDGEMENT_STAGE))
        rows.append(mine)
        origins.append(np.full(len(mine), origin))
        for name in _ORDER:
            columns[name].append(batch.column(name).to_numpy()[mine])
    if not rows:
        return
    order = np.lexsort([np.concatenate(columns[name]) for name in _ORDER])
    origin_of, row_of = np.concatenate(origins)[order], np.concatenate(rows)[order]
    # Neighbours that were neighbours before go on together.
    apart = (np.diff(origin_of) != 0) | (np.diff(row_of) != 1)
    begins = [0, *(np.flatnonzero(apart) + 1).tolist(), len(order)]
    for begin, end in itertools.pairwise(begins):
        if begin < end:
            yield batches[int(origin_of[begin])].slice(int(row_of[begin]), end - begin)
