"""Columnar chunks of state: Arrow tables of partial aggregates that mix key groups.

What it is: how one chunk is written and read.  Its schema names the key groups of its writer, so
that after a change of parallelism each subtask takes its own rows only.

What it is not: what the chunks are of (``runtime/operators/windows/chunks.py``,
``runtime/operators/windows/session_state.py``).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.state.key_groups import key_group_of_cache_key, key_groups_of_array
from millstream.state.rescale import chunk_key_groups

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "KEY",
    "decoded_chunk",
    "encoded_chunk",
    "key_groups_of_column",
    "marked",
    "marks_of",
    "run_of",
]

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
        length: of the name as the owner wrote it; each change of parallelism added to it.
        stored: the entry.
        ours: max parallelism and key groups of the subtask.
    """
    table = pa.ipc.open_stream(stored).read_all()
    groups, first, stop = map(int, table.schema.metadata[_GROUPS].split(b":"))
    table = table.replace_schema_metadata(None)
    max_parallelism, key_groups = ours
    if (groups, (first, stop)) == ours and len(name) == length:
        return table, None
    first, stop = chunk_key_groups(name, length, key_groups)
    found = key_groups_of_column(table.column(KEY).combine_chunks(), max_parallelism)
    return table, (found >= first) & (found < stop)


def key_groups_of_column(keys: pa.Array, max_parallelism: int) -> NDArray[np.int32]:
    """Return the key group of each row, from a key column."""
    if pa.types.is_binary(keys.type):
        groups = [key_group_of_cache_key(key, max_parallelism) for key in keys.to_pylist()]
        return np.array(groups, dtype=np.int32)
    return key_groups_of_array(keys, max_parallelism)


def run_of(name: bytes, length: int) -> tuple[bytes, bytes]:
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


def marked(stored: bytes, count: int) -> NDArray[np.bool_]:
    """Return which of ``count`` rows of a chunk were taken out."""
    bits = np.frombuffer(zlib.decompress(stored), dtype=np.uint8)
    return np.unpackbits(bits, count=count).astype(np.bool_)
