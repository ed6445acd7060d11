"""Columnar chunks of state: Arrow tables of partial aggregates that mix key groups.

The schema of a chunk names the key groups of its writer, so after a change of parallelism each
subtask takes its own rows only.
"""

from __future__ import annotations

import zlib
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.state.key_codec import key_group_of_cache_key, key_groups_of_array
from millstream.state.rescale import chunk_key_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray


#: The column of the keys: integers, strings, or bytes as ``encode_key`` makes them.
KEY: Final = "key"
_GROUPS: Final = b"key_groups"


def encoded_chunk(table: pa.Table, max_parallelism: int, key_groups: tuple[int, int]) -> bytes:
    """Return an Arrow IPC stream that says which key groups its writer had."""
    groups = f"{max_parallelism}:{key_groups[0]}:{key_groups[1]}".encode()
    table = table.combine_chunks().replace_schema_metadata({_GROUPS: groups})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def decoded_chunk(
    name: bytes, length: int, stored: bytes, ours: tuple[int, tuple[int, int]]
) -> tuple[pa.Table, NDArray[np.bool_] | None]:
    """Return a chunk, and which of its rows count; None: all of them.

    Args:
        name: of the entry.
        length: of the name as the owner wrote it; each change of parallelism, or of max
            parallelism, added to it.
        stored: the entry.
        ours: max parallelism and key groups of the subtask.
    """
    table = pa.ipc.open_stream(stored).read_all()
    groups, first, stop = map(int, table.schema.metadata[_GROUPS].split(b":"))
    table = table.replace_schema_metadata(None)
    if (groups, (first, stop)) == ours and len(name) == length:
        return table, None
    keys = table.column(KEY).combine_chunks()
    counts = np.ones(table.num_rows, dtype=np.bool_)
    for max_parallelism, (first, stop) in chunk_key_groups(name, length, ours):
        found = key_groups_of_column(keys, max_parallelism)
        counts &= (found >= first) & (found < stop)
    return table, counts


def counted_rows(table: pa.Table, counts: NDArray[np.bool_] | None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a chunk that count."""
    rows = table.to_pylist()
    yield from rows if counts is None else compress(rows, counts.tolist())


def fragment_runs(
    entries: Iterable[tuple[bytes, bytes]], length: int, ours: tuple[int, tuple[int, int]]
) -> Iterator[tuple[bytes, pa.Table, NDArray[np.bool_], bool]]:
    """Yield runs of session fragments: name, table, which rows count, whether others may have more.

    A run lies beside its marks, which say what was taken out of it; the last byte of a name as its
    owner wrote it is 0 for a run.

    Args:
        entries: runs and marks, by name.
        length: of a name as the owner wrote it.
        ours: max parallelism and key groups of the subtask.
    """
    runs: list[tuple[bytes, bytes]] = []
    marks: dict[tuple[bytes, bytes], list[bytes]] = {}
    for name, value in entries:
        if name[length - 1]:
            marks.setdefault(_run_of(name, length), []).append(value)
        else:
            runs.append((name, value))
    for name, value in runs:
        table, counts = decoded_chunk(name, length, value, ours)
        alive = np.ones(table.num_rows, dtype=np.bool_) if counts is None else counts
        for taken in marks.get(_run_of(name, length), []):
            alive &= ~_marked(taken, table.num_rows)
        yield name, table, alive, counts is not None


def key_groups_of_column(keys: pa.Array, max_parallelism: int) -> NDArray[np.int32]:
    """Return the key group of each row, from a key column."""
    if pa.types.is_binary(keys.type):
        groups = [key_group_of_cache_key(key, max_parallelism) for key in keys.to_pylist()]
        return np.array(groups, dtype=np.int32)
    return key_groups_of_array(keys, max_parallelism)


def _run_of(name: bytes, length: int) -> tuple[bytes, bytes]:
    """Which run an entry is, or is the marks of: marks lie beside their run, their last byte aside.

    Runs of one name may come of several subtasks: what each change of parallelism added to the name
    tells them apart.

    Args:
        name: of the entry.
        length: of the name as the owner wrote it; its last byte tells marks from a run.
    """
    return name[: length - 1], name[length:]


def marks_of(taken: NDArray[np.bool_]) -> bytes:
    """Return the entry that says which rows of a chunk were taken out since it was written."""
    return zlib.compress(np.packbits(taken).tobytes(), 1)


def _marked(stored: bytes, count: int) -> NDArray[np.bool_]:
    """Return which of ``count`` rows of a chunk were taken out."""
    bits = np.frombuffer(zlib.decompress(stored), dtype=np.uint8)
    return np.unpackbits(bits, count=count).astype(np.bool_)
